#!/usr/bin/env python3
"""How tokens get to experts and back without a dispatch: with torch.distributed, as Megatron and others do it,
and with DeepEP where that is installed. Prints a line of JSON for each routing and way.

    torchrun --nproc-per-node 2 torch_experts.py [--tokens 4096 --experts 256 --top-k 8 --hidden 7168]
    mpirun -n 2 python3 torch_experts.py --device cpu --tokens 32 --hidden 16

Rows of an expert end one after the other in a tile, as torch's grouped_mm takes them (offs). So a way that
leaves them by rank has to permute them, and that counts. The products do not.

There:  per pair             index_select, all_to_all_single of a row for each pair, index_select
        per pair, read back  the same, where the host reads how many rows come: a rank can't know it
        once                 all_to_all_single of a row for each rank that has an expert of the token, index_select
        gathered             all_gather_into_tensor, index_select
Back:   per pair + add       index_select, all_to_all_single, index_add_
        scattered            index_add_ into the tokens of all ranks, reduce_scatter_tensor

A time is that of the slowest rank for several calls between two events (torch_seed.py), the median of all repeats, in
which the ways take turns. Ratios are those of one run: over the fastest way there, or back. Before that, every way is
compared with plain indexing of the tokens of all ranks.
"""
import argparse
import importlib.util
import json

import torch
import torch.distributed as dist

from peer_cases import REPEATS, WARM_UP, median
from torch_seed import microseconds, start

ROUTINGS = ("even", "zipf", "one-rank")
BACK = ("per pair + add", "scattered", "DeepEP combine")


