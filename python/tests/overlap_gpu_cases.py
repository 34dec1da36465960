"""What only a GPU shows of an Overlap: streams, hosts that do not wait, memory that stays. Under torchrun alone."""
import functools

import torch

import mimo_bridge as mb
from gpu_cases import LONG, memory_of, no_synchronisation
from mimo_bridge._lanes import HostLanes
from overlap_bed import Model, batches_of, compare, dispatch_of, gradients
from rank_runner import case, raises, same

BLOCKS = 16


def made(comm, kinds, count, **more):
    """A model in bf16, its Overlap, and micro-batches on the GPU."""
    dispatch = dispatch_of(comm, rows=64 * comm.size, ctas=BLOCKS, dtype=torch.bfloat16, **more)
    model = Model(kinds, dispatch).bfloat16()
    overlap = model.overlap(dispatch, count)
    with torch.device("cpu"):
        drawn = batches_of(1, comm.rank, count)
    batches = [{name: (x.bfloat16() if name == "scale" else x).cuda() for name, x in batch.items()} for batch in drawn]
    return model, overlap, batches


@case(1, 2, 4, on="cuda")
def bits_on_streams(comm):
    """Losses and gradients of a plain loop, 50 times, while the streams race; and of the same nodes on one stream."""
    model, overlap, batches = made(comm, ["mixture", "shared", "dense", "mixture"], 4)
    compare(model, overlap, batches, "two streams")
    overlap(batches)
    wanted = {name: grad.clone() for name, grad in gradients(model).items()}
    for turn in range(50):
        overlap(batches)
        for name, grad in gradients(model).items():
            same(grad, wanted[name], f"{name}, turn {turn}")
    overlap._lanes = HostLanes()
    compare(model, overlap, batches, "one stream")


@case(1, 2, 4, on="cuda")
def hosts_do_not_wait(comm):
    """A call is enqueued while the device is still at work on what came before, and memory stays where it was."""
    model, overlap, batches = made(comm, ["mixture"], 2)
    for _ in range(3):
        overlap(batches)
        gradients(model)
    comm.synchronize()
    before, late = memory_of(comm), torch.cuda.Event()
    torch.cuda._sleep(LONG)
    late.record()
    with no_synchronisation():
        overlap(batches)
    assert not late.query(), "a call waited for the device"
    gradients(model)
    for _ in range(20):
        overlap(batches)
        gradients(model)
    comm.synchronize()
    assert memory_of(comm) == before, (before, memory_of(comm))


@case(1, 2, 4, on="cuda")
def in_a_graph(comm):
    """A whole call, of both streams, in one graph: replays with other tokens, against calls without a graph."""
    model, overlap, batches = made(comm, ["mixture", "shared", "dense", "mixture"], 4)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        overlap(batches)
    torch.cuda.synchronize()
    gradients(model)
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        losses = overlap(batches)
    grads = gradients(model)  # in the graph's memory
    for turn in range(20):
        for batch in batches:
            batch["ids"].random_(0, 16)
            batch["scale"].normal_()
        graph.replay()
        found = [pair[0].clone() for pair in losses], {name: grad.clone() for name, grad in grads.items()}
        wanted = overlap(batches)
        for i, (pair, loss) in enumerate(zip(wanted, found[0], strict=True)):
            same(loss, pair[0], f"loss {i}, turn {turn}")
        for name, grad in gradients(model).items():
            same(found[1][name], grad, f"{name}, turn {turn}")
    torch.cuda.synchronize()


@case(1, 2, on="cuda")
def refused_on_devices(comm):
    """Moves that would take all multiprocessors, or let the host wait; lanes that do not fit."""
    make = functools.partial(Model, ["mixture"])
    alone = dispatch_of(comm, rows=8)
    raises(mb.ArgumentError, "has no number of thread blocks (ctas)", make(alone).overlap, alone, 2)
    raises(mb.ArgumentError, f"{BLOCKS} thread blocks beside", dispatch_of, comm, ctas=BLOCKS)
    alone.close()
    exact = dispatch_of(comm, ctas=BLOCKS)
    raises(mb.ArgumentError, 'has rows="exact"', make(exact).overlap, exact, 2)
    several = dispatch_of(comm, rows=8, ctas=BLOCKS)
    all_of_them = torch.cuda.get_device_properties(comm.device).multi_processor_count
    raises(mb.ArgumentError, "lanes need", make(several).overlap, several, 2, lanes={"compute": all_of_them})
