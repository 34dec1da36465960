"""Balanced encoders: any rank encodes any image, and its rows go to the LLM's ranks in one exchange."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from . import _c
from ._movement import Batch, Items
from .alignment import Span, spans_of
from .assignment import BalanceReport, balance, balance_report, image_cost
from .bridge import Bridge
from .communicator import Communicator, default_communicator
from .errors import ArgumentError, MismatchError, ShapeError, StateError, UnsupportedError
from .grid import Grid
from .partition import Partition

__all__ = ["Balanced"]

Step = tuple[Sequence[int], torch.Tensor | None]  # counts, ids
ROOM = 256  # numbers that a rank gathers at first


class _Image(NamedTuple):
    sample: int
    row: int  # of the sample's rows, and of its patches, where the image begins
    rows: int
    patch: int
    patches: int
    lane: int  # that has loaded it


class _Load(NamedTuple):
    """What a rank has loaded of one micro-batch."""

    samples: int
    seq: int
    counts: list[int]
    spans: list[Span]  # samples count within the rank's own


@dataclass
class _Move:
    """What one micro-batch moves, on this rank."""

    there: Batch
    back: Batch
    counts: list[int]  # patches of the images that this rank encodes
    seq: int
    report: BalanceReport


class Balanced(torch.nn.Module):
    """y = balanced(patches, counts, ids=ids): this rank's images become rows of this rank's LLM tile,
    whichever rank encodes them. Differentiable. Experimental.

    Images differ in size and number, and an encoder waits for its slowest rank. Here the ranks gather the
    sizes, deal the images out by cost (balance), move patches to the ranks that encode them, and move
    the rows on to the LLM's ranks in one exchange, under cp and sp. Collective, as is every call of it.

    encoder     called as encoder(patches, counts, cu_seqlens): patches [sum(counts), C] of the images that
                this rank encodes, their numbers, and i32 [len(counts) + 1] cumulative lengths on the
                device. Returns rows [sum(counts) / merge, H], or a tuple of such tensors. A rank without
                images calls it with one image of `merge` zero patches (`empty`), so that FSDP and DDP see
                every rank. It must not depend on which images come together
    src, dst    the grids of the encoder and of the LLM. Every rank is in src
    special     the token id that stands for one row of an image
    comm        None: the default communicator
    partition   as in Bridge
    merge       patches of a row: an image of p patches gives p / merge rows
    cost        hidden size of the encoder, for p * (p + 6 * hidden); or a function from patches to a whole
                number; None: p
    home        "dst": each LLM lane loads the images of its samples, on all its ranks of the first stage.
                "src": each encoder lane loads those of its even share
    empty       patches [n * merge, C] for a rank without images; None: `merge` zeros
    max_patches the most patches that a lane has memory for; 0: no limit
    slack_permille  of balance
    assign      another planner: called as assign(cost, lanes, rows=patches, home=lanes that have loaded them),
                it gives the lane of each image. The same on every rank, as it sees the same numbers
    dst_layout  "sbh" or "bsh"
    executor    of the moves: see Bridge
    name        of the bridges in sentences

    The moves are Bridges, of which it has two pairs that it uses in turn: the backward of a call may come
    after the next forward. More calls in flight are told at once, by plan().

    Errors, the same on every rank: GridError, ArgumentError, UnsupportedError.
    """

    def __init__(self, encoder: Callable[..., Any], src: Grid, dst: Grid, *, special: int,
                 comm: Communicator | None = None, partition: Partition | None = None, merge: int = 1,
                 cost: int | Callable[[int], int] | None = None, home: str = "dst",
                 empty: torch.Tensor | None = None, max_patches: int = 0, slack_permille: int = 10,
                 assign: Callable[..., list[int]] | None = None, dst_layout: str = "sbh",
                 executor: str = "auto", name: str = "balanced") -> None:
        super().__init__()
        self.encoder = encoder
        self.comm = comm or default_communicator()
        self._empty = empty
        self._most, self._slack, self._assign = max_patches, slack_permille, assign

        def check() -> None:
            self._special = _c.whole("Balanced: special", special)
            self._merge = _c.whole("Balanced: merge", merge, 1)
            self._cost = cost if callable(cost) or cost is None else _c.whole("Balanced: cost", cost, 1)
            _c.side("Balanced: home", home)
            if any(rank not in src for rank in range(self.comm.size)):
                raise UnsupportedError(f"Balanced: every rank encodes, and the encoder's grid {src} has "
                                       f"{src.size} of {self.comm.size} ranks")

        self.comm._together("Balanced", check)
        self.src, self.dst = src, dst
        self._home = dst if home == "dst" else src
        self._pairs = [
            (Bridge(self._home, src, comm=self.comm, layout="th", executor=executor,
                    name=f"{name}: patches"),
             Bridge(src, dst, comm=self.comm, partition=partition, layout="th", dst_layout=dst_layout,
                    executor=executor, name=f"{name}: rows"))
            for _ in range(2)]
        self._turn = 0
        self._moves: list[_Move] = []
        self._patch_gradients = False
        self._last: BalanceReport | None = None
        self._room = ROOM

    # Calls.

    def forward(self, patches: torch.Tensor, counts: Sequence[int] | None = None, *,
                ids: torch.Tensor | None = None, into: torch.Tensor | None = None,
                micro_batch: int | None = None) -> Any:
        """The rows of images in this rank's LLM tile, [S / cuts, b, H], 0 where no row stands.

        patches      [sum(counts), C], the images that this rank has loaded, in the order of their samples,
                     in a sample in the order of its special ids. Equal on the ranks of one lane. Where a
                     rank's patches need gradients, plan() must know, or all ranks' do
        counts       patches of each image; a rank that has loaded none passes patches[:0] and []
        ids          [b, S] of this rank's samples, whole sequences: an image of p patches takes the next
                     p / merge of a sample's special ids. None: no samples
        into         this rank's text tile: a copy of it with the rows in their places, as Bridge.place
        micro_batch  of the last plan(), in place of counts and ids

        A tuple of the encoder gives a list of results. Errors, on every rank: ShapeError (images and
        special ids do not fit, with lane and sample), MismatchError (ranks of one lane have loaded other
        images), and those of Bridge.
        """
        if micro_batch is None:
            self.plan([(() if counts is None else counts, ids)], patch_gradients=patches.requires_grad)
        there, back = self._pairs[self._turn]
        move = self._select(micro_batch or 0)
        here = there._movement.guarded(self._checked, patches, counts, micro_batch)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._patch_gradients):
            here = there(here)
        rows = back._movement.guarded(self._encode, here, move.counts)
        if into is not None:
            return back.place(into, rows)
        return back(rows, seq=move.seq)

    def plan(self, steps: Sequence[Step], *, patch_gradients: bool = False) -> None:
        """Tell several micro-batches at once: (counts, ids) of each, as in a call. One gather and one
        update serve all. Calls then choose by micro_batch=. Collective, blocking the host.

        patch_gradients  whether a rank's patches need gradients; then backward moves them home on all

        Errors, on every rank: as those of a call. Then the last plan stays in force.
        """
        loads = self.comm._together("Balanced plan", lambda: self._load_all(steps))
        gathered = self._gather([int(patch_gradients), len(loads), *_numbers_of(loads)])
        if len({numbers[1] for numbers in gathered}) > 1:
            raise MismatchError(f"Balanced plan: ranks tell {sorted({n[1] for n in gathered})} micro-batches")
        of_ranks = [_loads_of(numbers[2:], len(loads)) for numbers in gathered]
        moves = [self._plan(i, [rank[i] for rank in of_ranks]) for i in range(len(loads))]
        turn = (self._turn + 1) % len(self._pairs)
        for bridge, batches in zip(self._pairs[turn], zip(*((move.there, move.back) for move in moves))):
            bridge.update(*batches)
        self._turn, self._moves = turn, moves
        self._patch_gradients = any(numbers[0] for numbers in gathered)

    def report(self) -> BalanceReport:
        """What balancing was worth in the last call: the cost of the longest lane, of the longest one had
        all images stayed at home, and the patches that moved. Local. StateError before the first call."""
        if self._last is None:
            raise StateError("Balanced: there was no call yet")
        return self._last

    def close(self) -> None:
        """Release the bridges. Collective."""
        for pair in self._pairs:
            for bridge in pair:
                bridge.close()

    # Their parts.

    def _select(self, micro_batch: int) -> _Move:
        for bridge in self._pairs[self._turn]:
            bridge.select(micro_batch)
        move = self._moves[micro_batch]
        self._last = move.report
        return move

    def _checked(self, patches: torch.Tensor, counts: Any, micro_batch: int | None) -> torch.Tensor:
        if micro_batch is not None and counts is not None:
            raise ArgumentError("Balanced: counts, or a micro-batch that plan() knows")
        if torch.is_grad_enabled() and patches.requires_grad and not self._patch_gradients:
            raise ArgumentError("Balanced: patches need gradients: plan(..., patch_gradients=True)")
        return patches

    def _encode(self, patches: torch.Tensor, counts: list[int]) -> Any:
        """Rows of the images here. Without images those of another one, of which none is kept: so backward
        goes through the encoder on every rank, with zeros."""
        if counts:
            return self.encoder(patches, counts, self._cumulative(counts))
        image = self._empty
        if image is None:
            image = patches.new_zeros(self._merge, *patches.shape[1:])
        rows = self.encoder(image, [len(image)], self._cumulative([len(image)]))
        return rows[:0] if isinstance(rows, torch.Tensor) else [one[:0] for one in rows]

    def _cumulative(self, counts: list[int]) -> torch.Tensor:
        total = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return total.to(self.comm.device, non_blocking=True)

    def _load_all(self, steps: Sequence[Step]) -> list[_Load]:
        if not steps:
            raise ArgumentError("Balanced plan: no micro-batch")
        return [self._load(*step) for step in steps]

    def _load(self, counts: Sequence[int], ids: torch.Tensor | None) -> _Load:
        counts = [_c.whole("Balanced: a count", count, 1, 2**31 - 1) for count in counts]
        for i, count in enumerate(counts):
            if count % self._merge:
                raise ShapeError(f"Balanced: image {i} of this rank has {count} patches, no multiple of "
                                 f"merge={self._merge}")
        if ids is None:
            return _Load(0, 0, counts, [])
        spans = spans_of(ids, self._special)
        return _Load(ids.shape[0], ids.shape[1], counts, spans)

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        """The numbers of all ranks. All gather equally many; where a rank has more, all gather again."""
        needs = len(numbers) + 1
        while True:
            sent = (ctypes.c_int64 * self._room)(needs, *(numbers if needs <= self._room else ()))
            found = (ctypes.c_int64 * (self._room * self.comm.size))()
            with self.comm._turn() as handle:
                _c.lib.mimo_comm_host_allgather(handle, found, sent, ctypes.sizeof(sent))
            most = max(found[::self._room])
            if most <= self._room:
                return [found[at + 1:at + found[at]] for at in range(0, len(found), self._room)]
            while self._room < most:
                self._room *= 2

    # From here on all is pure: every rank comes to the same result, or to the same error.

    def _plan(self, index: int, loads: list[_Load]) -> _Move:
        lanes = self._lanes(loads)
        samples = sum(lane.samples for lane in lanes)
        seq = max((lane.seq for lane in lanes), default=0)
        images: list[_Image] = []
        spans: list[Span] = []
        for d, lane in enumerate(lanes):
            first = sum(before.samples for before in lanes[:d])
            share = samples // len(lanes) + int(d < samples % len(lanes))
            if lane.samples != share or (lane.samples and lane.seq != seq):
                raise ShapeError(f"Balanced: lane {d} has ids of {lane.samples} samples and {lane.seq} positions, "
                                 f"and of {samples} samples it takes {share} of {seq} positions")
            spans += [span._replace(sample=span.sample + first) for span in lane.spans]
            images += _images_of(d, first, lane, self._merge)
        return self._move(images, spans, samples, seq)

    def _move(self, images: list[_Image], spans: list[Span], samples: int, seq: int) -> _Move:
        patches = [image.patches for image in images]
        cost = self._costs(patches)
        home = self._homes(images, cost)
        count = self.src.dim("dp")
        if self._assign is not None:
            lane = self._assign(cost, count, rows=patches, home=home)
        else:
            lane = balance(cost, count, rows=patches, home=home, max_rows=self._most,
                           slack_permille=self._slack)
        of_lane: list[list[_Image]] = [[] for _ in range(count)]
        for image, taken in zip(images, lane):
            of_lane[taken].append(image)
        of_home = [[image for image in images if image.lane == d] for d in range(self._home.dim("dp"))]
        here, loaded = of_lane[self._lane_of(self.src)], self._lane_of(self._home)
        rows = (sum(image.patches for image in of_home[loaded]) if self._loads(self.comm.rank) else 0,
                sum(image.patches for image in here))
        there = Items([[image[0:1] + image[3:5] for image in home] for home in of_home],
                      [[image[0:1] + image[3:5] for image in lane] for lane in of_lane])
        back = Items([[image[:3] for image in lane] for lane in of_lane])
        report = balance_report(lane, cost, count, rows=patches, home=home,
                                max_rows=self._most)
        return _Move(Batch(samples, rows=rows, items=there), Batch(samples, spans=spans, items=back),
                     [image.patches for image in here], seq, report)

    def _costs(self, patches: list[int]) -> list[int]:
        if self._cost is None:
            return patches
        return [self._cost(p) for p in patches] if callable(self._cost) else image_cost(patches, self._cost)

    def _homes(self, images: list[_Image], cost: list[int]) -> list[int]:
        """The encoder lane that has each image. Several have those of an LLM lane with many ranks: there
        they are dealt first."""
        homes = [-1] * len(images)
        for d in range(self._home.dim("dp")):
            near = self._near(d)
            mine = [i for i, image in enumerate(images) if image.lane == d]
            if near:
                for i, lane in zip(mine, balance([cost[i] for i in mine], len(near))):
                    homes[i] = near[lane]
        return homes

    def _near(self, d: int) -> list[int]:
        """The encoder lanes whose ranks have all loaded what lane d has; without one, those of which a rank
        has."""
        ranks: dict[int, list[bool]] = {}
        for rank in range(self.comm.size):
            loads = self._loads(rank) and self._home.coords(rank).get("dp", 0) == d
            ranks.setdefault(self.src.coords(rank).get("dp", 0), []).append(loads)
        whole = [lane for lane, loads in ranks.items() if all(loads)]
        return sorted(whole or [lane for lane, loads in ranks.items() if any(loads)])

    def _loads(self, rank: int) -> bool:
        return rank in self._home and self._home.coords(rank).get("pp", 0) == 0

    def _lane_of(self, grid: Grid) -> int:
        return grid.coords(self.comm.rank).get("dp", 0) if self.comm.rank in grid else 0

    def _lanes(self, loads: list[_Load]) -> list[_Load]:
        """What each home lane has loaded: the same on all its ranks. Others load nothing."""
        lanes: list[_Load | None] = [None] * self._home.dim("dp")
        first = [0] * len(lanes)
        for rank, load in enumerate(loads):
            if not self._loads(rank):
                if load.counts or load.samples:
                    raise ShapeError(f"Balanced: rank {rank} has loaded {len(load.counts)} images of {load.samples} "
                                     f"samples, and has no lane of {self._home}")
                continue
            d = self._home.coords(rank).get("dp", 0)
            known = lanes[d]
            if known is None:
                lanes[d], first[d] = load, rank
            elif known != load:
                raise MismatchError(f"Balanced: ranks {first[d]} and {rank} of lane {d} have loaded other images: "
                                    f"{_words(known)}, and {_words(load)}")
        return [lane for lane in lanes if lane is not None]


def _words(load: _Load) -> str:
    rows = sum(span.length for span in load.spans)
    return f"{len(load.counts)} of {sum(load.counts)} patches with {rows} special ids in {load.samples} samples"


def _numbers_of(loads: list[_Load]) -> list[int]:
    numbers: list[int] = []
    for load in loads:
        numbers += [load.samples, load.seq, len(load.counts), len(load.spans), *load.counts]
        for span in load.spans:
            numbers += span
    return numbers


def _loads_of(numbers: list[int], steps: int) -> list[_Load]:
    loads, at = [], 0
    for _ in range(steps):
        samples, seq, images, spans = numbers[at:at + 4]
        at += 4
        end = at + images
        loads.append(_Load(samples, seq, numbers[at:end],
                           [Span(*numbers[i:i + 4]) for i in range(end, end + 4 * spans, 4)]))
        at = end + 4 * spans
    return loads


def _images_of(d: int, first: int, lane: _Load, merge: int) -> list[_Image]:
    """Each image of a lane with its sample: it takes the sample's next special ids."""
    needed = [0] * lane.samples
    for span in lane.spans:
        needed[span.sample] += span.length
    images: list[_Image] = []
    left = iter(lane.counts)
    for sample, rows in enumerate(needed):
        row = patch = 0
        while row < rows:
            patches = next(left, 0)
            if patches == 0 or row + patches // merge > rows:
                raise ShapeError(f"Balanced: sample {sample + first} of lane {d}: {rows} special ids, its images "
                                 f"have {row + patches // merge} rows")
            images.append(_Image(sample + first, row, patches // merge, patch, patches, d))
            row, patch = row + patches // merge, patch + patches
    more = list(left)
    if more:
        raise ShapeError(f"Balanced: lane {d} has {len(more)} images more than its special ids take")
    return images