class Routing:
    """Who sends what to whom. The ids of all ranks are drawn by every rank, from one seed."""

    def __init__(self, kind, asked, rank, ranks, device):
        self.kind, self.asked, self.rank, self.ranks, self.device = kind, asked, rank, ranks, device
        self.held = asked.experts // ranks
        every = draw(kind, asked, ranks)
        self.ids = every[rank].to(device)
        self.pairs_to, self.once_to = counts_of(every, self.held, ranks)
        self.pairs_from, self.once_from = self.pairs_to[:, rank].tolist(), self.once_to[:, rank].tolist()
        self.list_sent(every[rank])
        self.list_tile(every)

    def list_sent(self, ids):
        """Tokens of the rows that go out: a row a pair, by expert; and once, by rank."""
        self.pair_tokens = (ids.flatten().argsort(stable=True) // self.asked.top_k).to(self.device)
        ranks = torch.arange(self.ranks)
        goes = (ids[None] // self.held == ranks[:, None, None]).any(-1)
        self.once_tokens = goes.nonzero()[:, 1].to(self.device)

    def list_tile(self, every):
        """What each row of this rank's tile is: of the rows that came, and of the tokens of all ranks."""
        flat = every.flatten()
        here = (flat // self.held == self.rank).nonzero().flatten()
        tokens = here // self.asked.top_k
        sources, experts = tokens // self.asked.tokens, flat[here]
        came = torch.argsort(sources * self.asked.experts + experts, stable=True)  # by rank, then expert
        tile = torch.argsort(experts, stable=True)  # by expert, then rank, then token
        place = torch.empty_like(came)
        place[came] = torch.arange(len(came))
        once, row_of = torch.unique(tokens, return_inverse=True)
        assert len(once) == sum(self.once_from)
        self.tile_of_pairs, self.tile_of_once = place[tile].to(self.device), row_of[tile].to(self.device)
        self.tile_of_all = tokens[tile].to(self.device)
        self.pairs_of_tile = torch.argsort(place[tile]).to(self.device)
        self.rows = len(tile)

    @property
    def sends(self):
        return self.pairs_to[self.rank].tolist()

    @property
    def sends_once(self):
        return self.once_to[self.rank].tolist()


def draw(kind, asked, ranks):
    """Ids of all ranks, [ranks, tokens, k], on the CPU."""
    weights = torch.ones(asked.experts)
    if kind == "zipf":
        weights = 1 / torch.arange(1, asked.experts + 1)
    if kind == "one-rank":
        weights[max(asked.experts // ranks, asked.top_k):] = 0
    generator = torch.Generator().manual_seed(ROUTINGS.index(kind))
    ids = torch.multinomial(weights.expand(ranks * asked.tokens, -1), asked.top_k, generator=generator)
    return ids.view(ranks, asked.tokens, asked.top_k)


def counts_of(every, held, ranks):
    """Rows from each rank (first) to each: a row a pair, and once a rank."""
    on = torch.nn.functional.one_hot(every // held, ranks)  # [ranks, tokens, k, ranks]
    return on.sum((1, 2)), on.amax(2).sum(1)


def filled(routing):
    """The tokens of all ranks: small whole numbers, whose sums are exact."""
    count = routing.ranks * routing.asked.tokens * routing.asked.hidden
    values = (torch.arange(count, dtype=torch.int64, device=routing.device) * 2654435761 >> 11) & 7
    return values.to(torch.bfloat16).view(-1, routing.asked.hidden)


class Ways:
    """The calls of torch, by name, on one routing."""

    def __init__(self, routing):
        self.routing, asked = routing, routing.asked
        self.everything = filled(routing)
        self.tokens = self.everything[routing.rank * asked.tokens:][:asked.tokens]
        self.tile = self.everything[routing.tile_of_all]

    def exchanged(self, rows, received, sent):
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows, received, sent)
        return out

    def per_pair(self):
        its = self.routing
        came = self.exchanged(self.tokens.index_select(0, its.pair_tokens), its.pairs_from, its.sends)
        return came.index_select(0, its.tile_of_pairs)

    def read_back(self):
        """The counts of all ranks come over the network, and the host waits for them."""
        its = self.routing
        mine = torch.bincount(its.ids.flatten() // its.held, minlength=its.ranks)
        counts = mine.new_empty(its.ranks * its.ranks)
        dist.all_gather_into_tensor(counts, mine)
        counts = counts.view(its.ranks, its.ranks).tolist()
        came = self.exchanged(self.tokens.index_select(0, its.pair_tokens),
                              [row[its.rank] for row in counts], counts[its.rank])
        return came.index_select(0, its.tile_of_pairs)

    def once(self):
        its = self.routing
        came = self.exchanged(self.tokens.index_select(0, its.once_tokens), its.once_from, its.sends_once)
        return came.index_select(0, its.tile_of_once)

    def gathered(self):
        out = self.tokens.new_empty(self.everything.shape)
        dist.all_gather_into_tensor(out, self.tokens)
        return out.index_select(0, self.routing.tile_of_all)

    def added(self):
        its = self.routing
        back = self.exchanged(self.tile.index_select(0, its.pairs_of_tile), its.sends, its.pairs_from)
        return torch.zeros_like(self.tokens).index_add_(0, its.pair_tokens, back)

    def scattered(self):
        sums = torch.zeros_like(self.everything).index_add_(0, self.routing.tile_of_all, self.tile)
        out = torch.empty_like(self.tokens)
        dist.reduce_scatter_tensor(out, sums)
        return out

    def calls(self):
        """name -> (call, what it must bring)."""
        sums = self.tokens * self.routing.asked.top_k
        return {"per pair": (self.per_pair, self.tile), "per pair, read back": (self.read_back, self.tile),
                "once": (self.once, self.tile), "gathered": (self.gathered, self.tile),
                "per pair + add": (self.added, sums), "scattered": (self.scattered, sums)}


class DeepEP:
    """DeepEP's kernels inside a node. It leaves rows by rank and once each: permuting them is not timed, so
    nothing is compared but sums. Written after its README; not run so far."""

    def __init__(self, ways):
        from deep_ep import Buffer  # pylint: disable=import-outside-toplevel, import-error
        its, group = ways.routing, dist.group.WORLD
        self.ways, self.ids = ways, its.ids.to(torch.int64)
        self.weights = torch.ones_like(self.ids, dtype=torch.float32)
        row = its.asked.hidden * 2
        configs = Buffer.get_dispatch_config(its.ranks), Buffer.get_combine_config(its.ranks)
        self.buffer = Buffer(group, max(c.get_nvl_buffer_size_hint(row, its.ranks) for c in configs))
        self.layout = self.buffer.get_dispatch_layout(self.ids, its.asked.experts)
        self.handle = None

    def dispatched(self):
        per_rank, _, per_expert, is_in_rank, _ = self.layout
        rows, _, _, _, self.handle, _ = self.buffer.dispatch(
            self.ways.tokens, topk_idx=self.ids, topk_weights=self.weights, num_tokens_per_rank=per_rank,
            is_token_in_rank=is_in_rank, num_tokens_per_expert=per_expert)
        return rows

    def calls(self):
        rows = self.dispatched()
        ranks_of_token = torch.zeros(len(self.ids), self.ways.routing.ranks, device=rows.device)
        ranks_of_token.scatter_(1, self.ids // self.ways.routing.held, 1)
        sums = (self.ways.tokens * ranks_of_token.sum(1, keepdim=True)).to(rows.dtype)
        return {"DeepEP dispatch": (self.dispatched, None),
                "DeepEP combine": (lambda: self.buffer.combine(rows, self.handle)[0], sums)}


def installed(device):
    """(makers of other peers' calls, what is not measured and why)."""
    makers, missing = [], {"NCCL EP": "this script has no calls of it"}
    if not importlib.util.find_spec("deep_ep"):
        missing["DeepEP"] = "not installed"
    elif device.type == "cpu":
        missing["DeepEP"] = "needs GPUs"
    else:
        makers.append(DeepEP)
    if not importlib.util.find_spec("nccl_ep"):
        missing["NCCL EP"] = "not installed"
    return makers, missing


def check(name, got, wanted, device):
    wrong = torch.tensor(float(wanted is not None and not torch.equal(got, wanted)), device=device)
    dist.all_reduce(wrong)
    if wrong.item():
        raise SystemExit(f"{name}: {int(wrong.item())} ranks have other rows than plain indexing brings")


def slowest(call, device):
    taken = torch.tensor([microseconds(call, device)], dtype=torch.float64, device=device)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return taken.item()


def times(calls, device):
    """name -> microseconds. All ways take turns, so that what drifts is not in their ratios."""
    taken = {name: [] for name in calls}
    for _ in range(WARM_UP):
        for call in calls.values():
            call()
    for _ in range(REPEATS):
        for name, call in calls.items():
            taken[name].append(slowest(call, device))
    return {name: median(each) for name, each in taken.items()}


def run(routing, makers, out):
    ways = Ways(routing)
    calls = {name: call for maker in [lambda ways: ways, *makers] for name, call in maker(ways).calls().items()}
    for name, (call, wanted) in calls.items():
        check(f"{routing.kind}, {name}", call(), wanted, routing.device)
    taken = times({name: call for name, (call, _) in calls.items()}, routing.device)
    for name, us in taken.items():
        best = min(other for way, other in taken.items() if (way in BACK) == (name in BACK))
        out({"routing": routing.kind, "way": name, "us": round(us, 2), "ratio": round(us / best, 3)})


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: to test the script, not to measure (default cuda)")
    for name, value, help_text in (("tokens", 4096, "tokens of a rank"), ("experts", 256, "experts of all ranks"),
                                   ("top-k", 8, "experts of a token"), ("hidden", 7168, "elements of a row, bf16")):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{help_text} (default {value})")
    parser.add_argument("--routing", choices=ROUTINGS, help="this one alone")
    return parser


def main():
    asked = options().parse_args()
    rank, ranks, device = start(asked)
    if asked.experts % ranks or asked.top_k > asked.experts:
        raise SystemExit(f"{asked.experts} experts, {asked.top_k} of them for a token, on {ranks} ranks")
    makers, missing = installed(device)
    sizes = {"peer": "torch", "ranks": ranks, "tokens": asked.tokens, "experts": asked.experts,
             "top_k": asked.top_k, "hidden": asked.hidden}

    def out(line):
        if rank == 0:
            print(json.dumps(sizes | line), flush=True)

    for name, why in missing.items():
        out({"way": name, "missing": why})
    for kind in ROUTINGS if asked.routing is None else [asked.routing]:
        run(Routing(kind, asked, rank, ranks, device), makers, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
