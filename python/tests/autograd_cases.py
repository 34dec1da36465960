"""What autograd does with a bridge: gradients by finite differences, and every way to call backward."""
import threading

import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import gradcheck
from torch.utils.checkpoint import checkpoint

import mimo_bridge as mb
from mimo_bridge import _ops
from rank_runner import case, gather, raises, same
from tile_model import Side, global_rows

F64 = torch.float64


class Copy(torch.autograd.Function):
    """A global tensor that all ranks have: each row's gradient is the sum over ranks, over the number
    of copies that the encoder's ranks make of it."""

    @staticmethod
    def forward(ctx, whole, copies):
        ctx.copies = copies
        return whole.clone()

    @staticmethod
    def backward(ctx, grad):
        return sum(gather(grad)) / ctx.copies, None


class Collect(torch.autograd.Function):
    """All different tiles of the LLM, one behind the other. Each rank's gradient is that of its own
    tile, also where another rank's equal copy stands there."""

    @staticmethod
    def forward(ctx, tile, dst, rank):
        tiles, parts = gather(tile.detach()), {}
        for r, one in enumerate(tiles):
            if dst.holds(r):
                parts.setdefault(dst.part(r), one)
        ctx.shape, ctx.place, start = tile.shape, None, 0
        for part, one in parts.items():
            if dst.holds(rank) and dst.part(rank) == part:
                ctx.place = start
            start += one.numel()
        return torch.cat([one.flatten() for one in parts.values()])

    @staticmethod
    def backward(ctx, grad):
        if ctx.place is None:
            return grad.new_zeros(ctx.shape), None, None
        size = 1
        for length in ctx.shape:
            size *= length
        return grad[ctx.place:ctx.place + size].reshape(ctx.shape), None, None


# Ranks, src, dst, layout, cuts, sp, batch, copies of a src row, and True where the src tile is a shard.
# Most on two ranks, where none waits for a core.
PAIRS = {
    "fan-in, cp, zigzag": (4, "tp=1,dp=4", "tp=1,cp=2,dp=2", "sbh", True, False, 4, 1),
    "cp and sp": (4, "tp=1,dp=4", "tp=2,cp=2,dp=1", "bsh", True, True, 4, 1),
    "fan-out, tp copies": (2, "tp=2,dp=1", "tp=1,dp=2", "sbh", False, False, 2, 2),
    "full tiles, summed over cp": (2, "tp=1,dp=2", "tp=1,cp=2,dp=1", "sbh", False, False, 2, 1),
    "flat rows, dst cp": (2, "tp=1,dp=2", "tp=1,cp=2,dp=1", "bh", False, False, 2, 1),
    "flat fan-out": (2, "tp=2,dp=1", "tp=1,dp=2", "th", False, False, 2, 2),
    "src cp, dst cp": (4, "cp=2,dp=2", "tp=1,dp=2,cp=2", "sbh", True, False, 2, 1, True),
    "stages": (2, "tp=2,dp=1", "pp=2,dp=1", "bsh", False, False, 2, 2),
}


@case(2, 4)
def finite_differences(comm):
    """gradcheck of eight pairs. All ranks perturb the same global tensor at once."""
    for name, (ranks, src_spec, dst_spec, layout, cuts, sp, batch, copies, *src_cuts) in PAIRS.items():
        if ranks != comm.size:
            continue
        src = Side(src_spec, 0, layout, bool(src_cuts))
        dst = Side(dst_spec, 0, layout, cuts, sp, "pp" in dst_spec)
        bridge = mb.Bridge(mb.Grid(src_spec), mb.Grid(dst_spec), comm=comm, layout=layout,
                           partition=mb.Partition(sp=sp) if cuts else None,
                           src_partition=mb.Partition() if src_cuts else None,
                           all_stages="pp" in dst_spec)
        whole = (torch.arange(batch * 4, dtype=F64).reshape(batch, 4, 1) / 7).requires_grad_()

        def function(x):
            tile = slice_of(src, comm.rank, Copy.apply(x, copies))
            return Collect.apply(bridge(tile), dst, comm.rank)

        assert gradcheck(function, whole, nondet_tol=0.0), name
        bridge.close()


def slice_of(side, rank, whole):
    """Side.tile, by operations that autograd follows."""
    rows = whole[side.samples(rank, whole.shape[0])][:, side.positions(rank, whole.shape[1])]
    if side.letters == "sbh":
        return rows.transpose(0, 1)
    return rows if side.letters == "bsh" else rows.reshape(-1, whole.shape[2])


def usual(comm, **more):
    """A bridge of fan-in with cp, this rank's x, and the global tensor."""
    n = comm.size
    bridge = mb.Bridge(mb.Grid(f"tp=1,dp={n}"), mb.Grid(f"tp=1,cp=2,dp={n // 2}"), comm=comm,
                       layout="bsh", partition=mb.Partition(), **more)
    whole = global_rows(n, 8, 3, F64)
    return bridge, whole[comm.rank:comm.rank + 1].clone().requires_grad_(), whole


