"""Dispatch: token rows to the ranks of their experts, and the experts' rows back, summed."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, NoReturn, overload

import torch
from torch._subclasses import FakeTensor

from . import _c, _dispatch_ops, _ops, _views
from ._calls import looked_on
from ._dispatching import Dispatching, Sizes
from .buffer import Buffer
from .communicator import Communicator, communicator_of
from .errors import ArgumentError, UnsupportedError

__all__ = ["Dispatch", "DispatchReport", "Route"]

Tensors = list[torch.Tensor] | tuple[torch.Tensor, ...]  # that move in one call


class Route(NamedTuple):
    """What one batch chose: Dispatch.route() makes it, for one layer and micro-batch.

    It serves forward, backward and recomputation, and lives as long as one of them needs it.
    """

    ends: torch.Tensor  # i32 [experts here], on the device: where the rows of each end, for grouped_mm
    token: torch.Tensor  # what stands for it in a graph
    tokens: int  # of this rank
    rows: int  # of this rank's expert tile


class DispatchReport(NamedTuple):
    """What routes needed since the last report."""

    routes: int  # how many there were
    rows: int  # the most rows that a rank's tile needed in one of them
    overflows: int  # routes in which a rank's tile had fewer


class Dispatch:
    """The experts of one or more layers on the ranks of a group, ready to get rows. Collective, blocking.

        route = dispatch.route(ids)                  # [n, k] i32 or i64; -1: no expert
        x_e, w_e = dispatch(x, weights, route)       # [rows, H], [rows]
        h = F.grouped_mm(x_e, w1, offs=route.ends)
        y = dispatch.combine(out, route)             # [n, H]

    Rows of one expert lie together, ordered by (expert, rank, token, choice). A row crosses to a rank once,
    whatever number of its experts lies there. `combine` adds, and does not weight: weights travel with the
    rows, and experts multiply their activation by them. Sums have one order, which does not depend on other
    tokens: <mimo/dispatch.h> has it.

    All ranks pass the same arguments, except `rows`. Every rank makes the same calls in the same order, forward
    and backward, also one without tokens or whose experts get none; what ranks mix up is a MismatchError of all,
    and the next call works (with calls of bridges: see docs/torch.md). Where gradients are enabled, results need
    gradients on every rank, so that backward runs on each.

    CUDA tensors: calls enqueue work and return. With a number of `rows` no call waits for the device, and all
    can be captured in a CUDA graph, whose replays read the ids that are there then: pad with -1. Nobody learns at
    once what happens on the device:
    - an id that is no expert counts as -1;
    - in a tile that is too small the last rows are missing. A token that lost one gets NaN, and so do its
      gradients; report() has the numbers;
    - what ranks mix up is an error of a later call, and ends the dispatch. A mistake that a rank finds before
      it calls is its own: the others wait for it until the timeout.

    experts     E, of all ranks together; rank t + etp * x has those of x, E / ep of them
    top_k       k, the choices of a token
    hidden      H of the widest row
    max_tokens  the most tokens of any rank in a call
    etp         ranks that share an expert, each a part of its inner width
    comm        the group {etp, ep}, etp fastest: comm.group(grid, "etp", "ep"). None: the default
                communicator
    rows        "exact": a tile has the rows that its route needs, and the host waits for that number. Or a
                number of rows, which may differ between ranks: on the CPU a tile that needs more is an error of
                all
    alignment   the first row of each expert is a multiple of it; rows between are zeros
    narrow_sums  partial sums of f16 and bf16 rows travel in that dtype, not in f32
    transport   "auto", "p2p" or "zero_copy"
    buffer      where x_e and the gradient of `out` lie: peers then write straight into their rows. Made from
                `comm`. Rows to ranks out of reach are sent, with a warning as a Bridge's
    dtype       of the widest row. With `tensors`, the most in one call, and `hidden` it decides how much memory
                the dispatch has for rows on their way between devices: docs/torch.md. The CPU needs none
    ctas        thread blocks of a kernel of moves, where other calls of this package run at the same time. They
                are reserved (docs/gpu.md, "Kernels that wait"). 0: MIMO_CTAS, or what suits the device
    name        in sentences; None: its number

    Errors, the same on every rank: ArgumentError, GridError, UnsupportedError, MismatchError,
    SizeOverflowError.
    """

    def __init__(self, *, experts: int, top_k: int, hidden: int, max_tokens: int, etp: int = 1,
                 comm: Communicator | None = None, rows: int | Literal["exact"] = "exact", alignment: int = 1,
                 narrow_sums: bool = False, transport: str = "auto", buffer: Buffer | None = None,
                 dtype: torch.dtype = torch.float32, tensors: int = 1, ctas: int = 0,
                 name: str | None = None) -> None:
        self.comm = communicator_of("Dispatch", comm)
        self.experts, self.top_k, self.etp, self.ctas = experts, top_k, etp, ctas

        def describe() -> tuple[_c.mimo_dispatch_desc, int]:
            if buffer is not None and (not isinstance(buffer, Buffer) or buffer.comm is not self.comm):
                raise ArgumentError(f"Dispatch: {buffer!r} is no Buffer of this communicator")
            if transport not in _c.TRANSPORTS:
                raise ArgumentError(f"Dispatch: a transport is one of {', '.join(_c.TRANSPORTS)}, not "
                                    f"{transport!r}")
            if not isinstance(dtype, torch.dtype):
                raise ArgumentError(f"Dispatch: dtype is {dtype!r}, and must be a torch.dtype")
            desc = _c.sized(_c.mimo_dispatch_desc, experts=experts, top_k=top_k, etp=etp, hidden=hidden,
                            max_tokens=max_tokens, alignment=alignment, narrow_sums=narrow_sums,
                            transport=_c.TRANSPORTS[transport], ctas=ctas, tensors=tensors,
                            row_bytes=_c.whole("Dispatch: hidden", hidden) * dtype.itemsize,
                            buffers_only=buffer is not None)
            if name is not None:
                desc.name = _c.text("Dispatch: name", name)
            return desc, _capacity_of("Dispatch: rows", rows)

        desc, self.rows = self.comm._together("Dispatch", describe)
        self.comm._alike("Dispatch", f"rows={'exact' if self.rows < 0 else 'a number'}, "
                                     f"buffer={buffer is not None}")
        handle = ctypes.c_void_p()
        with self.comm._turn() as parent:
            _c.lib.mimo_dispatch_create(ctypes.byref(handle), parent, ctypes.byref(desc))
            self.experts_here = experts * etp // self.comm.size
            row_bytes = desc.row_bytes if self.comm.device.type == "cuda" else 0
            sizes = Sizes(self.experts_here, top_k, row_bytes)
            self._dispatching = Dispatching(self.comm, handle, sizes, buffer)
        self._number = self._dispatching.number
        self._anchor = torch.empty(0, device=self.comm.device, requires_grad=True)

    # Calls.

    def route(self, ids: torch.Tensor, rows: int | Literal["exact"] | None = None) -> Route:
        """A route for these ids. Collective. It blocks the host on the CPU, and on a device with rows="exact".

        ids   [n, k], i32 or i64: the experts of each of this rank's tokens, -1: none. An id twice in a token
              is two rows
        rows  of this route's tile, in place of the dispatch's: "exact" to repeat what did not fit

        A route that is made, or used, while a stream is captured lives until the dispatch is closed.

        Errors, on every rank: ShapeError (more than max_tokens tokens, an id that is no expert, a tile that
        needs more rows than it has: with the number), ArgumentError, MismatchError, StateError (closed),
        DeadlineError, AbortedError, CommError. With rows="exact" UnsupportedError under torch.compile, and
        StateError while a stream is captured.
        """
        if torch.compiler.is_compiling():
            return self._route(ids, rows)
        return self._dispatching.guarded_route(self._route, ids, rows)

    def _route(self, ids: torch.Tensor, rows: int | Literal["exact"] | None) -> Route:
        _views.check_strided("route: ids", ids)
        _ops.refuse_export("a dispatch")
        capacity = self.rows if rows is None else _capacity_of("route: rows", rows)
        if looked_on(ids):
            ends, token = _dispatch_ops.route(ids, self._number, self.experts_here, capacity)
        else:
            ends, token = self._dispatching.set(ids, capacity)
        return Route(ends, token, ids.shape[0], self._rows_of(token) if capacity < 0 else capacity)

    def _rows_of(self, token: torch.Tensor) -> int:
        if torch.compiler.is_compiling() or isinstance(token, FakeTensor):
            raise UnsupportedError('route: a graph has tensors of fixed shapes: give the Dispatch a number of '
                                   'rows, in place of "exact"')
        return self._dispatching.route_of(token).rows

    @overload
    def __call__(self, x: torch.Tensor, weights: None, route: Route) -> tuple[torch.Tensor, None]: ...

    @overload
    def __call__(self, x: torch.Tensor, weights: torch.Tensor,
                 route: Route) -> tuple[torch.Tensor, torch.Tensor]: ...

    @overload
    def __call__(self, x: Tensors, weights: torch.Tensor | None,
                 route: Route) -> tuple[list[torch.Tensor], torch.Tensor | None]: ...

    def __call__(self, x: Any, weights: torch.Tensor | None, route: Route) -> tuple[Any, Any]:
        """Rows to the experts. Differentiable in x and weights. Collective, blocking on the host.

        x        [n, H], this rank's tokens. Or a list of such tensors, which move in one call: each with its
                 own width and dtype (scales, ids), these the same on all ranks. Those that are not f16, bf16,
                 f32 or f64 have no gradients
        weights  [n, k] f32 or f64, a number for each pair; None: no weights move
        returns  x_e [rows, H], or a list; and weights of the rows [rows], or None. Rows of padding, between
                 experts, are zeros. Rows behind the last end are not written

        Errors, on every rank: ShapeError, ArgumentError, MismatchError, StateError (closed; a slot in use),
        UnsupportedError (torch.func.grad, jvp), DeadlineError, AbortedError, CommError.
        """
        if torch.compiler.is_compiling():
            return self._rows(x, weights, route)
        return self._dispatching.guarded_move(False, self._rows, x, weights, route)

    def _rows(self, x: Any, weights: torch.Tensor | None, route: Route) -> tuple[Any, Any]:
        several, xs = isinstance(x, (list, tuple)), _listed("dispatch: x", x)
        pairs = [] if weights is None else [weights]
        self._check_route(route)
        _ops.refuse_transforms("a dispatch", *_flat("dispatch: x", xs, "th"), *_flat("the weights", pairs, "tk"))
        found = _dispatch_ops.move(self._dispatching, False, [*xs, *pairs], self._anchor_beside(xs), route.token,
                                   "h" * len(xs) + "k" * len(pairs), [route.rows])
        x_e = found[:len(xs)]
        return x_e if several else x_e[0], found[-1] if pairs else None

    @overload
    def combine(self, out: torch.Tensor, route: Route) -> torch.Tensor: ...

    @overload
    def combine(self, out: Tensors, route: Route) -> list[torch.Tensor]: ...

    def combine(self, out: Any, route: Route) -> Any:
        """The sum of the experts' rows of each token. Differentiable. Collective, blocking on the host.

        out      [rows, H], f16, bf16, f32 or f64, or a list. Rows of padding, and behind the last end, are not
                 read. Gradients of those are 0, and gradients of these are not written
        returns  [n, H], or a list: 0 for a token without an expert

        Errors: as those of a call.
        """
        if torch.compiler.is_compiling():
            return self._combine(out, route)
        return self._dispatching.guarded_move(True, self._combine, out, route)

    def _combine(self, out: Any, route: Route) -> Any:
        several, outs = isinstance(out, (list, tuple)), _listed("combine: the rows", out)
        self._check_route(route)
        _ops.refuse_transforms("a dispatch", *_flat("combine: the rows", outs, "th"))
        found = _dispatch_ops.move(self._dispatching, True, outs, self._anchor_beside(outs), route.token,
                                   "h" * len(outs), [route.tokens, self.top_k])
        return found if several else found[0]

    def report(self) -> DispatchReport:
        """What routes needed since the last report, replays of graphs included: for a trainer that sizes `rows`.
        Local; on a device it waits for the work on the current stream. StateError while that is captured."""
        return DispatchReport(*self._dispatching.report())

    def close(self) -> None:
        """Release the dispatch and its routes on every rank. Collective, blocking. Again: nothing."""
        if self._dispatching.handle is not None and not self.comm.closed:
            self.comm._close_child(self._dispatching)

    def __deepcopy__(self, _memo: dict[int, Any]) -> NoReturn:
        raise TypeError("a Dispatch can't be copied: it is this rank's end of something that all ranks share")

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError("a Dispatch can't be copied or pickled: it belongs to its process")

    def __repr__(self) -> str:
        return (f"<mimo_bridge.Dispatch of {self.experts} experts, {self.top_k} for a token, on "
                f"{self.comm.size} ranks, etp={self.etp}>")

    # What calls have in common.

    def _check_route(self, route: Route) -> None:
        if not isinstance(route, Route):
            raise ArgumentError(f"this dispatch got {type(route).__name__} in place of a Route")

    def _anchor_beside(self, xs: Sequence[torch.Tensor]) -> torch.Tensor:
        """With it backward runs on every rank, also where nothing here needs gradients."""
        return _ops.like(xs[0], self._anchor)


def _capacity_of(what: str, rows: int | Literal["exact"]) -> int:
    return -1 if rows == "exact" else _c.whole(what, rows, 0)


def _listed(what: str, x: Any) -> list[torch.Tensor]:
    """A tensor, or several, as a list."""
    xs = [*x] if isinstance(x, (list, tuple)) else [x]
    if not xs:
        raise ArgumentError(f"{what} is a list without tensors")
    return xs


def _flat(what: str, xs: Sequence[torch.Tensor], letters: str) -> Sequence[torch.Tensor]:
    """xs, whose shapes can be read."""
    for x in xs:
        _views.check_strided(what, x)
        _views.check_letters(what, x, letters)
    return xs
