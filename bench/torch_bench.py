#!/usr/bin/env python3
"""Bridges of mimo_bridge beside Megatron-LM's communicator and functional collectives, on two or more ranks P,
forward and backward through autograd. Prints a line of JSON for each case, way, mode and pass.

    torchrun --nproc-per-node 2 torch_bench.py --megatron FOLDER
    mpirun -n 2 python3 torch_bench.py --device cpu --seq 16 --hidden 8 --modes eager

FOLDER has Megatron-LM's `megatron`. Without it that peer is left out, and a line says so. On one GPU the
ranks share it (NCCL 2.30, NCCL_MULTI_RANK_GPU_ENABLE=1): then times show the host's work alone.

Two cases, P samples of S tokens, the encoder on dp=P:

cp  the LLM has cp=P and gets its zigzag shard. Megatron's communicator refuses cp, so it gets a grid
    whose tp stands for cp: the same groups gather the same tiles. The sum of gradients over cp is added,
    and the split of torch_seed.py.
sp  the LLM has tp=P with sequence parallelism. Megatron has all of it: its communicator, and
    scatter_to_sequence_parallel_region.

Both passes only move data, so every way must have the bits of slices of the global tensor. A time is that of
the slowest rank for up to CALLS calls, the median of --repeats. Ways take turns, in a new order each time. host_us
is what a call keeps the host, while the device is busy with something else. peak_bytes of a step is what
torch's tensors take; own_bytes, what the bridge has besides (slots, staging). "exchange" is the ceiling: an
exchange of as many bytes, packed before. "autograd alone" is the host's floor: a function that returns its
input, without any ranks.
"""
import argparse
import contextlib
import importlib
import json
import os
import pathlib
import random
import sys
import time
import types

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import mimo_bridge as mb

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))
from peer_cases import CALLS, SHAPES, WARM_UP, Case, median  # noqa: E402
from torch_seed import from_launcher, global_samples, in_order, microseconds, set_meeting_place, split_zigzag  # noqa: E402

KINDS = {"cp": "tp=1,cp={},dp=1", "sp": "tp={},cp=1,dp=1"}  # the LLM's grid
MODES = ("eager", "graph", "compiled")
BUSY = 60_000_000  # clock cycles of a GPU: 30 ms
AT_ONCE = 20_000  # microseconds that calls of one measurement may take together


