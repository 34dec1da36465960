"""Experts of transformers' models over a Dispatch.

    experts(max_tokens=4096)                                            # before the model is loaded
    model = from_pretrained(..., distributed_config=DistributedConfig(ep_size=4, ..., ep_implementation="mimo"))

Needs transformers 5.23, which has the registry that this is a member of.
"""
from __future__ import annotations

import functools
from typing import Any

import torch
import transformers
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from . import _expert_groups
from ._expert_groups import Sizes
from .communicator import Communicator
from .dispatch import Dispatch, Route
from .errors import UnsupportedError

try:
    from transformers.distributed.expert_parallel import EPImplementation, EPImplementationInterface
except ImportError:  # an older transformers: experts() says so
    EPImplementation, EPImplementationInterface = object, None

__all__ = ["DispatchedExperts", "experts"]


def experts(max_tokens: int, *, comm: Communicator | None = None) -> None:
    """Register the ep_implementation "mimo", for models that are loaded from now on. Local.

    max_tokens  the most tokens of any rank in a forward; with tp, of its slice of the batch
    comm        of all ranks; None: the default one. On CUDA each expert group gets one of its own

    Loading a model is then collective over all ranks, as are its forwards and backwards over their expert group: every
    rank makes the same ones, also one without tokens.

    Errors: UnsupportedError (an older transformers). When a model is loaded, on every rank: UnsupportedError (ep ranks
    that are not consecutive). In a forward: those of Dispatch.
    """
    if EPImplementationInterface is None:
        raise UnsupportedError(f"experts: transformers {transformers.__version__} has no EPImplementationInterface: "
                               "5.23 has")
    EPImplementationInterface.register("mimo", functools.partial(DispatchedExperts, max_tokens=max_tokens, comm=comm))


class DispatchedExperts(EPImplementation):
    """How the experts of one layer get their tokens: transformers makes it where the plan is applied."""

    def __init__(self, experts: torch.nn.Module, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh, *, max_tokens: int,
                 comm: Communicator | None) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self._group = _expert_groups.group_of("experts", ep_mesh, comm)
        self._max_tokens = max_tokens
        self._dispatch: Dispatch | None = None  # made by the first forward, which has the sizes

    def __call__(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                 top_k_weights: torch.Tensor) -> torch.Tensor:
        """[n, H], [n, k] ids among all experts, [n, k] weights -> [n, H]."""
        x, ids, scores = map(self._slice, (hidden_states, top_k_index, top_k_weights))
        if self._dispatch is None:
            count = self.num_local_experts * self._group.size
            sizes = Sizes(count, ids.shape[1], x.shape[1], self._max_tokens)
            self._dispatch = _expert_groups.dispatch_of(self._group, sizes)
        route = self._dispatch.route(ids)
        rows, weights = self._dispatch(x, _expert_groups.weights_of(scores), route)
        out = _expert_groups.weighted(self._run(rows, route), weights)
        return self._whole(self._dispatch.combine(out, route), len(hidden_states))

    def _run(self, rows: torch.Tensor, route: Route) -> Any:
        """This rank's experts, each on its rows. Without rows the first one gets a row of zeros, so that weights have
        gradients, and FSDP's reductions run, on every rank."""
        if len(rows):
            return self.experts_forward(rows, local_ids(route), rows.new_ones(len(rows), 1))
        zeros, first = rows.sum(0, keepdim=True), route.ends.new_zeros(1, 1).long()
        return self.experts_forward(zeros, first, rows.new_ones(1, 1))[:0]

    def _slice(self, whole: torch.Tensor) -> torch.Tensor:
        """Ranks along tp have one batch: each takes its part of the tokens. In backward the others' gradients come."""
        if self.tp_mesh.size() == 1:
            return whole
        shared = DTensor.from_local(whole, self.tp_mesh, [Replicate()], run_check=False)
        return shared.redistribute(self.tp_mesh, [Shard(0)]).to_local()

    def _whole(self, part: torch.Tensor, tokens: int) -> torch.Tensor:
        if self.tp_mesh.size() == 1:
            return part
        shape = torch.Size([tokens, part.shape[1]])
        return DTensor.from_local(part, self.tp_mesh, [Shard(0)], shape=shape, stride=(part.shape[1], 1)).full_tensor()


def local_ids(route: Route) -> torch.Tensor:
    """[rows, 1]: which of this rank's experts each row is for."""
    rows = torch.arange(route.rows, dtype=route.ends.dtype, device=route.ends.device)
    return torch.searchsorted(route.ends, rows, right=True)[:, None]
