"""Several tensors in one call: the bits of a call of each, and one agreement and one exchange for all."""
import torch
from torch._subclasses import FakeTensorMode

import mimo_bridge as mb
from mimo_bridge import _ops
from bridge_cases import RAGGED_IDS, random_bridge
from rank_runner import case, gather, raises, same
from tile_model import Side, dice, global_rows, gradient_of

F64 = torch.float64
KINDS = ((5, torch.float32), (1, torch.int64), (3, F64), (2, torch.bfloat16))  # H and dtype


class Counted:
    """How many tensors each call of the library moves from now on: [forward, backward]."""

    def __init__(self, bridge):
        self.calls = [], []
        bridge._movement._functions = tuple(map(self.counting, bridge._movement._functions, self.calls))

    @staticmethod
    def counting(function, calls):
        def call(handle, to, source, n, stream):
            calls.append(n)
            return function(handle, to, source, n, stream)
        return call


def tiles(side, rank, batch, seq, seed=0):
    """This rank's tile of each kind, which needs gradients where it can."""
    wholes = [global_rows(batch, seq, hidden, dtype, seed + i) for i, (hidden, dtype) in enumerate(KINDS)]
    return [side.tile(rank, whole).requires_grad_(whole.is_floating_point()) for whole in wholes]


@case(1, 2, 4)
def random_pairs_of_several(comm):
    """Other widths and dtypes in one call: forward and backward have the model's bits."""
    roll = dice(4711 + comm.size)
    for trial in range(10):
        bridge, src, dst, (batch, seq, _) = random_bridge(roll, comm)
        counted = Counted(bridge)
        xs = tiles(src, comm.rank, batch, seq, trial)
        ys = bridge(xs)
        assert isinstance(ys, list) and counted.calls == ([4], [])
        for i, (y, wanted) in enumerate(zip(ys, tiles(dst, comm.rank, batch, seq, trial))):
            same(y.detach(), wanted.detach(), f"{trial}: {i}")
            assert y.requires_grad == y.is_floating_point()
        pairs = [gradient_of(dst, comm.size, comm.rank, (batch, seq, hidden), dtype)
                 for hidden, dtype in KINDS]
        moved = [(y, torch.zeros_like(y) if mine is None else mine) for y, (mine, _) in zip(ys, pairs)
                 if y.requires_grad]
        torch.autograd.backward(*zip(*moved))
        for i, (x, (_, total)) in enumerate(zip(xs, pairs)):
            if x.requires_grad:
                same(x.grad, src.tile(comm.rank, total), f"{trial}: {i} backward")
        assert counted.calls == ([4], [3])
        bridge.close()


def usual(comm, **more):
    """A bridge of fan-in with cp, and this rank's f64 tiles of H 3 and 1."""
    n = comm.size
    bridge = mb.Bridge(mb.Grid(f"dp={n}"), mb.Grid(f"cp=2,dp={n // 2}"), comm=comm, layout="bsh",
                       partition=mb.Partition(), **more)
    return bridge, [global_rows(n, 8, h, F64, h)[comm.rank:comm.rank + 1].clone().requires_grad_()
                    for h in (3, 1)]


@case(4)
def some_are_not_used(comm):
    """The gradient of a result that nobody used is 0. A tensor that needs none gets none."""
    bridge, (a, b) = usual(comm)
    frozen = b.detach()
    one, two, _ = bridge((a, b, frozen))
    (one * 2).sum().backward()
    same(a.grad, torch.full_like(a, 2))
    same(b.grad, torch.zeros_like(b))
    assert two.requires_grad and frozen.grad is None
    with torch.no_grad():
        assert not bridge([a, b])[0].requires_grad
    assert not any(y.requires_grad for y in usual(comm, differentiable=False)[0]([a, b]))
    assert not bridge([a.detach().long(), b.detach().int()])[0].requires_grad
    same(bridge([a])[0].detach(), bridge(a).detach())


