"""Megatron-LM's colocated communicator and MimoModel, with a bridge of this package in them, its pipelines beside
the encoders, and its MoE layers over a dispatch.

    from mimo_bridge.megatron import MimoModel, forward_backward  # in place of Megatron's
    use_dispatch(model, max_tokens)                               # after the model is built

Grids, process groups, alignment, the sequence partition and the gradient finalisation stay
Megatron's. Beyond what Megatron's own communicator takes: an LLM with cp > 1 or pp > 1, dp sizes that
do not divide one another, dimensions in any order, and ranks without images. Needs megatron.core.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from megatron.core.models.mimo import MimoModel as _MimoModel
from megatron.core.models.mimo.comm import colocated_communicator as _upstream
from megatron.core.models.mimo.config.role import MIMO_LANGUAGE_MODULE_KEY as _LANGUAGE, ModuleStageInfo
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region

from . import _moe, _pipeline_checks, _pipelined, _views
from ._fused import BalancedPlacement, Placement, TextPlaces
from ._hops import HopGroups
from .bridge import Bridge
from .communicator import Communicator, communicator_of
from .dispatch import Dispatch
from .errors import ArgumentError, GridError, MimoError, UnsupportedError
from .grid import Grid, pairing_of
from .partition import Partition

__all__ = ["ColocatedBridgeCommunicator", "MimoModel", "forward_backward", "grid_of", "use_dispatch"]

T = TypeVar("T")

_KNOWN = ("tp", "cp", "pp", "dp")


def grid_of(grid: Any) -> Grid:
    """The Grid of a HyperCommGrid: the same dimensions over the same ranks. Its process groups and
    views have no part in it. Local.

    GridError: names that are not one for each size; a dimension besides tp, cp, pp and dp that is larger
    than 1 (a bridge could not know whether ranks along it hold copies or samples of their own).
    """
    dims = dict(zip(grid.dim_names, grid.shape))
    if len(dims) != len(grid.dim_names) or len(dims) != len(grid.shape):
        raise GridError(f"grid_of: the grid has the names {list(grid.dim_names)} for the sizes "
                        f"{list(grid.shape)}: each dimension has one of each")
    for name, size in dims.items():
        if name not in _KNOWN and size != 1:
            raise GridError(f"grid_of: the grid has {name}={size}, and a bridge knows the dimensions "
                            f"{', '.join(_KNOWN)}")
    return Grid({name: int(size) for name, size in dims.items()}, int(grid.rank_offset))


class ColocatedBridgeCommunicator(_upstream.ColocatedBridgeCommunicator):
    """Megatron's communicator of the same name, over a Bridge. Collective, as is every call of it.

    src_grid, dest_grid      HyperCommGrids of the encoder and of the LLM
    dim_mapping  axis of each letter: {"b": 0, "s": 1, "h": 2} (the default), {"s": 0, "b": 1, "h": 2},
                 or {"b": 0, "h": 1} where rows of all samples are flat
    comm         None: the default communicator. Its ranks are those of torch.distributed. Ranks
                 outside of the grids make the same calls, with a tensor of 0 rows
    executor     as in Bridge
    rules        "bridge": any two grids of tp, cp, pp and dp. "upstream": Megatron's restrictions, in
                 Megatron's words, and its process group

    Without a partition each rank along the LLM's cp gets full sequences, and backward adds their
    gradients. Ranks with pp > 0 get 0 rows. Where no rank's samples change, nothing moves: the result
    is the tensor itself.

    Attributes are Megatron's. Positions are coordinates in the grids. `scale` is 0, and there are no
    gather groups, where the rules of the gather-narrow-sum method do not hold. No call needs the
    process group `gather_pg`: it is made with rules "upstream", and is None with "bridge".

    Errors, on every rank: ValueError (the grids, dim_mapping, rules), and those of Bridge.
    """

    gather_group_ranks: list[list[int]]
    gather_pg: Any  # a ProcessGroup, or None

    def __init__(self, src_grid: Any, dest_grid: Any, src_module_name: str = "src",
                 dest_module_name: str = "dest", dim_mapping: Mapping[str, int] | None = None, *,
                 comm: Communicator | None = None, executor: str = "auto",
                 rules: Literal["bridge", "upstream"] = "bridge") -> None:
        self.src_grid, self.dest_grid = src_grid, dest_grid
        self.src_module_name, self.dest_module_name = src_module_name, dest_module_name
        self.dim_mapping = dict(dim_mapping or {"b": 0, "s": 1, "h": 2})
        self.current_rank = dist.get_rank()
        self.rules = rules
        comm = _of_all_ranks("ColocatedBridgeCommunicator", comm)
        letters = _together_in_own_words(comm, self._check)
        comm._alike("ColocatedBridgeCommunicator", f"rules={rules}")
        self._extract_parallelism_info()
        self._build_rank_mappings()
        self._compare()
        self.bridge = Bridge(self._src, self._dest, comm=comm, layout=letters, executor=executor,
                             name=f"{src_module_name} to {dest_module_name}")
        if rules == "upstream" and self.gather_group_ranks:
            backend = "nccl" if self.bridge.comm.device.type == "cuda" else None
            make: Any = dist.new_subgroups_by_enumeration  # torch does not annotate it
            self.gather_pg, _ = make(self.gather_group_ranks, backend=backend)

    def _check(self) -> str:
        """The letters of the layout. Local; raises where this rank's arguments are wrong."""
        if self.rules not in ("bridge", "upstream"):
            raise ArgumentError(f"rules are bridge or upstream, not {self.rules!r}")
        if self.rules == "upstream":
            self._validate_grids()
        self._src, self._dest = grid_of(self.src_grid), grid_of(self.dest_grid)
        letters = "".join(sorted(self.dim_mapping, key=lambda letter: self.dim_mapping[letter]))
        if sorted(self.dim_mapping.values()) != list(range(len(letters))) or letters not in (
                "bsh", "sbh", "bh"):
            raise ArgumentError(f"dim_mapping={self.dim_mapping} is none of the layouts bsh, sbh and bh")
        return letters

    # In place of Megatron's, which count positions in lists.

    def _extract_parallelism_info(self) -> None:
        for side, grid in (("src", self._src), ("dest", self._dest)):
            for name in _KNOWN:
                setattr(self, f"{side}_{name}_size", grid.dim(name))

    def _build_rank_mappings(self) -> None:
        self.rank_to_src_pos = _positions(self._src)
        self.rank_to_dest_pos = _positions(self._dest)

    def _compare(self) -> None:
        """direction, scale and gather groups, and whether every rank keeps the samples that it has."""
        src, dest = self._src.dim("dp"), self._dest.dim("dp")
        directions = _upstream.BridgeDirection
        self.gather_pg = None
        self.direction = (directions.FAN_IN if src > dest else
                          directions.FAN_OUT if src < dest else directions.EQUAL)
        self.scale = max(src, dest) // min(src, dest) if max(src, dest) % min(src, dest) == 0 else 0
        try:
            self.gather_group_ranks = [list(ranks) for ranks in pairing_of(self._src, self._dest).groups]
        except GridError:
            self.gather_group_ranks = []
        places = [{rank: dp for rank, (dp, _) in of.items()}
                  for of in (self.rank_to_src_pos, self.rank_to_dest_pos)]
        self._stays = (places[0] == places[1] and self._dest.dim("cp") == 1
                       and self._dest.dim("pp") == 1 and self._src.dim("pp") == 1)

    def _check_divisible(self, batch_size: int) -> None:
        if self.scale == 0:
            raise ArgumentError(f"dp sizes {self._src.dim('dp')} and {self._dest.dim('dp')} do not "
                                "divide one another: there are no slices of equal size")
        super()._check_divisible(batch_size)

    def communicate(self, tensor: torch.Tensor, rows: int | None = None) -> torch.Tensor:
        """Move `tensor` from the encoder's layout to the LLM's. Differentiable. Collective; with rules
        "bridge" also for a rank without samples, which gives 0 of them.

        rows     of the result on this rank, where the layout is flat (bh) and ranks have unequal
                 numbers. Without it rows split evenly over dp
        returns  this rank's tile, in the same letters

        Errors, on every rank: ValueError (sizes that do not split, also in Megatron's words), and
        those of a call of Bridge.
        """
        if self._stays:
            return tensor.contiguous()
        return self.bridge._movement.guarded(self._communicate, tensor, rows)

    def _communicate(self, tensor: torch.Tensor, rows: int | None) -> torch.Tensor:
        flat = self.bridge.layout == "bh"
        _views.check_strided("communicate: tensor", tensor)
        fits = tensor.dim() == len(self.bridge.layout)  # otherwise the bridge says so
        if rows is None and fits and (flat or self.rules == "upstream"):
            self._check_splits(tensor.shape[self.dim_mapping["b"]])
        y: torch.Tensor = self.bridge(tensor, rows=rows if flat else None)
        return y

    def _check_splits(self, size: int) -> None:
        if self.is_fan_out() and self.scale:
            self._check_divisible(size)
        elif size * self._src.dim("dp") % self._dest.dim("dp"):
            raise ArgumentError(f"{size} rows on each of {self._src.dim('dp')} dp ranks do not split "
                                f"evenly over {self._dest.dim('dp')}: say how many `rows` this rank gets")

    def destroy(self) -> None:
        """Release the bridge, and the process group where there is one. Collective. Again: nothing."""
        self.bridge.close()
        if self.gather_pg is not None:
            group, self.gather_pg = self.gather_pg, None
            dist.destroy_process_group(group)