@case(4)
def double_backward(comm):
    """The gradient of the gradient is forward, bit for bit."""
    bridge, x, whole = usual(comm)
    moved = bridge(x).detach()
    assert same_twice(x, bridge(x), moved)


def same_twice(x, y, moved):
    g = torch.ones_like(y).requires_grad_()
    grad, = torch.autograd.grad(y, x, g, create_graph=True)
    same(grad.detach(), torch.ones_like(x))
    twice, = torch.autograd.grad(grad, g, x.detach())
    same(twice, moved)
    return True


def by_op(bridge, x):
    """The custom op, as compiled code calls it."""
    return _ops.forward(x, bridge._anchor, bridge._movement.number, bridge.shape(x.shape),
                        bridge._movement.call)


@case(2)
def ops_in_eager(comm):
    """The custom ops give the bits of the short way, and opcheck accepts them."""
    bridge, x, _ = usual(comm)
    y, z = bridge(x), by_op(bridge, x)
    same(z.detach(), y.detach())
    assert same_twice(x, by_op(bridge, x), y.detach())
    weights = global_rows(*y.shape, F64, 4)
    one, = torch.autograd.grad(y, x, weights)
    other, = torch.autograd.grad(z, x, weights)
    same(other, one)
    arguments = (x, bridge._anchor, bridge._movement.number, bridge.shape(x.shape), 0)
    torch.library.opcheck(_ops.forward, arguments)
    torch.library.opcheck(_ops.backward, (weights.requires_grad_(), bridge._movement.number,
                                          tuple(x.shape), 0))


@case(2)
def ops_of_place(comm):
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("tp=2"), comm=comm, layout="th", dst_layout="bsh")
    bridge.update(mb.Batch(batch=2, spans=[mb.Span(comm.rank, 0, 1, 2)]))
    tile = global_rows(2, 4, 1, F64).requires_grad_()
    x = torch.ones(2, 1, dtype=F64).requires_grad_()
    arguments = (tile, x, bridge._anchor, bridge._movement.number, bridge._movement.call)
    same(_ops.place(*arguments).detach(), bridge.place(tile, x).detach())
    torch.library.opcheck(_ops.place, arguments)


@case(2)
def transforms_that_are_refused(comm):
    """Through a custom op jvp would give tangents of 0. What torch refuses itself has a class of its own."""
    bridge, x, _ = usual(comm)
    x, row, text = x.detach(), torch.ones(1, 2, dtype=F64), torch.zeros(2, 4, 2, dtype=F64)
    ragged = mb.Bridge(mb.Grid("dp=2"), mb.Grid("tp=2"), comm=comm, layout="th", dst_layout="bsh")
    ragged.update(mb.Batch(batch=2, spans=[mb.Span(comm.rank, 0, 1, 1)]))
    part = mb.Partition().at(mb.Grid("cp=2"), comm.rank)
    alignment = mb.Alignment([7], device=comm.device)
    alignment.update(torch.tensor([[7, 1]]))
    for function, at in ((bridge, x), (lambda x: ragged.place(text, x), row), (part.shard, x.mT),
                         (lambda x: alignment.merge([x], x), row)):
        raises(mb.UnsupportedError, "forward-mode", torch.func.jvp, function, (at,), (at,))
        raises(mb.UnsupportedError, "torch.func", torch.func.grad(lambda x: function(x).sum()), at)
        with torch.autograd.forward_ad.dual_level():
            raises(NotImplementedError, "forward", function, torch.autograd.forward_ad.make_dual(at, at))
    y = bridge(x.requires_grad_())
    raises(mb.ArgumentError, "is_grads_batched", torch.autograd.grad, y, x, torch.ones(2, *y.shape,
           dtype=F64), is_grads_batched=True)
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    stack = torch.stack([x.detach(), 2 * x.detach()])
    same(torch.func.vmap(bridge)(stack)[1].detach(), 2 * y.detach())


@case(2)
def fake_tensors(comm):
    """They ask no other rank: rank 0 alone looks for shapes."""
    bridge, x, _ = usual(comm)
    if comm.rank == 0:
        mode = FakeTensorMode()
        fake = mode.from_tensor(x.detach()).requires_grad_()
        with mode:
            y = bridge(fake)
            y.sum().backward()
            raises(mb.ArgumentError, "batch", bridge, fake, batch="2")  # and tells nobody
        assert y.shape == (2, 4, 3) and fake.grad.shape == x.shape
        assert bridge(fake).shape == y.shape  # outside of the mode
        raises(mb.ArgumentError, "batch", bridge, fake, batch="2")
    same(bridge(x).detach(), bridge(x).detach())


@case(4)
def backward_elsewhere(comm):
    """Backward on another thread, which MPI_THREAD_SERIALIZED allows."""
    bridge, x, _ = usual(comm)
    y, errors = bridge(x), []

    def run():
        try:
            (2 * y).sum().backward()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not errors, errors
    same(x.grad, torch.full_like(x, 2))