class Setting:
    """A case on this rank: tiles, and what calls must bring."""

    def __init__(self, kind, shape, rank, ranks, device):
        self.kind, self.rank, self.ranks, self.device = kind, rank, ranks, device
        self.case = Case((f"tp=1,dp={ranks}", KINDS[kind].format(ranks), ranks), shape)
        seq = self.case.seq
        parts = [zigzag(seq, r, ranks) for r in range(ranks)] if kind == "cp" else [
            range(r * seq // ranks, (r + 1) * seq // ranks) for r in range(ranks)]
        self.positions = [torch.tensor(list(part), device=device) for part in parts]

    def given(self, order):
        """This rank's tile, and the gradient of its result."""
        x = in_order(global_samples(self.case, self.rank, 1, 1, self.device), order)
        whole = global_samples(self.case, 0, self.ranks, 2, self.device)
        g = in_order(whole[:, self.positions[self.rank]], order)
        return x.requires_grad_(), g.contiguous()

    def check(self, name, order, y, grad):
        """The same bits as slices of the global tensor, on every rank."""
        whole = global_samples(self.case, 0, self.ranks, 1, self.device)
        wanted = in_order(whole[:, self.positions[self.rank]], order)
        sent = in_order(global_samples(self.case, self.rank, 1, 2, self.device), order)
        wrong = [torch.equal(y, wanted), torch.equal(grad, sent)].count(False)
        found = torch.tensor([wrong], device=self.device)
        dist.all_reduce(found)
        if found.item():
            raise RuntimeError(f"{self.case.words()}: {name} has other rows than slices of the global tensor")


def zigzag(seq, rank, ranks):
    length, last = seq // (2 * ranks), 2 * ranks - rank
    return [*range(rank * length, (rank + 1) * length), *range((last - 1) * length, last * length)]


# --------------------------------------------- the ways --------------------------------------------


class Ours:
    """A bridge. `slots`: with a slot for results and one for gradients; otherwise by a transport."""

    def __init__(self, name, setting, comm):
        self.name, self.order, case = name, "sbh", setting.case
        self.buffers, more = [], {}
        size = case.seq * case.hidden * 2  # a P-th of each of P samples, bf16
        if name == "slots":
            self.buffers = [mb.Buffer(size, 1, comm=comm) for _ in range(2)]
            more = {"buffer": self.buffers[0], "grad_buffer": self.buffers[1]}
        else:
            more = {"executor": name}
        self.bridge = mb.Bridge(mb.Grid(case.src_spec), mb.Grid(case.dst_spec), comm=comm,
                                partition=mb.Partition(sp=setting.kind == "sp"), batch=case.batch, **more)
        slots = sum(buffer.bytes * buffer.slots for buffer in self.buffers)
        self.own_bytes = slots + self.bridge.staging(case.batch, case.seq, case.hidden)

    def __call__(self, x):
        return self.bridge(x)

    def prepare(self, x):
        self.bridge.prepare(x)

    def close(self):
        self.bridge.close()
        for buffer in self.buffers:
            buffer.close()


class Peer:
    """What the peers share. `order` is that of their tensors; the better one counts."""

    own_bytes = 0

    def __init__(self, name, setting, order):
        self.name, self.order, self.setting = name, order, setting
        self.batch_dim, self.seq_dim = order.index("b"), order.index("s")

    def prepare(self, x):
        pass

    def close(self):
        pass


class Megatron(Peer):
    """Its communicator; then, for cp, the zigzag split and the sum over cp. For sp, its scatter."""

    def __init__(self, setting, order, parts):
        super().__init__("megatron", setting, order)
        self.scatter = parts.scatter
        ranks = setting.ranks
        grids = [parts.HyperCommGrid(shape, ["tp", "cp", "pp", "dp"])
                 for shape in ([1, 1, 1, ranks], [ranks, 1, 1, 1])]
        self.mover = parts.Communicator(*grids, dim_mapping={letter: order.index(letter) for letter in "bsh"})
        self.plan = types.SimpleNamespace(cp=ranks)
        self.chunks = torch.tensor([setting.rank, 2 * ranks - 1 - setting.rank], device=setting.device)

    def __call__(self, x):
        full = self.mover.communicate(x)
        if self.setting.kind == "cp":
            full = SumOverRanks.apply(full)
            if self.order == "bsh":
                return split_zigzag(full, self.plan, self.chunks)
            whole = full.transpose(0, 1).contiguous()
            return split_zigzag(whole, self.plan, self.chunks).transpose(0, 1).contiguous()
        if self.order == "sbh":
            return self.scatter(full, dist.group.WORLD)
        shard = self.scatter(full.transpose(0, 1).contiguous(), dist.group.WORLD)
        return shard.transpose(0, 1).contiguous()

    def close(self):
        self.mover.destroy()


class Itself(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class SumOverRanks(Itself):
    """In backward the gradients of all ranks are added."""

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        return grad


class Alone(Peer):
    """What autograd takes for a function of Python, forward and backward."""

    def __init__(self, setting):
        super().__init__("autograd alone", setting, "sbh")

    def __call__(self, x):
        return Itself.apply(x)


class Gathered(Peer):
    """Functional collectives: all-gather along the batch, whose gradient is a reduce-scatter, and a cut."""

    def __init__(self, setting, order):
        super().__init__("functional", setting, order)

    def __call__(self, x):
        full = functional.all_gather_tensor_autograd(x, self.batch_dim, dist.group.WORLD)
        return full.index_select(self.seq_dim, self.setting.positions[self.setting.rank])


class Exchanged(Peer):
    """Functional collectives: an all-to-all of rows, whose gradient is one as well."""

    def __init__(self, setting):
        super().__init__("functional all-to-all", setting, "sbh")
        self.rows = torch.cat(setting.positions)

    def __call__(self, x):
        ordered, ranks = x.index_select(0, self.rows), self.setting.ranks
        part = len(self.rows) // ranks
        got = functional.all_to_all_single_autograd(ordered, [part] * ranks, [part] * ranks, dist.group.WORLD)
        return got.reshape(ranks, part, -1).transpose(0, 1).contiguous()


def megatron_parts(folder):
    """Of Megatron-LM: (its communicator, its grid, its scatter), without the packages around them."""
    for name in ("megatron", "megatron.core", "megatron.core.tensor_parallel"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.__path__ = [str(pathlib.Path(folder, *name.split(".")))]
    file = pathlib.Path(folder, "megatron/core/models/mimo/comm/colocated_communicator.py")
    spec = importlib.util.spec_from_file_location("colocated", file)
    colocated = importlib.util.module_from_spec(spec)
    sys.modules["colocated"] = colocated
    spec.loader.exec_module(colocated)
    return types.SimpleNamespace(
        Communicator=colocated.ColocatedBridgeCommunicator,
        HyperCommGrid=importlib.import_module("megatron.core.hyper_comm_grid").HyperCommGrid,
        scatter=importlib.import_module("megatron.core.tensor_parallel.mappings")
        .scatter_to_sequence_parallel_region)


def all_ways(setting, comm, parts):
    made = [Ours(name, setting, comm) for name in ("slots", "staged", "p2p")]
    if parts:
        made += [Megatron(setting, order, parts) for order in ("bsh", "sbh")]
    return [*made, *(Gathered(setting, order) for order in ("bsh", "sbh")), Exchanged(setting)]


# --------------------------------------------- modes -----------------------------------------------


class Passes:
    """Both passes of a way as functions without arguments."""

    def __init__(self, way, setting, mode):
        self.way, self.setting, self.mode = way, setting, mode
        self.x, self.g = setting.given(way.order)
        self.move = torch.compile(way.__call__, dynamic=False) if mode == "compiled" else way
        self.graphs, self.y = {}, None
        y = self.move(self.x)
        grad, = torch.autograd.grad(y, self.x, self.g)
        setting.check(f"{way.name} ({way.order}, {mode})", way.order, y.detach(), grad)
        del y, grad
        if mode == "graph":
            self.capture()

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.way.prepare(self.x)
            for _ in range(2):
                torch.autograd.grad(self.way(self.x), self.x, self.g)
        torch.cuda.synchronize()
        for direction in ("forward", "backward"):
            graph = self.graphs[direction] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                if direction == "forward":
                    self.y = self.way(self.x)
                else:
                    self.grad, = torch.autograd.grad(self.y, self.x, self.g, retain_graph=True)
        for graph in self.graphs.values():
            graph.replay()
        name = f"{self.way.name} ({self.way.order}, replayed)"
        self.setting.check(name, self.way.order, self.y.detach(), self.grad)

    def begin(self, direction):
        """The pass to be timed. Between begin and end it can be called any number of times."""
        if self.graphs:
            return self.graphs[direction].replay
        if direction == "forward":
            return lambda: self.move(self.x)
        self.y = self.move(self.x)
        return lambda: torch.autograd.grad(self.y, self.x, self.g, retain_graph=True)

    def end(self):
        if not self.graphs:
            self.y = None

    def close(self):
        self.graphs.clear()
        self.y = self.grad = None


def skip(setting, way, mode, error):
    """Where a mode does not work with a way, a line says so. All ranks raise alike."""
    if setting.rank == 0:
        words = str(error).strip().splitlines()
        print(f"{setting.case.words()}: {way.name} ({way.order}) is not timed {mode}: "
              f"{type(error).__name__}: {words[0][:300] if words else ''}", file=sys.stderr, flush=True)


# --------------------------------------------- timing ----------------------------------------------


def host_microseconds(call, device):
    """What a call keeps the host. The device is busy all the while, so that nothing waits for it; -1
    where a call did wait."""
    if device.type == "cpu":
        return -1.0
    dist.barrier()
    torch.cuda.synchronize()
    busy = torch.cuda.Event()
    torch.cuda._sleep(BUSY)
    busy.record()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    taken = (time.perf_counter() - begin) * 1e6 / CALLS
    waited = busy.query()
    torch.cuda.synchronize()
    return -1.0 if waited else taken


def slowest(value, device):
    found = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.item()


def time_all(passes, setting, repeats):
    """{(number of the pass, direction): (us, host us)}: all ways in turn, in an order of its own each
    time that all ranks share."""
    times, dice = {}, random.Random(5)
    for repeat in range(repeats):
        order = list(range(len(passes)))
        dice.shuffle(order)
        for number in order:
            for direction in ("forward", "backward"):
                call = passes[number].begin(direction)
                for _ in range(WARM_UP):
                    call()
                row = times.setdefault((number, direction), ([], []))
                calls = CALLS
                if row[0]:
                    calls = max(3, min(CALLS, int(AT_ONCE / row[0][-1])))
                row[0].append(slowest(microseconds(call, setting.device, calls), setting.device))
                if repeat < 3:
                    row[1].append(slowest(host_microseconds(call, setting.device), setting.device))
                del call
                passes[number].end()
    return {key: (median(us), median(host)) for key, (us, host) in times.items()}


def peak_of(way, setting):
    """What torch's tensors take at most in a step, x and the gradient of y included."""
    x, g = setting.given(way.order)
    for _ in range(2):
        torch.autograd.grad(way(x), x, g)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = way(x)
    grad, = torch.autograd.grad(y, x, g)
    torch.cuda.synchronize()
    del y, grad
    return torch.cuda.max_memory_allocated() - before + x.nbytes + g.nbytes


# -------------------------------------------- one case ---------------------------------------------


class Bench:
    """Everything of one case, as lines for `out`."""

    def __init__(self, setting, asked, comm, parts, out):
        self.setting, self.asked, self.out = setting, asked, out
        self.ways = all_ways(setting, comm, parts)
        self.gpus = torch.cuda.device_count() if setting.device.type == "cuda" else 0

    def line(self, way, direction, us, **more):
        if self.setting.rank == 0:
            self.out(self.setting.case.line(way.name, direction, us, order=way.order, gpus=self.gpus, **more))

    def run(self):
        if self.setting.device.type == "cuda":
            self.peaks()
            self.exchange()
            self.alone()
        for mode in self.asked.modes.split(","):
            self.mode(mode)
        for way in self.ways:
            way.close()

    def peaks(self):
        for way in self.ways:
            peak = peak_of(way, self.setting)
            self.line(way, "step", 0, mode="eager", peak_bytes=int(slowest(peak, self.setting.device)),
                      own_bytes=way.own_bytes)

    def exchange(self):
        """A P-th of a tile to each other rank, packed."""
        case, ranks, device = self.setting.case, self.setting.ranks, self.setting.device
        sent = torch.zeros(ranks - 1, case.seq // ranks * case.hidden, dtype=torch.bfloat16, device=device)
        got = torch.empty_like(sent)
        others = [rank for rank in range(ranks) if rank != self.setting.rank]
        both = [dist.P2POp(move, part, other) for move, parts in ((dist.isend, sent), (dist.irecv, got))
                for part, other in zip(parts, others)]

        def call():
            for work in dist.batch_isend_irecv(both):
                work.wait()

        for _ in range(WARM_UP):
            call()
        us = median([slowest(microseconds(call, device), device) for _ in range(self.asked.repeats)])
        for direction in ("forward", "backward"):
            self.line(types.SimpleNamespace(name="exchange", order="-"), direction, us, mode="eager",
                      host_us=-1, in_bytes=sent.nbytes)

    def alone(self):
        one = Alone(self.setting)
        x, device = self.setting.given("sbh")[0], self.setting.device
        y, g = one(x), torch.zeros_like(x)
        calls = {"forward": lambda: one(x), "backward": lambda: torch.autograd.grad(y, x, g, retain_graph=True)}
        for direction, call in calls.items():
            for _ in range(WARM_UP):
                call()
            host = median([slowest(host_microseconds(call, device), device) for _ in range(5)])
            self.line(one, direction, host, mode="eager", host_us=round(host, 2))

    def mode(self, mode):
        passes = []
        for way in self.ways:
            try:
                passes.append(Passes(way, self.setting, mode))
            except (RuntimeError, NotImplementedError) as error:
                if mode == "eager" or isinstance(way, Ours):
                    raise
                skip(self.setting, way, mode, error)
        times = time_all(passes, self.setting, self.asked.repeats)
        for number, one in enumerate(passes):
            for direction in ("forward", "backward"):
                us, host = times[number, direction]
                self.line(one.way, direction, us, mode=mode, host_us=round(host, 2))
            one.close()
        if mode == "compiled":
            torch._dynamo.reset()


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: to test the program, not to measure (default cuda)")
    parser.add_argument("--megatron", help="a folder with Megatron-LM's `megatron`")
    parser.add_argument("--case", choices=sorted(KINDS), help="this case alone")
    parser.add_argument("--seq", type=int, help="this length alone (default: for cp 256, 8192 and 32768, for "
                        "sp 8192)")
    parser.add_argument("--hidden", type=int, help="this row size for every length")
    parser.add_argument("--modes", default="eager,graph",
                        help=f"of {','.join(MODES)} (default eager,graph)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--blocking", action="store_true",
                        help="bridges of Communicator(blocking=True): NCCL's own waits have no timeout")
    return parser


def shapes_of(asked, kind):
    usual = {"cp": (256, 8192, 32768), "sp": (8192,)}[kind]
    shapes = [shape for shape in SHAPES if (shape[0] == asked.seq if asked.seq else shape[0] in usual)]
    return [(seq, asked.hidden or hidden) for seq, hidden in shapes or [(asked.seq, SHAPES[-1][1])]]


def measure(asked, comm, out):
    """Every case that was asked for, on the ranks of comm, which are torch.distributed's."""
    if comm.size < 2:
        raise SystemExit("torch_bench.py is for two or more ranks, and this is 1")
    unknown = set(asked.modes.split(",")) - set(MODES[:1] if comm.device.type == "cpu" else MODES)
    if unknown:
        raise SystemExit(f"--modes {asked.modes}: there is no {sorted(unknown)[0]} here")
    parts = None
    if asked.megatron:
        parts = megatron_parts(asked.megatron)
    elif comm.rank == 0:
        print("no Megatron-LM: --megatron names its folder", file=sys.stderr, flush=True)
    for kind in [asked.case] if asked.case else KINDS:
        for shape in shapes_of(asked, kind):
            if shape[0] % (2 * comm.size):
                raise SystemExit(f"S {shape[0]}: {2 * comm.size} does not divide it")
            Bench(Setting(kind, shape, comm.rank, comm.size, comm.device), asked, comm, parts, out).run()
            if comm.device.type == "cuda":
                torch.cuda.empty_cache()


def start_ranks(name, blocking=None):
    """A communicator of the launcher's ranks and torch.distributed's, for tensors of a device of this name."""
    rank = from_launcher(["RANK", "OMPI_COMM_WORLD_RANK"])
    ranks = from_launcher(["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
    if rank is None or ranks is None:
        raise SystemExit("start me under torchrun or mpirun")
    set_meeting_place()
    os.environ.setdefault("WORLD_SIZE", str(ranks))
    if name == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("torch finds no GPU; --device cpu tests the program")
        local = from_launcher(["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"])
        torch.cuda.set_device(local % torch.cuda.device_count())
        dist.init_process_group("nccl", rank=rank, world_size=ranks)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        make = dist.new_subgroups_by_enumeration  # Megatron asks for NCCL
        dist.new_subgroups_by_enumeration = lambda lists, backend=None: make(lists, backend="gloo")
        torch.cuda.current_device = lambda: torch.device("cpu")
    return mb.Communicator(device=name if name == "cpu" else None, blocking=blocking)


def run_to_table(asked, measure_all, print_table):
    """A whole program: measure_all(asked, comm, out) gives out its lines, which are printed, or written to asked.json,
    as they come; and then the table of them."""
    comm, lines = start_ranks(asked.device), []
    with contextlib.ExitStack() as stack:
        file = sys.stdout
        if asked.json and comm.rank == 0:
            file = stack.enter_context(open(asked.json, "w", encoding="utf-8"))

        def out(line):
            lines.append(line)
            print(json.dumps(line), file=file, flush=True)

        measure_all(asked, comm, out)
    if comm.rank == 0:
        print_table(lines)
    comm.close()
    dist.destroy_process_group()


def main():
    asked = options().parse_args()
    comm = start_ranks(asked.device, asked.blocking or None)
    measure(asked, comm, lambda line: print(line, flush=True))
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
