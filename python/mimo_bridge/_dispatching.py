"""What a dispatch does with tensors: the C object, its routes, and one call each way.

No autograd here: _dispatch_ops.py calls this with what autograd and the compiler pass along.
"""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from . import _c, _handles, _views
from ._movement import say, tell_others
from .buffer import Buffer
from .communicator import Communicator
from .errors import ArgumentError, MimoError, ShapeError, StateError

T = TypeVar("T")
# Letters of a tensor, on the side of the tokens and on that of the experts, by its kind: rows of tokens
# ("h"), or a number for each pair ("k").
LETTERS = {"h": (b"th", b"th"), "k": (b"tk", b"t")}
SUMS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # what a combine adds


class Route:
    """A C route: what one batch chose. It lives as long as its token."""

    def __init__(self, dispatching: Dispatching, handle: ctypes.c_void_p, tokens: int, rows: int) -> None:
        self.handle: ctypes.c_void_p | None = handle
        self.tokens, self.rows = tokens, rows
        self.number = _handles.add(self)
        # Garbage is collected in any thread, perhaps while a call waits: so its end is the next call's.
        self._end = weakref.finalize(self, dispatching.ended.append, handle)

    def close(self) -> None:
        self.handle = None
        self._end()

    def open(self) -> ctypes.c_void_p:
        if self.handle is None:
            raise StateError("the dispatch of this route is closed")
        return self.handle


class _Number(ctypes.c_int64):
    """The memory of a token. It has the route, and the tensor has it: so a route lives as long as the tensor,
    or whatever torch made of it: a graph's tensors are no objects that could hold another one."""

    route: Route


class Sizes(NamedTuple):
    experts_here: int
    choices: int  # k
    row_bytes: int  # of the widest row; 0: any (the CPU's)


