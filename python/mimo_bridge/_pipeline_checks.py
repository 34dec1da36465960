"""What forward_backward() of megatron.py refuses. Local functions, which all ranks call together."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
from megatron.core.process_groups_config import ProcessGroupCollection

from .errors import ArgumentError, UnsupportedError

__all__ = ["check", "check_averages", "chunks_refused"]

SHAPES = "exchanges shapes, which waits for the neighbour inside a step"
REFUSED = {  # fields of Megatron's config
    "variable_seq_lengths": SHAPES, "mtp_standalone": SHAPES,
    "use_ring_exchange_p2p": "has no sends that wait for nobody",
    "overlap_moe_expert_parallel_comm": "runs a forward beside a backward, and the encoder's steps stand between them",
}


def check(model: Any, given: Mapping[str, Any]) -> None:
    """Raise where Megatron's loop can't run with encoder steps in it. Local."""
    config, hops, groups = model.config, given.get("p2p_communicator"), given.get("pg_collection")
    if not isinstance(hops, P2PCommunicator) or not isinstance(groups, ProcessGroupCollection):
        raise ArgumentError(f"forward_backward: p2p_communicator is a {type(hops).__name__} and pg_collection a "
                            f"{type(groups).__name__}: give the language model's P2PCommunicator and "
                            "ProcessGroupCollection")
    if config.virtual_pipeline_model_parallel_size is not None:
        raise chunks_refused(config.virtual_pipeline_model_parallel_size)
    for name, why in REFUSED.items():
        if getattr(config, name, False):
            raise UnsupportedError(f"forward_backward: {name} {why}")
    if config.pipeline_dtype is None:
        raise ArgumentError("forward_backward: config.pipeline_dtype is None: hops need the dtype of hidden states")
    chain = next(ranks for ranks in model._language.groups("pp") if model._comm.rank in ranks)
    ranks = dist.get_process_group_ranks(hops.pp_group)
    if ranks != chain:
        raise ArgumentError(f"forward_backward: the stages of p2p_communicator are ranks {ranks}, those of the "
                            f"language grid {chain}")
    for (name, _), comm in model.colocated_comms.items():
        if comm.bridge.src.dim("pp") > 1:
            raise UnsupportedError(f"forward_backward: the encoder {name} has pp={comm.bridge.src.dim('pp')}, and its "
                                   "forward is one step")
        if name not in model.special_token_ids:
            raise ArgumentError(f"forward_backward: {name} has no special token id")


def chunks_refused(chunks: int) -> UnsupportedError:
    return UnsupportedError(f"forward_backward: the model has {chunks} chunks a stage: Megatron's interleaved loop "
                            "sends a forward and a backward in one call, and the encoder's steps stand between them")


def check_averages(model: Any) -> None:
    """Each DDP divides by its own group, and gradients of all modules come from one loss. Local."""
    lanes = 1 if model.config.calculate_per_token_loss else model._language.dim("dp") * model._language.dim("cp")
    mine = averaged(model.language_model) or lanes
    for module in model.modality_submodules.values():
        other = averaged(module) or mine
        if other != mine:
            raise ArgumentError("forward_backward: calculate_per_token_loss=False averages the encoder over dp="
                                f"{other} and the language model over dp={mine}: set it to True")


def averaged(module: Any) -> int:
    """Over how many ranks a DDP averages; 1: it adds; 0: it is none."""
    if not isinstance(module, DistributedDataParallel):
        return 0
    return 1 if module.config.calculate_per_token_loss else int(module.dp_cp_group.size())
