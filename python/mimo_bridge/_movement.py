"""What a bridge does with tensors: the C object, its destinations, and one call each way.

No autograd here and no module: _ops.py calls this with what autograd and the compiler pass along.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, starmap
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from . import _c, _handles, _views
from ._placed import Placed
from .alignment import Span
from .buffer import Buffer
from .communicator import Communicator, stream_of
from .errors import ArgumentError, MimoError, ShapeError, SizeOverflowError, StateError

T = TypeVar("T")
Shapes = Sequence[Sequence[int]]  # of several tensors
MOST = 2**31 - 1  # of a batch or of rows that an update gives: their product fits 64 bits, see NOW


Lanes = Sequence[Sequence[tuple[int, int, int]]]  # of each lane (sample, row, rows), as its tile has them


@dataclass(frozen=True)
class Items:
    """Which parts of which samples the tiles of a ragged batch have, of all lanes (dp coordinates). Each
    row of each sample is in one item of a side. Experimental.

    src     (sample, row, rows) of each lane's items, in the order of its tile
    dst     the same of the dst tiles; None: these have positions, which spans give, or, where `packed`
            is set, all rows of their samples
    """

    src: Lanes
    dst: Lanes | None = None
    packed: bool = False

    def _check(self, lanes: tuple[int, int]) -> None:
        for name, listed, dp in zip(("src", "dst"), (self.src, self.dst), lanes):
            if listed is not None and len(listed) != dp:
                raise ShapeError(f"Items: {name} has {len(listed)} lanes, and the grid dp={dp}")

    def _desc(self) -> _c.mimo_batch_items:
        desc = _c.sized(_c.mimo_batch_items, dst_packed=self.packed)
        desc.src, desc.src_first = _lists(self.src)
        if self.dst is not None:
            desc.dst, desc.dst_first = _lists(self.dst)
        return desc


def _lists(lanes: Lanes) -> tuple[Any, Any]:
    items = list(chain.from_iterable(lanes))
    if max(map(max, items), default=0) >= 2**63 or min(map(min, items), default=0) < -2**63:
        raise SizeOverflowError("Items: a number does not fit 64 bits")
    first = [0, *accumulate(map(len, lanes))]
    return (_c.mimo_item * max(len(items), 1))(*starmap(_c.mimo_item, items)), (ctypes.c_int64 * len(first))(*first)


@dataclass(frozen=True)
class Batch:
    """What an update says about the calls of one micro-batch.

    batch  B, split evenly along dp on either side. None: calls find it from their tiles
    spans  ragged: where the rows of each sample go. Each rank gives the spans of the samples that it
           knows, at least one rank those of each sample. Samples count within the micro-batch. A
           ragged batch also gives `batch`
    rows   for calls whose tiles are flat on both sides: (rows of this rank's src tile, rows of its
           dst tile), 0 where it has none. All ranks give rows, or none does
    items  of a ragged batch whose src tiles hold items (Items). Every rank gives all items, and all
           spans where dst tiles have positions; otherwise no spans, and `rows`
    """

    batch: int | None = None
    spans: Sequence[Span] | None = None
    rows: tuple[int, int] | None = None
    items: Items | None = None

    def _desc(self) -> _c.mimo_batch_desc:
        desc = _c.sized(_c.mimo_batch_desc)
        if self.batch is not None:
            desc.batch = _c.whole("Batch: batch", self.batch, 0, MOST)
        if self.spans is not None:
            desc.ragged = True
            desc.span_count = len(self.spans)
            desc.spans = (_c.mimo_span * max(len(self.spans), 1))(*map(_span, self.spans))
        if self.items is not None:
            desc.ragged = True
            desc.items = ctypes.pointer(self.items._desc())
        elif self.rows is not None:
            desc.src_rows, desc.dst_rows = (_c.whole("Batch: rows", n, 0, MOST) for n in self.rows)
        return desc


@dataclass(frozen=True)
class Listed(Batch):
    """A ragged batch whose items and spans are arrays of C already. `spans` says whether dst has positions."""

    desc: Any = None

    def _desc(self) -> _c.mimo_batch_desc:
        return cast(_c.mimo_batch_desc, self.desc)


def _described(batch: object, lanes: tuple[int, int]) -> _c.mimo_batch_desc:
    if not isinstance(batch, Batch):
        raise ArgumentError(f"update: {batch!r} is no Batch")
    if batch.items is not None:
        batch.items._check(lanes)
    return batch._desc()


def _span(span: Span) -> _c.mimo_span:
    sample, row, position, length = span
    made = _c.mimo_span(sample, row, position, length)
    if (made.sample, made.row, made.position, made.length) != (sample, row, position, length):
        raise SizeOverflowError(f"Batch: {span} does not fit 64 bits")
    return made


# What calls of a bridge move from now on, by the number of the bridge. Three numbers: that of the
# micro-batch, B, and the rows of this rank's dst tile (-1: not known). They may change between calls.
# torch.compile recompiles for a new number, except where the number is the size of a tensor, which it
# makes a symbol. So each is kept as a size of an empty tensor, plus SHIFT: torch.compile makes no
# symbols of the sizes 0 and 1. The tensor is a global: those of modules get no symbols either.
NOW: dict[int, torch.Tensor] = {}
SHIFT = 3


def now(number: int) -> tuple[int, int, int]:
    """(micro-batch, B, rows) of the calls of a bridge. StateError where it is closed."""
    if number not in NOW:
        raise StateError("the bridge is closed")
    call, batch, rows, _ = NOW[number].shape
    return call - SHIFT, batch - SHIFT, rows - SHIFT


class _Views(NamedTuple):
    to: _c.mimo_tensor
    source: _c.mimo_tensor
    arguments: tuple[Any, Any]  # both, as functions of C take them


def _which(index: int, of: Sequence[Any]) -> str:
    """Which tensor of a call of several ones a sentence speaks of."""
    return f"[{index}]" if len(of) > 1 else ""


def _are_fake(arguments: Sequence[Any]) -> bool:
    listed = (one if isinstance(one, (list, tuple)) else [one] for one in arguments)
    return (any(isinstance(one, FakeTensor) for one in chain(*listed)) or
            any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack()))


class Caller(Protocol):
    """What makes collective calls, and counts those that reached the library or told it that they can't."""

    comm: Communicator
    begun: int


