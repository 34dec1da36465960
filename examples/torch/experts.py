"""A mixture of experts in place of a block's MLP. The experts lie on ranks of a view of their own, "ep,edp":
edp ranks have copies of one expert, and see other tokens.
"""
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import gelu, grouped_mm

import mimo_bridge as mb

CHOICES = 2  # experts of a token


class Places:
    """Where experts lie: the grid, and the dispatch that all layers share."""

    def __init__(self, comm, experts, hidden, max_tokens, ctas=0):
        """ctas: thread blocks of moves that run beside something else. On a GPU nobody waits for a number of rows
        then: tiles have room for the most."""
        self.experts, self.hidden, ep = experts, hidden, math.gcd(comm.size, experts)
        self.grid = mb.Grid({"ep": ep, "edp": comm.size // ep})
        rows = max_tokens * CHOICES * ep if ctas and comm.device.type == "cuda" else "exact"
        self.dispatch = mb.Dispatch(experts=experts, top_k=CHOICES, hidden=hidden, max_tokens=max_tokens, rows=rows,
                                    ctas=ctas, comm=comm.group(self.grid, "ep"))
        here = self.dispatch.experts_here
        first = self.grid.coords(comm.rank)["ep"] * here
        self.mine = slice(first, first + here)
        self.copies = None  # the ranks with copies of this rank's experts
        if self.grid.dim("edp") > 1:
            self.copies, _ = dist.new_subgroups_by_enumeration(self.grid.groups("edp"))


class Experts(nn.Module):
    def __init__(self, places, inner):
        super().__init__()
        experts, hidden = places.experts, places.hidden
        self.dispatch, self.router = places.dispatch, nn.Linear(hidden, experts, bias=False)
        # Every rank draws the values of all experts and keeps its own: they do not depend on the ranks.
        self.up = nn.Parameter(torch.randn(experts, hidden, inner)[places.mine] / hidden ** 0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, hidden)[places.mine] / inner ** 0.5)
        self.up.copies = self.down.copies = places.copies

    def forward(self, x):
        """x [.., H]: this rank's tokens. Each goes to its best experts, and gets their weighted sum."""
        return self.combine(*self.run(*self.send(*self.choose(x)))).view_as(x)

    # Its parts, each of what the one before gives.

    def choose(self, x):
        rows = x.flatten(0, -2)
        return rows, *mb.top_k(self.router(rows), CHOICES, weights="softmax")

    def send(self, rows, weights, ids):
        route = self.dispatch.route(ids)
        return *self.dispatch(rows, weights, route), route

    def run(self, rows, weights, route):
        h = gelu(grouped_mm(rows, self.up, offs=route.ends)) * weights[:, None]
        return grouped_mm(h, self.down, offs=route.ends), route

    def combine(self, out, route):
        return self.dispatch.combine(out, route)