@case(4)
def twice(comm):
    """The gradient of the gradient is forward, bit for bit, also through the custom ops."""
    bridge, xs = usual(comm)
    moved = [y.detach() for y in bridge(xs)]
    for ys in (bridge(xs), by_op(bridge, xs)):
        gs = [torch.ones_like(y).requires_grad_() for y in ys]
        grads = torch.autograd.grad(ys, xs, gs, create_graph=True)
        for got, wanted in zip(torch.autograd.grad(grads, gs, [x.detach() for x in xs]), moved):
            same(got, wanted)


def by_op(bridge, xs):
    """The custom op, as compiled code calls it."""
    shapes = _ops.joined(bridge.shape(x.shape) for x in xs)
    return _ops.forward_all(xs, bridge._anchor, bridge._movement.number, shapes, bridge._movement.call)


@case(2)
def ops_of_several(comm):
    """The custom ops give the bits of the short way, and opcheck accepts them."""
    bridge, xs = usual(comm)
    ys, number = bridge(xs), bridge._movement.number
    for got, wanted in zip(by_op(bridge, xs), ys):
        same(got.detach(), wanted.detach())
    xs.append(torch.arange(8)[None, :, None] + 10 * comm.rank)
    shapes = _ops.joined(bridge.shape(x.shape) for x in xs)
    torch.library.opcheck(_ops.forward_all, (xs, bridge._anchor, number, shapes, 0))
    torch.library.opcheck(_ops.backward_all, ([y.detach().requires_grad_() for y in ys], number,
                                              _ops.joined(x.shape for x in xs[:2]), 0))
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("tp=2"), comm=comm, layout="th", dst_layout="bsh")
    bridge.update(mb.Batch(batch=2, spans=[mb.Span(comm.rank, 0, 1, 2)]))
    tiles = [global_rows(2, 4, h, F64).requires_grad_() for h in (1, 3)]
    xs = [torch.ones(2, h, dtype=F64).requires_grad_() for h in (1, 3)]
    arguments = tiles, xs, bridge._anchor, bridge._movement.number, bridge._movement.call
    for got, wanted in zip(_ops.place_all(*arguments), bridge.place(tiles, xs)):
        same(got.detach(), wanted.detach())
    torch.library.opcheck(_ops.place_all, arguments)
    torch.library.opcheck(_ops.place_all_backward, (tiles, bridge._movement.number, [2, 1, 2, 3],
                                                    bridge._movement.call))