def use_dispatch(model: torch.nn.Module, max_tokens: int, *, rows: int | Literal["exact"] = "exact", ctas: int = 0,
                 comm: Communicator | None = None) -> list[Dispatch]:
    """Let a Dispatch move the tokens of every MoELayer of a model, in place of Megatron's alltoall dispatcher.
    Collective, blocking: after the model is built, on every rank.

    model       its layers have moe_token_dispatcher_type="alltoall". Experts, router, shared experts and
                process groups stay Megatron's
    max_tokens  the most tokens of a rank and micro-batch: sequence * micro-batch / tp
    rows        of this rank's tiles: Dispatch has the words. With a number the dispatcher never waits for a GPU.
                Its experts then get zeros behind the rows that were sent: the last one computes these as well
    ctas        thread blocks of moves that run beside something else, as under Overlap
    comm        None: the default communicator. Its ranks are those of torch.distributed
    returns     the Dispatches: one for all layers with equal sizes

    Layers work as before, also with ranks without tokens. A route is made for each layer and micro-batch, and
    autograd keeps it. The numbers of tokens of the experts stay on the device; what experts do with them is
    Megatron's.

    Errors, on every rank: UnsupportedError (moe_pad_expert_input_to_capacity, moe_shared_expert_overlap, fp8, fp4,
    inference_optimized; ranks of a group that are not consecutive), ArgumentError (another dispatcher; no MoELayer
    on a rank), and those of Dispatch.
    """
    return _moe.use_dispatch(model, max_tokens, rows, ctas, _of_all_ranks("use_dispatch", comm))


