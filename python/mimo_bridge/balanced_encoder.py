"""Balanced encoders: any rank encodes any image, and its rows go to the LLM's ranks in one exchange."""
from __future__ import annotations

import array
import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from . import _c, _views
from ._gathering import Gathering, Told
from ._loaded import Images, Load, Loaders, Packs, find_images, loads_of, numbers_of
from ._movement import Listed, update_all
from ._shards import Shards
from .assignment import BalanceReport, balance, balance_report, image_cost
from .bridge import Bridge
from .buffer import Buffer
from .communicator import Communicator, communicator_of
from .errors import ArgumentError, MismatchError, ShapeError, StateError, UnsupportedError
from .grid import Grid, check_grids
from .partition import Partition

__all__ = ["Balanced"]

Tensors = torch.Tensor | tuple[torch.Tensor, ...]
Step = tuple[Any, ...]  # counts, ids; extras; packs
ROOM = 256  # numbers that a rank tells at first
HEAD = 3  # numbers before those of loads: whether it failed, whether patches need gradients, micro-batches


@dataclass
class _Ahead:
    """A gather that has begun, and what this rank told."""

    gathering: Gathering
    numbers: array.array[int]
    steps: Sequence[Step]
    error: Exception | None  # why it could not tell


@dataclass
class _Move:
    """What one micro-batch moves, on this rank."""

    there: Listed
    back: Listed
    counts: list[int]  # patches of the images that this rank encodes
    extras: list[int]
    width: int
    samples: int  # of all lanes
    seq: int
    quiet: list[bool]  # lanes whose encoder is not called
    assignment: tuple[list[int], list[int], list[int], list[int]]  # lane, cost, patches, home of all images


@dataclass
class _InForce:
    """What calls go by. An object of its own: a module takes long to set an attribute."""

    turn: int  # which pair of bridges
    planned: bool  # by plan()
    moves: Sequence[_Move]
    patch_gradients: bool
    last: _Move | None = None  # of the last call


