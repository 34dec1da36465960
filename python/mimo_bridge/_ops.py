"""The custom ops: what autograd and torch.compile know of this package.

An op takes the number of an object (_handles.py) and the shape of its result, which is computed
before, from the shapes of its arguments. So the fake kernels ask no other rank. The pairs are each
other's gradient, so higher derivatives work as well.

`anchor` is an empty tensor that needs gradients. With it backward runs on every rank, also where x
needs none.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.library import custom_op

from . import _handles
from .errors import UnsupportedError

Ctx = Any  # torch has no public type of it


def refuse_export(what: str) -> None:
    """UnsupportedError under torch.export: the graph would have the number of an object of this process."""
    # torch.compiler.is_exporting() is always true where Dynamo traces (torch 2.11)
    if getattr(torch.compiler, "_is_exporting_flag", False):
        raise UnsupportedError(f"torch.export can't take {what}: it is an object of this process, which the graph "
                               "would not find elsewhere. Export the modules on either side")


def refuse_transforms(what: str, *tensors: Tensor) -> None:
    """UnsupportedError under torch.export, and where torch.func or forward-mode AD wants a derivative of these: a
    custom op would lose it without a word (torch 2.11)."""
    refuse_export(what)
    duals: Any = forward_ad  # torch does not annotate it
    compiling = torch.compiler.is_compiling()  # then tangents can't be looked at: no dual level at all
    if duals._current_level >= 0 and (compiling or any(
            duals.unpack_dual(x).tangent is not None for x in tensors)):
        raise UnsupportedError(f"{what} has no forward-mode derivative (torch.func.jvp), only a "
                               "backward")
    if compiling:
        return  # the compiler refuses the others itself
    transform = torch._C._functorch.peek_interpreter_stack()
    if transform is not None and transform.key() == torch._C._functorch.TransformType.Grad:
        raise UnsupportedError(f"{what} has no derivative under torch.func (grad, vjp, jacrev): take "
                               "torch.autograd.grad")


def like(x: Tensor, anchor: Tensor) -> Tensor:
    """An anchor beside x: a fake tensor goes with fake tensors alone."""
    if torch.compiler.is_compiling() or not isinstance(x, FakeTensor):
        return anchor
    return x.new_empty(0).requires_grad_(anchor.requires_grad)


# ------------------------------------------ bridges ------------------------------------------


@custom_op("mimo_bridge::forward", mutates_args=())
def forward(x: Tensor, anchor: Tensor, bridge: int, shape: Sequence[int], call: int) -> Tensor:
    result: Tensor = _handles.get(bridge).move(False, x, tuple(shape), call)
    return result


@custom_op("mimo_bridge::backward", mutates_args=())
def backward(x: Tensor, bridge: int, shape: Sequence[int], call: int) -> Tensor:
    result: Tensor = _handles.get(bridge).move(True, x, tuple(shape), call)
    return result


@custom_op("mimo_bridge::place", mutates_args=())
def place(tile: Tensor, x: Tensor, anchor: Tensor, bridge: int, call: int) -> Tensor:
    result: Tensor = _handles.get(bridge).move_all(False, [x], [tile.shape], call, [tile])[0]
    return result


@custom_op("mimo_bridge::place_backward", mutates_args=())
def place_backward(y: Tensor, bridge: int, shape: Sequence[int],
                   call: int) -> tuple[Tensor, Tensor]:
    tile, x = _handles.get(bridge).unplace([y], [shape], call)
    return tile, x


@forward.register_fake
def _(x: Tensor, anchor: Tensor, bridge: int, shape: Sequence[int], call: int) -> Tensor:
    return x.new_empty(shape)


@backward.register_fake
def _(x: Tensor, bridge: int, shape: Sequence[int], call: int) -> Tensor:
    return x.new_empty(shape)


@place.register_fake
def _(tile: Tensor, x: Tensor, anchor: Tensor, bridge: int, call: int) -> Tensor:
    return tile.new_empty(tile.shape)


@place_backward.register_fake
def _(y: Tensor, bridge: int, shape: Sequence[int], call: int) -> tuple[Tensor, Tensor]:
    return y.new_empty(y.shape), y.new_empty(shape)


def _empty(x: Tensor) -> Tensor:
    """An anchor for a gradient's own forward, which needs none."""
    return x.new_empty(0)


