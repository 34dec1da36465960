#!/usr/bin/env python3
"""Steps of a language model with mixtures of experts through PyTorch: how much of their exchanges mb.Overlap hides.
Prints a line of JSON for each case, and then a table.

    torchrun --nproc-per-node 2 overlap_bench.py [--json FILE]
    mpirun -n 2 --oversubscribe python3 overlap_bench.py --device cpu --hidden 16 --inner 16 --experts 4 --choices 2
        --tokens 8 --layers 1 --micro-batches 2 --heads 2 --repeats 1 --blocks 16 --routings zipf

A layer is attention over the tokens of a micro-batch, a router, and two grouped products over the rows of this rank's
experts, in bf16. A step is forward and backward of all micro-batches. Ids of experts are drawn beforehand:
even: every expert gets as many rows; zipf: expert number e with a weight of 1/e, in an order of its own; hot: three of
four choices on the first rank.

overlap (T)   mb.Overlap: streams for products and for exchanges, with this number of thread blocks for a move
local (T0)    the same with copies on this GPU of the same number of bytes in place of exchanges
serial (Tm)   the same nodes and moves as overlap, one after the other on one stream
plain         autograd's own loop, moves with all thread blocks

All ways take turns in each repeat. Numbers are medians of the slowest rank. With --graph each way is one CUDA graph, which
is replayed: otherwise the host may be too slow to keep a GPU at work.

hidden      1 - (T - T0) / (Tm - T0)
ceiling     (Tm - T0) / Tm: what a step would save if all exchanges were hidden; saved: what it does, (Tm - T) / Tm
/plain      T over the plain loop
/planned    T over what the simulator makes of the nodes' times, which the serial way measured
host        how long the host is at work on a step of overlap, over T: near 1 the host is the limit
beside      moves beside products that do not need them: the part of the moves' time that is added. This contention of
            memory and link stays whatever the order
"""
import argparse
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import mimo_bridge as mb
from mimo_bridge._lanes import HostLanes

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))
from balance_bench import Clock, over_ranks, wait  # noqa: E402
from overlap_model import ROUTINGS, Local, Model, ids_of  # noqa: E402
from peer_cases import median  # noqa: E402
from torch_bench import run_to_table  # noqa: E402

PASSES = {"forward": "f.{}", "inputs": "b.{}.bwd", "weights": "b.{}.dw"}
MOVES = ("dispatch", "combine")


class Timed(HostLanes):
    """One stream, and how long each node takes on it."""

    def __init__(self, nodes, device, in_graph):
        self.nodes, self.device, self.in_graph = nodes, device, in_graph

    def begin(self, lanes, waits):
        self.clock = Clock(self.device, self.in_graph)
        self.clock.mark()

    def hold(self, i, things):
        self.clock.mark()

    def costs(self, comm):
        """us of each kind of node, of the slowest rank."""
        kinds = {}
        for node, us in zip(self.nodes, self.clock.gaps()):
            name = PASSES[node.pass_].format(node.part)
            kinds.setdefault(name.removesuffix(".bwd") if node.part in MOVES else name, []).append(us)
        slowest = map(max, zip(*over_ranks(comm, [median(times) for times in kinds.values()])))
        return {name: round(us) for name, us in zip(kinds, slowest)}