@case(4)
def places_of_several(comm):
    """Rows of two levels at the positions of their ids, each in a tile of its own; gradients of all."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, partition=mb.Partition(),
                       layout="th", dst_layout="sbh")
    ids = RAGGED_IDS
    bridge.update(mb.Batch(batch=4, spans=mb.spans_of(ids[comm.rank:comm.rank + 1], 9, comm.rank)))
    counted = Counted(bridge)
    rows, dst = ids == 9, Side("cp=2,dp=2", 0, "sbh", True)
    images = [global_rows(4, 4, h, F64, 10 + h).abs() for h in (1, 3)]
    texts = [-global_rows(4, 4, h, F64, h).abs() for h in (1, 3)]
    xs = [image[comm.rank][rows[comm.rank]].requires_grad_() for image in images]
    tiles = [dst.tile(comm.rank, text).requires_grad_() for text in texts]
    ys = bridge.place(tiles, xs)
    for y, text, image in zip(ys, texts, images):
        same(y.detach(), dst.tile(comm.rank, torch.where(rows[:, :, None], image, text)))
    weights = [global_rows(4, 4, h, F64, 20 + h) for h in (1, 3)]
    torch.autograd.backward(ys, [dst.tile(comm.rank, weight) for weight in weights])
    for x, tile, weight in zip(xs, tiles, weights):
        same(x.grad, weight[comm.rank][rows[comm.rank]])
        same(tile.grad, dst.tile(comm.rank, weight.masked_fill(rows[:, :, None], 0)))
    assert counted.calls == ([2], [2])  # none for the mask
    gs = [torch.ones_like(y).requires_grad_() for y in ys]
    grads = torch.autograd.grad(bridge.place(tiles, xs), (*tiles, *xs), gs, create_graph=True)
    inputs = [one.detach() for one in (*tiles, *xs)]
    for got, y in zip(torch.autograd.grad(grads, gs, inputs), ys):
        same(got, y.detach())
    for y, image in zip(bridge(xs, seq=4), images):  # 0 where no row goes
        same(y.detach(), dst.tile(comm.rank, image.masked_fill(~rows[:, :, None], 0)))


@case(2)
def places_of_numbers(comm):
    """Whole numbers beside rows that have a gradient: position ids, say."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"), comm=comm, layout="th", dst_layout="bsh")
    bridge.update(mb.Batch(batch=2, spans=[mb.Span(comm.rank, 0, 1, 2)]))
    tile, x = torch.zeros(1, 4, 1, requires_grad=True), torch.ones(2, 1, requires_grad=True)
    rows, numbers = bridge.place([tile, torch.arange(4)[None, :, None]], [x, torch.tensor([[70], [71]])])
    assert numbers.flatten().tolist() == [0, 70, 71, 3] and not numbers.requires_grad
    rows.sum().backward()
    assert tile.grad.flatten().tolist() == [1, 0, 0, 1] and x.grad.flatten().tolist() == [1, 1]
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    if comm.rank == 0:  # fake tensors ask no other rank
        assert bridge([fakes.from_tensor(x)] * 2, seq=4)[1].shape == (1, 4, 1)
        raises(mb.ArgumentError, "batch", bridge, [fakes.from_tensor(x)], seq=4, batch="2")


@case(4)
def several_in_slots(comm):
    """All results of a call lie in one slot, at the same places on ranks of other sizes. The slot is in use
    while one of them lives."""
    buffer, grads = mb.Buffer(4096, 2, comm=comm), mb.Buffer(4096, 2, comm=comm)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="bsh", batch=6, buffer=buffer,
                       grad_buffer=grads)
    side = Side("dp=4", 0, "bsh")
    for n in range(5):
        xs = tiles(side, comm.rank, 6, 4, n)
        ys = bridge(xs)
        places = [y.data_ptr() - buffer._address - n % 2 * buffer.bytes for y in ys]
        assert places[0] == 0 and places == gather(places)[0] and len(set(places)) == 4, places
        for y, x in zip(ys, xs):
            same(y.detach(), x.detach())
        moved = [(y, x) for y, x in zip(ys, xs) if x.requires_grad]
        found = torch.autograd.grad([y for y, _ in moved], [x for _, x in moved],
                                    [3 * x.detach() for _, x in moved])
        for grad, (_, x) in zip(found, moved):
            same(grad, 3 * x.detach())
            assert 0 <= grad.data_ptr() - grads._address - n % 2 * grads.bytes < grads.bytes
        del y, ys, _, moved, grad, found
    kept = bridge(xs)[2].detach()
    same(bridge(xs[0]).detach(), xs[0].detach())  # of the same buffer, by itself
    raises(mb.StateError, "slot 1 of 2 is in use", bridge, xs[0])
    same(kept, xs[2].detach())


@case(4)
def sizes_of_parts(comm):
    """What Buffer promises: a slot holds what the results take together, and 256 bytes for each."""
    for rows in (1, 3, 70):
        widths = (8, 4096, 2, 520)
        buffer = mb.Buffer(rows * sum(widths) + 256 * len(widths), 1, comm=comm)
        bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="th", buffer=buffer)
        xs = [torch.full((rows, width), comm.rank, dtype=torch.uint8) for width in widths]
        for y, x in zip(bridge(xs), xs):
            same(y, x)
        del y
        bridge.close()
        buffer.close()
    buffer = mb.Buffer(1024, 1, comm=comm)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="th", buffer=buffer)
    raises(mb.ShapeError, "does not fit the 256 bytes", bridge, [torch.ones(65, 1), torch.ones(65, 1)])