def forward_backward(*, forward_step_func: Callable[..., Any], data_iterator: Any, model: Any, num_microbatches: int,
                     seq_length: int, micro_batch_size: int, forward_only: bool = False, encoder_alive: int = 0,
                     get_batch: Callable[[Any], Mapping[str, Any]] = next, **more: Any) -> Any:
    """Megatron's forward_backward function of a MimoModel whose encoders lie on all ranks. Collective, blocking.

    The language model's pipeline is Megatron's own loop (1F1B, without interleaving). Between its steps the encoders
    run, as mb.Schedule has it. With pp=1 this is Megatron's function, called as it is.

    encoder_alive  micro-batches whose encoder outputs a stage holds at most, as in mb.Schedule; 0: no limit
    data_iterator  on every rank and stage. It gives dicts of MimoModel.forward's arguments: input_ids and labels of
                   the language model's lane, the same on all its stages; modality_inputs of this rank's lane of the
                   encoder, its even share of the samples of that micro-batch, on the device where the encoder needs
                   them there. All micro-batches are read at first. The step finds None for modality_inputs
    get_batch      makes such a dict of data_iterator. forward_step_func gets an iterator over these dicts, and calls
                   the model once: model(**next(it))
    more           other keywords of Megatron's function: p2p_communicator and pg_collection of the language model
                   must be there with pp > 1
    returns        Megatron's: losses on the last stage

    Gradients are those of pp=1. During the call config.no_sync_func and grad_sync_func are the language model's own,
    and finalize_model_grads_func runs behind the last backward of the encoders, whose DDP starts to reduce there.
    The first call makes process groups of two ranks, which live until destroy() of the model.

    Errors, on every rank: UnsupportedError (several chunks a stage, variable_seq_lengths, mtp_standalone,
    use_ring_exchange_p2p, overlap_moe_expert_parallel_comm, an encoder with pp > 1), ArgumentError (an
    iterator that ends early, encoder_alive below what the schedule needs, averages over groups of unequal size, a
    model whose modules are not colocated), MismatchError (ranks that disagree), and on the host those of a call of
    Bridge. An error in forward_step_func is this rank's alone: the others wait until their deadline.
    """
    given = dict(more, forward_step_func=forward_step_func, data_iterator=data_iterator, model=model,
                 num_microbatches=num_microbatches, seq_length=seq_length, micro_batch_size=micro_batch_size,
                 forward_only=forward_only)
    mimo = _of_all_ranks("forward_backward", None)._together("forward_backward", lambda: _model_in(model))
    if isinstance(data_iterator, list) and len(data_iterator) == 1:
        given["data_iterator"] = data_iterator[0]
    if mimo.stages == 1:
        if get_batch is not next:
            given["data_iterator"] = map(get_batch, itertools.repeat(given["data_iterator"]))
        return forward_backward_no_pipelining(**given)
    return _pipelined.forward_backward(mimo, encoder_alive, get_batch, given)


