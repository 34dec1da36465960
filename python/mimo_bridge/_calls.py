"""A bridge's calls as autograd sees them: by torch.autograd.Function where nothing but autograd looks
on, otherwise by the custom ops, which torch.compile, fake tensors and dispatch modes understand.

The two do the same. The short way takes half of the host's time, and does not import the compiler.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from . import _ops
from ._movement import Movement

Ctx = Any  # torch has no public type of it
_PLAIN = (Tensor, torch.nn.Parameter)


def looked_on(x: Tensor) -> bool:
    """Whether something else than autograd wants to see the operator."""
    return (type(x) not in _PLAIN or torch.compiler.is_compiling()
            or torch._C._len_torch_dispatch_stack() > 0
            or torch._C._functorch.maybe_current_level() is not None)


def forward(movement: Movement, x: Tensor, anchor: Tensor, shape: Sequence[int], call: int) -> Tensor:
    if looked_on(x):
        return cast(Tensor, _ops.forward(x, anchor, movement.number, shape, call))
    return eager(movement, x, anchor, shape, call)


def eager(movement: Movement, x: Tensor, anchor: Tensor, shape: Sequence[int], call: int) -> Tensor:
    """forward(), where x was not looked_on()."""
    return cast(Tensor, _apply_forward(_unwrapped(x), anchor, movement, shape, call))


def backward(movement: Movement, x: Tensor, shape: Sequence[int], call: int) -> Tensor:
    if looked_on(x):
        return cast(Tensor, _ops.backward(x, movement.number, shape, call))
    return cast(Tensor, _apply_backward(x, movement, shape, call))


def place(movement: Movement, tile: Tensor, x: Tensor, anchor: Tensor, call: int) -> Tensor:
    if looked_on(x) or looked_on(tile):
        return cast(Tensor, _ops.place(tile, x, anchor, movement.number, call))
    return cast(Tensor, _apply_place(tile, x, anchor, movement, call))


def place_backward(movement: Movement, y: Tensor, shape: Sequence[int],
                   call: int) -> tuple[Tensor, Tensor]:
    if looked_on(y):
        return cast(tuple[Tensor, Tensor], _ops.place_backward(y, movement.number, shape, call))
    return cast(tuple[Tensor, Tensor], _apply_place_backward(y, movement, shape, call))


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, x: Tensor, anchor: Tensor, movement: Movement, shape: Sequence[int],
                call: int) -> Tensor:
        ctx.movement, ctx.shape, ctx.call = movement, x.shape, call
        return movement.move(False, x, shape, call)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        if torch.is_grad_enabled() or looked_on(grad):
            return backward(ctx.movement, grad, ctx.shape, ctx.call), None, None, None, None
        return ctx.movement.move(True, grad, ctx.shape, ctx.call), None, None, None, None


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, x: Tensor, movement: Movement, shape: Sequence[int], call: int) -> Tensor:
        ctx.movement, ctx.shape, ctx.call = movement, x.shape, call
        return movement.move(True, x, shape, call)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor = grads[0].new_empty(0)
        return forward(ctx.movement, grads[0], anchor, ctx.shape, ctx.call), None, None, None


class _Place(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, tile: Tensor, x: Tensor, anchor: Tensor, movement: Movement,
                call: int) -> Tensor:
        ctx.movement, ctx.shape, ctx.call = movement, x.shape, call
        return movement.place(tile, x, call)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *place_backward(ctx.movement, grads[0], ctx.shape, ctx.call), None, None, None


class _PlaceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, y: Tensor, movement: Movement, shape: Sequence[int],
                call: int) -> tuple[Tensor, Tensor]:
        ctx.movement, ctx.call = movement, call
        return movement.unplace(y, shape, call)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor = grads[0].new_empty(0)
        return place(ctx.movement, grads[0], grads[1], anchor, ctx.call), None, None, None


# torch does not annotate apply. That of Function looks for tensors of functorch and then calls this one;
# looked_on() has found no functorch, and only a tensor that outlived one could be there.
_apply_forward: Any = super(torch.autograd.Function, _Forward).apply
_unwrapped: Any = torch._C._functorch.unwrap_if_dead
_apply_backward: Any = _Backward.apply
_apply_place: Any = _Place.apply
_apply_place_backward: Any = _PlaceBackward.apply
