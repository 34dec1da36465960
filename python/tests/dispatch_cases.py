"""Dispatch: rows to experts and sums back, against loops over the ids of all ranks; gradients, graphs, errors.

Numbers are whole, so sums are exact in any order, and bits are compared. The cases are the same on GPUs, but for
mistakes of one rank, which there are an error of this rank alone. dispatch_gpu_cases.py has what only a GPU shows.
"""
import functools
import gc
import random

import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch.utils import checkpoint as checkpoints

import mimo_bridge as mb
from mimo_bridge import _dispatch_ops
from rank_runner import case, gather, raises, same
from top_k_cases import REPLAY, dense_weights

F64 = torch.float64


def make(comm, **more):
    return mb.Dispatch(comm=comm, **{**dict(experts=4, top_k=2, hidden=3, max_tokens=8, dtype=F64, tensors=4), **more})


def drawn(generator, *shape, dtype=torch.float32):
    """Normal numbers, the same on the CPU and on GPUs."""
    return torch.randn(*shape, generator=generator, dtype=dtype, device="cpu").to(torch.get_default_device())


class Batch:
    """What all ranks of a group have: ids, rows, weights. Every rank makes the same."""

    def __init__(self, roll, ranks, experts, k, hidden, most=6, dtype=torch.float32):
        self.ranks, self.experts, self.k = ranks, experts, k
        self.ids, self.x, self.w = [], [], []
        for _ in range(ranks):
            n = roll.choice([0, 1, most, roll.randint(0, most)])
            self.ids.append(torch.tensor([[roll.choice([-1, *range(experts)]) if roll.random() < .9 else 0
                                           for _ in range(k)] for _ in range(n)], dtype=torch.int64).reshape(n, k))
            self.x.append(torch.tensor([[float(roll.randint(-4, 4)) for _ in range(hidden)]
                                        for _ in range(n)], dtype=dtype).reshape(n, hidden))
            self.w.append(torch.tensor([[float(roll.randint(-3, 3)) for _ in range(k)]
                                        for _ in range(n)]).reshape(n, k))

    def pairs(self, expert):
        """(rank, token, choice) of the rows of an expert, in order."""
        return [(s, i, j) for s in range(self.ranks) for i, row in enumerate(self.ids[s].tolist())
                for j, e in enumerate(row) if e == expert]

    def tile(self, first, experts, alignment, rows=None):
        """x_e, w_e and ends of the rank that has these experts."""
        x_e, w_e, ends = [], [], []
        for e in range(first, first + experts):
            for s, i, j in self.pairs(e):
                x_e.append(self.x[s][i])
                w_e.append(self.w[s][i, j])
            while len(x_e) % alignment:
                x_e.append(torch.zeros_like(self.x[0].new_empty(self.x[0].shape[1])))
                w_e.append(torch.tensor(0.0))
            ends.append(len(x_e))
        hidden = self.x[0].shape[1]
        return (torch.stack(x_e) if x_e else self.x[0].new_empty(0, hidden),
                torch.stack(w_e) if w_e else torch.empty(0), torch.tensor(ends, dtype=torch.int32))


def scales(ends, rows, first, part):
    """What the experts of a rank multiply rows by: another factor for each expert and part."""
    factor = torch.zeros(rows)
    start = 0
    for i, end in enumerate(ends.tolist()):
        factor[start:end] = (first + i + 1) * (part + 1)
        start = end
    return factor


@case(2)
def by_hand(comm):
    """Experts that multiply by 1 to 4, weights .75 and .25, x of 1 to 3 and 11 to 12."""
    ids = [[[1, 0], [3, 1], [2, 3]], [[0, 2], [1, 0]]][comm.rank]
    dispatch = make(comm, hidden=1)
    x = torch.tensor([[10.0 * comm.rank + i + 1] for i in range(len(ids))], requires_grad=True)
    weights = torch.tensor([[.75, .25]] * len(ids), requires_grad=True)
    route = dispatch.route(torch.tensor(ids))
    assert route.ends.tolist() == [[3, 6], [2, 4]][comm.rank] and route.rows == [6, 4][comm.rank]
    x_e, w_e = dispatch(x, weights, route)
    assert x_e.flatten().tolist() == [[1, 11, 12, 1, 2, 12], [3, 11, 2, 3]][comm.rank]
    assert w_e.tolist() == [[.25, .75, .25, .75, .25, .75], [.75, .25, .75, .25]][comm.rank]
    factor = scales(route.ends, route.rows, 2 * comm.rank, 0)
    y = dispatch.combine(x_e * (w_e * factor)[:, None], route)
    assert y.flatten().tolist() == [[1.75, 7, 9.75], [16.5, 21]][comm.rank]
    y.sum().backward()
    assert x.grad.flatten().tolist() == [[1.75, 3.5, 3.25], [1.5, 1.75]][comm.rank]
    assert weights.grad.tolist() == [[[2, 1], [8, 4], [9, 12]], [[11, 33], [24, 12]]][comm.rank]
    assert dispatch.report() == mb.DispatchReport(1, 6, 0) and dispatch.report() == mb.DispatchReport(0, 0, 0)


