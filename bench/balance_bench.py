#!/usr/bin/env python3
"""Steps of a vision encoder on images of very different sizes, on any number of ranks: as loaded, dealt out by the
method that is usual in PyTorch, and by mimo_bridge. Prints a line of JSON for each batch and way, and then a table of
medians, as multiples of the ideal.

    torchrun --nproc-per-node 2 balance_bench.py [--json FILE]
    mpirun -n 2 --oversubscribe python3 balance_bench.py --device cpu --hidden 8 --layers 1 --heads 2 --width 6
        --largest 128 --repeats 1 --batches 1

Each rank loads --samples of one image each, of 64 to --largest patches, log-uniform. The encoder is a transformer that
attends inside each image; a row for each 4 patches goes to a tile of the LLM [S, b, H], on dp = ranks. A step is the
encoder's part of training: forward and backward, gradients of its parameters included.

as loaded   each rank encodes what it has loaded: nothing moves
torch       counts are gathered on the device and read by the host, images dealt longest first, patches sent by
            all_to_all, rows sent back by a second one, put into order and into the tile
p2p, staged, slots      mb.Balanced, by these transports; slots: into buffers
ahead       as slots; the counts were told in the step before, by prefetch()
planned     as slots; plan() came in the step before, so that a call gathers, plans and updates nothing
ideal       each rank encodes the share that balance gives it, without any exchange

All ways take turns in each repeat and have the rows of "as loaded". Numbers are those of the slowest rank.

step        from a call to the end of backward; nothing is enqueued before
encoder     its forward, on the device
there, back the exchanges of forward, on the device: the hosts are ahead, and all ranks' devices begin together. The
            best of three calls in a row
link        what the bytes that move take, contiguous on both sides: copies into the other rank's memory by the driver
            or by a plain kernel, or all_to_all, whichever is the fastest
tell        gather, plan and update, on the host. idle: the device has nothing else to do. busy: it has, as in the next
host        a call, until it calls the encoder
late        how much later the encoder begins on the device than behind "there": what the device waits for the host
"""
import argparse
import math
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.multiprocessing.reductions import reduce_tensor
from torch.nn.functional import scaled_dot_product_attention

import mimo_bridge as mb

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))
from peer_cases import median  # noqa: E402
from torch_bench import BUSY, run_to_table  # noqa: E402

MERGE, IMAGE, SMALLEST = 4, 7, 64
OURS = ("p2p", "staged", "slots", "ahead", "planned")
IPC_DEVICE = 6  # of the arguments by which torch maps memory of another process: on which device


# ------------------------------------------- the encoder -------------------------------------------


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.mix, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, counts):
        mixed = self.mix(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        rows = [scaled_dot_product_attention(*image[:, None]) for image in mixed.split(counts, 2)]
        x = x + self.out(torch.cat(rows, 2)[0].transpose(0, 1).flatten(1))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norms[1](x))))


class Vit(nn.Module):
    """Random weights. `entered` and `left` are called around its forward."""

    def __init__(self, asked):
        super().__init__()
        self.read = nn.Linear(asked.width, asked.hidden)
        self.blocks = nn.ModuleList(Block(asked.hidden, asked.heads) for _ in range(asked.layers))
        self.merge = nn.Linear(MERGE * asked.hidden, asked.llm_hidden)
        self.entered = self.left = lambda: None
        self.instead = None  # of encoding: gives rows for patches

    def forward(self, patches, counts, _cu_seqlens=None):
        if self.instead:
            return self.instead(patches)
        self.entered()
        x = self.read(patches)
        for block in self.blocks:
            x = block(x, counts)
        rows = self.merge(x.reshape(-1, self.merge.in_features))
        self.left()
        return rows


# -------------------------------------------- batches ----------------------------------------------


