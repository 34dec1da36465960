"""A bridge's calls as autograd sees them: by torch.autograd.Function where nothing but autograd looks
on, otherwise by the custom ops, which torch.compile, fake tensors and dispatch modes understand.

The two do the same. The short way takes half of the host's time, and does not import the compiler.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, cast

import torch
from torch import Tensor

from . import _ops
from ._movement import Movement, Shapes

Ctx = Any  # torch has no public type of it
_PLAIN = (Tensor, torch.nn.Parameter)


def looked_on(x: object) -> bool:
    """Whether something else than autograd wants to see the operator. True of what is no tensor."""
    return (type(x) not in _PLAIN or torch.compiler.is_compiling()
            or torch._C._len_torch_dispatch_stack() > 0
            or torch._C._functorch.maybe_current_level() is not None)


def forward(movement: Movement, x: Tensor, anchor: Tensor, shape: Sequence[int], call: int) -> Tensor:
    if looked_on(x):
        return cast(Tensor, _ops.forward(x, anchor, movement.number, shape, call))
    return eager(movement, x, anchor, tuple(shape), call)


def eager(movement: Movement, x: Tensor, anchor: Tensor, shape: tuple[int, ...], call: int) -> Tensor:
    """forward(), where x was not looked_on()."""
    return _apply_forward(_unwrapped(x), anchor, movement, shape, call)


def backward(movement: Movement, x: Tensor, shape: tuple[int, ...], call: int) -> Tensor:
    if looked_on(x):
        return cast(Tensor, _ops.backward(x, movement.number, shape, call))
    return cast(Tensor, _apply_backward(x, movement, shape, call))


def place(movement: Movement, tile: Tensor, x: Tensor, anchor: Tensor, call: int) -> Tensor:
    if looked_on(x) or looked_on(tile):
        return cast(Tensor, _ops.place(tile, x, anchor, movement.number, call))
    return cast(Tensor, _apply_place_all(anchor, movement, call, tile, x)[0])


def forward_all(movement: Movement, xs: Sequence[Tensor], anchor: Tensor, shapes: Shapes,
                call: int) -> list[Tensor]:
    if _any_looked_on(xs):
        return cast(list[Tensor], _ops.forward_all(xs, anchor, movement.number, _ops.joined(shapes), call))
    return list(_apply_forward_all(anchor, movement, shapes, call, *xs))


def backward_all(movement: Movement, xs: Sequence[Tensor], shapes: Shapes, call: int) -> list[Tensor]:
    if _any_looked_on(xs):
        return cast(list[Tensor], _ops.backward_all(xs, movement.number, _ops.joined(shapes), call))
    return list(_apply_backward_all(movement, shapes, call, *xs))


def place_all(movement: Movement, tiles: Sequence[Tensor], xs: Sequence[Tensor], anchor: Tensor,
              call: int) -> list[Tensor]:
    if _any_looked_on([*tiles, *xs]):
        return cast(list[Tensor], _ops.place_all(tiles, xs, anchor, movement.number, call))
    return list(_apply_place_all(anchor, movement, call, *tiles, *xs))


def place_all_backward(movement: Movement, ys: Sequence[Tensor], shapes: Shapes,
                       call: int) -> list[Tensor]:
    if _any_looked_on(ys):
        return cast(list[Tensor], _ops.place_all_backward(ys, movement.number, _ops.joined(shapes), call))
    return list(_apply_place_all_backward(movement, shapes, call, *ys))


def _any_looked_on(xs: Sequence[Tensor]) -> bool:
    return any(looked_on(x) for x in xs)


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, x: Tensor, anchor: Tensor, movement: Movement, shape: tuple[int, ...],
                call: int) -> Tensor:
        ctx.back = movement, x.shape, call
        return movement.move(False, x, shape, call)

    @staticmethod
    def backward(ctx: Ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        movement, shape, call = ctx.back
        if torch.is_grad_enabled() or looked_on(grad):
            return backward(movement, grad, shape, call), None, None, None, None
        return movement.move(True, grad, shape, call), None, None, None, None


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, x: Tensor, movement: Movement, shape: tuple[int, ...], call: int) -> Tensor:
        ctx.movement, ctx.shape, ctx.call = movement, x.shape, call
        return movement.move(True, x, shape, call)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor = grads[0].new_empty(0)
        return forward(ctx.movement, grads[0], anchor, ctx.shape, ctx.call), None, None, None


class _ForwardAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, anchor: Tensor, movement: Movement, shapes: Shapes, call: int,
                *xs: Tensor) -> tuple[Tensor, ...]:
        _keep(ctx, movement, call, xs)
        return tuple(movement.move_all(False, xs, shapes, call))

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        moved = backward_all(ctx.movement, list(compress(grads, ctx.moved)), ctx.shapes, ctx.call)
        return None, None, None, None, *_ops.spread(ctx.moved, moved)


class _BackwardAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, movement: Movement, shapes: Shapes, call: int,
                *xs: Tensor) -> tuple[Tensor, ...]:
        _keep(ctx, movement, call, xs)
        return tuple(movement.move_all(True, xs, shapes, call))

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor = grads[0].new_empty(0)
        return None, None, None, *forward_all(ctx.movement, grads, anchor, ctx.shapes, ctx.call)


class _PlaceAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, anchor: Tensor, movement: Movement, call: int,
                *both: Tensor) -> tuple[Tensor, ...]:
        tiles, xs = both[:len(both) // 2], both[len(both) // 2:]
        _keep(ctx, movement, call, xs)
        return tuple(movement.move_all(False, xs, [tile.shape for tile in tiles], call, tiles))

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        moved = list(compress(grads, ctx.moved))
        both = place_all_backward(ctx.movement, moved, ctx.shapes, ctx.call)
        return None, None, None, *_ops.spread([*ctx.moved, *ctx.moved], both)


class _PlaceAllBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, movement: Movement, shapes: Shapes, call: int,
                *ys: Tensor) -> tuple[Tensor, ...]:
        ctx.movement, ctx.call = movement, call
        return tuple(movement.unplace(ys, shapes, call))

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchor, n = grads[0].new_empty(0), len(grads) // 2
        return None, None, None, *place_all(ctx.movement, grads[:n], grads[n:], anchor, ctx.call)


def _keep(ctx: Ctx, movement: Movement, call: int, xs: Sequence[Tensor]) -> None:
    ctx.movement, ctx.call = movement, call
    ctx.moved = [x.is_floating_point() for x in xs]  # the others can have no gradient
    ctx.shapes = list(compress([x.shape for x in xs], ctx.moved))


# torch does not annotate apply. That of Function looks for tensors of functorch and then calls this one;
# looked_on() has found no functorch, and only a tensor that outlived one could be there.
_apply_forward: Callable[..., Tensor] = super(torch.autograd.Function, _Forward).apply
_unwrapped: Any = torch._C._functorch.unwrap_if_dead
_apply_backward: Any = _Backward.apply
_apply_forward_all: Any = _ForwardAll.apply
_apply_backward_all: Any = _BackwardAll.apply
_apply_place_all: Any = _PlaceAll.apply
_apply_place_all_backward: Any = _PlaceAllBackward.apply