@case(4)
def chunks_of_several(comm):
    """Lists of parts, prepared before, with slots and without."""
    for more in ({}, {"buffer": mb.Buffer(4096, 2, comm=comm), "grad_buffer": mb.Buffer(4096, 2, comm=comm)}):
        bridge, xs = usual(comm, **more)
        bridge.prepare(xs)
        bridge.prepare(xs, chunks=2, backward=False)
        wanted = [y.detach().clone() for y in bridge(xs)]
        for n in (1, 2, 3):
            parts = [[one.clone() for one in part] for part in bridge.chunks(xs, n)]
            for got, y in zip(zip(*parts), wanted):
                same(torch.cat(got), y)
        ys = bridge(xs)
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
        for x in xs:
            same(x.grad, torch.ones_like(x))


@case(4, on="cpu")
def several_on_one_rank(comm):
    """What is wrong on rank 2 alone is an error of all four, and the bridge works afterwards."""
    bridge, (a, b) = usual(comm)
    bad = comm.rank == 2
    flat = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="th", dst_layout="bsh")
    flat.update(mb.Batch(batch=4, spans=[mb.Span(comm.rank, 0, 0, 1)]))
    text, row = torch.zeros(2, 8, 2), torch.ones(1, 2)
    wrongs = {
        "forward of 3": lambda: bridge([a, b, a] if bad else [a, b]),
        "forward of 2": lambda: bridge(a if bad else [a, b]),
        "without tensors": lambda: bridge([] if bad else [a, b]),
        "x[1] is a str": lambda: bridge([a, "b"] if bad else [a, b]),
        "x[1] has shape": lambda: bridge([a, b[0]] if bad else [a, b]),
        "x[1] has dtype": lambda: bridge([a, b.to(torch.complex64)] if bad else [a, b]),
        "x[0] is on meta": lambda: bridge([a.to("meta"), b] if bad else [a, b]),
        "tensor 1": lambda: bridge([a, b.float()] if bad else [a, b]),
        "2 tiles, and 1 tensors": lambda: flat.place([text, text], [row] if bad else [row, row]),
        "the tile is a list": lambda: flat.place([text] if bad else text, row),
        "the tile[1] is on meta": lambda: flat.place([text, text.to("meta") if bad else text], [row, row]),
        "x[1] is a int": lambda: list(bridge.chunks([a, 1 if bad else b], 2)),
        "x[0] is a NoneType": lambda: bridge.prepare([None if bad else a, b]),
    }
    for words, call in wrongs.items():
        raises(mb.MimoError, words, call)
        same(bridge([a, b])[1].detach(), bridge(b).detach(), words)


def compare_compiled(comm, sizes, **how):
    """One function, eager and compiled: equal bits of the result and of the gradients. Gives the graphs."""
    from torch._dynamo.testing import CompileCounterWithBackend  # takes seconds
    bridge, _ = usual(comm)

    def step(a, b, n):
        one, two, numbers = bridge([a * 2, b, n])
        return one * two + numbers

    counter = CompileCounterWithBackend(how.pop("backend"))
    compiled = torch.compile(step, fullgraph=True, backend=counter, **how)
    for batch, seq in sizes:
        whole = global_rows(batch, seq, 3, F64, comm.rank)
        leaves = [[part.clone().requires_grad_() for part in (whole, whole[:, :, :1])] for _ in range(2)]
        results = [function(*pair, whole.long()) for function, pair in zip((step, compiled), leaves)]
        same(results[1].detach(), results[0].detach())
        for y in results:
            y.backward(global_rows(*y.shape, F64, 5))
        for eager, other in zip(*leaves):
            same(other.grad, eager.grad)
    return counter.frame_count