class Batch:
    """What every rank has loaded, and this rank's part of it. Patches of an image follow from its number."""

    def __init__(self, asked, seed, rank, ranks, device):
        roll = random.Random(seed)
        self.rank, self.device, self.dtype, self.width = rank, device, asked.dtype, asked.width
        self.per_rank, self.seed = asked.samples, seed
        low, high = math.log(SMALLEST), math.log(asked.largest)
        self.patches = [max(1, round(math.exp(roll.uniform(low, high)) / MERGE)) * MERGE
                        for _ in range(ranks * asked.samples)]
        self.home = [i // asked.samples for i in range(len(self.patches))]
        self.cost = mb.image_cost(self.patches, asked.hidden)
        self.seq = -(-max(self.patches) // MERGE // 64) * 64 + 64
        mine = self.of(rank)
        self.counts = [self.patches[i] for i in mine]
        self.own = self.pixels(mine)
        self.ids = torch.zeros(asked.samples, self.seq, dtype=torch.int64, device="cpu")
        for b, count in enumerate(self.counts):
            self.ids[b, 1:1 + count // MERGE] = IMAGE
        self.places = self.ids.flatten().to(device).eq(IMAGE).nonzero()[:, 0]

    def of(self, rank):
        return range(rank * self.per_rank, (rank + 1) * self.per_rank)

    def pixels(self, numbers):
        parts = []
        for i in numbers:
            generator = torch.Generator(device="cpu").manual_seed(1000 * self.seed + i)
            parts.append(torch.randn(self.patches[i], self.width, generator=generator, device="cpu"))
        flat = torch.cat(parts) if parts else torch.zeros(0, self.width)
        return flat.to(self.device, self.dtype)

    def tile(self, rows):
        """[S, b, H] with the rows of this rank's images."""
        flat = rows.new_zeros(self.ids.numel(), rows.shape[-1]).index_copy(0, self.places, rows)
        return flat.unflatten(0, self.ids.shape).transpose(0, 1)


def longest_first(cost, lanes):
    load, lane = [0] * lanes, [0] * len(cost)
    for i in sorted(range(len(cost)), key=lambda i: -cost[i]):
        lane[i] = min(range(lanes), key=load.__getitem__)
        load[lane[i]] += cost[i]
    return lane


# ---------------------------------------------- ways -----------------------------------------------


class AsLoaded:
    name, moves = "as loaded", False

    def __init__(self, encoder):
        self.encoder = encoder

    def before(self, batch):
        """What the step before has done for this one."""

    def __call__(self, batch):
        return self.move(batch, self.tell(batch))

    def tell(self, batch):
        """What ranks tell each other before patches move."""

    def move(self, batch, _told):
        return batch.tile(self.encoder(batch.own, batch.counts))

    def lanes(self, batch):
        return batch.home

    def close(self):
        pass


class Ideal(AsLoaded):
    """The share that balance gives a rank, which lies there. Its rows stay: others have this rank's."""

    name = "ideal"

    def __init__(self, encoder, ranks):
        super().__init__(encoder)
        self.ranks, self.kept = ranks, {}

    def lanes(self, batch):
        return mb.balance(batch.cost, self.ranks, rows=batch.patches, home=batch.home)

    def before(self, batch):
        if batch.seed not in self.kept:
            mine = [i for i, lane in enumerate(self.lanes(batch)) if lane == batch.rank]
            self.kept = {batch.seed: (batch.pixels(mine), [batch.patches[i] for i in mine])}

    def move(self, batch, _told):
        return self.encoder(*self.kept[batch.seed])


class Torch(AsLoaded):
    """The usual method."""

    name, moves = "torch", True

    def __init__(self, encoder, comm):
        super().__init__(encoder)
        self.rank, self.ranks = comm.rank, comm.size

    def lanes(self, batch):
        return longest_first(batch.cost, self.ranks)

    def tell(self, batch):
        mine = torch.tensor(batch.counts, device=batch.device)
        told = torch.empty(self.ranks * len(mine), dtype=mine.dtype, device=batch.device)
        dist.all_gather_into_tensor(told, mine)
        patches = told.tolist()
        return patches, longest_first(mb.image_cost(patches, self.hidden), self.ranks)

    def move(self, batch, told):
        patches, lane = told
        loaded = list(batch.of(self.rank))
        order = sorted(loaded, key=lambda i: lane[i])
        here = [i for i in range(len(patches)) if lane[i] == self.rank]
        sends = [sum(patches[i] for i in loaded if lane[i] == r) for r in range(self.ranks)]
        takes = [sum(patches[i] for i in batch.of(r) if lane[i] == self.rank) for r in range(self.ranks)]
        parts = dict(zip(loaded, batch.own.split(batch.counts)))
        x = functional.all_to_all_single(torch.cat([parts[i] for i in order]), takes, sends, dist.group.WORLD)
        x = functional.wait_tensor(x)
        if here:
            rows = self.encoder(x, [patches[i] for i in here])
        else:
            rows = self.encoder(x.new_zeros(MERGE, x.shape[1]), [MERGE])[:0]
        back = functional.all_to_all_single_autograd(rows, [n // MERGE for n in sends], [n // MERGE for n in takes],
                                                     dist.group.WORLD)
        parts = dict(zip(order, back.split([patches[i] // MERGE for i in order])))
        return batch.tile(torch.cat([parts[i] for i in loaded]))


class Ours(AsLoaded):
    moves = True

    def __init__(self, encoder, comm, name, asked):
        super().__init__(encoder)
        self.name, self.buffers = name, []
        grid, way = mb.Grid(f"dp={comm.size}"), {"executor": name}
        if name in ("slots", "ahead", "planned"):
            images = comm.size * asked.samples
            rows = asked.samples * (asked.largest // MERGE + 128) * asked.llm_hidden
            size = asked.dtype.itemsize * max(rows, images * asked.largest * max(asked.width, asked.llm_hidden // MERGE))
            self.buffers = [mb.Buffer(size, 2, comm=comm) for _ in range(2)]
            way = dict(zip(("buffer", "grad_buffer"), self.buffers))
        self.balanced = mb.Balanced(encoder, grid, grid, special=IMAGE, comm=comm, merge=MERGE, cost=asked.hidden, **way)

    def before(self, batch):
        if self.name == "ahead":
            self.balanced.prefetch(batch.counts, batch.ids)
        elif self.name == "planned":
            self.tell(batch)

    def __call__(self, batch):
        if self.name == "planned":
            return self.move(batch, None)
        return self.balanced(batch.own, batch.counts, ids=batch.ids)

    def tell(self, batch):
        self.balanced.plan([(batch.counts, batch.ids)])

    def move(self, batch, _told):
        return self.balanced(batch.own, micro_batch=0)

    def lanes(self, batch):
        return mb.balance(batch.cost, self.balanced.comm.size, rows=batch.patches, home=batch.home)

    def close(self):
        self.balanced.close()
        for buffer in self.buffers:
            buffer.close()


# --------------------------------------------- measuring -------------------------------------------


class Clock:
    """Marks on the device's time line, or on the host's. in_graph: made while a graph is recorded, which sets them
    when it runs."""

    def __init__(self, device, in_graph=False):
        self.cuda, self.in_graph, self.marks = device.type == "cuda", in_graph, []

    def mark(self):
        if self.cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True, external=self.in_graph))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def gaps(self):
        """us between marks."""
        if self.cuda:
            torch.cuda.synchronize()
            return [1000 * a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        return [1e6 * (b - a) for a, b in zip(self.marks, self.marks[1:])]


def wait(comm):
    """All ranks begin together."""
    if comm.device.type == "cuda":
        torch.cuda.synchronize()
    comm.barrier()


def step(comm, encoder, way, batch):
    """(tile, us of: the way there, the encoder, the way back, backward)."""
    encoder.zero_grad(set_to_none=True)
    way.before(batch)
    clock = Clock(comm.device)
    encoder.entered = encoder.left = clock.mark
    wait(comm)
    clock.mark()
    y = way(batch)
    clock.mark()
    encoder.entered = encoder.left = lambda: None
    y.backward(torch.ones_like(y))
    clock.mark()
    return y.detach().clone(), clock.gaps()


class Meeting:
    """Where the devices of all ranks begin together, behind other work that lets the hosts go ahead."""

    def __init__(self, comm):
        self.comm, self.token = comm, torch.zeros(1, device=comm.device)

    def __call__(self):
        if self.comm.device.type == "cuda":
            dist.all_reduce(self.token)
        else:
            self.comm.barrier()

    def behind(self, cycles):
        wait(self.comm)
        if self.comm.device.type == "cuda":
            torch.cuda._sleep(cycles)
        self()


def exchange_us(comm, encoder, meeting, way, batch):
    """(us there, us back), of the slowest rank. No image is encoded."""
    told = way.tell(batch)
    calls = [one_exchange(comm, encoder, meeting, way, batch, told) for _ in range(3)]
    slowest = [max(column) for column in zip(*over_ranks(comm, [us for call in calls for us in call]))]
    return min(slowest[::2]), min(slowest[1::2])


def one_exchange(comm, encoder, meeting, way, batch, told):
    clock = Clock(comm.device)
    hidden = encoder.merge.out_features

    def instead(patches):
        clock.mark()
        rows = patches.new_zeros(len(patches) // MERGE, hidden)
        meeting()
        clock.mark()
        return rows

    encoder.instead = instead
    meeting.behind(BUSY // 4)
    clock.mark()
    with torch.no_grad():
        way.move(batch, told)
    clock.mark()
    encoder.instead = None
    there, _, back = clock.gaps()
    return there, back


def tell_us(comm, meeting, way, batch, busy):
    if busy:
        meeting.behind(BUSY)
    else:
        wait(comm)
    begin = time.perf_counter()
    way.tell(batch)
    return 1e6 * (time.perf_counter() - begin)


def host_us(comm, encoder, meeting, way, batch):
    """(host us of a call until its encoder is called, us of the device until it would begin)."""
    way.before(batch)
    times, clock = [], Clock(comm.device)

    def instead(patches):
        times.append(time.perf_counter())
        clock.mark()
        return patches.new_zeros(len(patches) // MERGE, encoder.merge.out_features)

    encoder.instead = instead
    meeting.behind(BUSY)
    clock.mark()
    begin = time.perf_counter()
    with torch.no_grad():
        way(batch)
    encoder.instead = None
    return 1e6 * (times[0] - begin), clock.gaps()[0]


class Link:
    """The fastest of three ways that bytes take from memory of one rank to that of another, contiguous on both sides:
    copies into the other's memory, by the driver and by a kernel, and all_to_all."""

    def __init__(self, comm, most):
        self.comm = comm
        numbers = -(-most // 4)
        self.source, self.target = (torch.zeros(numbers, device=comm.device) for _ in range(2))
        self.ways, self.peers = [self.exchange], []
        if comm.device.type == "cuda":
            told = [None] * comm.size
            dist.all_gather_object(told, reduce_tensor(self.target))
            self.peers = [None if r == comm.rank else self.mapped(*how) for r, how in enumerate(told)]
            self.ways += [self.copy, self.kernel]

    def mapped(self, make, how):
        """Memory of another rank as a tensor on this rank's device, which reaches it over the link."""
        return make(*how[:IPC_DEVICE], self.comm.device.index, *how[IPC_DEVICE + 1:])

    def exchange(self, sends, takes):
        dist.all_to_all_single(self.target[:sum(takes)], self.source[:sum(sends)], takes, sends)

    def pairs(self, sends):
        for step in range(1, self.comm.size):
            peer = (self.comm.rank + step) % self.comm.size
            yield self.source[:sends[peer]], self.peers[peer][:sends[peer]]

    def copy(self, sends, _takes):
        for source, target in self.pairs(sends):
            target.copy_(source)

    def kernel(self, sends, _takes):
        for source, target in self.pairs(sends):
            torch.mul(source, 1.0, out=target)

    def us(self, meeting, sends, takes):
        """These bytes to each rank, and from each."""
        times = []
        for way in self.ways:
            clock = Clock(self.comm.device)
            meeting.behind(BUSY // 4)
            clock.mark()
            way(*([-(-n // 4) for n in sizes] for sizes in (sends, takes)))
            clock.mark()
            times += clock.gaps()
        return min(max(column) for column in zip(*over_ranks(self.comm, times)))

    def close(self):
        self.peers.clear()
        wait(self.comm)
        if self.comm.device.type == "cuda":
            torch.cuda.ipc_collect()


def link_us(comm, meeting, link, batch, way, asked):
    """(us there, us back) of the bytes that move between ranks."""
    lane, size = way.lanes(batch), batch.dtype.itemsize

    def patches(loaded, lanes):
        return [sum(batch.patches[i] for i in batch.of(r) if lane[i] == d) * (r != d)
                for r, d in zip(loaded, lanes)]

    every, mine = range(comm.size), [comm.rank] * comm.size
    leave, come = patches(mine, every), patches(every, mine)

    def us(width, sends, takes):
        return link.us(meeting, [n * width for n in sends], [n * width for n in takes])

    return us(asked.width * size, leave, come), us(asked.llm_hidden * size // MERGE, come, leave)


def over_ranks(comm, numbers):
    """[numbers of each rank]."""
    mine = torch.tensor(numbers, dtype=torch.float64, device=comm.device)
    told = torch.empty(comm.size * len(numbers), dtype=mine.dtype, device=comm.device)
    dist.all_gather_into_tensor(told, mine)
    return told.reshape(comm.size, -1).tolist()


def numbers_of(bed, way, batch):
    """One repeat of a way: its tile, and the numbers of its line."""
    comm, encoder, meeting = bed.comm, bed.encoder, bed.meeting
    tile, gaps = step(comm, encoder, way, batch)
    mine = {"step_us": sum(gaps), "encoder_us": gaps[1], "backward_us": gaps[3]}
    if way.moves:
        mine["there_us"], mine["back_us"] = exchange_us(comm, encoder, meeting, way, batch)
        mine["idle_us"], mine["busy_us"] = (tell_us(comm, meeting, way, batch, busy) for busy in (False, True))
        mine["host_us"], begins = host_us(comm, encoder, meeting, way, batch)
        mine["late_us"] = begins - mine["there_us"]
        mine["link_there_us"], mine["link_back_us"] = link_us(comm, meeting, bed.link, batch, way, bed.asked)
    slowest = map(max, zip(*over_ranks(comm, list(mine.values()))))
    return tile, dict(zip(mine, slowest))


def check(comm, name, tile, wanted, tolerance):
    off = ((tile.float() - wanted.float()).norm() / wanted.float().norm().clamp(min=1e-30)).item()
    worst = max(one[0] for one in over_ranks(comm, [off]))
    if worst > tolerance:
        raise RuntimeError(f"{name} has other rows than as loaded: relative L2 {worst:.2e}")


class Bed:
    """What all measurements use. Collective."""

    def __init__(self, asked, comm):
        torch.manual_seed(1)
        self.asked, self.comm = asked, comm
        self.encoder = Vit(asked).to(comm.device, asked.dtype)
        self.meeting = Meeting(comm)
        width = max(asked.width, asked.llm_hidden // MERGE) * asked.dtype.itemsize
        self.link = Link(comm, comm.size * asked.samples * asked.largest * width)

    def ways(self):
        torch_way = Torch(self.encoder, self.comm)
        torch_way.hidden = self.asked.hidden
        ours = [Ours(self.encoder, self.comm, name, self.asked) for name in self.asked.ours]
        return [AsLoaded(self.encoder), Ideal(self.encoder, self.comm.size), torch_way, *ours]


def summed_up(batch, way, ranks, rows):
    """A line: medians over the repeats, and how long the longest lane is."""
    lane, load = way.lanes(batch), [0] * ranks
    for cost, d in zip(batch.cost, lane):
        load[d] += cost
    moved = way.moves * sum(p for p, d, home in zip(batch.patches, lane, batch.home) if d != home)
    return {"way": way.name, "batch": batch.seed, "longest": round(max(load) * ranks / sum(load), 3),
            "patches": sum(batch.patches), "moved": moved,
            **{key: round(median([row[key] for row in rows]), 1) for key in rows[0]}}


def measure(asked, comm, out):
    """Collective. `out` gets a line for each batch and way, on rank 0."""
    bed = Bed(asked, comm)
    ways = bed.ways()
    for seed in range(asked.batches):
        batch = Batch(asked, seed, comm.rank, comm.size, comm.device)
        rows = {way.name: [] for way in ways}
        for repeat in range(asked.repeats + 1):  # the first one warms up
            order = random.Random(repeat).sample(ways[1:], len(ways) - 1)
            for way in (ways[0], *order):
                tile, numbers = numbers_of(bed, way, batch)
                if way.name == "as loaded":
                    wanted = tile
                elif way.name != "ideal":
                    check(comm, way.name, tile, wanted, asked.tolerance)
                if repeat:
                    rows[way.name].append(numbers)
        for way in ways:
            if comm.rank == 0:
                out(summed_up(batch, way, comm.size, rows[way.name]))
    for way in ways:
        way.close()
    bed.link.close()


def print_table(lines):
    """Medians over the batches; times of a way over those of the ideal in the same batch."""
    ideal = {line["batch"]: line for line in lines if line["way"] == "ideal"}
    columns = {"moved": "patches", "step": "step_us", "encoder": "encoder_us", "there/link": "link_there_us",
               "back/link": "link_back_us"}
    names = [*columns, "tell idle", "tell busy", "host us", "late us"]
    print(f"{'way':10} {'longest':>8}", *(f"{name:>10}" for name in names))
    for way in dict.fromkeys(line["way"] for line in lines):
        mine = [line for line in lines if line["way"] == way]

        def middle(found):
            found = list(found)
            return median(found) if found else None

        def over(name, other):
            """Of one number over another of the line, or over that of the ideal where it is the same."""
            key = "moved" if name == "moved" else name.split("/")[0] + "_us"
            pairs = [(line[key], (ideal[line["batch"]] if key == other else line)[other])
                     for line in mine if key in line]
            return middle(number / whole for number, whole in pairs if whole)

        ratios = [over(*pair) for pair in columns.items()]
        times = [middle(line[key] for line in mine if key in line)
                 for key in ("idle_us", "busy_us", "host_us", "late_us")]
        print(f"{way:10} {median([line['longest'] for line in mine]):7.2f}x",
              *(f"{'-' if one is None else f'{one:.2f}x':>10}" for one in ratios),
              *(f"{'-' if one is None else f'{one:.0f}':>10}" for one in times))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: to test the program, not to measure (default cuda)")
    parser.add_argument("--hidden", type=int, default=1152)
    parser.add_argument("--layers", type=int, default=27)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--width", type=int, default=1176, help="numbers of a patch")
    parser.add_argument("--llm-hidden", type=int, default=4096)
    parser.add_argument("--samples", type=int, default=4, help="of a rank")
    parser.add_argument("--largest", type=int, default=8192, help="patches of an image")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ours", type=lambda text: text.split(","), default=OURS, help=f"of {','.join(OURS)}")
    parser.add_argument("--json", help="write the lines there, and not to stdout")
    return parser


def main():
    asked = options().parse_args()
    asked.dtype, asked.tolerance = (torch.bfloat16, 2e-2) if asked.device == "cuda" else (torch.float32, 1e-5)
    unknown = set(asked.ours) - set(OURS)
    if unknown:
        raise SystemExit(f"--ours: there is no {sorted(unknown)[0]}")
    run_to_table(asked, measure, print_table)


if __name__ == "__main__":
    main()
