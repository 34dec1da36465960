"""A model that is cut into parts, for cases of Overlap: layers of every kind, micro-batches, and a plain loop."""
import random

import torch
import torch.nn.functional as F
from torch import nn

import mimo_bridge as mb
from rank_runner import same

HIDDEN, INNER, CHOICES = 8, 16, 2


class Block(nn.Module):
    """A layer of some kind, cut into parts. Its experts are those of this rank."""

    def __init__(self, kind, dispatch, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.kind, self.dispatch = kind, dispatch
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.mix, self.dense = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.router, self.common = nn.Linear(HIDDEN, dispatch.experts, bias=False), nn.Linear(HIDDEN, HIDDEN)
        shape = dispatch.experts_here, HIDDEN, INNER
        self.up, self.down = (nn.Parameter(torch.randn(s) / 2) for s in (shape, (shape[0], INNER, HIDDEN)))

    def mixed(self, batch, x):
        return x + batch["scale"] * torch.tanh(self.mix(self.norms[0](x)))

    def pre(self, batch, x):
        x = self.mixed(batch, x)
        if self.kind == "pre":
            return x
        rows = self.norms[1](x)
        if self.kind == "dense":
            return x, rows
        return x, rows, *mb.top_k(self.router(rows), CHOICES, weights="softmax")

    def to_experts(self, _batch, x, rows, weights, ids):
        route = self.dispatch.route(ids)
        return x, *self.dispatch(rows, weights, route), route

    def mlp(self, _batch, x, rows, weights=None, route=None):
        if self.kind == "dense":
            return x + self.dense(F.gelu(rows))
        h = F.gelu(F.grouped_mm(rows, self.up, offs=route.ends)) * weights[:, None].to(rows.dtype)
        return x, F.grouped_mm(h, self.down, offs=route.ends), route

    def combine(self, _batch, x, out, route):
        return x, self.dispatch.combine(out, route)

    def shared(self, _batch, _x, rows, _weights, _ids):
        return torch.sigmoid(self.common(rows))

    def behind(self, _batch, x, y, shared=0):
        return x + y + shared

    def alone(self, _batch, x):
        return x + self.dense(x)

    def parts(self):
        if self.kind == "mlp":
            return {"mlp": self.alone}
        made = {"pre": self.pre}
        if self.kind == "dense":
            made["mlp"] = self.mlp
        if self.kind in ("mixture", "shared"):
            made |= {"dispatch": self.to_experts, "mlp": self.mlp, "combine": self.combine, "behind": self.behind}
        if self.kind == "shared":
            made["shared"] = self.shared
        return made


class Model(nn.Module):
    """Layers between an embedding and a loss. The last one may have a head of its own (post)."""

    def __init__(self, kinds, dispatch, post=False):
        super().__init__()
        torch.manual_seed(7)
        self.words, self.head = nn.Embedding(16, HIDDEN), nn.Linear(HIDDEN, 16)
        self.extra = nn.Linear(HIDDEN, HIDDEN)
        self.blocks = nn.ModuleList(Block(kind, dispatch, 1 + i) for i, kind in enumerate(kinds))
        self.layers = [block.parts() for block in self.blocks]
        if post:
            self.layers[-1]["post"] = lambda _batch, x: x + torch.tanh(self.extra(x))

    def embed(self, batch):
        return self.words(batch["ids"])

    def lose(self, batch, x):
        return F.cross_entropy(self.head(x), batch["labels"], reduction="sum"), x.detach().sum()

    def plain(self, batch):
        """The same parts one after the other, in one graph."""
        x = self.embed(batch)
        for layer in self.layers:
            values = x if isinstance(x, tuple) else (x,)
            chosen = beside = ()
            for name in ("pre", "dispatch", "mlp", "combine", "behind", "post"):
                if name not in layer:
                    continue
                given = layer[name](batch, *values, *(beside if name == "behind" else ()))
                values = given if isinstance(given, tuple) else (given,)
                if name == "pre":
                    chosen = values
                if name == "dispatch" and "shared" in layer:
                    beside = layer["shared"](batch, *chosen),
            x = values
        return self.lose(batch, *x)

    def overlap(self, dispatch, micro_batches, **more):
        return mb.Overlap(self.embed, self.layers, self.lose, dispatch=dispatch, micro_batches=micro_batches, **more)


def batches_of(seed, rank, count, most=5):
    """Micro-batches of some tokens, or of none, other ones on each rank."""
    roll = random.Random(f"{seed} {rank}")
    generator = torch.Generator().manual_seed(roll.randint(0, 2**31))
    made = []
    for _ in range(count):
        n = roll.choice([0, 1, most, most])
        ids = torch.randint(0, 16, (2, n), generator=generator)
        made.append({"ids": ids[0], "labels": ids[1], "scale": torch.randn(n, 1, generator=generator)})
    return made


def dispatch_of(comm, **more):
    return mb.Dispatch(comm=comm, **{**dict(experts=4, top_k=CHOICES, hidden=HIDDEN, max_tokens=8), **more})


def gradients(model):
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def compare(model, overlap, batches, what):
    """Losses and gradients of both ways. The second run adds to what is there."""
    gradients(model)
    wanted = []
    for _ in range(2):
        for batch in batches:
            loss, total = model.plain(batch)
            loss.backward()
            wanted.append((loss.detach(), total))
    plain = gradients(model)
    found = [pair for _ in range(2) for pair in overlap(batches)]
    ours = gradients(model)
    assert len(found) == len(wanted)
    for i, (pair, other) in enumerate(zip(found, wanted)):
        for a, b in zip(pair, other):
            assert not a.requires_grad
            same(a, b, f"{what}: results of {i}")
    assert ours.keys() == plain.keys(), (what, ours.keys() ^ plain.keys())
    for name, grad in plain.items():
        same(ours[name], grad, f"{what}: {name}")
