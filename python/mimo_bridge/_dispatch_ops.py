"""The moves of a dispatch as autograd and torch.compile know them: rows and combine, each the other's
gradient, and what makes a route.

A route is a token here, a tensor of one number: operators take no objects, and what holds the tensor until
backward (autograd, a checkpoint, a compiled graph) holds the route. Where nothing but autograd looks on,
torch.autograd.Function does what the operators do, in less of the host's time.

`kinds` has a letter for each tensor: "h" rows, "k" a number for each pair.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, cast

import torch
from torch import Tensor
from torch.library import custom_op

from . import _handles
from ._calls import looked_on
from ._dispatching import SUMS, Dispatching
from ._ops import keep_order, spread

Ctx = Any  # torch has no public type of it


# ------------------------------------------ the operators -----------------------------------------


@custom_op("mimo_bridge::route", mutates_args=())
def route(ids: Tensor, dispatch: int, experts_here: int, capacity: int) -> tuple[Tensor, Tensor]:
    made: tuple[Tensor, Tensor] = _handles.get(dispatch).set(ids, capacity)
    return made


@custom_op("mimo_bridge::dispatch_rows", mutates_args=())
def rows(xs: Sequence[Tensor], anchor: Tensor, token: Tensor, dispatch: int, kinds: str,
         shape: Sequence[int]) -> list[Tensor]:
    """shape: (rows of the experts' side,)"""
    result: list[Tensor] = _handles.get(dispatch).move(False, xs, token, kinds)
    return result


@custom_op("mimo_bridge::dispatch_combine", mutates_args=())
def combine(xs: Sequence[Tensor], anchor: Tensor, token: Tensor, dispatch: int, kinds: str,
            shape: Sequence[int]) -> list[Tensor]:
    """shape: (tokens, k)"""
    result: list[Tensor] = _handles.get(dispatch).move(True, xs, token, kinds)
    return result


@route.register_fake
def _(ids: Tensor, dispatch: int, experts_here: int, capacity: int) -> tuple[Tensor, Tensor]:
    return (ids.new_empty(experts_here, dtype=torch.int32),
            ids.new_empty(1, dtype=torch.int64, device="cpu"))


@rows.register_fake
def _(xs: Sequence[Tensor], anchor: Tensor, token: Tensor, dispatch: int, kinds: str,
      shape: Sequence[int]) -> list[Tensor]:
    return [x.new_empty((shape[0], x.shape[1]) if kind == "h" else (shape[0],))
            for x, kind in zip(xs, kinds)]


@combine.register_fake
def _(xs: Sequence[Tensor], anchor: Tensor, token: Tensor, dispatch: int, kinds: str,
      shape: Sequence[int]) -> list[Tensor]:
    return [x.new_empty((shape[0], x.shape[1] if kind == "h" else shape[1])) for x, kind in zip(xs, kinds)]


def _keep(ctx: Ctx, xs: Sequence[Tensor], dispatch: int, kinds: str) -> None:
    ctx.dispatch, ctx.moved = dispatch, have_gradients(xs)
    ctx.kinds = "".join(compress(kinds, ctx.moved))
    ctx.owner = None if torch.compiler.is_compiling() else _handles.get(dispatch)


def _rows_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    xs, _, token, dispatch, kinds, _ = inputs
    ctx.save_for_backward(token)
    ctx.shape = tokens_and_choices(xs, kinds)
    _keep(ctx, xs, dispatch, kinds)


def _combine_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    xs, _, token, dispatch, kinds, _ = inputs
    ctx.save_for_backward(token)
    ctx.shape = [xs[0].shape[0]]
    _keep(ctx, xs, dispatch, kinds)


def _gradient_by(op: Any) -> Any:
    def gradient(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
        back = op(list(compress(grads, ctx.moved)), grads[0].new_empty(0), *ctx.saved_tensors, ctx.dispatch,
                  ctx.kinds, ctx.shape)
        return spread(ctx.moved, back), None, None, None, None, None

    return gradient


rows.register_autograd(_gradient_by(combine), setup_context=_rows_context)
combine.register_autograd(_gradient_by(rows), setup_context=_combine_context)
keep_order(route, rows, combine)


def have_gradients(xs: Sequence[Tensor]) -> list[bool]:
    """Which tensors can have gradients: a combine adds no whole numbers and no bytes."""
    return [x.dtype in SUMS for x in xs]


def tokens_and_choices(xs: Sequence[Tensor], kinds: str) -> list[int]:
    """(tokens, k) by tensors on the side of the tokens. k is 0 where no tensor tells it: then none asks."""
    return [xs[0].shape[0], next((x.shape[1] for x, kind in zip(xs, kinds) if kind == "k"), 0)]


# ---------------------------------------- the same, quicker ---------------------------------------


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, anchor: Tensor, dispatching: Dispatching, token: Tensor, kinds: str,
                *xs: Tensor) -> tuple[Tensor, ...]:
        return _move(ctx, False, dispatching, token, kinds, xs)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _move_back(ctx, True, grads)


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, anchor: Tensor, dispatching: Dispatching, token: Tensor, kinds: str,
                *xs: Tensor) -> tuple[Tensor, ...]:
        return _move(ctx, True, dispatching, token, kinds, xs)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _move_back(ctx, False, grads)


def _move(ctx: Ctx, back: bool, dispatching: Dispatching, token: Tensor, kinds: str,
          xs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    ctx.dispatching, ctx.token, ctx.moved = dispatching, token, have_gradients(xs)
    ctx.kinds = "".join(compress(kinds, ctx.moved))
    ctx.shape = [xs[0].shape[0]] if back else tokens_and_choices(xs, kinds)
    ys = dispatching.move(back, xs, token, kinds)
    ctx.mark_non_differentiable(*[y for y, moved in zip(ys, ctx.moved) if not moved])
    return tuple(ys)


def _move_back(ctx: Ctx, back: bool, grads: Sequence[Tensor]) -> tuple[Any, ...]:
    taken = list(compress(grads, ctx.moved))
    if torch.is_grad_enabled() or any(looked_on(grad) for grad in taken):
        moved = move(ctx.dispatching, back, taken, grads[0].new_empty(0), ctx.token, ctx.kinds, ctx.shape)
    else:
        moved = ctx.dispatching.move(back, taken, ctx.token, ctx.kinds)
    return None, None, None, None, *spread(ctx.moved, moved)


_apply: tuple[Any, Any] = _Rows.apply, _Combine.apply  # torch does not annotate them


def move(dispatching: Dispatching, back: bool, xs: Sequence[Tensor], anchor: Tensor, token: Tensor,
         kinds: str, shape: Sequence[int]) -> list[Tensor]:
    """Rows, or combine where `back`, with gradients. shape: (rows,) of the experts, or (tokens, k)."""
    if any(looked_on(x) for x in (*xs, token)):
        op: Any = combine if back else rows
        return cast(list[Tensor], op(xs, anchor, token, dispatching.number, kinds, shape))
    return list(_apply[back](anchor, dispatching, token, kinds, *xs))
