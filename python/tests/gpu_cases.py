"""What only a GPU shows: streams, graphs, memory, and hosts that do not wait. Under torchrun alone."""
import contextlib
import ctypes
import gc
import random

import torch

import mimo_bridge as mb
from mimo_bridge import _c
from rank_runner import case, raises, same
from tile_model import Side, global_rows

SEQ, HIDDEN = 64, 96
EXECUTORS = ("p2p", "staged", "collective", "buffer")
LONG = 2_000_000_000  # clock cycles of a GPU: about a second


class Bed:
    """A bridge from dp = n to cp = n of one way to move, and what its calls must bring."""

    def __init__(self, comm, executor="p2p", dtype=torch.float32, seq=SEQ, **more):
        n = comm.size
        self.comm, self.dtype, self.shape = comm, dtype, (n, seq, HIDDEN)
        self.src, self.dst = Side(f"dp={n}", 0, "sbh"), Side(f"cp={n}", 0, "sbh", True)
        if executor == "buffer":
            size = seq * HIDDEN * dtype.itemsize
            more |= {"buffer": mb.Buffer(size, 2, comm=comm), "grad_buffer": mb.Buffer(size, 2, comm=comm)}
        else:
            more["executor"] = executor
        self.bridge = mb.Bridge(mb.Grid(f"tp=1,dp={n}"), mb.Grid(f"tp=1,cp={n},dp=1"), comm=comm,
                                partition=mb.Partition(), layout="sbh", batch=n, **more)

    def given(self, seed):
        """This rank's tile, and the gradient of its result."""
        whole = global_rows(*self.shape, self.dtype, seed)
        return self.src.tile(self.comm.rank, whole), self.dst.tile(self.comm.rank, whole.flip(2))

    def wanted(self, seed):
        """This rank's result, and the gradient of its tile."""
        whole = global_rows(*self.shape, self.dtype, seed)
        return self.dst.tile(self.comm.rank, whole), self.src.tile(self.comm.rank, whole.flip(2))

    def check(self, seed, y, grad, what):
        for name, got, wanted in zip(("forward", "backward"), (y, grad), self.wanted(seed)):
            same(got, wanted, f"{what} {name}, seed {seed}")


