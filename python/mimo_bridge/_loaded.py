"""What ranks have loaded: as they tell each other, and as images with their places in samples. No exchange here:
what follows from equal numbers is equal on all ranks."""
from __future__ import annotations

import array
import ctypes
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import torch

from . import _c
from ._gathering import Told
from .alignment import find_spans, spans_of_packs
from .errors import ArgumentError, MismatchError, ShapeError
from .grid import Grid

__all__ = ["Images", "Load", "Loaders", "find_images", "loads_of", "numbers_of"]

NUMBERS = 6  # of a load, before its lists

Packs = Sequence[Sequence[int]]  # of each sample: cumulative lengths of its sequences


class Load(NamedTuple):
    """What a rank has loaded of one micro-batch, as it lies in what it told."""

    samples: int
    seq: int
    images: int
    spans: int
    width: int  # extras of an image
    packed: int  # numbers of its packs; 0: each sample is one sequence
    told: Told
    at: int  # of the first number behind these: patches of images, extras of images, spans, packs

    def patches(self) -> list[int]:
        return self.told.words[self.at:self.at + self.images].tolist()

    def extras(self) -> list[int]:
        first = self.at + self.images
        return self.told.words[first:first + self.images * self.width].tolist()

    def packs(self) -> list[list[int]]:
        """Cumulative lengths of each sample."""
        if self.packed == 0:
            return [[0, self.seq]] * self.samples
        at, packs = self._spans + 4 * self.spans, []
        for _ in range(self.samples):
            count = self.told.words[at]
            packs.append(self.told.words[at + 1:at + 1 + count].tolist())
            at += 1 + count
        return packs

    def desc(self) -> _c.mimo_lane_images:
        return _c.mimo_lane_images(self.samples, self.seq, self.told.address + 8 * self.at, self.images,
                                   self.told.address + 8 * self._spans, self.spans)

    @property
    def _spans(self) -> int:
        return self.at + self.images * (1 + self.width)

    @property
    def end(self) -> int:
        return self._spans + 4 * self.spans + self.packed

    def __str__(self) -> str:
        first = self._spans
        rows = sum(self.told.words[first + 3:first + 4 * self.spans:4])
        return (f"{self.images} of {sum(self.patches())} patches with {rows} special ids in {self.samples} "
                "samples")


def numbers_of(counts: Sequence[int] | torch.Tensor, ids: torch.Tensor | None, extras: Any, packs: Packs | None,
               special: int) -> array.array[int]:
    """The numbers of a load. ArgumentError, SizeOverflowError, ShapeError."""
    counts = _c.numbers(ctypes.c_int64, "Balanced: a count", _listed(counts))[:len(counts)]
    width, listed = _flat_extras(extras, len(counts))
    spans, found = (b"", 0) if ids is None else find_spans(ids, special)
    samples, seq = (0, 0) if ids is None else ids.shape
    packed = _flat_packs(packs, samples, seq)
    numbers = array.array("q", [samples, seq, len(counts), found, width, len(packed), *counts, *listed])
    numbers.frombytes(memoryview(spans).cast("B")[:ctypes.sizeof(_c.mimo_span) * found])
    numbers.extend(packed)
    return numbers


def _flat_packs(packs: Packs | None, samples: int, seq: int) -> list[int]:
    """Each sample's lengths, behind their number. ShapeError, ArgumentError, SizeOverflowError."""
    if packs is None:
        return []
    if len(packs) != samples:
        raise ShapeError(f"Balanced: {len(packs)} packs, for {samples} samples")
    numbers: list[int] = []
    for b, lengths in enumerate(packs):
        cu = _c.numbers(ctypes.c_int32, "Balanced: a length of packs", _listed(lengths))[:len(lengths)]
        if not cu or cu[0] != 0 or cu[-1] != seq:
            raise ShapeError(f"Balanced: the pack of sample {b} has cumulative lengths {cu[0] if cu else None} to "
                             f"{cu[-1] if cu else None}, and its ids have positions 0 to {seq}: pad the last sequence")
        numbers += [len(cu), *cu]
    return numbers


def _listed(values: Iterable[Any] | torch.Tensor) -> Iterable[Any]:
    return values.tolist() if isinstance(values, torch.Tensor) else values


def _flat_extras(extras: Any, images: int) -> tuple[int, list[int]]:
    """How many each image has, and all of them. ShapeError, ArgumentError, SizeOverflowError."""
    if extras is None:
        return 0, []
    rows = [list(row) for row in _listed(extras)]
    widths = {len(row) for row in rows}
    if len(rows) != images or len(widths) > 1:
        raise ShapeError(f"Balanced: extras of {len(rows)} images, for {images}; each has "
                         f"{' or '.join(map(str, sorted(widths)))} numbers")
    numbers = _c.numbers(ctypes.c_int64, "Balanced: a number of extras", chain.from_iterable(rows))
    width = widths.pop() if widths else 0
    return width, numbers[:width * images]


