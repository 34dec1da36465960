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
from .alignment import find_spans
from .errors import ArgumentError, MismatchError, ShapeError
from .grid import Grid

__all__ = ["Images", "Load", "Loaders", "find_images", "loads_of", "numbers_of"]

NUMBERS = 5  # of a load, before its lists


class Load(NamedTuple):
    """What a rank has loaded of one micro-batch, as it lies in what it told."""

    samples: int
    seq: int
    images: int
    spans: int
    width: int  # extras of an image
    told: Told
    at: int  # of the first number behind these: patches of images, extras of images, spans

    def patches(self) -> list[int]:
        return self.told.words[self.at:self.at + self.images].tolist()

    def extras(self) -> list[int]:
        first = self.at + self.images
        return self.told.words[first:first + self.images * self.width].tolist()

    def desc(self) -> _c.mimo_lane_images:
        spans = self.at + self.images * (1 + self.width)
        return _c.mimo_lane_images(self.samples, self.seq, self.told.address + 8 * self.at, self.images,
                                   self.told.address + 8 * spans, self.spans)

    def __str__(self) -> str:
        first = self.at + self.images * (1 + self.width)
        rows = sum(self.told.words[first + 3:first + 4 * self.spans:4])
        return (f"{self.images} of {sum(self.patches())} patches with {rows} special ids in {self.samples} "
                "samples")


def numbers_of(counts: Sequence[int] | torch.Tensor, ids: torch.Tensor | None, extras: Any,
               special: int) -> array.array[int]:
    """The numbers of a load. ArgumentError, SizeOverflowError, ShapeError."""
    counts = _c.numbers(ctypes.c_int64, "Balanced: a count", _listed(counts))[:len(counts)]
    width, listed = _flat_extras(extras, len(counts))
    spans, found = (b"", 0) if ids is None else find_spans(ids, special)
    samples, seq = (0, 0) if ids is None else ids.shape
    numbers = array.array("q", [samples, seq, len(counts), found, width, *counts, *listed])
    numbers.frombytes(memoryview(spans).cast("B")[:ctypes.sizeof(_c.mimo_span) * found])
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
        samples, seq, images, spans, width = told.words[at:at + NUMBERS]
        load = Load(samples, seq, images, spans, width, told, at + NUMBERS)
        loads.append(load)
        at = load.at + load.images * (1 + load.width) + 4 * load.spans
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
    count = a.images * (1 + a.width) + 4 * a.spans
    return a.told.words[a.at:a.at + count] == b.told.words[b.at:b.at + count]


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
                  (ctypes.c_int64 * len(first))(*first), rows, inputs, places, spans)
