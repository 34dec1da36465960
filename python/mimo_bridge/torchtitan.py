"""Experts of torchtitan's models over a Dispatch, as an override of its token dispatchers.

    --override.imports mimo_bridge.torchtitan.dispatch

Tried with torchtitan 0.3.0. moe_comm_backend="deepep" tells the sizes that a Dispatch needs; nothing of DeepEP is
imported, as its config is replaced before it is built. With "standard" name them in the config:

    imports=[("mimo_bridge.torchtitan.dispatch", {"hidden_dim": 2048, "num_max_tokens_per_rank": 8192})]

Where activation checkpoints are selective, add mimo_bridge.torchtitan.selective_ac: it saves routes and rows, as
torchtitan's own saves those of its dispatchers. Without it backward makes and moves them again.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.config import derive, override
from torchtitan.distributed.activation_checkpoint import SelectiveAC as _SelectiveAC
from torchtitan.models.common.token_dispatcher import (
    BaseEPTokenDispatcher, LocalDispatchMetadata, LocalTokenDispatcher, TorchAOTokenDispatcher,
)

from . import _expert_groups
from ._expert_groups import Sizes
from .dispatch import Dispatch, Route
from .errors import ArgumentError, UnsupportedError

__all__ = ["SelectiveAC", "TokenDispatcher", "dispatch", "selective_ac"]


@dataclass(frozen=True)
class Sent:
    """What combine needs of dispatch."""

    route: Route
    weights: torch.Tensor  # of this rank's rows


class TokenDispatcher(BaseEPTokenDispatcher):
    """Tokens of one MoE layer to its experts and back. Layers with equal sizes share a Dispatch.

    Without an ep mesh rows stay on their rank, as with torchtitan's own. CPU tensors: wire_meshes() is collective over
    all ranks. CUDA: over those of the ep mesh.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseEPTokenDispatcher.Config):
        """hidden_dim: H. num_max_tokens_per_rank: the most tokens of any rank in a call."""

        hidden_dim: int
        num_max_tokens_per_rank: int

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._sizes = Sizes(config.num_experts, config.top_k, config.hidden_dim, config.num_max_tokens_per_rank)
        self.dispatcher: Dispatch | None = None

    def init_buffer(self) -> None:
        """Called by wire_meshes(). UnsupportedError, on every rank: ep ranks that are not consecutive."""
        if self.ep_mesh is not None:
            group = _expert_groups.group_of("torchtitan.dispatch", self.ep_mesh)
            self.dispatcher = _expert_groups.dispatch_of(group, self._sizes)

    def dispatch(self, x_TD: torch.Tensor, topk_scores_TK: torch.Tensor, topk_expert_ids_TK: torch.Tensor,
                 num_local_tokens_per_expert_E: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Rows of this rank's experts, how many each has, and what combine needs."""
        if self.dispatcher is None:
            return LocalTokenDispatcher.dispatch(self, x_TD, topk_scores_TK, topk_expert_ids_TK,
                                                 num_local_tokens_per_expert_E)
        route = self.dispatcher.route(topk_expert_ids_TK)
        rows, weights = self.dispatcher(x_TD, _expert_groups.weights_of(topk_scores_TK), route)
        return rows, counts_of(route.ends), Sent(route, weights)

    def combine(self, routed_output_RD: torch.Tensor, metadata: Any, x_TD: torch.Tensor) -> torch.Tensor:
        """The sum of each token's rows, times their scores."""
        if isinstance(metadata, LocalDispatchMetadata):
            return LocalTokenDispatcher.combine(self, routed_output_RD, metadata, x_TD)
        assert self.dispatcher is not None
        return self.dispatcher.combine(_expert_groups.weighted(routed_output_RD, metadata.weights), metadata.route)


def counts_of(ends: torch.Tensor) -> torch.Tensor:
    """How many rows each expert has, from where they end."""
    return torch.diff(ends, prepend=ends.new_zeros(1))


@override(target=BaseEPTokenDispatcher.Config, description="expert rows by mimo_bridge")
def dispatch(cfg: BaseEPTokenDispatcher.Config, *, hidden_dim: int | None = None,
             num_max_tokens_per_rank: int | None = None) -> TokenDispatcher.Config:
    """The config of our dispatcher, from that of any of torchtitan's. Local.

    hidden_dim, num_max_tokens_per_rank  where the config has none: moe_comm_backend="standard"

    ArgumentError: a size is missing. UnsupportedError: fp8 rows, CUDA graphs.
    """
    name = type(cfg).__qualname__
    if isinstance(cfg, TorchAOTokenDispatcher.Config) or getattr(cfg, "pad_multiple", None) is not None:
        raise UnsupportedError(f"torchtitan.dispatch: {name} pads rows for fp8 and mxfp8 experts, which are not served")
    if getattr(cfg, "cudagraphable", False) or getattr(cfg, "non_blocking_capacity_factor", None) is not None:
        raise UnsupportedError(f"torchtitan.dispatch: {name} is set for CUDA graphs, and the host waits for the number "
                               "of rows")
    given = {"hidden_dim": hidden_dim, "num_max_tokens_per_rank": num_max_tokens_per_rank}
    sizes: dict[str, Any] = {key: getattr(cfg, key, None) if value is None else value for key, value in given.items()}
    missing = [key for key, value in sizes.items() if value is None]
    if missing:
        raise ArgumentError(f'torchtitan.dispatch: {name} has no {" and no ".join(missing)}: take '
                            'moe_comm_backend="deepep", which has, or name them in override.imports')
    return TokenDispatcher.Config(num_experts=cfg.num_experts, top_k=cfg.top_k, **sizes)


class SelectiveAC(_SelectiveAC):
    """torchtitan's, that saves what a Dispatch made and moved as well."""

    @dataclass(kw_only=True, slots=True)
    class Config(_SelectiveAC.Config):
        pass

    def get_save_ops(self) -> set[Any]:
        ops = torch.ops.mimo_bridge
        return super().get_save_ops() | {ops.route.default, ops.dispatch_rows.default, ops.dispatch_combine.default}


@override(target=_SelectiveAC.Config, description="checkpoints save expert rows of mimo_bridge", exact=True)
def selective_ac(cfg: _SelectiveAC.Config) -> SelectiveAC.Config:
    """The config of our SelectiveAC, from torchtitan's. Local."""
    return derive(cfg, SelectiveAC.Config)
