"""The model that overlap_bench.py trains: attention, a router, and grouped products over experts' rows; which experts
tokens choose; and moves that stay on the device, in place of exchanges."""
import torch
import torch.nn.functional as F
from torch import nn

import mimo_bridge as mb

ROUTINGS = ("even", "zipf", "hot")


def ids_of(asked, routing, rank, ranks):
    """[n, k]: experts of this rank's tokens."""
    n, k, experts = asked.tokens, asked.choices, asked.experts
    if routing == "even":
        first = torch.arange(n)[:, None] + torch.arange(k) * (experts // k)
        return (first + rank) % experts
    weight = 1 / torch.arange(1, experts + 1)
    weight = weight[torch.randperm(experts, generator=torch.Generator().manual_seed(5))]
    if routing == "hot":
        weight = torch.ones(experts)
        weight[:experts // ranks] = 3 * (ranks - 1) if ranks > 1 else 1
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.multinomial(weight.expand(n, experts), k, generator=generator)


class Copied(torch.autograd.Function):
    """A move as a copy on this device: `used` rows of memory as wide as x."""

    @staticmethod
    def forward(ctx, x, memory, used, rows):
        ctx.move = memory, used, len(x)
        return copied(memory, used, rows, x.shape[1])

    @staticmethod
    def backward(ctx, grad):
        memory, used, rows = ctx.move
        return copied(memory, used, rows, grad.shape[1]), None, None, None


def copied(memory, used, rows, hidden):
    given = torch.empty_like(memory)
    given[:used].copy_(memory[:used])
    return given[:rows, :hidden]


class Local:
    """In place of a Dispatch: the same shapes, no exchange."""

    def __init__(self, route, memory, used):
        self.made, self.memory, self.used = route, memory, used

    def route(self, _ids):
        return self.made

    def __call__(self, x, weights, route):
        rows = Copied.apply(x, self.memory, self.used, route.rows)
        return rows, weights.mean() + torch.zeros(route.rows, device=x.device)

    def combine(self, out, route):
        return Copied.apply(out, self.memory, self.used, route.tokens)


class Layer(nn.Module):
    def __init__(self, asked, inner, here):
        super().__init__()
        self.heads, hidden = asked.heads, asked.hidden
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.mix, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.router = nn.Linear(hidden, asked.experts, bias=False)
        self.up = nn.Parameter(torch.randn(here, hidden, inner) / hidden ** .5)
        self.down = nn.Parameter(torch.randn(here, inner, hidden) / inner ** .5)
        self.choices = asked.choices

    def parts(self, model):
        def pre(ids, x):
            heads = self.mix(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(1, 2, 0, 3)
            seen = F.scaled_dot_product_attention(*heads[:, None], is_causal=True)[0]
            x = x + self.out(seen.transpose(0, 1).flatten(1))
            rows = self.norms[1](x)
            return x, rows, mb.top_k(self.router(rows), self.choices, forced=ids, weights="softmax")[0]

        def send(ids, x, rows, weights):
            route = model.moves.route(ids)
            return x, *model.moves(rows, weights, route), route

        def run(_ids, x, rows, weights, route):
            h = F.gelu(F.grouped_mm(rows, self.up, offs=route.ends)) * weights[:, None].to(rows.dtype)
            return x, F.grouped_mm(h, self.down, offs=route.ends), route

        def back(_ids, x, out, route):
            return x, model.moves.combine(out, route)

        return {"pre": pre, "dispatch": send, "mlp": run, "combine": back, "behind": lambda _ids, x, y: x + y}


class Model(nn.Module):
    """Layers whose moves are those of `moves`: a Dispatch, or a Local."""

    def __init__(self, asked, inner, comm):
        super().__init__()
        self.moves = None
        with comm.device:
            self.first = nn.Parameter(torch.randn(asked.tokens, asked.hidden))
            self.blocks = nn.ModuleList(Layer(asked, inner, asked.experts // comm.size) for _ in range(asked.layers))
        self.to(asked.dtype)
        self.layers = [block.parts(self) for block in self.blocks]

    def embed(self, _ids):
        return self.first * 1

    def lose(self, _ids, x):
        return x.float().pow(2).mean()

    def plain(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            values = x,
            for name in ("pre", "dispatch", "mlp", "combine"):
                values = layer[name](ids, *values)
            x = layer["behind"](ids, *values)
        return self.lose(ids, x)