class Balanced(torch.nn.Module):
    """y = balanced(patches, counts, ids=ids): this rank's images become rows of this rank's LLM tile,
    whichever rank encodes them. Differentiable. Experimental.

    Images differ in size and number, and an encoder waits for its slowest rank. Here the ranks gather the
    sizes, deal the images out by cost (balance), move patches to the ranks that encode them, and move
    the rows on to the LLM's ranks in one exchange, under cp and sp. Collective, as is every call of it.

    encoder     called as encoder(patches, counts, cu_seqlens): patches [sum(counts), C] of the images that
                this rank encodes, their numbers, and i32 [len(counts) + 1] cumulative lengths on the
                device. Returns rows [sum(counts) / merge, H], or a tuple of such tensors. It must not
                depend on which images come together. Where calls give extras, it gets those of its images as
                a fourth argument, i64 [images, k] on the device
    src, dst    the grids of the encoder and of the LLM. A rank may be in one of them alone: outside of src its
                encoder is never called (None), outside of dst it has no samples
    special     the token id that stands for one row of an image
    comm        None: the default communicator
    partition   as in Bridge, without the lengths of packed sequences: calls give them
    merge       patches of a row: an image of p patches gives p / merge rows
    cost        hidden size of the encoder, for p * (p + 6 * hidden); or a function from patches to a whole
                number; None: p
    home        "dst": each LLM lane loads the images of its samples, on all its ranks of the first stage.
                "src": each encoder lane loads those of its even share
    empty       what a lane without images encodes, so that FSDP and DDP see every rank: patches of one image.
                None: `merge` zeros. "skip": its encoder is not called
    empty_extras  the extras of that image, where images have some
    max_patches the most patches that a lane has memory for; 0: no limit
    slack_permille  of balance
    assign      another planner: called as assign(cost, lanes, rows=patches, home=lanes that have loaded them),
                it gives the lane of each image. The same on every rank, as it sees the same numbers
    runs        "whole": an image lies in one run of special ids, in which others may lie beside it. "any": it may go
                on in the next run, as where ids stand between its rows
    dst_layout  "sbh" or "bsh". "th": a call gives the rows of this rank's shard alone, [rows, H], in the order of its
                special ids, sample after sample. Under a partition the dimensions of dst that cut (dp, cp; tp under sp)
                are neighbours then
    executor    of the moves: see Bridge
    buffer      where patches that come to encoders and rows that come to the LLM lie: two slots for each call
                between its forward and its backward. Peers then write straight into them
    grad_buffer where gradients of rows, and of patches, come to
    name        of the bridges in sentences

    The moves are Bridges, of which it has two pairs that it uses in turn: the backward of a call may come
    after the next forward. More calls in flight are told at once, by plan().

    Errors, the same on every rank: GridError, ArgumentError, UnsupportedError.
    """

    def __init__(self, encoder: Callable[..., Any] | None, src: Grid, dst: Grid, *, special: int,
                 comm: Communicator | None = None, partition: Partition | None = None, merge: int = 1,
                 cost: int | Callable[[int], int] | None = None, home: str = "dst",
                 empty: Tensors | Literal["skip"] | None = None, empty_extras: Sequence[int] | None = None,
                 max_patches: int = 0, slack_permille: int = 10,
                 assign: Callable[..., list[int]] | None = None, runs: Literal["whole", "any"] = "whole",
                 dst_layout: str = "sbh", executor: str = "auto", buffer: Buffer | None = None,
                 grad_buffer: Buffer | None = None, name: str = "balanced") -> None:
        super().__init__()
        self.encoder = encoder
        self.comm = communicator_of("Balanced", comm)
        self._empty, self._empty_extras = empty, empty_extras
        self._most, self._slack, self._assign = max_patches, slack_permille, assign

        def check() -> None:
            self._special = _c.whole("Balanced: special", special)
            self._merge = _c.whole("Balanced: merge", merge, 1)
            self._cost = cost if callable(cost) or cost is None else _c.whole("Balanced: cost", cost, 1)
            _c.side("Balanced: home", home)
            _c.text("Balanced: name", name)
            if dst_layout not in ("sbh", "bsh", "th"):
                raise ArgumentError(f"Balanced: dst_layout is sbh, bsh or th, not {dst_layout!r}")
            if isinstance(partition, Partition) and partition.cu is not None:
                raise UnsupportedError(f"Balanced: the partition packs {partition.packed_length} tokens (thd), and other "
                                       "batches pack others: give the lengths to each call, packs=")
            if runs not in ("whole", "any"):
                raise ArgumentError(f"Balanced: runs are whole or any, not {runs!r}")
            if isinstance(empty, str) and empty != "skip":
                raise ArgumentError(f'Balanced: empty is patches of an image or "skip", not {empty!r}')
            if encoder is None and self.comm.rank in src:
                raise ArgumentError(f"Balanced: rank {self.comm.rank} is in the encoder's grid {src}, and has none")
            check_grids("Balanced", src, dst)
            self._shards = Shards(dst, partition) if dst_layout == "th" else None

        self.comm._together("Balanced", check)
        self.src, self.dst = src, dst
        self._any_runs, self._title = runs == "any", f"Balanced '{name}'"
        home_grid = dst if home == "dst" else src
        way: dict[str, Any] = {"comm": self.comm, "layout": "th", "executor": executor, "buffer": buffer,
                               "grad_buffer": grad_buffer}
        reader, cut = (dst, partition) if self._shards is None else (self._shards.grid, None)
        self._pairs = [(Bridge(home_grid, src, name=f"{name}: patches", **way),
                        Bridge(src, reader, partition=cut, dst_layout=dst_layout, name=f"{name}: rows", **way))
                       for _ in range(2)]
        self._dst_layout, self._cut = dst_layout, 1 if partition is None else partition.cut(dst)
        self._cp = 1 if partition is None else partition.cut(dst, "labels")
        self._loaders, self._encoders = Loaders(home_grid, self.comm.size), Loaders(src, self.comm.size)
        self._loads, self._encodes = self._lane_of(self._loaders), self._lane_of(self._encoders)
        self._reads = None if self._shards is None else self._lane_of(Loaders(self._shards.grid, self.comm.size))
        self._near = [self._near_of(ranks) for ranks in self._loaders.of_lane]
        self._now = _InForce(0, False, (), False)
        self._ahead: deque[_Ahead] = deque()
        self._room = ROOM
        self._kinds: tuple[bool, list[tuple[int, torch.dtype]]] | None = None  # of _tell_kinds()

    # Calls.

    @overload
    def forward(self, patches: Tensors, counts: Sequence[int] | torch.Tensor | None = None, *,
                ids: torch.Tensor | None = None, extras: Any = None, packs: Packs | None = None, into: torch.Tensor,
                micro_batch: int | None = None) -> torch.Tensor: ...

    @overload
    def forward(self, patches: Tensors, counts: Sequence[int] | torch.Tensor | None = None, *,
                ids: torch.Tensor | None = None, extras: Any = None, packs: Packs | None = None,
                into: list[torch.Tensor] | tuple[torch.Tensor, ...],
                micro_batch: int | None = None) -> list[torch.Tensor]: ...

    @overload
    def forward(self, patches: Tensors, counts: Sequence[int] | torch.Tensor | None = None, *,
                ids: torch.Tensor | None = None, extras: Any = None, packs: Packs | None = None, into: None = None,
                micro_batch: int | None = None) -> torch.Tensor | list[torch.Tensor]: ...

    def forward(self, patches: Tensors, counts: Sequence[int] | torch.Tensor | None = None, *,
                ids: torch.Tensor | None = None, extras: Any = None, packs: Packs | None = None, into: Any = None,
                micro_batch: int | None = None) -> torch.Tensor | list[torch.Tensor]:
        """The rows of images in this rank's LLM tile, [S / cuts, b, H], 0 where no row stands; with dst_layout="th"
        the rows alone.

        patches      [sum(counts), C], the images that this rank has loaded, in the order of their samples,
                     in a sample in the order of its special ids. Equal on the ranks of one lane. Where a
                     rank's patches need gradients, plan() must know, or all ranks' do. Or a tuple of tensors
                     of as many rows (pixels, positions), which move in one call: the encoder gets a tuple
        counts       patches of each image; a rank that has loaded none passes patches[:0] and []
        ids          [b, S] of this rank's samples, whole sequences: an image of p patches takes the next
                     p / merge of a sample's special ids. None: no samples
        extras       whole numbers [images, k] that go with each image, such as its grid (t, h, w)
        packs        of packed sequences, for each sample of ids: their cumulative lengths from 0 to S, padded, which a
                     partition cuts one by one. Each sample has its own. None: each is one sequence
        into         this rank's text tile [S / cuts, b, H]: a copy of it with the rows in their places, as
                     Bridge.place. Or a list, one for each tensor of the encoder
        micro_batch  of the last plan(), in place of counts, ids, extras and packs

        A tuple of the encoder gives a list of results. Errors, on every rank: ShapeError (images and
        special ids do not fit, with lane and sample; a text tile of other positions), StateError (a
        micro-batch, and no plan), MismatchError (ranks of one lane have loaded other
        images), UnsupportedError in backward (a checkpoint around the module), and those of Bridge.
        """
        if torch._C._current_graph_task_id() != -1:
            raise UnsupportedError("Balanced: a call in backward, as by a checkpoint around the module, would gather "
                                   "and plan again: checkpoint the encoder inside")
        listed = patches if isinstance(patches, tuple) else (patches,)
        if micro_batch is None:
            wants = any(isinstance(one, torch.Tensor) and one.requires_grad for one in listed)
            self._take(self._next((() if counts is None else counts, ids, extras, packs), wants))
        elif not self._now.planned:
            self._take(self._not_planned(micro_batch))
        there, back = self._pairs[self._now.turn]
        move = there._movement.guarded(self._select, micro_batch or 0)
        there._movement.guarded(self._check, listed, counts, micro_batch, into)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._now.patch_gradients):
            here = there(patches)
        rows = back._movement.guarded(self._encode, here, move)
        y: torch.Tensor | list[torch.Tensor]
        if into is not None:
            y = back.place(into, rows)
        else:
            y = back(rows) if self._shards is not None else back(rows, seq=move.seq)
        return y

    if TYPE_CHECKING:  # Module says Any
        __call__ = forward

    def plan(self, steps: Sequence[Step], *, patch_gradients: bool = False) -> None:
        """Tell several micro-batches at once: (counts, ids), and then extras and packs, of each, as in a call. One
        gather and one update serve all. Calls then choose by micro_batch=. Collective, blocking the host.

        patch_gradients  whether a rank's patches need gradients; then backward moves them home on all

        Errors, on every rank: as those of a call. Then the last plan stays in force.
        """
        self._take(self._begin(steps, patch_gradients), planned=True)

    def prefetch(self, counts: Sequence[int], ids: torch.Tensor | None, *, extras: Any = None,
                 packs: Packs | None = None, patch_gradients: bool = False) -> None:
        """Begin the gather of a later call, which is given the same counts, ids, extras and packs: the first call without a
        micro_batch that comes takes the first prefetch. The call then waits for no other rank's host before it plans.
        Collective; it returns when every rank has come here. Errors are those of the later call.

        patch_gradients  as in plan()
        """
        self._ahead.append(self._begin([(counts, ids, extras, packs)], patch_gradients))

    def report(self) -> BalanceReport:
        """What balancing was worth in the last call: the cost of the longest lane, of the longest one had
        all images stayed at home, and the patches that moved. Local. StateError before the first call."""
        last = self._now.last
        if last is None:
            raise StateError("Balanced: there was no call yet")
        lane, cost, patches, home = last.assignment
        return balance_report(lane, cost, self.src.dim("dp"), rows=patches, home=home, max_rows=self._most)

    def close(self) -> None:
        """Release the bridges. Collective."""
        while self._ahead:
            self._ahead.popleft().gathering.wait()
        for pair in self._pairs:
            for bridge in pair:
                bridge.close()

    # Telling.

    def _begin(self, steps: Sequence[Step], patch_gradients: bool) -> _Ahead:
        """A rank that can't tell what it has loaded says so in its numbers."""
        error = None
        try:
            if not steps:
                raise ArgumentError("Balanced plan: no micro-batch")
            numbers = array.array("q", [0, int(patch_gradients), len(steps)])
            for step in steps:
                numbers.extend(self._numbers_of(*step))
        except Exception as failure:
            error, numbers = failure, array.array("q", [1, 0, 0])
        return _Ahead(Gathering(self.comm, numbers, self._room, self._title), numbers, steps, error)

    def _numbers_of(self, counts: Sequence[int], ids: torch.Tensor | None, extras: Any = None,
                    packs: Packs | None = None) -> array.array[int]:
        return numbers_of(counts, ids, extras, packs, self._special)

    def _next(self, step: Step, patch_gradients: bool) -> _Ahead:
        if not self._ahead:
            return self._begin([step], patch_gradients)
        ahead = self._ahead.popleft()
        alike = all(one is other for one, other in zip(step, ahead.steps[0]))
        if ahead.error is None and not alike and self._numbers_of(*step) != ahead.numbers[HEAD:]:
            ahead.error = ArgumentError("Balanced: a call of other counts, ids, extras or packs than its prefetch had")
        return ahead

    def _not_planned(self, micro_batch: int) -> _Ahead:
        return self._can_not(StateError(f"Balanced: micro_batch={micro_batch}, and no plan() is in force: plan first, or "
                                        "pass counts and ids"))

    def _can_not(self, error: Exception) -> _Ahead:
        """The others may gather: this rank takes part, and tells them why it can't."""
        ahead = self._ahead.popleft() if self._ahead else self._begin((), False)
        ahead.error = error
        return ahead

    def _refuse(self, error: Exception) -> None:
        """In place of plan(), where this rank's batch is refused: all ranks raise the error."""
        self._take(self._can_not(error))

    @property
    def _samples(self) -> int:
        """Of all lanes, in the first micro-batch of the plan in force."""
        return self._now.moves[0].samples

    def _take(self, ahead: _Ahead, planned: bool = False) -> None:
        """Plan what was told, and give it to the pair of bridges whose turn it is."""
        told = ahead.gathering.wait()
        if ahead.gathering.room > self._room:
            self._room = ahead.gathering.room
        if any(one.words[0] for one in told):
            self.comm._together("Balanced plan", lambda: _raise(ahead.error))
        turn = (self._now.turn + 1) % len(self._pairs)
        pair = self._pairs[turn]
        moves: list[_Move] = []

        def tell() -> list[list[Listed]]:
            _raise(ahead.error)
            moves.extend(self._plan_all(told))
            return [[move.there for move in moves], [move.back for move in moves]]

        update_all([bridge._movement for bridge in pair], [bridge._lanes() for bridge in pair], tell)
        self._now = _InForce(turn, planned, moves, any(one.words[1] for one in told), self._now.last)

    # Calls in parts.

    def _select(self, micro_batch: int) -> _Move:
        now = self._now
        for bridge in self._pairs[now.turn]:
            bridge.select(micro_batch)
        now.last = now.moves[micro_batch]
        return now.last

    def _check(self, patches: Sequence[torch.Tensor], counts: Any, micro_batch: int | None, into: Any) -> None:
        if micro_batch is not None and counts is not None:
            raise ArgumentError("Balanced: counts, or a micro-batch that plan() knows")
        if into is not None and self._shards is not None:
            raise ArgumentError("Balanced: into= is a tile, and with dst_layout th a call gives rows alone")
        for one in patches:
            _views.check_strided("Balanced: patches", one)
        wants = torch.is_grad_enabled() and any(one.requires_grad for one in patches)
        if wants and not self._now.patch_gradients:
            raise ArgumentError("Balanced: patches need gradients: plan(..., patch_gradients=True)")
        for tile in () if into is None else into if isinstance(into, (list, tuple)) else (into,):
            self._check_tile(tile)

    def _check_tile(self, tile: torch.Tensor) -> None:
        """A text tile of sequences of another length would get the rows at other positions."""
        _views.check_tensor("Balanced: into", tile, self._dst_layout, self.comm.device)
        seq, samples = (tile.shape[self._dst_layout.index(letter)] for letter in "sb")
        assert self._now.last is not None
        whole = self._now.last.seq
        if samples and seq * self._cut != whole:
            raise ShapeError(f"Balanced: into is {self._dst_layout}{list(tile.shape)}, and of the {whole} positions of "
                             f"ids, cut into {self._cut}, a tile has {whole // self._cut}")

    def _encode(self, patches: Any, move: _Move) -> Any:
        """Rows of the images here."""
        patches = tuple(patches) if isinstance(patches, list) else patches
        calls = self._encodes is not None and not move.quiet[self._encodes]
        rows = self._call_encoder(patches, move) if calls else None
        if self._kinds is None and (any(move.quiet) or None in self._encoders.lane_of):
            self._kinds = self._tell_kinds(rows)
        if rows is not None:
            return rows
        first = patches[0] if isinstance(patches, tuple) else patches
        several, kinds = self._kinds or (False, [])
        none = [first.new_empty(0, hidden, dtype=dtype) for hidden, dtype in kinds]
        return none if several else none[0]

    def _call_encoder(self, patches: Tensors, move: _Move) -> Any:
        """Without images here those of another one, of which no row is kept: so backward goes through the encoder on
        every rank, with zeros."""
        if move.counts:
            return self._encoded(patches, move.counts, move.extras, move.width)
        image: Any = self._empty
        if image is None or isinstance(image, str):
            image = (tuple(map(self._zeros, patches)) if isinstance(patches, tuple) else self._zeros(patches))
        count = len(image[0] if isinstance(image, tuple) else image)
        extras = list(self._empty_extras or ())
        rows = self._encoded(image, [count], extras, len(extras))
        return rows[:0] if isinstance(rows, torch.Tensor) else [one[:0] for one in rows]

    def _zeros(self, patches: torch.Tensor) -> torch.Tensor:
        return patches.new_zeros(self._merge, *patches.shape[1:])

    def _encoded(self, patches: Tensors, counts: list[int], extras: list[int], width: int) -> Any:
        assert self.encoder is not None
        device = self.comm.device
        ends = torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device="cpu").to(device, non_blocking=True)
        if width == 0:
            return self.encoder(patches, counts, ends)
        numbers = torch.tensor(extras, dtype=torch.int64, device="cpu").reshape(-1, width)
        return self.encoder(patches, counts, ends, numbers.to(device, non_blocking=True))

    def _tell_kinds(self, rows: Any) -> tuple[bool, list[tuple[int, torch.dtype]]]:
        """What encoders return, for ranks that call none: whether it is several tensors, their H and dtypes. Once.
        Collective."""
        listed = [] if rows is None else [rows] if isinstance(rows, torch.Tensor) else list(rows)
        dtypes = list(_views.DTYPES)
        numbers = [int(not isinstance(rows, torch.Tensor))]
        for one in listed:
            _views.check_strided("Balanced: rows", one)
            _views.check_tensor("Balanced: rows", one, "th", self.comm.device)
            numbers += [one.shape[-1], dtypes.index(one.dtype)]
        told = Gathering(self.comm, array.array("q", numbers), ROOM, self._title).wait()
        several, *found = max((one.words.tolist() for one in told), key=len)
        return bool(several), [(hidden, dtypes[index]) for hidden, index in zip(found[::2], found[1::2])]

    # From here on all is pure: every rank comes to the same result, or to the same error.

    def _plan_all(self, told: list[Told]) -> list[_Move]:
        steps = {one.words[2] for one in told}
        if len(steps) > 1:
            raise MismatchError(f"Balanced plan: ranks tell {sorted(steps)} micro-batches")
        loads = [loads_of(one, HEAD, one.words[2]) for one in told]
        return [self._plan(list(of_ranks)) for of_ranks in zip(*loads)]

    def _plan(self, loads: list[Load]) -> _Move:
        lanes_have = self._loaders.lanes(loads)
        if self._shards is not None and self._cut == 1:  # no position matters: lanes may have sequences of other lengths
            longest = max(load.seq for load in lanes_have)
            lanes_have = [load._replace(seq=longest) for load in lanes_have]
        images = find_images(lanes_have, self._merge, self._any_runs)
        known = len(self._empty_extras or ())
        if images.width not in (0, known) and self._empty != "skip":
            raise ArgumentError(f"Balanced: images have {images.width} extras, and empty_extras= says {known} for a "
                                "lane without images")
        cost = self._costs(images.patches)
        home = self._homes(images, cost)
        lanes = self.src.dim("dp")
        planner = self._assign or self._balance
        lane = planner(cost, lanes, rows=images.patches, home=home)
        here = [i for i, taken in enumerate(lane) if taken == self._encodes]
        counts = [images.patches[i] for i in here]
        extras = [n for i in here for n in images.extras[i * images.width:(i + 1) * images.width]]
        quiet = [False] * lanes
        if self._empty == "skip" and (lane or self._kinds is not None):
            taken_lanes = set(lane)
            quiet = [d not in taken_lanes for d in range(lanes)]
        return _Move(*self._batches(images, lane, sum(counts)), counts, extras, images.width, images.samples,
                     images.seq, quiet,
                     (lane, cost, images.patches, home))

    def _batches(self, images: Images, lane: list[int], here: int) -> tuple[Listed, Listed]:
        """What both bridges are told."""
        lanes = self.src.dim("dp")
        taken = _c.numbers(ctypes.c_int64, "Balanced: a lane", lane)
        first = (ctypes.c_int64 * (lanes + 1))()
        inputs, rows = (_dealt(items, first, taken, len(lane)) for items in (images.inputs, images.rows))
        there = _c.sized(_c.mimo_batch_items, dst_packed=False)
        there.src, there.src_first, there.dst, there.dst_first = images.inputs, images.first, inputs, first
        back = _c.sized(_c.mimo_batch_items, dst_packed=False)
        back.src, back.src_first = rows, first
        loaded = 0
        if self._loads is not None:
            loaded = sum(images.patches[images.first[self._loads]:images.first[self._loads + 1]])
        return (Listed(images.samples, rows=(loaded, here), desc=_ragged(images.samples, there)),
                self._placed(images, back, here))

    def _placed(self, images: Images, back: _c.mimo_batch_items, here: int) -> Listed:
        """Where rows go: to positions that spans say, or to shards."""
        if self._shards is None:
            spans, count = images.placed(self._cp)
            desc = _ragged(images.samples, back, spans=spans, span_count=count)
            return Listed(images.samples, spans=(), desc=desc)
        back.dst, back.dst_first, rows = self._shards.items(images)
        reads = self._reads
        own = 0 if reads is None else rows[reads]
        return Listed(images.samples, rows=(here // self._merge, own), desc=_ragged(images.samples, back))

    def _balance(self, cost: list[int], lanes: int, rows: list[int], home: list[int]) -> list[int]:
        return balance(cost, lanes, rows=rows, home=home, max_rows=self._most, slack_permille=self._slack)

    def _costs(self, patches: list[int]) -> list[int]:
        if self._cost is None:
            return patches
        return [self._cost(p) for p in patches] if callable(self._cost) else image_cost(patches, self._cost)

    def _homes(self, images: Images, cost: list[int]) -> list[int]:
        """The encoder lane that has each image; -1: none. Several have those of an LLM lane with many ranks: there
        they are dealt first."""
        homes: list[int] = []
        for d, near in enumerate(self._near):
            first, end = images.first[d], images.first[d + 1]
            if len(near) > 1:
                homes += [near[lane] for lane in balance(cost[first:end], len(near))]
            else:
                homes += (near or [-1]) * (end - first)
        return homes

    def _near_of(self, loaders: list[int]) -> list[int]:
        """The encoder lanes whose ranks have all loaded what these have; without one, those of which a rank has."""
        of_lane = self._encoders.of_lane
        whole = [d for d, ranks in enumerate(of_lane) if all(rank in loaders for rank in ranks)]
        return whole or [d for d, ranks in enumerate(of_lane) if any(rank in loaders for rank in ranks)]

    def _lane_of(self, ranks: Loaders) -> int | None:
        return ranks.lane_of[self.comm.rank]


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


def _dealt(items: Any, first: Any, taken: Any, count: int) -> Any:
    """Items by lane. Into `first`: where those of each lane begin."""
    dealt = (_c.mimo_item * max(count, 1))()
    _c.lib.mimo_items_deal(dealt, first, items, taken, count, len(first) - 1)
    return dealt


def _ragged(samples: int, items: _c.mimo_batch_items, **fields: Any) -> _c.mimo_batch_desc:
    desc = _c.sized(_c.mimo_batch_desc, batch=samples, ragged=True, **fields)
    desc.items = ctypes.pointer(items)
    return desc
