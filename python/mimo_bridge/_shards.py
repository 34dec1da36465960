"""Each shard of the LLM's sequences as a lane of its own: which rows of images it has, in the order of its positions.
Pure: every rank comes to the same result."""
from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from . import _c
from ._loaded import Images
from .errors import GridError
from .grid import Grid
from .partition import Partition

__all__ = ["Runs", "Shards", "runs_of"]

Runs = list[tuple[int, int]]  # [first, end) positions of a shard, in the order of its tile


class Shards:
    """`grid` is the LLM's, with all dimensions that cut joined in its dp. GridError where they are not neighbours."""

    def __init__(self, dst: Grid, partition: Partition | None) -> None:
        self._dst, self._partition = dst, partition
        self.grid = dst if partition is None else _joined_cuts(dst, ["cp", "dp", "tp"][:2 + partition.sp])
        self._rank_of: list[int] = [0] * self.grid.dim("dp")  # a rank of each lane
        for rank in range(dst.offset + dst.size - 1, dst.offset - 1, -1):
            self._rank_of[self.lane(rank)] = rank
        self._runs: dict[tuple[int, ...], list[Runs]] = {}  # by the lengths of sequences that are cut one by one

    def lane(self, rank: int) -> int:
        return self.grid.coords(rank).get("dp", 0)

    def items(self, images: Images) -> tuple[Any, Any, list[int]]:
        """The rows of each lane: items, where those of each lane begin, and how many rows it has. ShapeError where the
        sequences can't be cut."""
        listed: list[tuple[int, int, int]] = []
        first, rows = [0], []
        samples, lanes = images.samples, self._dst.dim("dp")
        before = _Before(images)
        runs = self._runs_of_samples(images)
        for i, rank in enumerate(self._rank_of):
            begin, d = len(listed), self._dst.coords(rank).get("dp", 0)
            for sample in range(*(n * (samples // lanes) + min(n, samples % lanes) for n in (d, d + 1))):
                for start, end in runs[sample][i]:
                    row = before(sample, start)
                    count = before(sample, end) - row
                    if count:
                        listed.append((sample, row, count))
            first.append(len(listed))
            rows.append(sum(count for _, _, count in listed[begin:]))
        items = (_c.mimo_item * max(len(listed), 1))(*(_c.mimo_item(*one) for one in listed))
        return items, (ctypes.c_int64 * len(first))(*first), rows

    def _runs_of_samples(self, images: Images) -> list[list[Runs]]:
        """Of each sample, those of each lane."""
        packs = images.packs if images.packs and self._partition else [[0, images.seq]] * images.samples
        before, self._runs = self._runs, {}  # the lengths of one batch are kept for the next
        for cu in map(tuple, packs):
            if cu not in self._runs:
                self._runs[cu] = before.get(cu) or self._runs_of(cu)
        return [self._runs[tuple(cu)] for cu in packs]

    def _runs_of(self, cu: tuple[int, ...]) -> list[Runs]:
        if self._partition is None:
            return [[(0, cu[-1])]] * len(self._rank_of)
        rule = replace(self._partition, cu=cu) if len(cu) > 2 else self._partition
        known: dict[tuple[int, int], Runs] = {}  # by the coordinates that cut a sequence
        found = []
        for rank in self._rank_of:
            place = self._dst.coords(rank)
            key = place.get("cp", 0), place.get("tp", 0)
            if key not in known:
                known[key] = runs_of(rule.at(self._dst, rank).index(cu[-1]))
            found.append(known[key])
        return found


class _Before:
    """How many rows of a sample stand at positions before one."""

    def __init__(self, images: Images) -> None:
        self._spans: list[tuple[list[int], list[int]]] = [([], []) for _ in range(images.samples)]  # positions, lengths
        for span in images.spans[:images.span_count]:
            positions, lengths = self._spans[span.sample]
            positions.append(span.position)
            lengths.append(span.length)
        self._rows = [[0, *accumulate(lengths)] for _, lengths in self._spans]

    def __call__(self, sample: int, position: int) -> int:
        positions, lengths = self._spans[sample]
        i = bisect_right(positions, position) - 1
        if i < 0:
            return 0
        return self._rows[sample][i] + min(position - positions[i], lengths[i])


def runs_of(index: torch.Tensor) -> Runs:
    """The runs of consecutive positions of an index (LocalPartition.index)."""
    breaks = ((index[1:] != index[:-1] + 1).nonzero().flatten() + 1).tolist()
    ends = [*breaks, len(index)] if len(index) else []
    return [(int(index[a]), int(index[b - 1]) + 1) for a, b in zip([0, *breaks], ends)]


def _joined_cuts(dst: Grid, names: list[str]) -> Grid:
    """dst with dimensions of these names as one dp."""
    texts = [text for text in str(dst).split(",") if not text.endswith("=1")]
    cuts = [i for i, text in enumerate(texts) if text.split("=")[0] in names]
    if cuts and cuts[-1] - cuts[0] >= len(cuts):
        between = ", ".join(texts[i] for i in range(cuts[0], cuts[-1]) if i not in cuts)
        raise GridError(f"Balanced: dst_layout th needs the dimensions that cut sequences and batch as neighbours, and "
                        f"{between} lies between those of {dst}")
    size = 1
    for i in cuts:
        size *= int(texts[i].split("=")[1])
    at = cuts[0] if cuts else len(texts)
    kept = [texts[i] for i in range(len(texts)) if i not in cuts]
    return Grid(",".join([*kept[:at], f"dp={size}", *kept[at:]]), dst.offset)