def _forward_context(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shape, ctx.bridge, ctx.call = inputs[0].shape, inputs[2], inputs[4]
    ctx.owner = _owner(ctx.bridge)


def _forward_gradient(ctx: Ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    return backward(grad, ctx.bridge, ctx.shape, ctx.call), None, None, None, None


def _backward_context(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shape, ctx.bridge, ctx.call = inputs[0].shape, inputs[1], inputs[3]
    ctx.owner = _owner(ctx.bridge)


def _backward_gradient(ctx: Ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    return forward(grad, _empty(grad), ctx.bridge, ctx.shape, ctx.call), None, None, None


def _place_context(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shape, ctx.bridge, ctx.call = inputs[1].shape, inputs[3], inputs[4]
    ctx.owner = _owner(ctx.bridge)


def _place_gradient(ctx: Ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *place_backward(grad, ctx.bridge, ctx.shape, ctx.call), None, None, None


def _place_backward_context(ctx: Ctx, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.bridge, ctx.call = inputs[1], inputs[3]
    ctx.owner = _owner(ctx.bridge)


def _place_backward_gradient(ctx: Ctx, tile: Tensor, x: Tensor) -> tuple[Tensor | None, ...]:
    return place(tile, x, _empty(tile), ctx.bridge, ctx.call), None, None, None


forward.register_autograd(_forward_gradient, setup_context=_forward_context)
backward.register_autograd(_backward_gradient, setup_context=_backward_context)
place.register_autograd(_place_gradient, setup_context=_place_context)
place_backward.register_autograd(_place_backward_gradient, setup_context=_place_backward_context)


# --------------------------- several tensors in one call of a bridge ---------------------------
#
# Shapes lie one behind the other. They have equally many dimensions. Tensors that can have no gradient (of
# whole numbers) take no part in backward: all ranks know which.


def each(shapes: Sequence[int], n: int) -> list[Sequence[int]]:
    dims = len(shapes) // n
    return [shapes[i * dims:(i + 1) * dims] for i in range(n)]


def joined(shapes: Iterable[Sequence[int]]) -> list[int]:
    return [size for shape in shapes for size in shape]


def spread(moved: Sequence[bool], gradients: Iterable[Tensor]) -> list[Tensor | None]:
    """Gradients of the tensors that take part in backward; None of the others."""
    left = iter(gradients)
    return [next(left) if one else None for one in moved]


@custom_op("mimo_bridge::forward_all", mutates_args=())
def forward_all(xs: Sequence[Tensor], anchor: Tensor, bridge: int, shapes: Sequence[int],
                call: int) -> list[Tensor]:
    result: list[Tensor] = _handles.get(bridge).move_all(False, xs, each(shapes, len(xs)), call)
    return result


@custom_op("mimo_bridge::backward_all", mutates_args=())
def backward_all(xs: Sequence[Tensor], bridge: int, shapes: Sequence[int], call: int) -> list[Tensor]:
    result: list[Tensor] = _handles.get(bridge).move_all(True, xs, each(shapes, len(xs)), call)
    return result


@custom_op("mimo_bridge::place_all", mutates_args=())
def place_all(tiles: Sequence[Tensor], xs: Sequence[Tensor], anchor: Tensor, bridge: int,
              call: int) -> list[Tensor]:
    shapes = [tile.shape for tile in tiles]
    result: list[Tensor] = _handles.get(bridge).move_all(False, xs, shapes, call, tiles)
    return result


@custom_op("mimo_bridge::place_all_backward", mutates_args=())
def place_all_backward(ys: Sequence[Tensor], bridge: int, shapes: Sequence[int],
                       call: int) -> list[Tensor]:
    """The gradients of the tiles, and behind them those of xs."""
    result: list[Tensor] = _handles.get(bridge).unplace(ys, each(shapes, len(ys)), call)
    return result


@forward_all.register_fake
def _(xs: Sequence[Tensor], anchor: Tensor, bridge: int, shapes: Sequence[int],
      call: int) -> list[Tensor]:
    return [x.new_empty(shape) for x, shape in zip(xs, each(shapes, len(xs)))]


@backward_all.register_fake
def _(xs: Sequence[Tensor], bridge: int, shapes: Sequence[int], call: int) -> list[Tensor]:
    return [x.new_empty(shape) for x, shape in zip(xs, each(shapes, len(xs)))]


@place_all.register_fake
def _(tiles: Sequence[Tensor], xs: Sequence[Tensor], anchor: Tensor, bridge: int,
      call: int) -> list[Tensor]:
    return [tile.new_empty(tile.shape) for tile in tiles]


@place_all_backward.register_fake
def _(ys: Sequence[Tensor], bridge: int, shapes: Sequence[int], call: int) -> list[Tensor]:
    return [y.new_empty(y.shape) for y in ys] + [
        y.new_empty(shape) for y, shape in zip(ys, each(shapes, len(ys)))]


def _keep(ctx: Ctx, xs: Sequence[Tensor], bridge: int, call: int) -> None:
    ctx.moved = [x.is_floating_point() for x in xs]
    ctx.shapes = joined(compress([x.shape for x in xs], ctx.moved))
    ctx.bridge, ctx.call, ctx.owner = bridge, call, _owner(bridge)


def _forward_all_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _keep(ctx, inputs[0], inputs[2], inputs[4])


def _forward_all_gradient(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
    moved = backward_all(list(compress(grads, ctx.moved)), ctx.bridge, ctx.shapes, ctx.call)
    return spread(ctx.moved, moved), None, None, None, None


def _backward_all_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _keep(ctx, inputs[0], inputs[1], inputs[3])


def _backward_all_gradient(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
    return forward_all(grads, _empty(grads[0]), ctx.bridge, ctx.shapes, ctx.call), None, None, None


def _place_all_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _keep(ctx, inputs[1], inputs[3], inputs[4])


def _place_all_gradient(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
    both = place_all_backward(list(compress(grads, ctx.moved)), ctx.bridge, ctx.shapes, ctx.call)
    n = len(both) // 2
    return spread(ctx.moved, both[:n]), spread(ctx.moved, both[n:]), None, None, None


def _place_all_backward_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _keep(ctx, inputs[0], inputs[1], inputs[3])


def _place_all_backward_gradient(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
    n = len(ctx.moved)
    return place_all(grads[:n], grads[n:], _empty(grads[0]), ctx.bridge, ctx.call), None, None, None


forward_all.register_autograd(_forward_all_gradient, setup_context=_forward_all_context)
backward_all.register_autograd(_backward_all_gradient, setup_context=_backward_all_context)
place_all.register_autograd(_place_all_gradient, setup_context=_place_all_context)
place_all_backward.register_autograd(_place_all_backward_gradient,
                                     setup_context=_place_all_backward_context)


# ---------------------------------------- partitions -----------------------------------------


@custom_op("mimo_bridge::shard", mutates_args=())
def shard(x: Tensor, partition: int, layout: str, content: int, shape: Sequence[int]) -> Tensor:
    result: Tensor = _handles.get(partition).move(False, x, layout, content, shape)
    return result


@custom_op("mimo_bridge::unshard", mutates_args=())
def unshard(x: Tensor, partition: int, layout: str, content: int, shape: Sequence[int]) -> Tensor:
    result: Tensor = _handles.get(partition).move(True, x, layout, content, shape)
    return result


def _shard_context(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shape, ctx.call = inputs[0].shape, inputs[1:4]
    ctx.owner = _owner(inputs[1])


def _gradient_by(op: Callable[..., Tensor]) -> Callable[..., tuple[Tensor | None, ...]]:
    def gradient(ctx: Ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        return op(grad, *ctx.call, ctx.shape), None, None, None, None

    return gradient


for _op, _adjoint in ((shard, unshard), (unshard, shard)):
    _op.register_fake(lambda x, partition, layout, content, shape: x.new_empty(shape))
    _op.register_autograd(_gradient_by(_adjoint), setup_context=_shard_context)


# ---------------------------------------- alignments -----------------------------------------


@custom_op("mimo_bridge::merge", mutates_args=())
def merge(parts: Sequence[Tensor], alignment: int, layouts: str, shape: Sequence[int],
          update: int) -> Tensor:
    result: Tensor = _handles.get(alignment).join(parts, layouts, shape, update)
    return result


@custom_op("mimo_bridge::split", mutates_args=())
def split(x: Tensor, alignment: int, layouts: str, sizes: Sequence[int], update: int) -> list[Tensor]:
    result: list[Tensor] = _handles.get(alignment).part(x, layouts, sizes, update)
    return result


@merge.register_fake
def _(parts: Sequence[Tensor], alignment: int, layouts: str, shape: Sequence[int],
      update: int) -> Tensor:
    return parts[-1].new_empty(shape)


@split.register_fake
def _(x: Tensor, alignment: int, layouts: str, sizes: Sequence[int], update: int) -> list[Tensor]:
    return [x.new_empty(shape) for _, shape in shapes_of(layouts, sizes)]


def shapes_of(layouts: str, sizes: Sequence[int]) -> list[tuple[str, Sequence[int]]]:
    """The layouts and shapes of the parts. `layouts` is "th,sbh,th,bsh": of each part, and of the
    tile at the end; `sizes` are the shapes of the parts, one behind the other."""
    found, start = [], 0
    for letters in layouts.split(",")[:-1]:
        found.append((letters, sizes[start:start + len(letters)]))
        start += len(letters)
    return found


def _merge_context(ctx: Ctx, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.sizes = [size for part in inputs[0] for size in part.shape]
    ctx.call = inputs[1], inputs[2], inputs[4]
    ctx.owner = _owner(inputs[1])


def _merge_gradient(ctx: Ctx, grad: Tensor) -> tuple[Any, ...]:
    alignment, layouts, update = ctx.call
    return split(grad, alignment, layouts, ctx.sizes, update), None, None, None, None


def _split_context(ctx: Ctx, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.shape, ctx.call = inputs[0].shape, (inputs[1], inputs[2], inputs[4])
    ctx.owner = _owner(inputs[1])


def _split_gradient(ctx: Ctx, grads: list[Tensor]) -> tuple[Any, ...]:
    alignment, layouts, update = ctx.call
    return merge(grads, alignment, layouts, ctx.shape, update), None, None, None, None


merge.register_autograd(_merge_gradient, setup_context=_merge_context)
split.register_autograd(_split_gradient, setup_context=_split_context)


def _owner(number: int) -> object:
    """The object of a call, which must live until backward. None while a graph is traced."""
    return None if torch.compiler.is_compiling() else _handles.get(number)


def keep_order(*ops: Any) -> None:
    """These ops move data on every rank, so the compiler must neither drop nor reorder them. Private in torch,
    and not there in older ones: then only the use of their results keeps them."""
    for op in ops:
        try:
            from torch._library.effects import EffectType
            op.register_effect(EffectType.ORDERED)
        except (ImportError, AttributeError):
            pass


keep_order(forward, backward, place, place_backward, forward_all, backward_all, place_all, place_all_backward)