class Dispatching:
    """The C dispatch of this rank. A child of its communicator."""

    kind = "dispatch"

    def __init__(self, comm: Communicator, handle: ctypes.c_void_p, sizes: Sizes,
                 buffer: Buffer | None) -> None:
        self.comm = comm
        self.handle: ctypes.c_void_p | None = handle
        self.sizes, self.buffer = sizes, buffer
        self.ended: list[ctypes.c_void_p] = []  # routes that nobody has any more
        self._routes: weakref.WeakSet[Route] = weakref.WeakSet()
        self._recorded: set[Route] = set()  # of calls that were captured: a graph writes their memory
        self._functions = _c.lib.mimo_dispatch_rows, _c.lib.mimo_dispatch_combine
        self.one_dtype = comm.device.type == "cuda"  # of all rows that a combine adds
        self.begun = 0  # calls that reached the library, or told it that they can't
        self.number = _handles.add(self)
        comm._children.append(self)

    def in_use(self) -> str | None:
        return None

    def release(self) -> None:
        handle, self.handle = self.handle, None
        self._recorded.clear()
        for route in list(self._routes):
            route.close()
        self._end_routes()
        _c.lib.mimo_dispatch_destroy(handle)

    def open(self) -> ctypes.c_void_p:
        if self.handle is None:
            raise StateError("the dispatch is closed")
        return self.handle

    def _end_routes(self) -> None:
        while self.ended:
            _c.lib.mimo_route_destroy(self.ended.pop())

    # Calls.

    def set(self, ids: torch.Tensor, capacity: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A new route, and its tile of `capacity` rows; -1: as many as it needs. (ends i32 [experts here], its token).
        Collective."""
        with self.comm._turn():
            self.begun += 1
            try:
                ids = self._checked_ids(ids)
                desc = _c.sized(_c.mimo_route_desc, ids=_views.address_of(ids), capacity=capacity,
                                id_dtype=_views.DTYPES[ids.dtype], tokens=ids.shape[0],
                                memory=_c.CUDA if ids.is_cuda else _c.HOST)
                handle = self._create_route()
            except BaseException as error:
                self._refuse_route(error)
                raise
            try:
                _c.lib.mimo_route_set(handle, ctypes.byref(desc), self.comm._stream())
                return self._made(handle, ids.shape[0], capacity)
            except BaseException:
                self.ended.append(handle)
                raise

    def _create_route(self) -> ctypes.c_void_p:
        """A C route. One whose call failed is destroyed before, so that ranks number their routes alike."""
        self._end_routes()
        handle = ctypes.c_void_p()
        _c.lib.mimo_route_create(ctypes.byref(handle), self.open())
        return handle

    def _made(self, handle: ctypes.c_void_p, tokens: int, capacity: int) -> tuple[torch.Tensor, torch.Tensor]:
        ends = self._ends(handle)
        rows = capacity if capacity >= 0 else self._rows_needed(handle)
        route = Route(self, handle, tokens, rows)
        self._routes.add(route)
        self._note_recorded(route)
        number = _Number(route.number)
        number.route = route
        return ends, torch.frombuffer(number, dtype=torch.int64)

    def _ends(self, handle: ctypes.c_void_p) -> torch.Tensor:
        """The ends of a route, in memory of their own: what a backward saved outlives the route. Nobody waits."""
        found = ctypes.c_void_p()
        _c.lib.mimo_route_ends(ctypes.byref(found), handle)
        ends, _ = _views.borrowed(found.value or 0, torch.int32, (self.sizes.experts_here,), self.comm.device)
        return ends.clone()

    def _rows_needed(self, handle: ctypes.c_void_p) -> int:
        """The rows of this rank's tile."""
        self._wait()
        counts = _c.sized(_c.mimo_route_counts)
        _c.lib.mimo_route_read(ctypes.byref(counts), handle)
        return int(counts.rows[self.comm.rank])

    def report(self) -> tuple[int, int, int]:
        """What routes needed since the last report: how many there were, most rows, overflows."""
        counts = _c.sized(_c.mimo_dispatch_counts)
        with self.comm._turn():
            self._wait()
            _c.lib.mimo_dispatch_report(ctypes.byref(counts), self.open())
        return counts.routes, counts.rows, counts.overflows

    def _wait(self) -> None:
        """Wait for a device, at most for the timeout: a read has none. While a stream is captured it fails by itself."""
        if not self._records():
            self.comm.synchronize()

    def _records(self) -> bool:
        """Whether the current stream is being captured."""
        return self.comm.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def _note_recorded(self, route: Route) -> None:
        if self._records():
            self._recorded.add(route)

    def move(self, back: bool, xs: Sequence[torch.Tensor], token: torch.Tensor,
             kinds: str) -> list[torch.Tensor]:
        """Rows to the experts, or back, summed. Collective."""
        with self.comm._turn():
            self._end_routes()
            self.begun += 1
            slot = self._next_slot(back)
            try:
                route = self.route_of(token)
                for x, kind, i in zip(xs, kinds, range(len(xs))):
                    self._check(back, x, kind, f"[{i}]" if len(xs) > 1 else "")
                xs = [_views.plain(x) for x in xs]
                ys, addresses = self._destinations(back, slot, route, xs, kinds)
                views = _views_of(ys, kinds, not back, addresses), _views_of(xs, kinds, back)
                self._note_recorded(route)
            except BaseException as error:
                self._refuse_move(back, error)
                raise
            try:
                for part in self._parts(back, xs, kinds):
                    to, source = (_array([side[i] for i in part]) for side in views)
                    self._functions[back](route.open(), to, source, len(part), self.comm._stream())
            except MimoError as error:
                del ys  # the traceback keeps this frame, but not its slot in use
                if self.buffer is not None and not back:
                    self.buffer.failed(error)
                raise
        return ys

    def guarded_route(self, call: Callable[..., T], *arguments: Any) -> T:
        """A call that makes a route, of which the other ranks learn also where it fails before it has come to
        the library: they would wait for this one."""
        begun = self.begun
        try:
            return call(*arguments)
        except Exception as error:
            tell_others(self, begun, arguments, lambda: self._refuse_route(error))
            raise

    def guarded_move(self, back: bool, call: Callable[..., T], *arguments: Any) -> T:
        """The same for a move."""
        begun = self.begun
        try:
            return call(*arguments)
        except Exception as error:
            def refuse() -> None:
                self._next_slot(back)
                self._refuse_move(back, error)

            tell_others(self, begun, arguments, refuse)
            raise

    # Their parts.

    def route_of(self, token: torch.Tensor) -> Route:
        """The route of a token. ArgumentError where it is another dispatch's."""
        found = _handles.get(int(token))
        if not isinstance(found, Route) or found not in self._routes:
            raise ArgumentError("this route was made by another dispatch")
        return found

    def _checked_ids(self, ids: torch.Tensor) -> torch.Tensor:
        _views.check_tensor("route: ids", ids, "tk", self.comm.device)
        if ids.dtype not in (torch.int32, torch.int64):
            raise ArgumentError(f"route: ids are {ids.dtype}, and must be int32 or int64")
        if ids.shape[1] != self.sizes.choices:
            raise ShapeError(f"route: ids have shape {list(ids.shape)}, and a token has {self.sizes.choices} "
                             "choices (top_k)")
        return _views.plain(ids)

    def _check(self, back: bool, x: torch.Tensor, kind: str, which: str) -> None:
        what = ("combine: the rows" if back else "dispatch: x") if kind == "h" else "the weights"
        _views.check_tensor(what + which, x, LETTERS[kind][back].decode(), self.comm.device)
        if kind == "k" and x.dtype not in (torch.float32, torch.float64):
            raise ArgumentError(f"{what} are {x.dtype}, and must be float32 or float64")
        bytes = x.dtype.itemsize * x.shape[1] if kind == "h" else 0
        if 0 < self.sizes.row_bytes < bytes:
            raise ShapeError(f"{what + which} has rows of {bytes} bytes, and the dispatch has room for "
                             f"{self.sizes.row_bytes}: its hidden and dtype are those of the widest row")

    def _parts(self, back: bool, xs: Sequence[torch.Tensor], kinds: str) -> list[Sequence[int]]:
        """Which tensors move in one call of the library: all. But a combine on a device adds rows of one dtype:
        there is one for each, and values of pairs go with the first."""
        dtypes = [x.dtype for x, kind in zip(xs, kinds) if kind == "h"] if back and self.one_dtype else []
        if len(set(dtypes)) < 2:
            return [range(len(xs))]
        keys = [x.dtype if kind == "h" else dtypes[0] for x, kind in zip(xs, kinds)]
        return [[i for i, key in enumerate(keys) if key == dtype] for dtype in dict.fromkeys(dtypes)]

    def _next_slot(self, back: bool) -> int:
        return 0 if back or self.buffer is None else self.buffer.next_slot()

    def _destinations(self, back: bool, slot: int, route: Route, xs: Sequence[torch.Tensor],
                      kinds: str) -> tuple[list[torch.Tensor], list[int]]:
        """Where results go, and the addresses: a tensor without elements does not tell it."""
        shapes = [self._shape(back, route, x, kind) for x, kind in zip(xs, kinds)]
        if back or self.buffer is None:
            ys = [x.new_empty(shape) for x, shape in zip(xs, shapes)]
            return ys, [_views.address_of(y) for y in ys]
        # What a row takes, which all ranks have alike: they have other numbers of rows.
        widths = [x.dtype.itemsize * (x.shape[1] if kind == "h" else 1) for x, kind in zip(xs, kinds)]
        ys = self.buffer.tensors(slot, [(x.dtype, shape) for x, shape in zip(xs, shapes)], widths)
        return ys, self.buffer.addresses(slot, widths)

    def _shape(self, back: bool, route: Route, x: torch.Tensor, kind: str) -> tuple[int, ...]:
        rows = route.tokens if back else route.rows
        if kind == "h":
            return rows, x.shape[1]
        return (rows, self.sizes.choices) if back else (rows,)

    # This rank can't call. The others wait for it, so it tells them why: then all ranks fail with what this
    # one says.

    def _refuse_route(self, error: BaseException) -> None:
        if self.handle is not None:
            say(error, lambda status: _c.lib.mimo_dispatch_refuse_route(self.handle, status))

    def _refuse_move(self, back: bool, error: BaseException) -> None:
        if self.handle is not None:
            say(error, lambda status: _c.lib.mimo_dispatch_refuse(self.handle, back, status))


def _views_of(xs: Sequence[torch.Tensor], kinds: str, side: bool,
              addresses: Sequence[int] = ()) -> list[_c.mimo_tensor]:
    """Views of tensors on the side of the tokens, or of the experts."""
    views = [_views.view(x, LETTERS[kind][side]) for x, kind in zip(xs, kinds)]
    for view, address in zip(views, addresses):
        view.data = address
    return views


def _array(views: Sequence[_c.mimo_tensor]) -> Any:
    return (_c.mimo_tensor * max(len(views), 1))(*views)
