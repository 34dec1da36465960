"""Graphs of parts, cut out of autograd: gradients beside those of one graph."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from mimo_bridge._cut import Cut
from rank_runner import case, same


@case(2, on="cpu")
def compiled_parts(comm):
    """What is compiled goes backward once, and takes the weights around it along."""
    torch.manual_seed(3)
    inner, outer = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 4)
    fast, x, g = torch.compile(inner, backend="aot_eager"), torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    weights = [*inner.parameters(), *outer.parameters()]
    wanted = torch.autograd.grad(outer(fast(x)), (x, *weights), g)
    cut = Cut("a part", lambda x: outer(fast(x)), [x], True)
    cut.take()
    found = [*cut.backward([g]), *(w.grad for w in weights)]
    cut.weights()
    for i, (got, one) in enumerate(zip(found, wanted)):
        same(got, one, f"gradient {i}")


class Twice(torch.autograd.Function):
    """Written in Python: it must run once."""

    runs = 0

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        Twice.runs += 1
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


@case(1, 2, on="cpu")
def graphs_of_parts(comm):
    """Weights that two operations share, outputs that are inputs or do not depend on them, Functions in Python."""
    torch.manual_seed(3)
    w, v, b = (nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(3, 4)))
    u = nn.Parameter(torch.randn(4, 4))

    def part(x, r, mask):
        h = F.linear(torch.tanh(F.linear(x, w)), w) + Twice.apply(r, v)
        return x, F.linear(h, u) * mask, r.sum(), b * 2, (mask, 1)

    values = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    mask = torch.rand(3, 4)
    given = [torch.randn(3, 4), torch.randn(3, 4), torch.randn(()), torch.randn(3, 4)]
    torch.autograd.backward(part(*values, mask)[:4], given)
    wanted = [p.grad for p in (*values, w, v, b, u)]
    for p in (*values, w, v, b, u):
        p.grad = None
    Twice.runs = 0
    cut = Cut("a part", part, [*values, mask], True)
    assert set(map(id, cut.variables)) == set(map(id, (w, v, b, u)))
    outputs = cut.take()
    assert outputs[4] == (mask, 1)
    found = cut.backward([*given, None])
    assert found[2] is None and u.grad is None and [p.grad is None for p in (w, v, b)] == [False] * 3
    cut.weights()
    assert Twice.runs == 1
    for got, grad in zip((*found[:2], w.grad, v.grad, b.grad, u.grad), wanted):
        same(got, grad)
    # recomputed: once for the inputs, and once for each operation with weights
    x, runs = values[0], []

    def again(x):
        runs.append(x)
        return F.linear(torch.tanh(F.linear(x, w)), u)

    w.grad = u.grad = None
    cut = Cut("a part", lambda x: checkpoint(again, x, use_reentrant=False), [x], True)
    cut.take()
    grad, = cut.backward(given[:1])
    cut.weights()
    ours = [grad, w.grad, u.grad]
    assert len(runs) == 1 + 1 + 2, len(runs)
    for got, wanted in zip(ours, torch.autograd.grad(again(x), (x, w, u), given[0])):
        same(got, wanted)
    # nothing depends on anything, no gradient is given
    quiet = Cut("a part", lambda x: x * 2, [mask], True)
    assert quiet.take()[0].requires_grad is False and quiet.backward([None]) == [None]
    unused = Cut("a part", lambda x: x * 2, values[:1], True)
    assert unused.backward([None]) == [None]