def loads_of(told: Told, at: int, steps: int) -> list[Load]:
    """What a rank told of each micro-batch, from words[at] on."""
    loads = []
    for _ in range(steps):
        samples, seq, images, spans, width, packed = told.words[at:at + NUMBERS]
        load = Load(samples, seq, images, spans, width, packed, told, at + NUMBERS)
        loads.append(load)
        at = load.end
    return loads


class Loaders:
    """Which ranks load what the lanes (dp coordinates) of a grid have: those of its first stage."""

    def __init__(self, grid: Grid, ranks: int) -> None:
        self.grid = grid
        self.lane_of: list[int | None] = [None] * ranks
        self.of_lane: list[list[int]] = [[] for _ in range(grid.dim("dp"))]
        for rank in range(ranks):
            place = grid.coords(rank) if rank in grid else None
            if place is not None and place.get("pp", 0) == 0:
                self.lane_of[rank] = place.get("dp", 0)
                self.of_lane[place.get("dp", 0)].append(rank)

    def lanes(self, loads: Sequence[Load]) -> list[Load]:
        """What each lane has loaded: the same on all its ranks. Others load nothing. ShapeError, MismatchError."""
        for rank, load in enumerate(loads):
            lane = self.lane_of[rank]
            if lane is None and (load.images or load.samples):
                raise ShapeError(f"Balanced: rank {rank} has loaded {load.images} images of {load.samples} "
                                 f"samples, and has no lane of {self.grid}")
            first = rank if lane is None else self.of_lane[lane][0]
            if rank != first and not _same(load, loads[first]):
                raise MismatchError(f"Balanced: ranks {first} and {rank} of lane {lane} have loaded other images: "
                                    f"{loads[first]}, and {load}")
        return [loads[ranks[0]] for ranks in self.of_lane]


def _same(a: Load, b: Load) -> bool:
    if a[:NUMBERS] != b[:NUMBERS]:
        return False
    return a.told.words[a.at:a.end] == b.told.words[b.at:b.end]


class Images(NamedTuple):
    """The images of all lanes, lane after lane."""

    samples: int
    seq: int
    patches: list[int]  # of each image
    width: int
    extras: list[int]
    first: Any  # c_int64[lanes + 1]: the first image of each lane
    rows: Any  # mimo_item[]: the rows of each image in its sample,
    inputs: Any  # and its patches
    spans: Any  # mimo_span[]
    span_count: int
    packs: list[list[int]] | None  # of each sample; None: nothing is packed

    def placed(self, cp: int) -> tuple[Any, int]:
        """Spans for a partition that cuts each sample as a whole over cp ranks. ShapeError."""
        if self.packs is None or cp == 1:
            return self.spans, self.span_count
        try:
            return spans_of_packs(self.spans, self.span_count, self.packs, cp)
        except ShapeError as error:
            raise ShapeError(f"Balanced: {error}") from None


def find_images(lanes: Sequence[Load], merge: int, any_runs: bool) -> Images:
    """The images that lanes have loaded. ShapeError, MismatchError."""
    widths = {lane.width for lane in lanes if lane.images}
    if len(widths) > 1:
        raise MismatchError(f"Balanced: some lanes have {' and some '.join(map(str, sorted(widths)))} extras of an "
                            "image")
    first = [0, *accumulate(lane.images for lane in lanes)]
    spans = sum(lane.spans for lane in lanes)
    of_images, of_spans = _c.mimo_item * max(first[-1], 1), _c.mimo_span * max(spans, 1)
    rows, inputs, places = of_images(), of_images(), of_spans()
    descs = (_c.mimo_lane_images * len(lanes))(*(lane.desc() for lane in lanes))
    try:
        _c.lib.mimo_images_find(ctypes.byref(_c.mimo_image_lists(rows, inputs, places)), descs, len(lanes), merge,
                                   any_runs)
    except (ShapeError, ArgumentError) as error:
        raise type(error)(f"Balanced: {error}") from None
    return Images(sum(lane.samples for lane in lanes), max(lane.seq for lane in lanes),
                  list(chain.from_iterable(lane.patches() for lane in lanes)), max(widths, default=0),
                  list(chain.from_iterable(lane.extras() for lane in lanes)),
                  (ctypes.c_int64 * len(first))(*first), rows, inputs, places, spans,
                  [cu for lane in lanes for cu in lane.packs()] if any(lane.packed for lane in lanes) else None)