class Case:
    """One model and one routing, with moves of some number of thread blocks. Collective."""

    def __init__(self, asked, comm, inner, routing, blocks):
        self.asked, self.comm = asked, comm
        torch.manual_seed(comm.rank)
        self.model = Model(asked, inner, comm)
        self.ids = ids_of(asked, routing, comm.rank, comm.size).to(comm.device)
        found = torch.bincount(self.ids.flatten().cpu(), minlength=asked.experts).to(comm.device)
        dist.all_reduce(found)
        self.rows = max(part.sum().item() for part in found.chunk(comm.size))
        self.dispatches = [self.dispatch(blocks), self.dispatch(0)]
        route = self.dispatches[0].route(self.ids)
        used = int(route.ends[-1])
        memory = torch.randn(max(self.rows, asked.tokens), asked.hidden, device=comm.device, dtype=asked.dtype)
        self.local = Local(route, memory, used)
        self.run = mb.Overlap(self.model.embed, self.model.layers, self.model.lose, dispatch=self.dispatches[0],
                              micro_batches=asked.micro_batches)
        self.streams, self.batches = self.run._lanes, [self.ids] * asked.micro_batches

    def dispatch(self, blocks):
        asked = self.asked
        return mb.Dispatch(experts=asked.experts, top_k=asked.choices, hidden=asked.hidden, max_tokens=asked.tokens,
                           rows=self.rows, dtype=asked.dtype, ctas=blocks if self.comm.device.type == "cuda" else 0,
                           comm=self.comm)

    def overlap(self, moves=None, lanes=None):
        self.model.moves, self.run._lanes = moves or self.dispatches[0], lanes or self.streams
        if self.asked.carveout and lanes is None:  # torch has no public way to say it
            torch._C._set_sm_carveout_experimental(self.dispatches[0].ctas or None)
        self.run(self.batches)
        torch._C._set_sm_carveout_experimental(None)

    def plain(self):
        self.model.moves = self.dispatches[1]
        for ids in self.batches:
            self.model.plain(ids).backward()

    def ways(self):
        ways = {"overlap": self.overlap, "local": lambda: self.overlap(self.local),
                "serial": lambda: self.overlap(lanes=HostLanes()), "plain": self.plain}
        return {name: self.recorded(way) for name, way in ways.items()}

    def recorded(self, way):
        """The way, or with --graph its replays: each adds gradients up anew, into the same memory."""
        return recorded(way, self.model.zero_grad) if self.asked.graph else way

    def step_us(self, way):
        if not self.asked.graph:
            self.model.zero_grad()
        wait(self.comm)
        clock = Clock(self.comm.device)
        clock.mark()
        begin = time.perf_counter()
        way()
        host = 1e6 * (time.perf_counter() - begin)
        clock.mark()
        return sum(clock.gaps()), host

    def planned_us(self):
        """What the simulator makes of a step, by the times of nodes on one stream."""
        timed = Timed(self.run._list, self.comm.device, self.asked.graph)
        self.model.zero_grad()
        self.recorded(lambda: self.overlap(lanes=timed))()
        layers = [[tuple(layer) for layer in self.model.layers]]
        schedule = mb.Schedule(stages=1, micro_batches=self.asked.micro_batches, encoder_group=0, overlap=True)
        cuda = self.comm.device.type == "cuda"
        device = {"multiprocessors": torch.cuda.get_device_properties(self.comm.device).multi_processor_count,
                  "lanes": {"exchanges": self.dispatches[0].ctas}} if cuda else {}
        return mb.Nodes(schedule, layers, costs=timed.costs(self.comm), **device).report().time

    def beside(self):
        """The part of moves' time that is added to that of products which do not need them."""
        dispatch, block, route = self.dispatches[0], self.model.blocks[0], self.local.made
        rows, weights = self.model.first.detach(), torch.ones_like(self.ids, dtype=torch.float32)
        tile = dispatch(rows, weights, route)[0]

        def move():
            dispatch.combine(dispatch(rows, weights, route)[0], route)

        def product():
            F.grouped_mm(F.grouped_mm(tile, block.up, offs=route.ends), block.down, offs=route.ends)

        def us(products, moves):
            return two_streams_us(self.comm, [(product, products), (move, moves)], self.asked.graph)

        us(1, 1)
        moves = 4
        products = max(1, round(1.5 * us(0, moves) / us(1, 0)))
        apart, alone, both = us(products, 0), us(0, moves), us(products, moves)
        return max(0.0, (both - max(apart, alone)) / alone)

    def close(self):
        wait(self.comm)
        for dispatch in self.dispatches:
            dispatch.close()
        if self.asked.graph:
            torch.cuda.empty_cache()  # graphs had memory of their own


