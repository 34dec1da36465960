"""What only a GPU shows of a Dispatch: graphs, hosts that do not wait, tiles that are too small. Under torchrun alone."""
import ctypes

import torch

import mimo_bridge as mb
from dispatch_cases import Step, make
from gpu_cases import LONG, memory_of, no_synchronisation
from mimo_bridge import _c
from rank_runner import case, raises, same


@case(1, 2, 4, on="cuda")
def graphs(comm):
    """Two layers and micro-batches, forward and backward in one graph: 50 replays with other ids, and routes made
    between them. Those of the graph live until the dispatch is closed."""
    buffer = mb.Buffer(2 * 8 * Step.ROWS * (Step.HIDDEN + 1), 16, comm=comm)
    for with_buffer in (None, buffer):
        step, side = Step(comm, buffer=with_buffer), torch.cuda.Stream()
        step.fill(0)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step.check(step(), "eager")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            found = step()
        assert len(step.dispatch._dispatching._routes) == 4
        step.dispatch.report()
        for seed in range(1, 51):
            step.fill(seed)
            graph.replay()
            step.check(found, f"replay {seed}")
            if seed % 25 == 0:
                step.dispatch.route(step.ids[0, 0])
        assert step.dispatch.report().routes == 4 * 50 + 2
        torch.cuda.synchronize()
        del graph, found
        step.dispatch.close()


@case(1, 2, on="cuda")
def exact_in_a_graph(comm):
    """The host would wait for the number of rows: a sentence, and the dispatch works on."""
    dispatch, ids, x = make(comm), torch.tensor([[0, 3], [-1, 1]]), torch.ones(2, 3)
    assert dispatch.route(ids).rows == {1: [3], 2: [4, 2]}[comm.size][comm.rank]
    torch.cuda.synchronize()
    found = []
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            dispatch.route(ids)
    except Exception as error:
        while error is not None:
            found.append(error)
            error = error.__context__
    assert any(isinstance(error, mb.StateError) and "captured" in str(error) for error in found), found
    torch.cuda.synchronize()
    route = dispatch.route(ids)
    same(dispatch.combine(dispatch(x, None, route)[0], route), torch.tensor([[2.0], [1]]).expand(2, 3))


@case(1, 2, 4, on="cuda")
def hosts_do_not_wait(comm):
    """Steps are enqueued while the device is still at work on what came before, and memory stays where it was."""
    step = Step(comm)
    step.fill(3)
    for _ in range(3):
        found = step()
    del found
    comm.synchronize()
    before, late = memory_of(comm), torch.cuda.Event()
    torch.cuda._sleep(LONG)
    late.record()
    with no_synchronisation():
        for _ in range(4):  # a queue of launches is not endless
            found = step()
    assert not late.query(), "a call waited for the device"
    comm.synchronize()
    step.check(found, "the last step")
    del found
    torch.cuda.synchronize()
    assert memory_of(comm) == before, (before, memory_of(comm))
    assert len(step.dispatch._dispatching._routes) == 0


@case(1, 2, 4, on="cuda")
def tiles_too_small(comm):
    """No error: tokens that lost a row are NaN, forward and backward, and the report has the numbers. The next route
    works. An id that is no expert is none."""
    dispatch, found = make(comm, rows=4), []
    x, weights = torch.ones(3, 3, requires_grad=True), torch.ones(3, 2, requires_grad=True)

    def both(ids):
        route = dispatch.route(torch.tensor(ids))
        found.append(bool(route.ends[-1] > route.rows))
        x_e, w_e = dispatch(x, weights, route)
        y = dispatch.combine(x_e * w_e[:, None], route)
        return y.detach(), *torch.autograd.grad(y.sum(), (x, weights))

    # Expert 0 lies on rank 0, whose 4 rows are those of its tokens 0 and 1.
    moved, kept = both([[0, 0]] * 3), [comm.rank == 0, comm.rank == 0, False]
    for name, got in zip(("y", "dx", "dw"), moved):
        assert (~got.isnan().any(1)).tolist() == kept, (name, got)
    same(moved[0][kept], torch.full_like(moved[0][kept], 2))
    report = dispatch.report()
    assert (report.routes, report.rows, report.overflows) == (1, 6 * comm.size, 1), report
    y, dx, dw = both([[comm.rank, -1], [-1, 99], [-1, -1]])
    same(y, torch.tensor([[1.0], [0], [0]]).expand(3, 3))
    same(dx, y)
    same(dw, torch.tensor([[3.0, 0], [0, 0], [0, 0]]))
    assert dispatch.report().overflows == 0
    assert found == [comm.rank == 0, False], found
    # Again, with as many rows as it needs: the host waits.
    route = dispatch.route(torch.tensor([[0, 0]] * 3), rows="exact")
    assert route.rows == (6 * comm.size if comm.rank == 0 else 0)
    same(dispatch.combine(dispatch(x.detach(), None, route)[0], route), torch.full((3, 3), 2.0))


@case(1, 2, on="cuda")
def refused_on_devices(comm):
    """What a rank finds before it calls: here all ranks do the same."""
    narrow, x = make(comm, dtype=torch.bfloat16), torch.ones(1, 3)
    ids = torch.tensor([[0, 3]], dtype=torch.int32)
    route = narrow.route(ids)
    raises(mb.ShapeError, "rows of 12 bytes, and the dispatch has room for 6", narrow, x, None, route)
    raises(mb.ArgumentError, "is on cpu", narrow.route, ids.cpu())
    raises(mb.ArgumentError, "4000 thread blocks", make, comm, ctas=4000)
    same(narrow.combine(narrow(x.bfloat16(), None, route)[0], route), 2 * x.bfloat16())
    # What this package never does: a move by a route whose rows nobody read.
    own = narrow._dispatching
    handle, none = own._create_route(), (_c.mimo_tensor * 1)()
    desc = _c.sized(_c.mimo_route_desc, ids=ids.data_ptr(), tokens=1, id_dtype=4, memory=_c.CUDA, capacity=-1)
    _c.lib.mimo_route_set(handle, ctypes.byref(desc), comm._stream())
    raises(mb.StateError, "only a read tells its rows", _c.lib.mimo_dispatch_rows, handle, none, none, 1, comm._stream())
    _c.lib.mimo_route_destroy(handle)
