"""torch.compile around bridges: the bits of eager, one order of calls, symbols for sizes."""
import torch

import mimo_bridge as mb
from rank_runner import case, raises, same
from tile_model import global_rows

F64 = torch.float64


def counting(backend):
    """A backend that counts the graphs that it compiles."""
    from torch._dynamo.testing import CompileCounterWithBackend  # takes seconds
    return CompileCounterWithBackend(backend)


def make(comm, **more):
    n = comm.size
    return mb.Bridge(mb.Grid(f"tp=1,dp={n}"), mb.Grid(f"tp=1,cp={n}"), comm=comm, layout="bsh",
                     partition=mb.Partition(), **more)


class Step(torch.nn.Module):
    """An encoder, two bridges and an LLM, so small that their graph can be read."""

    def __init__(self, comm, **more):
        super().__init__()
        self.one, self.two = make(comm, **more), make(comm, **more)
        self.weight = torch.nn.Parameter(torch.full((3, 3), 0.5, dtype=F64))

    def forward(self, x):
        h = x @ self.weight
        return (self.one(h).sin() + self.two(h * 2)).sum()


def compare(step, compiled, x, close=False):
    """Loss and gradients of both, in equal bits, or close."""
    results = []
    for function in (step, compiled):
        step.weight.grad, leaf = None, x.clone().requires_grad_()
        loss = function(leaf)
        loss.backward()
        results.append((loss.detach(), leaf.grad, step.weight.grad))
    for eager, other in zip(*results):
        if close:
            assert torch.allclose(eager, other, rtol=1e-12), (eager, other)
        else:
            same(other, eager)


@case(2)
def aot_eager(comm):
    """One graph for two sizes, with the bits of eager."""
    step = Step(comm)
    counter = counting("aot_eager")
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=counter)
    for batch, seq in ((1, 8), (3, 12), (2, 4)):
        compare(step, compiled, global_rows(batch, seq, 3, F64, comm.rank) / 8)
    assert counter.frame_count <= 2, counter.frame_count  # a batch of 1 may be a graph of its own


@case(2)
def inductor(comm):
    """The compiler proper. It computes sines in its own way."""
    step = Step(comm)
    compiled = torch.compile(step, fullgraph=True, dynamic=False)
    compare(step, compiled, global_rows(2, 8, 3, F64, comm.rank) / 8, close=True)


@case(2, long=True)
def inductor_dynamic(comm):
    step = Step(comm)
    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    for batch, seq in ((2, 8), (3, 12)):
        compare(step, compiled, global_rows(batch, seq, 3, F64, comm.rank) / 8, close=True)


