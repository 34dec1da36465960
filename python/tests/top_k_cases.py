"""The choice of experts: equal scores, ids that are forced, and the gradients of weights made from it."""
import random

import torch
from torch.autograd import gradcheck, gradgradcheck

import mimo_bridge as mb
from rank_runner import case, raises, same

F64 = torch.float64


def rows(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def close(got, wanted):
    assert torch.allclose(got, torch.tensor(wanted, dtype=got.dtype), rtol=0, atol=5e-7), got


@case(1)
def choices(comm):
    """Of equal scores the lower id is first; -0 equals +0; every dtype."""
    inf = float("inf")
    goldens = [([2, 1, 2, 0], [0, 2]), ([0, 0, 0, 0], [0, 1]), ([1, 3, -1, 3], [1, 3]),
               ([-1, -0.0, 0.0, -2], [1, 2]), ([-1, 0.0, -0.0, -2], [1, 2]), ([-inf, -inf, inf, inf], [2, 3]),
               ([-3, -inf, -3, -4], [0, 2])]
    scores = [row for row, _ in goldens]
    for dtype in (torch.float32, torch.float16, torch.bfloat16, F64):
        x = rows(*scores, dtype=dtype)
        values, ids = mb.top_k(x, 2)
        same(ids, torch.tensor([wanted for _, wanted in goldens]), str(dtype))
        same(values, x.gather(1, ids))
    values, ids = mb.top_k(rows(*scores).reshape(7, 1, 4), 2)
    assert values.shape == ids.shape == (7, 1, 2)
    assert mb.top_k(torch.empty(0, 4), 2)[1].shape == (0, 2)
    assert mb.top_k(rows(1.0, 3.0), 1)[1].tolist() == [1]


@case(1)
def choices_at_random(comm):
    """As a loop that takes the best one left, of scores with many ties."""
    roll = random.Random(7)
    for _ in range(200):
        experts = roll.randint(1, 40)
        k = roll.randint(1, experts)
        scores = [[float(roll.randint(-3, 3)) for _ in range(experts)] for _ in range(5)]
        wanted = [sorted(range(experts), key=lambda e, row=row: (-row[e], e))[:k] for row in scores]
        same(mb.top_k(rows(*scores), k)[1], torch.tensor(wanted))


@case(1)
def choices_without_numbers(comm):
    """A NaN: ids 0 ... k-1, and no value that looks like a number. Other tokens do not notice."""
    nan = float("nan")
    values, ids = mb.top_k(rows([1, 2, nan, 3], [1, 2, 0, 3], [nan, nan, nan, nan]), 2)
    same(ids, torch.tensor([[0, 1], [3, 1], [0, 1]]))
    assert values.isnan().tolist() == [[True, True], [False, False], [True, True]]
    assert values.softmax(-1).isnan()[0].all()


@case(1)
def weights_of_choices(comm):
    """Weights as routers make them, and their gradients, by hand."""
    logits = rows([2, 1, 2, 0], dtype=F64).requires_grad_()
    values, ids = mb.top_k(logits, 2)
    weights = values.softmax(-1)
    close(weights, [[.5, .5]])
    weights.backward(rows([1, 3], dtype=F64))
    close(logits.grad, [[-.5, 0, .5, 0]])
    logits.grad = None
    weights, again = mb.top_k(logits.softmax(-1), 2)
    same(again, ids)
    close(weights, [[.399486, .399486]])
    weights.backward(rows([1, 3], dtype=F64))
    close(logits.grad, [[-.238871, -.234839, .560102, -.086392]])
    scores, bias = logits.sigmoid(), rows(0, .5, 0, 0, dtype=F64)
    chosen = mb.top_k(scores + bias, 2)[1]  # the bias selects, and has no part in the weights
    same(chosen, torch.tensor([[1, 0]]))
    values, _ = mb.top_k(scores, 2, forced=chosen)
    close(values / values.sum(-1, keepdim=True), [[.453551, .546449]])


@case(1)
def forced_choices(comm):
    """Replay: the ids of another run, the scores of this one, and gradients at them."""
    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(6, 8, generator=generator, dtype=F64, requires_grad=True)
    forced = torch.tensor([[7, 0], [3, 3], [-1, 2], [1, -1], [-1, -1], [5, 6]], dtype=torch.int32)
    values, ids = mb.top_k(scores, 2, forced=forced)
    same(ids, forced.long())
    for t, row in enumerate(forced.tolist()):
        for j, e in enumerate(row):
            assert values[t, j] == (scores[t, e] if e >= 0 else 0), (t, j)
    values.sum().backward()
    wanted = torch.zeros(6, 8, dtype=F64)
    for t, row in enumerate(forced.tolist()):
        for e in row:
            if e >= 0:
                wanted[t, e] += 1
    same(scores.grad, wanted)
    assert gradcheck(lambda x: mb.top_k(x, 2, forced=forced)[0], (scores,))
    values, ids = mb.top_k(scores, 2, forced=mb.top_k(scores, 2)[1])
    same(values, mb.top_k(scores, 2)[0])


def dense_weights(logits, ids, kind):
    """[n, E], without a gather: what each expert weighs in each token."""
    times = torch.nn.functional.one_hot(ids + 1, logits.shape[1] + 1)[..., 1:].sum(1)
    scores = times * (logits.exp() if kind == "softmax" else logits.sigmoid())
    if kind == "sigmoid" and ids.shape[1] == 1:
        return scores
    return scores / (scores.sum(1, keepdim=True) + (times.sum(1, keepdim=True) == 0))


REPLAY = torch.tensor([[7, 0], [3, 3], [-1, 2], [1, -1], [-1, -1], [5, 6]])  # an id twice, and none


@case(1)
def weights_of_forced_choices(comm):
    """Weights of a replay, and their gradients: no choice has no part in a sum."""
    close(mb.top_k(rows([1, 2]), 2, forced=torch.tensor([[0, -1]]), weights="softmax")[0], [[1, 0]])
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(6, 8, generator=generator, dtype=F64, requires_grad=True)
    factor = torch.randn(6, 8, generator=generator, dtype=F64)  # of each weight in the loss
    for kind in ("softmax", "sigmoid"):
        for forced in (REPLAY, REPLAY[:, :1]):
            k = forced.shape[1]
            weights, ids = mb.top_k(logits, k, forced=forced, weights=kind)
            same(ids, forced)
            assert (weights[forced < 0] == 0).all()
            wanted = dense_weights(logits, forced, kind)
            one = torch.zeros_like(wanted).scatter_add(1, forced.clamp(min=0), weights)
            assert torch.allclose(one, wanted, rtol=0, atol=1e-15), (kind, k)
            gradients = [torch.autograd.grad((x * factor).sum(), logits)[0] for x in (one, wanted)]
            assert torch.allclose(*gradients, rtol=0, atol=1e-15), (kind, k, gradients)
            for check in (gradcheck, gradgradcheck):
                assert check(lambda x: mb.top_k(x, k, forced=forced, weights=kind)[0], (logits,)), (kind, k)
            weights = mb.top_k(logits, k, forced=forced, weights=kind)[0]
            wild = torch.zeros_like(weights).masked_fill(forced < 0, float("nan"))
            assert not torch.autograd.grad(weights, logits, wild)[0].any(), (kind, k)
        half = logits.detach().bfloat16()
        assert mb.top_k(half, 2, weights=kind)[0].dtype == torch.float32
        chosen = mb.top_k(logits, 2, weights=kind)
        same(chosen[0], mb.top_k(logits, 2, forced=chosen[1], weights=kind)[0])


@case(1)
def choices_compiled(comm):
    x = rows([2, 1, 2, 0], [0, -0.0, 0, -1], [1, 2, 3, 4]).requires_grad_()
    compiled = torch.compile(mb.top_k, fullgraph=True, backend="aot_eager")
    forced = torch.tensor([[3, -1], [0, 0], [-1, -1]])
    for options in ({}, dict(forced=forced, weights="softmax"), dict(forced=forced, weights="sigmoid")):
        found = []
        for function in (mb.top_k, compiled):
            values, ids = function(x, 2, **options)
            found.append((values.detach(), ids, torch.autograd.grad((values * rows(1.0, 3.0)).sum(), x)[0]))
        for eager, other in zip(*found):
            same(other, eager)


@case(1)
def wrong_choices(comm):
    x, ids = torch.zeros(3, 4), torch.zeros(3, 2, dtype=torch.int64)
    raises(mb.ShapeError, "5 of 4 experts", mb.top_k, x, 5)
    raises(mb.ArgumentError, "k is 0", mb.top_k, x, 0)
    raises(mb.ArgumentError, "k is a whole number", mb.top_k, x, 2.5)
    raises(mb.ArgumentError, "softmax or sigmoid, not 'mean'", mb.top_k, x, 2, weights="mean")
    raises(mb.ArgumentError, "torch.int64", mb.top_k, x.long(), 2)
    raises(mb.ArgumentError, "a list", mb.top_k, [1.0, 2.0], 1)
    raises(mb.ArgumentError, "torch.float32, and must be", mb.top_k, x, 2, forced=ids.float())
    raises(mb.ShapeError, "[3, 2], and for scores [3, 4] and k=3 they need [3, 3]", mb.top_k, x, 3, forced=ids)
    ids[1, 1] = 4
    raises(mb.ArgumentError, "forced[1, 1] is expert 4 of 4", mb.top_k, x, 2, forced=ids)
    ids[1, 1] = -2
    raises(mb.ArgumentError, "forced[1, 1] is expert -2 of 4", mb.top_k, x, 2, forced=ids)