def recorded(way, before):
    """The replay of what a way enqueues. before() undoes what the way that warms up has left behind."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        way()
    torch.cuda.synchronize()
    before()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        way()
    before()
    return graph.replay


def two_streams_us(comm, work, graph):
    """us of the slowest rank for work, [(what, how often)], each on a stream of its own."""
    cuda = comm.device.type == "cuda"
    streams = [torch.cuda.Stream() if cuda else None for _ in work]

    def run():
        for stream, (call, count) in zip(streams, work):
            if cuda:
                stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream), torch.no_grad():
                for _ in range(count):
                    call()
        for stream in streams if cuda else ():
            torch.cuda.current_stream().wait_stream(stream)

    way = recorded(run, lambda: None) if graph else run
    wait(comm)
    clock = Clock(comm.device)
    clock.mark()
    way()
    clock.mark()
    return max(times[0] for times in over_ranks(comm, [sum(clock.gaps())]))


def measured(case):
    """Medians of the slowest rank, in us, of each way; and those of the host in overlap."""
    ways = case.ways()
    found = {name: [] for name in [*ways, "host"]}
    for repeat in range(case.asked.repeats + 1):  # the first one warms up
        for name in random.Random(repeat).sample([*ways], len(ways)):
            us, host = map(max, zip(*over_ranks(case.comm, case.step_us(ways[name]))))
            if repeat:
                found[name].append(us)
                found["host"] += [host] if name == "overlap" else []
    return {name: median(times) for name, times in found.items()}


def line_of(case, **what):
    us = measured(case)
    moved = us["serial"] - us["local"]
    hidden = 1 - (us["overlap"] - us["local"]) / moved if moved > 0 else 0
    return {**what, "rows": case.rows, **{f"{name}_us": round(one, 1) for name, one in us.items()},
            "hidden": round(hidden, 3), "ceiling": round(moved / us["serial"], 3),
            "planned_us": case.planned_us(), "beside": round(case.beside(), 3)}


def measure(asked, comm, out):
    """Collective. `out` gets a line for each case, on rank 0."""
    for inner in asked.inner:
        for routing in asked.routings:
            for blocks in asked.blocks:
                case = Case(asked, comm, inner, routing, blocks)
                line = line_of(case, inner=inner, routing=routing, blocks=blocks)
                case.close()
                if comm.rank == 0:
                    out(line)


def print_table(lines):
    names = ["hidden", "ceiling", "saved", "/plain", "/planned", "host", "beside"]
    print(f"{'inner':>6} {'routing':>8} {'blocks':>6} {'T us':>10}", *(f"{name:>9}" for name in names))
    for line in lines:
        step, serial = line["overlap_us"], line["serial_us"]
        numbers = [line["hidden"], line["ceiling"], (serial - step) / serial, step / line["plain_us"],
                   step / max(line["planned_us"], 1), line["host_us"] / step, line["beside"]]
        print(f"{line['inner']:6} {line['routing']:>8} {line['blocks']:6} {step:10.0f}",
              *(f"{number:9.2f}" for number in numbers))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(word) for word in text.split(",")]}
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: to test the program, not to measure (default cuda)")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--inner", **numbers, default=[1024, 2048], help="of experts, several by commas")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--choices", type=int, default=4, help="experts of a token")
    parser.add_argument("--tokens", type=int, default=4096, help="of a rank and micro-batch")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--blocks", **numbers, default=[16, 32, 64], help="thread blocks of a move")
    parser.add_argument("--graph", action="store_true", help="each way as a CUDA graph")
    parser.add_argument("--carveout", action="store_true",
                        help="size products of overlap and local for the multiprocessors that moves leave")
    parser.add_argument("--routings", type=lambda text: text.split(","), default=ROUTINGS,
                        help=f"of {','.join(ROUTINGS)}")
    parser.add_argument("--json", help="write the lines there, and not to stdout")
    return parser


def main():
    asked = options().parse_args()
    asked.dtype = torch.bfloat16 if asked.device == "cuda" else torch.float32
    if asked.graph and asked.device == "cpu":
        raise SystemExit("--graph: there are no graphs on the CPU")
    unknown = {*asked.routings} - {*ROUTINGS}
    if unknown:
        raise SystemExit(f"--routings: there is no {sorted(unknown)[0]}")
    run_to_table(asked, measure, print_table)


if __name__ == "__main__":
    main()
