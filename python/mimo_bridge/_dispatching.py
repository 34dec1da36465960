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
    capacity: int  # rows of this rank's tile; -1: as many as a route needs


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
        self._functions = _c.lib.mimo_dispatch_rows, _c.lib.mimo_dispatch_combine
        self.begun = 0  # calls that reached the library, or told it that they can't
        self.number = _handles.add(self)
        comm._children.append(self)

    def in_use(self) -> str | None:
        return None

    def release(self) -> None:
        handle, self.handle = self.handle, None
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

    def set(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A new route: (ends i32 [experts here], its token). Collective."""
        with self.comm._turn():
            self.begun += 1
            try:
                ids = self._checked_ids(ids)
                desc = _c.sized(_c.mimo_route_desc, ids=_views.address_of(ids), capacity=self.sizes.capacity,
                                id_dtype=_views.DTYPES[ids.dtype], tokens=ids.shape[0])
                handle = self._create_route()
            except BaseException as error:
                self._refuse_route(error)
                raise
            try:
                _c.lib.mimo_route_set(handle, ctypes.byref(desc), self.comm._stream())
                return self._made(handle, ids.shape[0])
            except BaseException:
                self.ended.append(handle)
                raise

    def _create_route(self) -> ctypes.c_void_p:
        """A C route. One whose call failed is destroyed before, so that ranks number their routes alike."""
        self._end_routes()
        handle = ctypes.c_void_p()
        _c.lib.mimo_route_create(ctypes.byref(handle), self.open())
        return handle

    def _made(self, handle: ctypes.c_void_p, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = ctypes.POINTER(ctypes.c_int32)()
        _c.lib.mimo_route_ends(ctypes.byref(found), handle)
        ends = torch.tensor(found[:self.sizes.experts_here], dtype=torch.int32, device="cpu")
        rows = self.sizes.capacity if self.sizes.capacity >= 0 else int(ends[-1])
        route = Route(self, handle, tokens, rows)
        self._routes.add(route)
        number = _Number(route.number)
        number.route = route
        return ends, torch.frombuffer(number, dtype=torch.int64)

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
                to, source = _array(ys, kinds, not back, addresses), _array(xs, kinds, back)
            except BaseException as error:
                self._refuse_move(back, error)
                raise
            try:
                self._functions[back](route.open(), to, source, len(xs), self.comm._stream())
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


def _array(xs: Sequence[torch.Tensor], kinds: str, side: bool, addresses: Sequence[int] = ()) -> Any:
    """Views of tensors on the side of the tokens, or of the experts, as an array of C."""
    views = [_views.view(x, LETTERS[kind][side]) for x, kind in zip(xs, kinds)]
    for view, address in zip(views, addresses):
        view.data = address
    return (_c.mimo_tensor * max(len(views), 1))(*views)