def _model_in(model: Any) -> MimoModel:
    """The MimoModel that forward_backward was given. Local."""
    chunks = model if isinstance(model, list) else [model]
    if len(chunks) != 1:
        raise _pipeline_checks.chunks_refused(len(chunks))
    found, reduced = chunks[0], False
    while not isinstance(found, MimoModel) and isinstance(getattr(found, "module", None), torch.nn.Module):
        reduced = reduced or isinstance(found, DistributedDataParallel)
        found = found.module
    if not isinstance(found, MimoModel):
        raise ArgumentError(f"forward_backward: the model is a {type(found).__name__}, and must be a MimoModel of "
                            "mimo_bridge.megatron")
    if not found.colocated_comms:
        raise ArgumentError("forward_backward: the model needs modules that share all ranks, with tp and dp in every "
                            "grid of module_to_grid_map")
    if found.config.pipeline_model_parallel_size != found.stages:
        raise ArgumentError("forward_backward: config.pipeline_model_parallel_size is "
                            f"{found.config.pipeline_model_parallel_size}, and the language grid has pp="
                            f"{found.stages}")
    if reduced and found.stages > 1:
        raise ArgumentError("forward_backward: a DistributedDataParallel around the whole model reduces encoders over "
                            "the language model's group: wrap language_model and modality_submodules")
    _pipeline_checks.check_averages(found)
    return found


def _together_in_own_words(comm: Communicator, local: Callable[[], T]) -> T:
    """comm._together(), where a rank whose own part failed raises just that: Megatron's words."""
    own: list[Exception] = []

    def tried() -> T:
        try:
            return local()
        except Exception as error:
            own.append(error)
            raise

    try:
        return comm._together("ColocatedBridgeCommunicator", tried)
    except MimoError as error:
        raise own[0] if own else error


def _of_all_ranks(what: str, comm: Communicator | None) -> Communicator:
    comm = communicator_of(what, comm)
    if (comm.rank, comm.size) != (dist.get_rank(), dist.get_world_size()):
        raise ArgumentError(f"this is rank {dist.get_rank()} of {dist.get_world_size()} in "
                            f"torch.distributed, and rank {comm.rank} of {comm.size} in the "
                            "communicator: both need the same ranks")
    return comm


def _positions(grid: Grid) -> dict[int, tuple[int, int]]:
    found = {}
    for rank in range(grid.offset, grid.offset + grid.size):
        place = grid.coords(rank)
        found[rank] = (place.get("dp", 0), place.get("tp", 0))
    return found