def tell_others(caller: Caller, begun: int, arguments: Sequence[Any], refuse: Callable[[], None]) -> None:
    """A call of these arguments failed. Where that was before it came to the library (`begun`: of before it), the
    other ranks wait for this one, and learn of it by `refuse`. A call of fake tensors is of one rank alone."""
    silent = caller.begun != begun or caller.comm.closed
    if not silent and not _are_fake(arguments):
        with caller.comm._turn():
            caller.begun += 1
            refuse()


def say(error: BaseException, refuse: Callable[[int], None]) -> None:
    """Take part by `refuse` in a call of the library that this rank can't make. It fails with the status and
    sentence of this error; where another rank's came first, the error has a note of it."""
    status = _c.fail(error)
    try:
        refuse(status)
    except MimoError as refusal:
        if refusal.status != status and hasattr(error, "add_note"):
            error.add_note(f"({refusal})")


class Movement:
    """The C bridge of this rank and how tensors get in and out of it. A child of its communicator."""

    kind = "bridge"

    def __init__(self, comm: Communicator, handle: ctypes.c_void_p, letters: tuple[str, str],
                 buffers: tuple[Buffer | None, Buffer | None], placed: Placed) -> None:
        self.comm = comm
        self._turn, self._stream = comm._turn(), stream_of(comm.device)
        self.handle: ctypes.c_void_p | None = handle
        self.letters = letters  # of the src tile and of the dst tile
        self.codes = letters[0].encode(), letters[1].encode()
        self.buffers = buffers  # of the results of forward and of backward
        self._functions: tuple[Any, Any] = _c.lib.mimo_bridge_forward, _c.lib.mimo_bridge_backward
        self._kinds: dict[tuple[Any, ...], _Views] = {}  # of the last calls
        self._in_force: tuple[int, Batch] | None = None  # what the library's next call moves
        # Each micro-batch that was ever given has a number of its own, and calls carry it.
        self._first = 0
        self.batches: Sequence[Batch] = ()
        self._placed = placed
        self._masks: dict[tuple[int, ...], torch.Tensor] = {}  # where rows of a ragged batch go
        self.begun = 0  # calls that reached the library, or told it that they can't
        self._iterations = 0  # of chunks that have not ended
        self.number = _handles.add(self)
        self._choose(0)
        comm._children.append(self)

    # The life of the C object.

    def in_use(self) -> str | None:
        """A sentence about an iteration whose rows may still be on their way, or None. Local."""
        if self._iterations == 0:
            return None
        return (f"chunks have not ended ({self._iterations}): take all parts, or close the iteration, "
                "before the bridge is closed")

    def release(self) -> None:
        handle, self.handle = self.handle, None
        self._in_force = None
        self._masks.clear()
        NOW.pop(self.number, None)
        _c.lib.mimo_bridge_destroy(handle)

    def open(self) -> ctypes.c_void_p:
        if self.handle is None:
            raise StateError("the bridge is closed")
        return self.handle

    # What calls move.

    def take(self, batches: Sequence[Batch]) -> None:
        """An update of the library gave these."""
        self._first += max(len(self.batches), 1)
        self.batches = batches
        self._masks.clear()
        self._in_force = None
        self._choose(0)

    def select(self, micro_batch: int) -> None:
        with self._turn:
            handle = self.open()
            micro_batch = _c.whole("select: a micro-batch", micro_batch, 0, MOST)
            if self.call == self._first + micro_batch:
                return  # as after an update
            self._in_force = None
            _c.lib.mimo_bridge_select(handle, micro_batch)
            self._choose(micro_batch)

    def given_of(self, call: int) -> Batch:
        """What an update said about a micro-batch. StateError where it is another update's."""
        index = call - self._first
        if not 0 <= index < max(len(self.batches), 1):
            raise StateError("the bridge was updated between this call and its forward: give all "
                             "micro-batches in flight with one update(), and select() among them")
        return self.batches[index] if self.batches else Batch()

    def _choose(self, micro_batch: int) -> None:
        call = self._first + micro_batch
        given = self.given_of(call)
        numbers = (call, -1 if given.batch is None else given.batch,
                   -1 if given.rows is None else given.rows[1])
        NOW[self.number] = torch.empty(*(number + SHIFT for number in numbers), 0, device="cpu")
        self.call = call  # the number of the micro-batch that calls move from now on

    def _for(self, call: int) -> Batch:
        """Let the next call of the library be one of this micro-batch, and say what was given of it."""
        if self._in_force is None or self._in_force[0] != call:
            batch = self.given_of(call)
            _c.lib.mimo_bridge_select(self.open(), call - self._first)
            self._in_force = call, batch
        return self._in_force[1]

    # Calls.

    def guarded(self, call: Callable[..., T], *arguments: Any, prepares: bool = False) -> T:
        """A collective call. Where it fails before it has come to the library, the other ranks learn of
        it all the same: they would wait for this one. A call of fake tensors is of one rank alone."""
        begun = self.begun
        try:
            return call(*arguments)
        except Exception as error:
            self.tell(error, begun, arguments, prepares)
            raise

    def tell(self, error: Exception, begun: int, arguments: Sequence[Any], prepares: bool = False) -> None:
        """What guarded() does where a call of these arguments failed. `begun`: of before it."""
        def refuse() -> None:
            if not prepares:
                self._next_slot(False)
            self._refuse(False, error, prepares)

        tell_others(self, begun, arguments, refuse)

    def move(self, adjoint: bool, x: torch.Tensor, shape: tuple[int, ...], call: int) -> torch.Tensor:
        """forward, or the adjoint: x on one side, a new tensor of `shape` on the other. Collective."""
        with self._turn:
            self.begun += 1
            buffer = self.buffers[adjoint]
            slot = 0 if buffer is None else buffer.next_slot()
            try:
                now = self._in_force
                given = now[1] if now is not None and now[0] == call else self._for(call)
                # All that is checked: where views are kept, such a tensor and such a shape were found good.
                key = adjoint, type(x), x.dtype, x.device, x.layout, x.shape, shape
                views = self._kinds.get(key)
                x = self._checked(adjoint, x, shape) if views is None else _views.plain(x)
                if buffer is None:
                    y = x.new_empty(shape)
                    address = _views.address_of(y)
                else:
                    y, address = buffer.tensor(slot, x.dtype, shape)
                if given.spans is not None and not adjoint:
                    y.zero_()
                if views is None:
                    views = self._new_views(key, x, y)
                views.to.data, views.source.data = address, _views.address_of(x)
            except BaseException as error:
                self._refuse(adjoint, error)
                raise
            try:
                self._functions[adjoint](self.open(), *views.arguments, 1, self._stream())
            except MimoError as error:
                del y  # the traceback keeps this frame, but not its slot in use
                if buffer is not None:
                    buffer.failed(error)
                raise
        return y

    def _new_views(self, key: tuple[Any, ...], x: torch.Tensor, y: torch.Tensor) -> _Views:
        """Views of tensors like x and y, for the calls of this key: each fills in its addresses, and uses
        them in its turn."""
        if len(self._kinds) >= _views.KINDS:
            self._kinds.clear()
        adjoint = key[0]
        to = _views.view(y, self.codes[not adjoint])
        source = _views.view(x, self.codes[adjoint])
        views = self._kinds[key] = _Views(to, source, (ctypes.byref(to), ctypes.byref(source)))
        return views

    def move_all(self, adjoint: bool, xs: Sequence[torch.Tensor], shapes: Shapes, call: int,
                 tiles: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """move() of several tensors in one call of the library: one agreement, one exchange. Or copies of
        `tiles` with the rows of xs at the positions of a ragged batch. Collective."""
        with self._turn:
            self.begun += 1
            slot = self._next_slot(adjoint)
            try:
                given = self._for(call)
                if tiles is not None:
                    self._check_tiles(given, tiles)
                xs = self._all_checked(adjoint, xs, shapes)
                ys = self._destinations(adjoint, slot, xs if tiles is None else tiles, shapes)
                self._fill(ys, tiles, given.spans is not None and not adjoint)
                to = self._array(ys, not adjoint, self._addresses(adjoint, slot, ys))
                source = self._array(xs, adjoint)
            except BaseException as error:
                self._refuse(adjoint, error)
                raise
            try:
                self._call(adjoint, to, source)
            except MimoError as error:
                del ys  # as in move()
                if (buffer := self.buffers[adjoint]) is not None:
                    buffer.failed(error)
                raise
        return ys

    def _check_tiles(self, given: Batch, tiles: Sequence[torch.Tensor]) -> None:
        if given.spans is None:
            raise StateError("place: the bridge has no spans: call update(Batch(spans=...))")
        for i, tile in enumerate(tiles):
            what = "place: the tile" + _which(i, tiles)
            _views.check_tensor(what, tile, self.letters[1], self.comm.device)

    def unplace(self, ys: Sequence[torch.Tensor], shapes: Shapes, call: int) -> list[torch.Tensor]:
        """The adjoint of placing: the gradients of the tiles, which are 0 where rows were placed, and
        behind them those of xs. Collective."""
        with self._turn:
            xs = self.move_all(True, ys, shapes, call)
            mask = self._mask(ys[0], call)
            return [torch.where(mask, torch.zeros((), dtype=y.dtype, device=y.device), y) for y in ys] + xs

    def _mask(self, y: torch.Tensor, call: int) -> torch.Tensor:
        """bool [.., .., 1]: where rows were placed in a tile like y. Local."""
        key = (call, *y.shape[:-1])
        if key not in self._masks:
            batch = self._for(call).batch
            self._masks[key] = self._placed.mask(self.open(), cast(int, batch), y)
        return self._masks[key]

    def chunks(self, xs: Sequence[torch.Tensor], shapes: Shapes, cuts: Callable[[int], int], n: int,
               stream: torch.cuda.Stream | None) -> Generator[list[torch.Tensor], None, None]:
        """Forward in n chunks: gives the parts of the results, [cuts(i), cuts(i + 1)) of their axis of
        samples, each when its rows are there."""
        operation = ctypes.c_void_p()
        axis = max(self.letters[1].find("b"), 0)
        with self._turn:
            self.begun += 1
            slot = self._next_slot(False)
            try:
                given = self._for(self.call)
                xs = self._all_checked(False, xs, shapes)
                ys = self._destinations(False, slot, xs, shapes)
                self._fill(ys, None, given.spans is not None)
                to = self._array(ys, True, self._addresses(False, slot, ys))
                desc = self._move_desc(to, self._array(xs, False), n)
            except BaseException as error:
                self._refuse(False, error)
                raise
            desc.stream = self._on_side_stream(stream, [*xs, *ys])
            try:
                _c.lib.mimo_bridge_forward_start_chunked(ctypes.byref(operation), self.open(),
                                                         ctypes.byref(desc))
            except MimoError:
                del ys  # as in move()
                raise
            self._iterations += 1
        try:
            for i in range(n):
                with self._turn:
                    _c.lib.mimo_op_wait_chunk(operation, i, self._stream())
                yield [y.narrow(axis, cuts(i), cuts(i + 1) - cuts(i)) for y in ys]
        finally:
            self._iterations -= 1
            try:
                if self.comm._usable():  # otherwise it has ended, or is this process's parent's
                    with self._turn:
                        _c.lib.mimo_op_wait(ctypes.byref(operation))
            finally:
                del ys  # as in move()

    def _on_side_stream(self, stream: torch.cuda.Stream | None,
                        tensors: Sequence[torch.Tensor]) -> int | None:
        """Order a side stream behind the current one, and tell the allocator who uses these tensors."""
        if self.comm.device.type != "cuda":
            return None
        if stream is None:
            return self._stream()
        stream.wait_stream(torch.cuda.current_stream(self.comm.device))
        for tensor in tensors:
            tensor.record_stream(stream)
        return int(stream.cuda_stream)

    def prepare(self, adjoint: bool, xs: Sequence[torch.Tensor], shapes: Shapes, chunks: int) -> None:
        """Make calls of such tensors ready. Collective, blocking; they are neither read nor written."""
        with self._turn:
            self.begun += 1
            try:
                self._for(self.call)
                xs = self._all_checked(adjoint, xs, shapes)
                ys = [x.new_empty(tuple(shape)) for x, shape in zip(xs, shapes)]
                to = self._array(ys, not adjoint, self._addresses(adjoint, 0, ys))
                desc = self._move_desc(to, self._array(xs, adjoint), chunks)
            except BaseException as error:
                self._refuse(adjoint, error, prepares=True)
                raise
            desc.stream = self._stream()
            _c.lib.mimo_bridge_prepare(self.open(), adjoint, ctypes.byref(desc))

    # Their parts.

    def _next_slot(self, adjoint: bool) -> int:
        buffer = self.buffers[adjoint]
        return 0 if buffer is None else buffer.next_slot()

    def _checked(self, adjoint: bool, x: torch.Tensor, shape: Sequence[int], which: str = "") -> torch.Tensor:
        """x, ready to be moved, where it and the shape of its result are good."""
        what = "the gradient of the result" if adjoint else "x"
        _views.check_tensor(what + which, x, self.letters[adjoint], self.comm.device)
        if len(shape) != len(self.letters[not adjoint]) or min(shape) < 0:
            raise ShapeError(f"the result can't have shape {list(shape)}")
        return _views.plain(x)

    def _all_checked(self, adjoint: bool, xs: Sequence[torch.Tensor], shapes: Shapes) -> list[torch.Tensor]:
        return [self._checked(adjoint, x, shape, _which(i, xs))
                for i, (x, shape) in enumerate(zip(xs, shapes))]

    def _destinations(self, adjoint: bool, slot: int, likes: Sequence[torch.Tensor],
                      shapes: Shapes) -> list[torch.Tensor]:
        buffer = self.buffers[adjoint]
        kinds = [(like.dtype, tuple(shape)) for like, shape in zip(likes, shapes)]
        if buffer is not None:
            return buffer.tensors(slot, kinds)
        return [like.new_empty(shape) for like, (_, shape) in zip(likes, kinds)]

    def _fill(self, ys: Sequence[torch.Tensor], tiles: Sequence[torch.Tensor] | None, ragged: bool) -> None:
        """What no row overwrites: tiles, or 0."""
        if tiles is not None:
            for y, tile in zip(ys, tiles):
                y.copy_(tile)
        elif ragged:
            for y in ys:
                y.zero_()

    def _addresses(self, adjoint: bool, slot: int, ys: Sequence[torch.Tensor]) -> list[int]:
        """Where results lie: a tensor without elements does not say it."""
        buffer = self.buffers[adjoint]
        if buffer is None:
            return [_views.address_of(y) for y in ys]
        return buffer.addresses(slot, [y.dtype.itemsize * y.shape[-1] for y in ys])

    def _array(self, xs: Sequence[torch.Tensor], side: bool, addresses: Sequence[int] = ()) -> Any:
        """Views of tensors as an array of C, which say these addresses where they are given."""
        views = [_views.view(x, self.codes[side]) for x in xs]
        for view, address in zip(views, addresses):
            view.data = address
        return (_c.mimo_tensor * max(len(views), 1))(*views)

    def _move_desc(self, to: Any, source: Any, chunks: int) -> _c.mimo_move_desc:
        desc = _c.sized(_c.mimo_move_desc, n=len(to), chunks=chunks, to=to)
        setattr(desc, "from", source)
        return desc

    def _call(self, adjoint: bool, to: Any, source: Any) -> None:
        self._functions[adjoint](self.open(), to, source, len(to), self._stream())

    def _refuse(self, adjoint: bool, error: BaseException, prepares: bool = False) -> None:
        """This rank can't call. On the host the others wait for it, so it tells them why: then all ranks
        fail with what this one says."""
        if self.handle is not None:
            say(error, lambda status: _c.lib.mimo_bridge_refuse(self.handle, adjoint, prepares, status))


def update_all(movements: Sequence[Movement], lanes: Sequence[tuple[int, int]],
               tell: Callable[[], Sequence[Sequence[Batch]]]) -> None:
    """Tell the next calls' batches, of each movement what tell() gives. Where it fails, the other ranks get its
    error from their update, and nothing changes. `lanes` are the dp sizes of src and dst of each: the library
    reads lists of as many lanes. Collective, with one agreement."""
    with movements[0].comm._turn():
        handles = [movement.open() for movement in movements]
        try:
            told = tell()
            updates = [_update_desc(*one) for one in zip(handles, told, lanes)]
            array = (_c.mimo_update_desc * len(updates))(*updates)
        except Exception as error:
            say(error, lambda status: _c.lib.mimo_bridge_refuse_update(handles[0], status))
            raise
        _c.lib.mimo_bridge_update_all(array, len(updates))
        for movement, batches in zip(movements, told):
            movement.take(batches)


def _update_desc(handle: ctypes.c_void_p, batches: Sequence[Batch], lanes: tuple[int, int]) -> _c.mimo_update_desc:
    array = (_c.mimo_batch_desc * max(len(batches), 1))(*(_described(batch, lanes) for batch in batches))
    return _c.sized(_c.mimo_update_desc, bridge=handle, descs=array, n=len(batches))