@case(2, 4, 8, on="cuda")
def no_mpi_library(comm):
    """Under torchrun nothing opens MPI."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert "libmpi" not in maps.read()
    assert comm.device == torch.device("cuda", torch.cuda.current_device())


@case(2, 4, 8, on="cuda")
def executors_and_dtypes(comm):
    for executor in EXECUTORS:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            bed = Bed(comm, executor, dtype)
            for seed in range(3):
                x, g = bed.given(seed)
                x.requires_grad_()
                y = bed.bridge(x)
                grad, = torch.autograd.grad(y, x, g)
                bed.check(seed, y.detach(), grad, f"{executor} {dtype}")
                del y, grad
            bed.bridge.close()
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.bool):
        bed = Bed(comm, "p2p", torch.float32)
        y = bed.bridge(bed.given(1)[0].to(dtype))
        same(y, bed.wanted(1)[0].to(dtype), str(dtype))


@case(2, 4, 8, on="cuda")
def streams_race(comm):
    """Tensors that are late on their stream, and written again right behind the call: the bits of
    serial calls, on the default stream and on others."""
    roll = random.Random(comm.rank)
    for executor in EXECUTORS:
        bed = Bed(comm, executor)
        tiles = [bed.given(seed) for seed in range(12)]
        x, g = (torch.empty_like(tile) for tile in tiles[0])
        x.requires_grad_()
        streams, results = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()], []
        for number, (tile, gradient) in enumerate(tiles):
            stream = streams[number // 2 % 3]
            stream.wait_stream(streams[(number - 1) // 2 % 3])
            with torch.cuda.stream(stream):
                with torch.no_grad():
                    x.fill_(-1)
                    torch.cuda._sleep(roll.randrange(20_000_000))
                    x.copy_(tile)
                y = bed.bridge(x)
                with torch.no_grad():
                    x.fill_(-2)
                g.fill_(-3)
                torch.cuda._sleep(roll.randrange(20_000_000))
                g.copy_(gradient)
                grad, = torch.autograd.grad(y, x, g)
                g.fill_(-4)
                torch.cuda._sleep(roll.randrange(5_000_000))
                results.append((y.detach().clone(), grad.clone()))
                del y, grad
        comm.synchronize()
        torch.cuda.synchronize()
        for seed, (y, grad) in enumerate(results):
            bed.check(seed, y, grad, executor)


class Churn:
    """Holds tensors of random sizes for a while, so that new ones get addresses of their own."""

    def __init__(self, seed):
        self.roll, self.held = random.Random(seed), []

    def step(self):
        self.held.append(torch.empty(self.roll.choice([1, 3, 5, 9, 17]) * 2048))
        while len(self.held) > 4 + self.roll.randrange(24):
            self.held.pop(self.roll.randrange(len(self.held)))

    def end(self):
        self.held.clear()


def memory_of(comm):
    """(bytes of torch's tensors, with the library's staging; bytes of NCCL's communicators)."""
    gc.collect()
    report = _c.sized(_c.mimo_nccl_report)
    _c.lib.mimo_nccl_report_of(ctypes.byref(report), comm._handle)
    return torch.cuda.memory_stats()["allocated_bytes.all.current"], report.device_bytes


@contextlib.contextmanager
def no_synchronisation():
    """Torch raises where an operation of its own waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@case(2, 4, on="cuda")
def thousand_steps(comm):
    """New addresses in each step: right bits, no memory that grows, no operation that waits."""
    for executor in EXECUTORS:
        bed, churn, addresses = Bed(comm, executor), Churn(comm.rank), set()
        tile, gradient = bed.given(0)
        wanted = bed.wanted(0)
        wrong = torch.zeros((), dtype=torch.int64)
        for step in range(1000):
            if step in (200, 999):
                churn.end()
                if step == 200:
                    before = memory_of(comm)
            with no_synchronisation():
                churn.step()
                x = tile.clone().requires_grad_()
                y = bed.bridge(x)
                grad, = torch.autograd.grad(y, x, gradient.clone())
                wrong += (y.detach() != wanted[0]).sum() + (grad != wanted[1]).sum()
                addresses.add(x.data_ptr())
                del x, y, grad
        churn.end()
        assert wrong.item() == 0, f"{executor}: {wrong.item()} wrong elements"
        assert len(addresses) > 4, f"{executor}: only {len(addresses)} addresses"
        after = memory_of(comm)
        assert after == before, f"{executor}: {before} bytes after 200 steps, {after} after 1000"
        bed.bridge.close()


@case(2, 4, on="cuda")
def hosts_do_not_wait(comm):
    """30 steps are enqueued while the device is still at work on what came before."""
    for executor in EXECUTORS:
        bed = Bed(comm, executor)
        tile, gradient = bed.given(0)
        x = tile.clone().requires_grad_()

        def step():
            return torch.autograd.grad(bed.bridge(x), x, gradient)[0]

        for _ in range(3):
            grad = step()
        del grad
        torch.cuda.synchronize()
        late = torch.cuda.Event()
        torch.cuda._sleep(LONG)
        late.record()
        with no_synchronisation():
            for _ in range(30):
                grad = step()
                grad = grad.clone()  # the slot is free again
        assert not late.query(), f"{executor}: a call waited for the device"
        comm.synchronize()
        same(grad, bed.wanted(0)[1], executor)


@case(2, 4, 8, on="cuda")
def graphs(comm):
    """Forward and backward in one CUDA graph, and forward alone: 10 replays with new inputs."""
    for executor in EXECUTORS:
        for train in (False, True):
            bed = Bed(comm, executor)
            side = torch.cuda.Stream()
            x, g = bed.given(0)
            x.requires_grad_(train)
            with torch.cuda.stream(side):
                bed.bridge.prepare(x)
                if train:  # autograd as well begins before the capture
                    torch.autograd.grad(bed.bridge(x), x, g)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                y = bed.bridge(x)
                grad = torch.autograd.grad(y, x, g)[0] if train else None
            for seed in range(1, 11):
                tile, gradient = bed.given(seed)
                with torch.no_grad():
                    x.copy_(tile)
                g.copy_(gradient)
                graph.replay()
                wanted = bed.wanted(seed)
                same(y.detach(), wanted[0], f"{executor} forward in a graph, seed {seed}")
                if train:
                    same(grad, wanted[1], f"{executor} backward in a graph, seed {seed}")
            torch.cuda.synchronize()
            del graph, y, grad
            bed.bridge.close()


@case(2, on="cuda")
def graph_without_a_batch(comm):
    """A batch that nobody gave would be agreed on, which can't be captured: a sentence, and the
    communicator works on."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, partition=mb.Partition())
    bed = Bed(comm)
    x = bed.given(1)[0]
    same(bridge(x), bed.wanted(1)[0])
    torch.cuda.synchronize()
    found = []
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            bridge(x)
    except Exception as error:
        while error is not None:
            found.append(error)
            error = error.__context__
    assert any(isinstance(error, mb.MimoError) and "captur" in str(error) for error in found), found
    torch.cuda.synchronize()
    same(bridge(x), bed.wanted(1)[0])


@case(2, 4, on="cuda")
def slots(comm):
    """Call n lies in slot n % slots; a slot that is in use is an error before anything moves."""
    bed = Bed(comm, "buffer")
    buffer, grads = bed.bridge._movement.buffers
    assert buffer.reach == comm.size, buffer.reach
    for n in range(6):
        x, g = bed.given(n)
        y = bed.bridge(x.requires_grad_())
        assert y.data_ptr() == buffer._address + n % 2 * buffer.bytes
        grad, = torch.autograd.grad(y, x, g)
        assert grad.data_ptr() == grads._address + n % 2 * grads.bytes
        bed.check(n, y.detach(), grad, "slots")
        del y, grad
    kept = [bed.bridge(bed.given(n)[0]) for n in range(2)]
    raises(mb.StateError, "slot 0 of 2 is in use", bed.bridge, bed.given(2)[0])
    for n, y in enumerate(kept):
        same(y.detach(), bed.wanted(n)[0], "kept")
    del kept, y
    same(bed.bridge(bed.given(3)[0]).detach(), bed.wanted(3)[0], "after the error")


@case(2, 4, on="cuda")
def chunks_on_a_side_stream(comm):
    """Parts arrive while this stream is at work. x and y are given up early, and their memory is
    written again by others."""
    n, side = comm.size, torch.cuda.Stream()
    bridge = mb.Bridge(mb.Grid(f"dp={n}"), mb.Grid(f"tp={n}"), comm=comm, layout="bsh", batch=4 * n)
    for seed in range(8):
        whole = global_rows(4 * n, 16, 32, torch.float32, seed)
        x = whole[4 * comm.rank:][:4].clone()
        torch.cuda._sleep(3_000_000)
        parts = []
        for part in bridge.chunks(x, 4, stream=side):
            parts.append(part * 2)
            del part
        del x
        junk = [torch.full((4 * n, 16, 32), float("nan")) for _ in range(4)]
        same(torch.cat(parts), whole * 2, f"seed {seed}")
        del junk, parts


@case(2, on="cuda")
def agreed_each_time(comm):
    """Without a batch the ranks agree in each call; the bits are the same."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, partition=mb.Partition())
    for seq in (8, 64, 16):
        bed = Bed(comm, seq=seq)
        x, g = bed.given(seq)
        y = bridge(x.requires_grad_())
        grad, = torch.autograd.grad(y, x, g)
        bed.check(seq, y.detach(), grad, f"S {seq}")


@case(2, on="cuda")
def compiled_training(comm):
    """Inductor around bridges that write into slots and that stage, forward and backward."""
    for executor in EXECUTORS:
        bed = Bed(comm, executor)
        compiled = torch.compile(lambda x, bridge=bed.bridge: bridge(x * 2) * 0.5, fullgraph=True)
        for seed in range(4):
            x, g = bed.given(seed)
            y = compiled(x.requires_grad_())
            grad, = torch.autograd.grad(y, x, g)
            bed.check(seed, y.detach(), grad, f"{executor} compiled")
            del y, grad
        compiled = None
        torch._dynamo.reset()
        gc.collect()


@case(2, on="cuda")
def wrong_tensors(comm):
    """Tensors of the CPU, of a dtype that can't be moved, and of other shapes: errors of every rank that
    gives one, and the communicator works on."""
    bed = Bed(comm)
    x = bed.given(1)[0]
    raises(mb.ArgumentError, "is on cpu", bed.bridge, x.cpu())
    raises(mb.ArgumentError, "complex64", bed.bridge, x.to(torch.complex64))
    raises(mb.ShapeError, "dimensions", bed.bridge, x[0])
    raises(mb.MimoError, "", bed.bridge, x[:7])  # 7 tokens do not split
    same(bed.bridge(x.transpose(0, 2).contiguous().transpose(0, 2)), bed.wanted(1)[0], "strides")


@case(2, on="cuda")
def one_communicator(comm):
    """Bridges and buffers make no NCCL communicators of their own, beyond that of windows."""
    def count():
        report = _c.sized(_c.mimo_nccl_report)
        _c.lib.mimo_nccl_report_of(ctypes.byref(report), comm._handle)
        return report.communicators

    first = count()
    beds = [Bed(comm, "p2p") for _ in range(5)]
    for bed in beds:
        same(bed.bridge(bed.given(2)[0]), bed.wanted(2)[0])
    assert count() == first, (first, count())
    beds += [Bed(comm, "buffer") for _ in range(3)]
    for bed in beds:
        same(bed.bridge(bed.given(2)[0]).detach(), bed.wanted(2)[0])
    assert count() <= first + 1, (first, count())


@case(2, on="cuda")
def blocking(comm):
    """Where NCCL waits by itself, the same rows arrive. All ranks choose alike."""
    with mb.Communicator(blocking=True) as waits:
        for executor in ("p2p", "collective"):
            bed = Bed(waits, executor)
            x, g = bed.given(3)
            x.requires_grad_()
            y = bed.bridge(x)
            grad, = torch.autograd.grad(y, x, g)
            bed.check(3, y.detach(), grad, executor)
    raises(mb.MismatchError, "another NCCL descriptor", mb.Communicator, blocking=comm.rank == 0)