class MimoModel(_MimoModel):
    """Megatron's MimoModel: where its grids share all ranks, embeddings move over bridges.

    Every rank calls forward and backward, also one whose batch has no images: it takes part with 0
    rows, and its encoder gets gradients of 0. Images can differ in size and number, because each rank
    counts the special ids of its own input_ids. The LLM can have cp > 1, and pp > 1 under
    forward_backward().

    stage, stages  of this rank in the language model's pipeline: attributes
    fused  Rows of a modality go straight to their positions in this rank's shard of the sequence.
           There is no tile of full sequences, no alignment over them and no sum over cp in backward,
           and the embedding is asked for the text of this rank's cp shard alone. The results are the
           same. The encoder's ranks must have the images of an even share of all samples. One forward
           at a time: its backward comes before the next forward, also one without gradients
    balance  with `fused`: modalities whose images any rank encodes, as mb.Balanced does, and what an image costs: the
           encoder's hidden size, or a function of its patches; or a dict of arguments of Balanced (cost, merge, home,
           ...). Such a modality has one encoder, and modality_inputs[its name][the encoder's] has `patches` and
           `counts` of this rank's samples in the LLM (and `extras`), on every rank: patches[:0] and [] without
           images. The encoder is called with these of the images that it got, and cu_seqlens

    Errors beyond Megatron's: UnsupportedError for a forward outside of forward_backward() where the
    language model has pp > 1.
    With `fused`: UnsupportedError with pp > 1; ValueError where modules are not colocated, where a
    modality has no special id, and where the language model's config and grid differ in cp, or under
    sp in tp; NotImplementedError for packed sequences under cp > 1; StateError in a backward after
    another forward.
    """

    _input_ids: torch.Tensor | None = None
    _text: TextPlaces | None = None
    _images: Mapping[str, Any] = {}  # of balanced modalities, during a forward
    stage, stages = 0, 1
    _rows: Mapping[str, torch.Tensor] | None = None  # of modalities, while forward_backward runs a stage
    _hops: HopGroups | None = None

    def __init__(self, mimo_config: Any, cp_group: Any = None, tp_group: Any = None, *,
                 fused: bool = False, balance: Mapping[str, Any] | None = None) -> None:
        self.fused, self._balance = fused, dict(balance or {})
        unknown = set(self._balance) - set(mimo_config.modality_submodules_spec)
        if self._balance and (unknown or not fused):
            raise ArgumentError(f"MimoModel: balance of {', '.join(sorted(self._balance))} needs fused=True, and "
                                f"modalities of the model: {', '.join(mimo_config.modality_submodules_spec)}")
        super().__init__(mimo_config, cp_group, tp_group)
        if fused and self._text is None:
            raise ArgumentError("MimoModel: fused=True needs modules that share all ranks, with tp and "
                                "dp in every grid of module_to_grid_map")
        for name in self._balance:
            encoders = list(self.modality_submodules[name].encoders)
            if len(encoders) != 1:
                raise ArgumentError(f"MimoModel: balance takes a modality with one encoder, and {name} has "
                                    f"{', '.join(encoders)}")
            self.colocated_comms[name, _LANGUAGE].name = encoders[0]

    def _module_of(self, name: str) -> Any:
        return self.modality_submodules[name]

    def _build_colocated_communicators(self) -> None:
        grids = self.mimo_config.module_to_grid_map
        if any(name not in grid.dim_names for grid in grids.values() for name in ("tp", "dp")):
            super()._build_colocated_communicators()  # it says that it makes none
            return
        language = grids[_LANGUAGE]
        self._take_stage(grid_of(language))
        if self.fused:
            self._build_placements()
            return
        for name in self.mimo_config.modality_submodules_spec:
            self.colocated_comms[name, _LANGUAGE] = ColocatedBridgeCommunicator(
                grids[name], language, name, _LANGUAGE, {"b": 0, "h": 1})

    def _take_stage(self, language: Grid) -> None:
        """This rank's place in the pipeline. Megatron's role of colocated modules has one stage."""
        self._language, self._comm = language, _of_all_ranks("MimoModel", None)
        self.stages = language.dim("pp")
        self.stage = language.coords(self._comm.rank).get("pp", 0)
        if self.stages > 1 and self.fused:
            raise UnsupportedError(f"MimoModel: the language model has pp={self.stages}, and fused=True runs it as "
                                   "one stage")
        self.role.modules[_LANGUAGE] = ModuleStageInfo(is_first_stage=self.stage == 0,
                                                       is_last_stage=self.stage == self.stages - 1)

    def _build_placements(self) -> None:
        grids, special = self.mimo_config.module_to_grid_map, self.mimo_config.special_token_ids or {}
        config, language = self.mimo_config.language_model_spec.params["config"], grid_of(grids[_LANGUAGE])
        sizes = {"cp": config.context_parallel_size}
        if config.sequence_parallel:
            sizes["tp"] = config.tensor_model_parallel_size
        for name, size in sizes.items():
            if size != language.dim(name):
                raise ArgumentError(f"MimoModel: fused=True, and the language model's config has {name}="
                                    f"{size}, its grid {name}={language.dim(name)}")
        without = [name for name in self.mimo_config.modality_submodules_spec if name not in special]
        if without:
            raise ArgumentError(f"MimoModel: fused=True needs the special token id of {without[0]}")
        partition = None
        if config.context_parallel_size > 1 or config.sequence_parallel:
            partition = Partition(sp=config.sequence_parallel, strict=True)
        comm = _of_all_ranks("MimoModel", None)
        for name in self.mimo_config.modality_submodules_spec:
            ends, title = (grid_of(grids[name]), language, special[name]), f"{name} to {_LANGUAGE}"
            if name in self._balance:
                given = self._balance[name]
                more = dict(given) if isinstance(given, Mapping) else {"cost": given}
                self.colocated_comms[name, _LANGUAGE] = BalancedPlacement(
                    functools.partial(self._module_of, name), *ends, comm=comm, partition=partition, name=title,
                    **more)
            else:
                self.colocated_comms[name, _LANGUAGE] = Placement(*ends, comm=comm, partition=partition, name=title)
        self._text = TextPlaces(partition, language, comm.rank)

    def forward(self, input_ids: torch.Tensor, *args: Any, **more: Any) -> Any:
        """Megatron's. Collective where modules are colocated."""
        if self.stages > 1:
            return self._forward_stage(input_ids, *args, **more)
        if self._text is not None:
            self._check_fused(input_ids, more.get("packing_kwargs", args[5] if len(args) > 5 else None))
        self._input_ids = input_ids
        if self._balance:
            args, more = self._without_images(args, more)
        try:
            return super().forward(input_ids, *args, **more)
        finally:
            self._input_ids, self._images = None, {}

    def _forward_stage(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None,
                       attention_mask: torch.Tensor | None = None, loss_mask: torch.Tensor | None = None,
                       labels: torch.Tensor | None = None, modality_inputs: Any = None,
                       packing_kwargs: dict[str, Any] | None = None) -> Any:
        """Forward of this stage, whose modalities are encoded. Stages pass no attention_mask on, as Megatron's
        forward of colocated modules passes none."""
        if self._rows is None:
            raise UnsupportedError(f"MimoModel: the language model has pp={self.stages}: call it through "
                                   "mimo_bridge.megatron.forward_backward")
        if self.stage == 0:
            return self._forward_all_modules(input_ids, position_ids, attention_mask, loss_mask, labels, None,
                                             packing_kwargs)
        output, loss_mask = self._forward_language_module(
            input_ids, position_ids, None, loss_mask, labels, {_LANGUAGE: self.input_tensors}, packing_kwargs)
        return (output[_LANGUAGE] if isinstance(output, dict) else output), loss_mask

    def _encode(self, inputs: Mapping[str, Any] | None) -> dict[str, torch.Tensor]:
        """This rank's rows of each modality, [rows, H]. Local."""
        made = {}
        for (name, _), comm in self.colocated_comms.items():
            given = (inputs or {}).get(name)
            x = None if given is None else self.modality_submodules[name](encoder_inputs=given)
            made[name] = self._no_rows(name, comm) if x is None else x
        return made

    def destroy(self) -> None:
        """Megatron's: releases bridges and process groups. Collective."""
        super().destroy()
        hops, self._hops = self._hops, None
        if hops is not None:
            hops.close()

    def _without_images(self, args: tuple[Any, ...], more: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A forward's arguments without those of balanced modalities, which are encoded elsewhere."""
        place = 4  # of modality_inputs behind input_ids
        inputs = (args[place] if len(args) > place else more.get("modality_inputs")) or {}
        self._images = {name: inputs.get(name) for name in self._balance}
        others = {name: one for name, one in inputs.items() if name not in self._balance} or None
        if len(args) > place:
            return (*args[:place], others, *args[place + 1:]), more
        return args, {**more, "modality_inputs": others}

    def _check_fused(self, ids: torch.Tensor, packing: Any) -> None:
        config = self.mimo_config.language_model_spec.params["config"]
        if packing is not None and config.context_parallel_size > 1:
            raise UnsupportedError("MimoModel: fused=True does not take packed sequences under cp="
                                   f"{config.context_parallel_size}")
        length = self.partition_adapter.cfg.max_seq_len if self.partition_adapter else 0
        if config.sequence_parallel and config.tp_comm_overlap and ids.shape[1] != length:
            raise ArgumentError(f"MimoModel: tp_comm_overlap needs sequences of {length} tokens, not "
                                f"{ids.shape[1]}")

    def _apply_colocated_comms(self, modality_embeddings: dict[str, torch.Tensor]) -> Any:
        if self._rows is not None:
            return dict(self._rows)
        # Every encoder, in the same order on all ranks, and not only those with images here.
        for (name, _), comm in self.colocated_comms.items():
            if name in self._balance:
                modality_embeddings[name] = comm.place(self._images[name], self._input_ids)
                continue
            x = modality_embeddings.get(name)
            x = self._no_rows(name, comm) if x is None else x
            if self._text is not None:
                modality_embeddings[name] = comm.place(x, self._input_ids)
                continue
            rows = None
            if name in self.special_token_ids and self._input_ids is not None:
                rows = int((self._input_ids == self.special_token_ids[name]).sum())
            modality_embeddings[name] = comm.communicate(x, rows)
        return modality_embeddings

    # With `fused` what follows works on this rank's shard, in place of full sequences.

    def get_text_embeddings(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None,
                            special_token_ids: dict[str, int]) -> torch.Tensor:
        """Megatron's: [number of text tokens, H]. With `fused`: [S/(cp*tp), B, H], 0 elsewhere."""
        if self._text is None:
            return super().get_text_embeddings(input_ids, position_ids, special_token_ids)
        ids = self._text.of_cp(input_ids)
        if position_ids is not None:
            position_ids = self._text.of_cp(position_ids)
        text = super().get_text_embeddings(ids, position_ids, special_token_ids)
        if self._text.cuts_tp:  # each tp rank uses some rows, and the embedding wants all gradients
            text = copy_to_tensor_model_parallel_region(text, self.partition_adapter.cfg.tp_group)
        is_text = torch.ones_like(ids, dtype=torch.bool)
        for special in special_token_ids.values():
            is_text &= ids != special
        return self._text.tile(text, is_text)

    def align_embeddings_by_token_positions(self, modality_embeddings: dict[str, torch.Tensor],
                                            *args: Any, **more: Any) -> torch.Tensor:
        """Megatron's: [S, B, H]. With `fused` the tiles have their rows where they belong."""
        if self._text is None:
            return super().align_embeddings_by_token_positions(modality_embeddings, *args, **more)
        tile = modality_embeddings["text"]  # nobody else has it: it takes the others in place
        for name, _ in self.colocated_comms:
            tile = tile.add_(modality_embeddings[name])
        return tile

    def _shard_language_inputs(self, embeddings: torch.Tensor | None, *args: Any, **more: Any) -> Any:
        if self._text is None:
            return super()._shard_language_inputs(embeddings, *args, **more)
        return embeddings, *super()._shard_language_inputs(None, *args, **more)[1:]

    def _no_rows(self, name: str, comm: ColocatedBridgeCommunicator | Placement) -> torch.Tensor:
        """[0, H]: what the encoder of a rank without images gives. It depends on the encoder's
        parameters, so that backward gives them gradients of 0 and their hooks run here as elsewhere."""
        config = self.mimo_config.language_model_spec.params["config"]
        like = {"dtype": config.params_dtype, "device": comm.bridge.comm.device}
        parts = [parameter.reshape(-1)[:0].to(**like)
                 for parameter in self.modality_submodules[name].parameters() if parameter.requires_grad]
        return torch.cat([torch.empty(0, **like), *parts]).reshape(0, config.hidden_size)