@case(4)
def checkpointed(comm):
    """checkpoint around encoder and bridge: forward runs twice on all ranks."""
    bridge, x, _ = usual(comm)
    weight = torch.full((3, 3), 2.0, dtype=F64).requires_grad_()
    for reentrant in (False, True):
        y = checkpoint(lambda x: bridge((x @ weight).tanh()), x, use_reentrant=reentrant)
        got = torch.autograd.grad(y.sum(), (x, weight)) if not reentrant else None
        if reentrant:
            x.grad = weight.grad = None
            y.sum().backward()
            got = x.grad, weight.grad
        wanted = torch.autograd.grad((x @ weight).tanh().sum(), (x, weight))
        for one, other in zip(got, wanted):
            assert torch.allclose(one, other, rtol=1e-14), (one, other)


@case(4)
def backward_twice(comm):
    bridge, x, _ = usual(comm)
    y = bridge(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    same(x.grad, torch.full_like(x, 2))


@case(4)
def some_ranks_only(comm):
    """x needs gradients on rank 1 alone: backward runs on all, and brings that one its gradient."""
    bridge, x, _ = usual(comm)
    x.requires_grad_(comm.rank == 1)
    y = bridge(x)
    assert y.requires_grad
    (3 * y).sum().backward()
    assert (x.grad is not None) == (comm.rank == 1)
    if x.grad is not None:
        same(x.grad, torch.full_like(x, 3))
    assert bridge._anchor.grad is None


@case(4)
def frozen_encoder(comm):
    """differentiable=False: nothing goes back, also where a rank's x needs gradients."""
    bridge, x, _ = usual(comm, differentiable=False)
    y = bridge(x)
    assert not y.requires_grad
    with torch.no_grad():
        assert not usual(comm)[0](x).requires_grad
    assert not usual(comm)[0](x.detach().long()).requires_grad


@case(4)
def frozen_encoder_places(comm):
    """Its tile of text still gets gradients."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="th", dst_layout="bsh",
                       differentiable=False)
    bridge.update(mb.Batch(batch=4, spans=[mb.Span(comm.rank, 0, 0, 1)] if comm.rank else []))
    tile = torch.zeros(1, 2, 1, requires_grad=comm.rank != 2)
    x = torch.ones(1 if comm.rank else 0, 1, requires_grad=True)
    bridge.place(tile, x).sum().backward()
    assert x.grad is None
    if comm.rank != 2:
        same(tile.grad, torch.tensor([[[0.0 if comm.rank else 1.0], [1.0]]]))


@case(4)
def empty_rank(comm):
    """An encoder rank without samples takes part in forward and backward."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, batch=3, layout="bsh")
    whole = global_rows(3, 2, 2, F64)
    linear = torch.nn.Linear(2, 2, bias=False, dtype=F64)
    x = whole[comm.rank:comm.rank + 1]
    y = bridge(linear(x))
    assert len(x) == (comm.rank < 3) and len(y) == (2 if comm.rank // 2 == 0 else 1)
    y.sum().backward()
    assert torch.isfinite(linear.weight.grad).all()
    assert bool(linear.weight.grad.any()) == (comm.rank < 3)


@case(2)
def outside_of_a_grid(comm):
    """Grids that lie apart: the encoder on rank 0, the LLM on rank 1."""
    bridge = mb.Bridge(mb.Grid("dp=1"), mb.Grid("dp=1", 1), comm=comm, batch=2, layout="bsh")
    whole = global_rows(2, 3, 2, F64)
    x = (whole if comm.rank == 0 else whole[:0]).clone().requires_grad_()
    y = bridge(x)
    same(y.detach(), whole if comm.rank == 1 else whole[:0])
    (y * 2).sum().backward()
    same(x.grad, torch.full_like(x, 2))


@case(4)
def two_bridges(comm):
    """Two bridges in one graph: backward of the second comes first, on all ranks."""
    one, x, _ = usual(comm)
    other, z, _ = usual(comm)
    (one(x).sum() + 2 * other(z).sum()).backward()
    same(x.grad, torch.ones_like(x))
    same(z.grad, torch.full_like(z, 2))


@case(4)
def sums_in_the_order_of_ranks(comm):
    """Several ranks' gradients of one row are added by ascending rank, so sums have equal bits."""
    bridge = mb.Bridge(mb.Grid("tp=4,dp=1"), mb.Grid("cp=4,dp=1"), comm=comm, layout="bsh")
    x = torch.zeros(2, 4, 5, requires_grad=True)
    generator = torch.Generator(comm.device).manual_seed(5)
    parts = [torch.randn(2, 4, 5, generator=generator) for _ in range(4)]
    bridge(x).backward(parts[comm.rank])
    same(x.grad, ((parts[0] + parts[1]) + parts[2]) + parts[3])


@case(4)
def a_module_in_modules(comm):
    """Parameters, state_dict, train and eval, conversions and autocast around a bridge."""
    bridge, x, _ = usual(comm)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), bridge, torch.nn.Linear(3, 1))
    assert len(list(model.parameters())) == 4 and len(model.state_dict()) == 4
    model.double().float().eval().train()
    x = x.detach().float().requires_grad_()
    with torch.autocast(comm.device.type, dtype=torch.bfloat16):
        y = model(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert torch.isfinite(x.grad).all()