@case(2)
def several_in_a_graph(comm):
    """torch.compile takes lists in one graph, with symbols for sizes."""
    assert compare_compiled(comm, ((2, 8), (3, 12), (2, 4)), dynamic=True, backend="aot_eager") <= 2


@case(2, long=True)
def several_by_inductor(comm):
    assert compare_compiled(comm, ((2, 8),), dynamic=False, backend="inductor") == 1


@case(2)
def several_places_in_a_graph(comm):
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"), comm=comm, layout="th", dst_layout="bsh")
    bridge.update(mb.Batch(batch=2, spans=[mb.Span(comm.rank, 0, 1, 2)]))
    compiled = torch.compile(lambda tiles, xs: [y + 1 for y in bridge.place(tiles, xs)], fullgraph=True,
                             backend="aot_eager")
    tiles = [torch.full((1, 4, h), float(h), requires_grad=True) for h in (1, 2)]
    xs = [torch.full((2, h), 5.0, requires_grad=True) for h in (1, 2)]
    one, two = compiled(tiles, xs)
    assert one.flatten().tolist() == [2, 6, 6, 2] and two[0, :, 1].tolist() == [3, 6, 6, 3]
    (one.sum() + 3 * two.sum()).backward()
    assert tiles[0].grad.flatten().tolist() == [1, 0, 0, 1]
    assert tiles[1].grad[0, :, 0].tolist() == [3, 0, 0, 3]
    assert xs[0].grad.flatten().tolist() == [1, 1] and xs[1].grad.flatten().tolist() == [3, 3, 3, 3]


@case(4)
def items_on_any_lane(comm):
    """Images of other ranks' samples: the LLM gets them where its spans say, one flat tile gets another."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="th", dst_layout="sbh",
                       partition=mb.Partition())
    lanes = [[(1, 2, 1), (0, 0, 2)], [], [(1, 0, 2)], [(0, 2, 1)]]
    spans = [mb.Span(0, 0, 1, 3), mb.Span(1, 0, 0, 2), mb.Span(1, 2, 7, 1)]
    whole = torch.zeros(2, 8, 1, dtype=F64)
    for sample, row, position, length in spans:
        whole[sample, position:position + length, 0] = 10.0 * (sample + 1) + torch.arange(row, row + length)
    here = torch.cat([10.0 * (sample + 1) + torch.arange(row, row + rows, dtype=F64)
                      for sample, row, rows in lanes[comm.rank]] or [torch.zeros(0, dtype=F64)]).reshape(-1, 1)
    bridge.update(mb.Batch(2, spans=spans, items=mb.Items(lanes)))
    x = here.clone().requires_grad_()
    y = bridge(x, seq=8)
    same(y.detach(), Side("cp=2,dp=2", 0, "sbh", cuts=True).tile(comm.rank, whole))
    (y * 3).sum().backward()
    same(x.grad, torch.full_like(x, 3))
    bridge.close()
    flat = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=4"), comm=comm, layout="th")
    moved = lanes[1:] + lanes[:1]
    mine, other = (sum(rows for *_, rows in side[comm.rank]) for side in (lanes, moved))
    flat.update(mb.Batch(2, rows=(mine, other), items=mb.Items(lanes, moved)))
    same(flat(here), gather(here)[(comm.rank + 1) % 4])
    raises(mb.ShapeError, "row 0 of sample 1 is in no item", flat.update,
           mb.Batch(2, rows=(mine, other), items=mb.Items(lanes[:2] + [[]] + lanes[3:], moved)))
    raises(mb.ShapeError, "src has 3 lanes, and the grid dp=4", flat.update,
           mb.Batch(2, rows=(mine, other), items=mb.Items(lanes[:3], moved)))
    raises(mb.SizeOverflowError, "does not fit 64 bits", flat.update,
           mb.Batch(2, rows=(0, 0), items=mb.Items([[(0, 0, 2**63)], [], [], []], moved)))
    flat.close()