@case(2)
def updates(comm):
    """What an update gives changes a number of the graph, not the graph."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"), comm=comm, layout="th")
    counter = counting("aot_eager")
    compiled = torch.compile(lambda x: bridge(x) * 2, fullgraph=True, backend=counter)
    for step in range(6):
        rows = [[(3, 4), (4, 3)], [(5 + step, 2), (2, 5 + step)]]
        bridge.update(*(mb.Batch(rows=given[comm.rank]) for given in rows))
        for m in range(2):
            bridge.select(m)
            whole = torch.arange(float(sum(pair[0] for pair in rows[m])))[:, None] + 100 * step
            start, end = (0, rows[m][0][0]) if comm.rank == 0 else (rows[m][0][0], len(whole))
            x = whole[start:end].clone().requires_grad_()
            y = compiled(x)
            first = 0 if comm.rank == 0 else rows[m][0][1]
            same(y.detach(), 2 * whole[first:first + rows[m][comm.rank][1]])
            y.sum().backward()
            same(x.grad, torch.full_like(x, 2))
    assert counter.frame_count <= 4, counter.frame_count


@case(2)
def place_in_a_graph(comm):
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"), comm=comm, layout="th", dst_layout="bsh")
    bridge.update(mb.Batch(batch=2, spans=[mb.Span(comm.rank, 0, 1, 2)]))
    compiled = torch.compile(lambda tile, x: bridge.place(tile * 2, x) + 1, fullgraph=True,
                             backend="aot_eager")
    tile, x = torch.ones(1, 4, 1).requires_grad_(), torch.full((2, 1), 5.0).requires_grad_()
    y = compiled(tile, x)
    assert y.flatten().tolist() == [3, 6, 6, 3]
    y.sum().backward()
    assert tile.grad.flatten().tolist() == [2, 0, 0, 2] and x.grad.flatten().tolist() == [1, 1]


@case(2)
def buffers_in_a_graph(comm):
    """Slots are taken when the graph runs, not when it is traced."""
    buffer = mb.Buffer(1024, 2, comm=comm)
    bridge = make(comm, buffer=buffer)
    compiled = torch.compile(lambda x: bridge(x) * 1.5, fullgraph=True, backend="aot_eager")
    plain = make(comm)
    for i in range(5):
        x = global_rows(1, 4, 2, F64, comm.rank + i).requires_grad_()
        y = compiled(x)
        same(y.detach(), plain(x).detach() * 1.5)
        y.sum().backward()
        del y
    del x
    compiled = None


@case(2)
def mistakes(comm):
    """What eager refuses is refused where the compiler traces it. Otherwise numbers that contradict x are
    passed over, and tangents are 0."""
    bridge = make(comm)
    x = global_rows(1, 4, 2, F64)
    compiled = torch.compile(lambda x, **more: bridge(x, **more), backend="aot_eager")
    for kind, words, more in ((mb.ShapeError, "seq=6", {"seq": 6}), (mb.ArgumentError, "rows=3", {"rows": 3}),
                              (mb.ArgumentError, "batch is -1", {"batch": -1})):
        raises(kind, words, compiled, x, **more)
    whole = torch.compile(lambda x: bridge(x, seq=x.shape[1]), fullgraph=True, dynamic=True,
                          backend="aot_eager")
    for seq in (4, 8, 12):
        same(whole(global_rows(1, seq, 2, F64)), bridge(global_rows(1, seq, 2, F64)))
    part = mb.Partition().at(mb.Grid("cp=2"), comm.rank)
    for function, at in ((bridge, x), (lambda x: part.shard(x, "sh"), x[0])):
        tangent = torch.compile(lambda x: torch.func.jvp(function, (x,), (x,))[1], backend="aot_eager")
        raises(mb.UnsupportedError, "forward-mode", tangent, at)


class Called(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@case(2)
def export_is_refused(comm):
    """What a graph would know by a number of this process."""
    x, ids = global_rows(1, 4, 2, F64), torch.tensor([[0, 1]])
    dispatch = mb.Dispatch(experts=2, top_k=2, hidden=2, max_tokens=4, rows=8, comm=comm)
    route, part = dispatch.route(ids), mb.Partition().at(mb.Grid("cp=2"), comm.rank)
    alignment = mb.Alignment([7])
    alignment.update(torch.tensor([[7, 7, 1, 1]]))
    for what, function, at, stricts in (
            ("a bridge", make(comm), x, (False, True)),
            ("a dispatch", Called(dispatch.route), ids, (False, True)),
            ("a dispatch", Called(lambda x: dispatch(x, None, route)[0]), x[0, :1], (False,)),
            ("a dispatch", Called(lambda x: dispatch.combine(x, route)), x[0].repeat(2, 1), (False,)),
            ("shard", Called(lambda x: part.shard(x, "sh")), x[0], (False,)),
            ("merge", Called(lambda x: alignment.merge([x[:2]], x[2:])), x[0], (False,))):
        for strict in stricts:
            try:
                torch.export.export(function, (at,), strict=strict)
            except Exception as error:
                assert f"torch.export can't take {what}" in str(error), (what, strict, error)
            else:
                raise AssertionError(f"{what} was exported")


@case(2)
def unused_outputs(comm):
    """A call whose result nobody uses, in eager and compiled: where the compiler keeps it, all ranks
    make it. The next call then still matches."""
    bridge = make(comm)

    def step(x):
        bridge(x * 3)
        return bridge(x)

    x = global_rows(1, 4, 2, F64, comm.rank).requires_grad_()
    wanted = step(x).detach()
    y = torch.compile(step, fullgraph=True, backend="aot_eager")(x)
    same(y.detach(), wanted)
    y.sum().backward()
    same(x.grad, torch.ones_like(x))


@case(2)
def local_functions(comm):
    """Shards and merges in a graph."""
    part = mb.Partition().at(mb.Grid("cp=2"), comm.rank)
    alignment = mb.Alignment([7], device=comm.device)
    alignment.update(torch.tensor([[7, 1, 7, 2]]))

    def step(rows, text):
        return part.shard(alignment.merge([rows], text * 2, layout="sbh")) + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    rows, text = torch.ones(2, 3).requires_grad_(), torch.ones(2, 3).requires_grad_()
    y = compiled(rows, text)
    same(y.detach(), step(rows, text).detach())
    y.sum().backward()
    assert rows.grad.sum() == 3 and text.grad.sum() == 6
    raises(mb.ShapeError, "2", step, rows[:1], text)
