"""A model of a bridge that is independent of the library: it slices a global tensor.

Coordinates, zigzag and sums are written out from docs/concepts.md, in plain Python.
"""
from __future__ import annotations

import random

import torch


def coords(spec, offset, rank):
    """{name: coordinate} of a rank, or None outside of the grid."""
    rank -= offset
    found, left = {"tp": 0, "cp": 0, "pp": 0, "dp": 0}, rank
    for name, size in parse(spec):
        found[name], left = left % size, left // size
    return found if rank >= 0 and left == 0 else None


def parse(spec):
    return [(part.split("=")[0], int(part.split("=")[1])) for part in spec.split(",")]


def size_of(spec, name):
    return dict(parse(spec)).get(name, 1)


def even(whole, parts, index):
    """The range of `index` where the first ones take one more."""
    small, more = divmod(whole, parts)
    first = index * small + min(index, more)
    return range(first, first + small + (index < more))


def zigzag(seq, cp, index):
    if cp == 1:
        return list(range(seq))
    length = seq // (2 * cp)
    later = 2 * cp - 1 - index
    return [*range(index * length, (index + 1) * length), *range(later * length, (later + 1) * length)]


class Side:
    """One side of a bridge: which samples and positions a rank has, and how they lie."""

    def __init__(self, spec, offset, letters, cuts=False, sp=False, all_stages=False):
        self.spec, self.offset, self.letters = spec, offset, letters
        self.cuts, self.sp, self.all_stages = cuts, sp, all_stages

    def holds(self, rank):
        place = coords(self.spec, self.offset, rank)
        return place is not None and (self.all_stages or place["pp"] == 0)

    def samples(self, rank, batch):
        if not self.holds(rank):
            return []
        return list(even(batch, size_of(self.spec, "dp"), coords(self.spec, self.offset, rank)["dp"]))

    def positions(self, rank, seq):
        place = coords(self.spec, self.offset, rank) or dict.fromkeys(("tp", "cp"), 0)
        if not self.cuts:
            return list(range(seq))
        kept = zigzag(seq, size_of(self.spec, "cp"), place["cp"])
        if self.sp:
            tp = size_of(self.spec, "tp")
            kept = kept[len(kept) // tp * place["tp"]:][:len(kept) // tp]
        return kept

    def tile(self, rank, whole):
        """This rank's tile of a global tensor [B, S, H]."""
        rows = whole[self.samples(rank, whole.shape[0])][:, self.positions(rank, whole.shape[1])]
        if self.letters == "sbh":
            return rows.transpose(0, 1).contiguous()
        return rows.contiguous() if self.letters == "bsh" else rows.reshape(-1, whole.shape[2])

    def add_back(self, rank, tile, whole):
        """Add a tile's rows to a global tensor [B, S, H]."""
        samples, positions = self.samples(rank, whole.shape[0]), self.positions(rank, whole.shape[1])
        rows = tile.transpose(0, 1) if self.letters == "sbh" else tile
        rows = rows.reshape(len(samples), len(positions), whole.shape[2])
        for i, sample in enumerate(samples):
            whole[sample, positions] += rows[i]

    def part(self, rank):
        """Ranks with equal parts bring the same contribution: tp copies, except under sp."""
        place = coords(self.spec, self.offset, rank)
        names = ["dp", "cp", "pp"] + (["tp"] if self.sp else [])
        return tuple(place[name] for name in names)


def global_rows(batch, seq, hidden, dtype, seed=0):
    """Whole numbers that are exact in bf16, each from its index, so that permuted rows show."""
    index = torch.arange(batch * seq * hidden, dtype=torch.int64) + seed * 7919
    mixed = (index * 2654435761 + 12345) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 13)) * 2246822519 & 0xFFFFFFFF
    return ((mixed >> 11) % 255 - 127).to(dtype).reshape(batch, seq, hidden)


def gradient_of(dst, ranks, rank, shape, dtype):
    """(the gradient of this rank's tile, the sum of all ranks' over the global tensor)."""
    whole, mine, seen = torch.zeros(shape, dtype=torch.float64), None, set()
    for r in range(ranks):
        if not dst.holds(r):
            continue
        part = dst.part(r)
        seed = 1 + (part[1] if not dst.cuts else 0) * 5 + part[2] * 11
        tile = dst.tile(r, global_rows(*shape, torch.float64, seed) % 8)
        if part not in seen:  # tp copies bring the same gradient, and count once
            seen.add(part)
            dst.add_back(r, tile, whole)
        if r == rank:
            mine = tile.to(dtype)
    return mine, whole.to(dtype)


def random_grid(dice, ranks):
    """(spec, offset) of a grid within `ranks`, with its dimensions in any order."""
    size = dice.choice([ranks, ranks, ranks, max(1, ranks // 2)])
    offset = dice.choice([0, ranks - size])
    names = ["tp", "cp", "pp", "dp"]
    dice.shuffle(names)
    left, dims = size, {}
    for name in names[:-1]:
        dims[name] = dice.choice([n for n in (1, 2, 4, 8) if left % n == 0])
        left //= dims[name]
    dims[names[-1]] = left
    return ",".join(f"{name}={dims[name]}" for name in names), offset


def dice(seed):
    return random.Random(seed)