def check_batch(dispatch, batch, alignment, rows):
    """One batch both ways on this rank, against loops."""
    comm, etp = dispatch.comm, dispatch.etp
    part, first = comm.rank % etp, comm.rank // etp * dispatch.experts_here
    x, w = batch.x[comm.rank].clone().requires_grad_(), batch.w[comm.rank].clone().requires_grad_()
    ids = batch.ids[comm.rank]
    route = dispatch.route(ids.int() if alignment > 1 else ids)
    x_e, w_e = dispatch(x, w, route)
    wanted_x, wanted_w, ends = batch.tile(first, dispatch.experts_here, alignment)
    same(route.ends, ends, "ends")
    assert route.rows == (len(wanted_x) if rows is None else rows)
    same(x_e.detach()[:len(wanted_x)], wanted_x, "x_e")
    same(w_e.detach()[:len(wanted_w)], wanted_w, "w_e")
    factor = scales(ends, route.rows, first, part)
    out = torch.where(factor[:, None] > 0, x_e * (w_e * factor)[:, None].to(x_e.dtype), float("nan"))
    y = dispatch.combine(out, route)
    weight = [[(e + 1) * etp * (etp + 1) // 2 if e >= 0 else 0 for e in row] for row in ids.tolist()]
    weight = torch.tensor(weight, dtype=torch.float32).reshape(w.shape)
    whole = (weight * w.detach()).sum(1, keepdim=True).to(x.dtype)
    same(y.detach(), whole * x.detach(), "y")
    g = torch.arange(y.numel(), dtype=y.dtype).view_as(y) % 5 - 2
    y.backward(g)
    same(x.grad, whole * g, "dx")
    same(w.grad, weight * (g * x.detach()).float().sum(1, keepdim=True), "dw")


def at_random(comm, batches, seed):
    roll = random.Random(seed)
    for n in range(batches):
        etp = roll.choice([etp for etp in (1, 2, 4) if comm.size % etp == 0])
        ep = comm.size // etp
        experts, alignment, hidden = ep * roll.randint(1, 4), roll.choice([1, 1, 4, 5]), roll.randint(1, 9)
        k, dtype = roll.randint(1, min(experts, 4)), roll.choice([torch.float32, F64, torch.bfloat16])
        batch = Batch(roll, comm.size, experts, k, hidden, dtype=dtype)
        rows = roll.choice([None, 6 * comm.size * k + experts * alignment])
        with_buffer = n % 2 and mb.Buffer(8192 * comm.size, 2, comm=comm)
        dispatch = make(comm, experts=experts, top_k=k, hidden=hidden, etp=etp, alignment=alignment,
                        rows="exact" if rows is None else rows, buffer=with_buffer or None,
                        transport=roll.choice(["auto", "zero_copy" if with_buffer else "p2p"]))
        check_batch(dispatch, batch, alignment, rows)
        dispatch.close()
        if with_buffer:
            gc.collect()
            with_buffer.close()


@case(1, 2, 4)
def rows_of_one_route(comm):
    """A route may have another number of rows than its dispatch, or as many as it needs."""
    batch = Batch(random.Random(comm.size), comm.size, comm.size * 2, 2, 3, dtype=F64)
    dispatch = make(comm, experts=comm.size * 2, rows=64)
    needed = len(batch.tile(2 * comm.rank, 2, 1)[0])
    for wanted, rows in ((None, 64), ("exact", needed), (needed, needed), (needed + 3, needed + 3), (None, 64)):
        route = dispatch.route(batch.ids[comm.rank], rows=wanted)
        x_e, _ = dispatch(batch.x[comm.rank], None, route)
        assert route.rows == len(x_e) == rows, (wanted, route.rows)
        y = dispatch.combine(x_e, route)
        same(y, (batch.ids[comm.rank] >= 0).sum(1, keepdim=True) * batch.x[comm.rank], str(wanted))
    if comm.device.type == "cpu":  # else it is an error of this rank alone
        raises(mb.ArgumentError, "route: rows is -2", dispatch.route, batch.ids[comm.rank], rows=-2)


@case(1, 2, 3, 4, 6, 8)
def batches_at_random(comm):
    at_random(comm, 16, comm.size)


@case(1, 2, 4, 8)
def experts_of_groups(comm):
    """edp > 1: each group has all experts, and tokens of its own."""
    ep = max(comm.size // 2, 1)
    group = comm.group(mb.Grid(f"etp=1,ep={ep},edp={comm.size // ep}"), "etp", "ep")
    for seed in range(4):
        at_random(group, 1, 10 * seed + comm.rank // ep)


@case(2, 4)
def tensors_in_one_call(comm):
    """Rows with scales and numbers beside them: each has its own width and dtype, and floats have gradients. Also
    where the library adds rows of one dtype in a call, as on devices."""
    for one_dtype in (False, True) if comm.device.type == "cpu" else (True,):
        dispatch = make(comm, hidden=4)
        dispatch._dispatching.one_dtype = one_dtype
        several_tensors(comm, dispatch)


def several_tensors(comm, dispatch):
    ids = torch.tensor([[0, 3], [-1, 1], [2, 2]])
    n = torch.arange(3.0)[:, None] + 10 * comm.rank
    x, uid = (n * torch.ones(1, 4)).requires_grad_(), n.long()
    half, byte = n.bfloat16().requires_grad_(), n.to(torch.uint8).expand(3, 2)
    route = dispatch.route(ids)
    (x_e, uid_e, half_e, byte_e), none = dispatch([x, uid, half, byte], None, route)
    assert none is None and not uid_e.requires_grad and not byte_e.requires_grad and half_e.requires_grad
    assert uid_e.shape == (route.rows, 1) and byte_e.shape == (route.rows, 2)
    here = range(4 // comm.size * comm.rank, 4 // comm.size * (comm.rank + 1))
    wanted = [i + 10 * s for e in here for s in range(comm.size)
              for i, row in enumerate(ids.tolist()) for other in row if other == e]
    assert uid_e.flatten().tolist() == wanted
    for other in (x_e[:, 3], half_e.float()[:, 0], byte_e.float()[:, 1]):
        same(other.detach(), uid_e.float()[:, 0])
    y, z = dispatch.combine([x_e, half_e], route)
    count = torch.tensor([[2.0], [1], [2]])
    same(y.detach(), count * x.detach())
    (y.sum() + z.float().sum()).backward()
    same(x.grad, count.expand(3, 4))
    same(half.grad, count.bfloat16())
    weights = torch.ones(3, 2, requires_grad=True)
    (half_e, x_e), w_e = dispatch([half, x], weights, route)
    (half_e.float().sum() + x_e.sum() + (w_e * x_e[:, 0].detach()).sum()).backward()
    same(x.grad, 2 * count.expand(3, 4))
    same(half.grad, 2 * count.bfloat16())
    same(weights.grad, n * (ids >= 0))


@case(1, 2, 4)
def gradients_by_differences(comm):
    """Both moves, and the gradients of their gradients, by finite differences: exact, as all is linear in each
    number. Ranks make equally many calls, so each has as many tokens."""
    dispatch = make(comm, experts=4, top_k=2, hidden=2, alignment=2)
    roll = random.Random(comm.rank)
    ids = torch.tensor([[roll.randrange(-1, 4), roll.randrange(4)] for _ in range(2)])
    route = dispatch.route(ids)
    x = torch.randint(-3, 3, (2, 2), dtype=F64, requires_grad=True)
    weights = torch.randint(-3, 3, (2, 2), dtype=F64, requires_grad=True)

    def layer(x, weights):
        x_e, w_e = dispatch(x, weights, route)
        return dispatch.combine(x_e * w_e[:, None], route)

    assert gradcheck(layer, (x, weights), eps=0.5, atol=1e-12)
    assert gradgradcheck(layer, (x, weights), eps=0.5, atol=1e-12)


@case(1, 2)
def operators(comm):
    """torch's own checks of the three operators: schemas, fake kernels, autograd."""
    rows = {1: [3], 2: [4, 2]}[comm.size][comm.rank]  # those behind the last end would be of any value
    dispatch = make(comm, rows=rows)
    ids = torch.tensor([[0, 3], [-1, 1]])
    route = dispatch.route(ids)
    x, weights = torch.ones(2, 3, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    anchor = torch.empty(0, requires_grad=True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    number = dispatch._number
    torch.library.opcheck(_dispatch_ops.rows, ([x, weights], anchor, route.token, number, "hk", [rows]),
                          test_utils=tests)
    x_e, w_e = (one.detach().requires_grad_() for one in dispatch(x, weights, route))
    torch.library.opcheck(_dispatch_ops.combine, ([x_e, w_e], anchor, route.token, number, "hk", [2, 2]),
                          test_utils=tests)
    torch.library.opcheck(_dispatch_ops.route, (ids, number, dispatch.experts_here, dispatch.rows),
                          test_utils=("test_schema", "test_faketensor"))


class Layer(torch.nn.Module):
    """Experts by grouped products of matrices, over a dispatch."""

    def __init__(self, dispatch, hidden=8, inner=16, seed=1):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.dispatch, here = dispatch, dispatch.experts_here
        first = dispatch.comm.rank * here
        up = drawn(generator, dispatch.experts, hidden, inner)[first:first + here]
        down = drawn(generator, dispatch.experts, inner, hidden)[first:first + here]
        self.up = torch.nn.Parameter(up.bfloat16())
        self.down = torch.nn.Parameter(down.bfloat16())

    def forward(self, x, weights, route):
        x_e, w_e = self.dispatch(x, weights, route)
        h = F.gelu(F.grouped_mm(x_e, self.up, offs=route.ends)) * w_e[:, None].bfloat16()
        return self.dispatch.combine(F.grouped_mm(h, self.down, offs=route.ends), route)


class Step:
    """Two layers over one dispatch, forward and backward of two micro-batches: all forwards come first. Experts
    multiply rows by their number."""

    TOKENS, CHOICES, EXPERTS, HIDDEN = 6, 2, 8, 5
    ROWS = 128  # more than any rank needs

    def __init__(self, comm, **more):
        self.dispatch = make(comm, experts=self.EXPERTS, top_k=self.CHOICES, hidden=self.HIDDEN, rows=self.ROWS, tensors=1,
                             **more)
        first = comm.rank * self.dispatch.experts_here
        self.factors = torch.arange(first + 1.0, first + self.dispatch.experts_here + 1, dtype=F64)
        self.ids = torch.full((2, 2, self.TOKENS, self.CHOICES), -1, dtype=torch.int32)  # [micro-batch, layer, ..]
        self.xs = [torch.zeros(self.TOKENS, self.HIDDEN, dtype=F64, requires_grad=True) for _ in range(2)]
        self.weights = [torch.zeros(self.TOKENS, self.CHOICES, dtype=F64, requires_grad=True) for _ in range(2)]

    def fill(self, seed):
        """Other numbers: whole ones, so sums are exact."""
        roll = random.Random(seed * 100 + self.dispatch.comm.rank)

        def whole(shape, low, high):
            return torch.tensor([roll.randint(low, high) for _ in range(shape.numel())]).reshape(shape)

        with torch.no_grad():
            self.ids.copy_(whole(self.ids.shape, -1, self.EXPERTS - 1))
            for one in (*self.xs, *self.weights):
                one.copy_(whole(one.shape, -3, 3))

    def dispatched(self, x, weights, ids):
        route = self.dispatch.route(ids)
        x_e, w_e = self.dispatch(x, weights, route)
        expert = torch.bucketize(torch.arange(route.rows), route.ends, right=True)
        factor = self.factors[expert.clamp(max=len(self.factors) - 1)]
        return self.dispatch.combine(x_e * (w_e * factor)[:, None], route)

    @staticmethod
    def plain(x, weights, ids):
        return x * ((ids + 1) * weights).sum(1, keepdim=True)  # of no expert the factor is 0

    def __call__(self, layer=None):
        """ys, and the gradients of xs and weights."""
        layer, ys = layer or self.dispatched, []
        for x, weights, ids in zip(self.xs, self.weights, self.ids):
            ys.append(layer(layer(x, weights, ids[0]) + x, weights, ids[1]))
        return [*ys, *torch.autograd.grad([y.sum() for y in ys], [*self.xs, *self.weights])]

    def check(self, found, what):
        for i, (got, wanted) in enumerate(zip(found, self(self.plain))):
            same(got.detach(), wanted.detach(), f"{what}, tensor {i}")


@case(1, 2, 4)
def layers_and_micro_batches(comm):
    step = Step(comm)
    for seed in range(2):
        step.fill(seed)
        step.check(step(), f"seed {seed}")


@case(1, 2)
def weights_of_replays(comm):
    """A layer as docs/torch.md has it, over forced ids, against one that has all experts of all tokens."""
    dispatch = make(comm, experts=8, hidden=3)
    generator = torch.Generator().manual_seed(6)
    experts = drawn(generator, 8, 3, 3, dtype=F64)
    first = comm.rank * dispatch.experts_here
    ids = REPLAY.roll(comm.rank, 0)
    x, logits = (drawn(generator, 6, width, dtype=F64).requires_grad_() for width in (3, 8))

    def layer(kind):
        weights, chosen = mb.top_k(logits, 2, forced=ids, weights=kind)
        route = dispatch.route(chosen)
        x_e, w_e = dispatch(x, weights, route)
        parts = torch.tensor_split(x_e, route.ends[:-1].tolist())
        out = torch.cat([part @ expert for part, expert in zip(parts, experts[first:])])
        return dispatch.combine(out * w_e[:, None], route)

    def dense(kind):
        return torch.einsum("te,th,eho->to", dense_weights(logits, ids, kind), x, experts)

    for kind in ("softmax", "sigmoid"):
        found = []
        for function in (layer, dense):
            y = function(kind)
            found.append((y, *torch.autograd.grad(y.square().sum(), (x, logits))))
        for one, wanted in zip(*found):
            assert torch.allclose(one, wanted, rtol=0, atol=1e-12), (kind, one, wanted)


def layer_and_batch(comm, **more):
    dispatch = make(comm, experts=8, hidden=8, alignment=8, **more)
    generator = torch.Generator().manual_seed(comm.rank)
    n = 0 if comm.rank == 1 else 5
    ids = torch.randint(-1, 8, (n, 2), generator=generator, device="cpu").to(comm.device)
    x = drawn(generator, n, 8).bfloat16().requires_grad_()
    weights = drawn(generator, n, 2).abs().requires_grad_()
    return Layer(dispatch), ids, x, weights


def results(layer, x, weights, function):
    for one in (x, weights, *layer.parameters()):
        one.grad = None
    y = function()
    (y.float() * torch.linspace(1, 2, 8)).sum().backward()
    return [y.detach(), x.grad, weights.grad, layer.up.grad, layer.down.grad]


@case(1, 2, 4)
def grouped_products(comm):
    """ends as F.grouped_mm takes them: y is that of a loop over the experts."""
    layer, ids, x, weights = layer_and_batch(comm)
    y = results(layer, x, weights, lambda: layer(x, weights, layer.dispatch.route(ids)))[0]
    parts = gather((layer.up.detach(), layer.down.detach()))
    up, down = (torch.cat([part[i] for part in parts]).float() for i in range(2))
    for i, row in enumerate(ids.tolist()):
        wanted = torch.zeros(8)
        for e, w in zip(row, weights[i].tolist()):
            if e >= 0:
                wanted += (F.gelu(x[i].float() @ up[e]).detach() * w) @ down[e]
        assert torch.allclose(y[i].float(), wanted, rtol=0.05, atol=0.3), (i, y[i], wanted)


@case(2, 4)
def checkpoints_of_layers(comm):
    """A recomputation moves rows again, over the same route: also one that is made inside, where the
    checkpoint saves it."""
    layer, ids, x, weights = layer_and_batch(comm)
    dispatch = layer.dispatch
    wanted = results(layer, x, weights, lambda: layer(x, weights, dispatch.route(ids)))
    dispatch.report()

    def outside():
        return checkpoints.checkpoint(layer, x, weights, dispatch.route(ids), use_reentrant=False)

    def inside():
        saved = [torch.ops.mimo_bridge.route.default]
        return checkpoints.checkpoint(
            lambda x, weights: layer(x, weights, dispatch.route(ids)), x, weights, use_reentrant=False,
            context_fn=lambda: checkpoints.create_selective_checkpoint_contexts(saved))

    for function in (outside, inside):
        for got, one in zip(results(layer, x, weights, function), wanted):
            same(got, one, function.__name__)
        assert dispatch.report().routes == 1, function.__name__


@case(2)
def compiled_layers(comm):
    """One graph with static rows, forward and backward, with the bits of eager. Nothing of it is dropped."""
    layer, ids, x, weights = layer_and_batch(comm, rows=64)
    dispatch = layer.dispatch

    def step(ids, x, weights):
        route = dispatch.route(ids)
        x_e, w_e = dispatch(x, weights, route)
        return dispatch.combine(x_e * w_e[:, None].bfloat16() * 2, route)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for shift in range(3):
        ids = torch.where(ids < 0, ids, (ids + shift) % 8)
        found = []
        for function in (step, compiled):
            x.grad = weights.grad = None
            y = function(ids, x, weights)
            y.float().sum().backward()
            found.append((y.detach(), x.grad, weights.grad))
        for eager, other in zip(*found):
            same(other, eager)
    exact = make(comm)
    raises(Exception, "in place of \"exact\"", torch.compile(exact.route, fullgraph=True, backend="aot_eager"), ids)
    gc.collect()
    dispatch.route(ids)  # which ends those that nobody has
    assert len(dispatch._dispatching._routes) <= 2, len(dispatch._dispatching._routes)


@case(2, 4)
def ranks_without_anything(comm):
    """Ranks without tokens, ranks whose experts get none, and no token at all: forward and backward."""
    dispatch = make(comm)
    for chosen in (0, 3, None):
        n = 0 if comm.rank == 0 or chosen is None else 2
        x = torch.ones(n, 3, requires_grad=True)
        route = dispatch.route(torch.full((n, 2), chosen or 0))
        x_e, w_e = dispatch(x, torch.ones(n, 2), route)
        y = dispatch.combine(x_e * w_e[:, None], route)
        y.sum().backward()
        same(x.grad, torch.full_like(x, 2))


@case(2, 4)
def gradients_of_some_ranks(comm):
    """x needs gradients on rank 1 alone: backward runs on all."""
    dispatch = make(comm)
    x = torch.ones(2, 3, requires_grad=comm.rank == 1)
    route = dispatch.route(torch.tensor([[0, 3], [1, 2]]))
    x_e, _ = dispatch(x, None, route)
    y = dispatch.combine(x_e, route)
    assert x_e.requires_grad and y.requires_grad and dispatch._anchor.grad is None
    y.sum().backward()
    assert (x.grad is not None) == (comm.rank == 1)
    with torch.no_grad():
        assert not dispatch(x, None, route)[0].requires_grad


@case(2, 4, on="cpu")
def too_few_rows(comm):
    """A tile that needs more rows is an error of all, with the numbers; the next route works."""
    dispatch = make(comm, rows=4)
    everybody = torch.zeros(3, 1, dtype=torch.int64).expand(3, 2)
    raises(mb.ShapeError, f"rank 0 needs {6 * comm.size} rows for its experts, its tile has 4", dispatch.route,
           everybody)
    report = dispatch.report()
    assert (report.rows, report.overflows) == (6 * comm.size, 1), report
    route = dispatch.route(torch.tensor([[comm.rank, -1]]))
    assert route.rows == 4
    same(dispatch.combine(dispatch(torch.ones(1, 3), None, route)[0], route), torch.ones(1, 3))
    assert dispatch.report().overflows == 0


@case(2, 4, on="cpu")
def mistakes_of_one_rank(comm):
    """What is wrong on one rank is every rank's error, and the next call works."""
    dispatch, other = make(comm), make(comm)
    last, ids = comm.rank == comm.size - 1, torch.tensor([[0, 3], [1, 2]])
    x, w = torch.ones(2, 3), torch.ones(2, 2)
    route, others = dispatch.route(ids), other.route(ids)
    rows = dispatch(x, w, route)[0]

    def fails(kind, words, function, wrong, right):
        raises(kind, words, function, *(wrong if last else right))
        same(dispatch.combine(dispatch(x, w, route)[0], route), 2 * x)

    fails(mb.ShapeError, "9 tokens", dispatch.route, [torch.zeros(9, 2, dtype=torch.int64)], [ids])
    fails(mb.ShapeError, "expert 4 of 4", dispatch.route, [torch.tensor([[0, 4]])], [ids])
    fails(mb.ShapeError, "[2, 2, 2]", dispatch.route, [torch.zeros(2, 2, 2, dtype=torch.int64)], [ids])
    fails(mb.ShapeError, "2 choices", dispatch.route, [torch.zeros(2, 3, dtype=torch.int64)], [ids])
    fails(mb.ArgumentError, "torch.float32", dispatch.route, [w], [ids])
    fails(mb.ArgumentError, "list", dispatch.route, [[[0, 3]]], [ids])
    fails(mb.ShapeError, "", dispatch, [x[:1], w, route], [x, w, route])
    fails(mb.ArgumentError, "torch.bfloat16", dispatch, [x, w.bfloat16(), route], [x, w, route])
    fails(mb.ShapeError, "[3]", dispatch, [x[0], w, route], [x, w, route])
    fails(mb.ShapeError, "weights has shape [2], and needs the 2 dimensions 'tk'", dispatch, [x, w[:, 0], route],
          [x, w, route])
    fails(mb.ShapeError, "[]", dispatch.combine, [torch.tensor(1.0), route], [rows, route])
    fails(mb.ArgumentError, "int", dispatch, [5, w, route], [x, w, route])
    fails(mb.ArgumentError, "without tensors", dispatch, [[], w, route], [x, w, route])
    fails(mb.ArgumentError, "another dispatch", dispatch, [x, w, others], [x, w, route])
    fails(mb.ArgumentError, "place of a Route", dispatch, [x, w, 7], [x, w, route])
    fails(mb.ShapeError, "", dispatch.combine, [torch.cat([rows, rows]), route], [rows, route])
    fails(mb.UnsupportedError, "", dispatch.combine, [rows.long(), route], [rows, route])

    def forward_mode(one):
        function = functools.partial(dispatch, weights=None, route=route)
        return torch.func.jvp(lambda t: function(t)[0], (one,), (one,)) if last else function(one)

    fails(mb.UnsupportedError, "jvp", forward_mode, [x], [x])
    if comm.rank == 0:
        raises(mb.MismatchError, "", dispatch, x, w, route)
    else:
        raises(mb.MismatchError, "", dispatch.combine, rows, route)
    same(dispatch.combine(dispatch(x, w, route)[0], route), 2 * x)
    dispatch.close()
    raises(mb.StateError, "closed", dispatch, x, w, route)
    raises(mb.StateError, "closed", dispatch.route, ids)
    dispatch.close()


@case(2, 4, on="cpu")
def ranks_in_step(comm):
    """One rank calls something else: an error of all, and routes and slots have the same numbers again."""
    buffer = mb.Buffer(4096, 3, comm=comm)
    dispatch, other = make(comm, buffer=buffer), make(comm)
    x, ids = torch.ones(2, 3), torch.tensor([[0, 3], [1, 2]])
    route, others = dispatch.route(ids), other.route(ids)
    rows = dispatch(x, None, route)[0].clone()
    for theirs in (lambda: dispatch.route(ids), lambda: dispatch(x, None, route),
                   lambda: dispatch.combine(rows, route)):
        for mine in dispatch.close, comm.barrier, lambda: other(x, None, others), lambda: other.route(ids):
            raises(mb.MismatchError, "called", mine if comm.rank == comm.size - 1 else theirs)
            again = dispatch.route(ids)
            same(dispatch.combine(dispatch(x, None, again)[0], again), 2 * x)
    assert len(set(gather(buffer._calls))) == 1


@case(2)
def wrong_dispatches(comm):
    last = comm.rank == 1
    raises(mb.ArgumentError, "9", make, comm, top_k=9 if last else 2)
    raises(mb.GridError, "5 experts", make, comm, experts=5)
    raises(mb.GridError, "etp=3", make, comm, etp=3)
    raises(mb.ArgumentError, "staged", make, comm, transport="staged" if last else "auto")
    raises(mb.ArgumentError, "rows", make, comm, rows="many" if last else "exact")
    raises(mb.ArgumentError, "torch.dtype", make, comm, dtype="f32" if last else F64)
    raises(mb.MismatchError, "", make, comm, dtype=torch.float32 if last else F64)
    raises(mb.ArgumentError, "no Buffer", make, comm, buffer=7 if last else None)
    raises(mb.MismatchError, "rows=", make, comm, rows=8 if last else "exact")
    raises(mb.MismatchError, "", make, comm, hidden=2 if last else 3)
    group = torch.distributed.ProcessGroup(comm.rank, comm.size)
    raises(mb.ArgumentError, "Dispatch: comm is a ProcessGroup, and must be a Communicator: make one on every rank, of a "
           "process group by mimo_bridge.Communicator(group)", make, group)
    grid = mb.Grid("dp=2")
    for what, function in (("Bridge", lambda: mb.Bridge(grid, grid, comm=group)),
                           ("Buffer", lambda: mb.Buffer(8, comm=group)),
                           ("Partition.at", lambda: mb.Partition().at(grid, 0, comm=group)),
                           ("explain", lambda: mb.explain(grid, grid, [], comm=group))):
        raises(mb.ArgumentError, f"{what}: comm is a ProcessGroup", function)
    dispatch = make(comm)
    raises(TypeError, "copied", __import__("copy").deepcopy, dispatch)
    raises(TypeError, "pickled", __import__("pickle").dumps, dispatch)


@case(2, 4)
def routes_that_end(comm):
    """A route lives as long as something needs it: several in flight, backward in another order."""
    dispatch = make(comm)
    found = []
    for step in range(3):
        x = torch.full((2, 3), float(step), requires_grad=True)
        route = dispatch.route(torch.tensor([[step, 3 - step], [-1, step]]))
        y = dispatch.combine(dispatch(x, None, route)[0], route)
        found.append((x, y))
        del route
    gc.collect()
    dispatch.route(torch.empty(0, 2, dtype=torch.int64))
    assert len(dispatch._dispatching._routes) == 3
    for x, y in reversed(found):
        y.sum().backward()
        same(x.grad, torch.tensor([[2.0], [1]]).expand(2, 3))
    del found, x, y
    gc.collect()
    dispatch.route(torch.empty(0, 2, dtype=torch.int64))
    assert len(dispatch._dispatching._routes) == 0 and not dispatch._dispatching.ended[1:]
    route = dispatch.route(torch.empty(0, 2, dtype=torch.int64))
    dispatch.close()  # and with it what is alive
    raises(mb.StateError, "closed", dispatch.combine, torch.empty(0, 3), route)
    del route
    gc.collect()
    assert not dispatch._dispatching.ended


@case(2, on="cpu")
def routes_of_graphs(comm):
    """Routes of calls that are captured live until the dispatch is closed (here a stream is said to be)."""
    dispatch = make(comm, rows=8)
    own, ids, x = dispatch._dispatching, torch.tensor([[0, 3], [-1, 1]]), torch.ones(2, 3)
    before = dispatch.route(ids)
    own._records = lambda: True
    rows = dispatch(x, None, before)[0]
    made = dispatch.route(ids)
    del own._records
    dispatch.combine(rows, before)
    number = int(made.token)
    del before, made, rows
    gc.collect()
    dispatch.route(ids)
    assert len(own._routes) == 2 and own.route_of(torch.tensor(number)).tokens == 2
    dispatch.close()
    assert len(own._routes) == 0


@case(2, long=True)
def thousand_steps(comm):
    """Tokens that change, uneven and none: memory stays where it was after the first steps."""
    layer, _, _, _ = layer_and_batch(comm)
    dispatch, roll, seen = layer.dispatch, random.Random(comm.rank), []
    for step in range(1000):
        n = 0 if roll.random() < 0.1 else roll.randint(0, 8)
        x = torch.ones(n, 8, dtype=torch.bfloat16, requires_grad=True)
        ids = torch.tensor([[roll.randrange(-1, 8) for _ in range(2)] for _ in range(n)],
                           dtype=torch.int64).reshape(n, 2)
        y = layer(x, torch.ones(n, 2), dispatch.route(ids))
        y.float().sum().backward()
        if step % 100 == 99:
            with open("/proc/self/statm") as file:
                seen.append(int(file.read().split()[1]) * 4)
    assert seen[-1] - seen[1] < 2048, seen  # KiB
