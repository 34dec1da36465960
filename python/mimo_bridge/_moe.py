"""Megatron-LM's MoE layers over a dispatch: use_dispatch() of megatron.py."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch.distributed as dist
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.moe.moe_utils import get_align_size_for_quantization
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher, MoETokenDispatcher

from .choice import top_k
from .communicator import Communicator
from .dispatch import Dispatch, Route
from .errors import ArgumentError, UnsupportedError
from .grid import Grid

__all__ = ["TokenDispatcher", "use_dispatch"]


class TokenDispatcher(MoETokenDispatcher):  # type: ignore[misc]  # Megatron has no types
    """The token dispatcher of one MoELayer, over a Dispatch that layers share.

    Between the first and the last of its six methods it has the route of the micro-batch that passes. After
    that autograd alone has it, so several micro-batches can be in flight.

    Where the dispatch has a number of rows, Megatron's PagedStashRunner can run a step again that did not fit: it asks
    check_over_budget(), then takes the capacity factor away, and the next step takes as many rows as it needs.
    """

    def __init__(self, theirs: MoEAlltoAllTokenDispatcher, dispatch: Dispatch) -> None:
        super().__init__(theirs.config, SimpleNamespace(ep=theirs.ep_group, expt_tp=theirs.tp_group,
                                                        tp_ep=theirs.tp_ep_group))
        self.dispatch = dispatch
        self._route: Route | None = None
        # By the names that PagedStashRunner looks for.
        self._comm_manager = SimpleNamespace(
            moe_expert_rank_capacity_factor=self.config.moe_expert_rank_capacity_factor,
            over_budget=torch.zeros(1, dtype=torch.bool, device=dispatch.comm.device))

    def dispatch_preprocess(self, hidden_states: torch.Tensor, routing_map: torch.Tensor,
                            probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [n, H] and their weights [n, k]; the ranks make the route."""
        self.hidden_shape = hidden_states.shape
        self._weights_dtype = probs.dtype
        ids = ids_of(routing_map, self.dispatch.top_k)
        self._route = route = self.dispatch.route(ids, "exact" if self._repeats() else None)
        if self.dispatch.rows >= 0:  # otherwise each tile has what its route needs
            self._comm_manager.over_budget |= route.ends[-1:] > route.rows
        weights = top_k(probs, ids.shape[1], forced=ids)[0]
        return (hidden_states.reshape(-1, self.hidden_shape[-1]),
                weights if weights.dtype == torch.float64 else weights.float())

    def token_dispatch(self, hidden_states: torch.Tensor,
                       probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows to the experts, in their order."""
        rows, weights = self.dispatch(hidden_states, probs, self._passing())
        return rows, weights

    def dispatch_postprocess(self, hidden_states: torch.Tensor,
                             probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows, how many each expert has (on the device, padding included), and their weights. Experts take all
        rows of a tile, so the last one gets those behind its end."""
        route = self._passing()
        ends = route.ends.long().clamp(max=route.rows)
        ends = torch.cat([ends[:-1], ends.new_full((1,), route.rows)])
        return (self._without_rest(hidden_states), torch.diff(ends, prepend=ends.new_zeros(1)),
                self._without_rest(probs).to(self._weights_dtype))

    def combine_preprocess(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self._without_rest(hidden_states)

    def token_combine(self, hidden_states: torch.Tensor, *_async: Any, **_more: Any) -> torch.Tensor:
        """The sum of each token's rows."""
        route, self._route = self._passing(), None
        return self.dispatch.combine(hidden_states, route)

    def combine_postprocess(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states.view(self.hidden_shape)

    def check_over_budget(self) -> torch.Tensor:
        """bool [1], on the device: whether a tile was too small since the last reset. Nobody waits."""
        over: torch.Tensor = self._comm_manager.over_budget
        return over

    def reset_over_budget(self) -> None:
        self._comm_manager.over_budget.fill_(False)

    def _repeats(self) -> bool:
        """Whether a step is run again that did not fit."""
        return (self.config.moe_expert_rank_capacity_factor is not None
                and self._comm_manager.moe_expert_rank_capacity_factor is None)

    def _without_rest(self, tile: torch.Tensor) -> torch.Tensor:
        """A tile with zeros behind the last end, also in its gradient: nobody has written there, and the gradients
        of weights are sums over all rows."""
        if self.dispatch.rows < 0:
            return tile  # there is no rest
        route = self._passing()
        used = torch.arange(route.rows, device=tile.device) < route.ends[-1]
        return torch.where(used.view(-1, *[1] * (tile.dim() - 1)), tile, 0)

    def _passing(self) -> Route:
        assert self._route is not None, "dispatch_preprocess comes first"
        return self._route


def ids_of(routing_map: torch.Tensor, k: int) -> torch.Tensor:
    """[n, k]: the experts of each token by ascending id, and -1 behind them. From the map, not from the
    weights: an expert with weight 0 is chosen, too."""
    chosen, ids = top_k(routing_map.float(), k)
    return torch.where(chosen > 0, ids, -1)


def use_dispatch(model: torch.nn.Module, max_tokens: int, rows: int | Literal["exact"], ctas: int,
                 comm: Communicator) -> list[Dispatch]:
    """megatron.use_dispatch() says what it does."""
    layers = [module for module in model.modules() if isinstance(module, MoELayer)]

    def check() -> Grid:
        if not layers:
            raise ArgumentError(f"use_dispatch: the model of rank {comm.rank} has no MoELayer")
        for layer in layers:
            _refuse(layer)
        grids = {_grid_of(layer.token_dispatcher, comm) for layer in layers}
        if len(grids) > 1:
            raise UnsupportedError("use_dispatch: layers have experts on different grids: "
                                   f"{sorted(map(str, grids))}")
        return grids.pop()

    grid = comm._together("use_dispatch", check)
    group = comm.group(grid, "etp", "ep")
    made: dict[tuple[Any, ...], Dispatch] = {}
    for layer in layers:
        sizes = _sizes_of(layer.config)
        if sizes not in made:
            experts, k, hidden, alignment, dtype = sizes
            made[sizes] = Dispatch(experts=experts, top_k=k, hidden=hidden, alignment=alignment, dtype=dtype,
                                   max_tokens=max_tokens, etp=grid.dim("etp"), rows=rows, ctas=ctas, comm=group)
        layer.token_dispatcher = TokenDispatcher(layer.token_dispatcher, made[sizes])
    return list(made.values())


def _sizes_of(config: Any) -> tuple[int, int, int, int, torch.dtype]:
    """(experts, k, H, alignment, dtype) of a layer's dispatch. Experts pad their rows themselves, unless the router is
    to do it."""
    padded = config.moe_router_padding_for_quantization
    return (config.num_moe_experts, config.moe_router_topk, config.moe_latent_size or config.hidden_size,
            max(get_align_size_for_quantization(config), 1) if padded else 1, config.params_dtype)


def _refuse(layer: MoELayer) -> None:
    """UnsupportedError, ArgumentError: what this dispatcher does not do for a layer."""
    config, theirs = layer.config, layer.token_dispatcher
    if not isinstance(theirs, MoEAlltoAllTokenDispatcher):
        raise ArgumentError(f"use_dispatch: layer {layer.layer_number} has a {type(theirs).__name__}: build it "
                            'with moe_token_dispatcher_type="alltoall"')
    for name, why in (("moe_pad_expert_input_to_capacity", "it gives every expert its capacity of rows, chosen or "
                       "not"),
                      ("moe_shared_expert_overlap", "shared experts run beside rows on a stream of Megatron's own "
                       "dispatcher"),
                      ("fp8", "rows travel in the dtype of the hidden states"),
                      ("fp4", "rows travel in the dtype of the hidden states")):
        if getattr(config, name):
            raise UnsupportedError(f"use_dispatch: layer {layer.layer_number} has {name}="
                                   f"{getattr(config, name)}: {why}")
    if config.transformer_impl == "inference_optimized":
        raise UnsupportedError("use_dispatch: transformer_impl=inference_optimized chooses among dispatchers of "
                               "its own")


def _grid_of(theirs: MoEAlltoAllTokenDispatcher, comm: Communicator) -> Grid:
    """etp, ep and edp of a layer's experts over all ranks. UnsupportedError where the ranks of a group are not
    consecutive, etp fastest."""
    size = theirs.tp_size * theirs.ep_size
    first = comm.rank // size * size
    wanted = list(range(first, first + size))
    ranks = dist.get_process_group_ranks(theirs.tp_ep_group)
    place = theirs.tp_rank + theirs.tp_size * theirs.ep_rank
    if ranks != wanted or comm.rank != first + place:
        raise UnsupportedError(f"use_dispatch: rank {comm.rank} is at etp={theirs.tp_rank},ep={theirs.ep_rank} of "
                               f"the ranks {ranks}: a dispatch takes consecutive ones, etp fastest")
    return Grid({"etp": theirs.tp_size, "ep": theirs.ep_size, "edp": comm.size // size})
