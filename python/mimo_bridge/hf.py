"""Qwen-VL models of transformers: any rank encodes any image, and the language model has its own grid.

    import mimo_bridge.hf as mh

    vlm = mh.colocate(model, llm="cp=2,dp=2")
    vlm.shard(mesh)                      # FSDP2 with sums in place of averages
    loss = model(**batch).loss           # batch: whole sequences of this rank's lane; loss: its part of the sum / N

The model stays transformers': its forward, loss and checkpointing. docs/trainers.md of the project says what changes
for a training program. Experimental.
"""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.functional import pad
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ._hf_attention import attention
from ._hf_batch import PADDING, WholeBatch, refuse_arguments
from ._shards import Runs, runs_of
from .balanced_encoder import Balanced
from .bridge import Bridge
from .communicator import Communicator, communicator_of
from .errors import GridError, StateError, UnsupportedError
from .grid import Grid
from .hf_experts import experts
from .partition import Partition

__all__ = ["FAMILIES", "Colocated", "Family", "colocate", "experts"]

ATTENTION = "mimo_cp"  # the name of our attention in transformers


class Family(NamedTuple):
    """What a class of models calls its parts: a row of data for each."""

    hidden: str  # the width of the vision tower, in its config
    levels: bool = False  # the tower also returns features of several depths (DeepStack)
    runs: str = "whole"  # "any": ids stand between the frames of a video


FAMILIES = {
    "Qwen2VLForConditionalGeneration": Family("embed_dim"),
    "Qwen2_5_VLForConditionalGeneration": Family("hidden_size"),
    "Qwen3VLForConditionalGeneration": Family("hidden_size", levels=True, runs="any"),
    "Qwen3VLMoeForConditionalGeneration": Family("hidden_size", levels=True, runs="any"),
}


def colocate(model: Any, llm: str | Grid, *, comm: Communicator | None = None, average: float = 1,
             **balanced: Any) -> Colocated:
    """Let a model of transformers train with its vision tower spread over all ranks and its language model under `llm`.
    Collective. Once, before its first forward, and before DDP wraps it; before or after FSDP2.

    model     one of FAMILIES, built on every rank with equal weights
    llm       the grid of the language model: dp, cp, tp over all ranks of torch.distributed, in their order. tp: the
              caller has applied the model's own tp plan
    comm      None: the default communicator
    average   a factor of the loss: the number of ranks where gradients will be averaged over them (DDP)
    balanced  further arguments of Balanced: max_patches, assign, empty, buffer, ...

    Then call the model with whole sequences of this rank's lane (Colocated.lane), by keywords: b samples on each lane,
    or one more on the first lanes. Tensors may lie on the CPU: ids and grids are best there, as the host reads them.

    Errors, on every rank: ArgumentError, GridError, UnsupportedError, StateError.
    """
    return Colocated(model, llm, comm, average, balanced)


class Colocated:
    """A model under two grids. Made by colocate().

    model      transformers' own, whose calls go through this
    llm        the grid of the language model
    lane       which samples this rank gives to the model: those of lane `lane` of `lanes` (dp coordinates)
    balanced   the Balanced that moves images and their rows: its report() says what that was worth
    """

    def __init__(self, model: Any, llm: str | Grid, comm: Communicator | None, average: float,
                 balanced: dict[str, Any]) -> None:
        self.model, self._average = model, average
        self.comm = communicator_of("colocate", comm)
        self.comm._together("colocate", lambda: self._check(llm))
        self.comm._alike("colocate", f"{type(model).__name__}, llm={self.llm}, average={average}")
        place = self.llm.coords(self.comm.rank)
        self.lane, self.lanes = place.get("dp", 0), self.llm.dim("dp")
        self._core = model.model
        self._partition = Partition() if self.llm.dim("cp") > 1 else None
        merge = model.config.vision_config.spatial_merge_size
        self.balanced = Balanced(self._encode, Grid(f"dp={self.comm.size}"), self.llm, comm=self.comm,
                                 **{"special": model.config.image_token_id, "partition": self._partition,
                                    "merge": merge * merge, "runs": self._family.runs, "dst_layout": "th",
                                    "cost": getattr(model.config.vision_config, self._family.hidden),
                                    "empty_extras": [1, merge, merge], "name": "images"} | balanced)
        self._gathers: dict[int, Bridge] = {}  # of keys and values, by the samples of all lanes
        self._runs: dict[int, Runs] = {}  # positions of this rank's shard, by S
        self._batch: WholeBatch | None = None  # between the begin of the model's forward and its images
        self._videos: Any = None  # features of videos, from there to where the model asks for them
        self._ranks_of_tp: dist.ProcessGroup | None = None
        self._hooked: RemovableHandle | None = None
        self._hook()

    # The model's parts.

    def _check(self, llm: str | Grid) -> None:
        names = [kind.__name__ for kind in type(self.model).__mro__]
        family = next((FAMILIES[name] for name in names if name in FAMILIES), None)
        if family is None:
            raise UnsupportedError(f"colocate: {names[0]} is none of {', '.join(FAMILIES)}")
        self._family, self.llm = family, Grid(llm) if isinstance(llm, str) else llm
        if self.llm.dim("pp") > 1:
            raise UnsupportedError(f"colocate: llm={self.llm}: pipelines of transformers' models are not served")
        if (self.llm.size, self.llm.offset) != (self.comm.size, 0):
            raise GridError(f"colocate: llm={self.llm!r} has {self.llm.size} ranks from {self.llm.offset} on, and the "
                            f"communicator {self.comm.size}")
        if self.comm.size > 1 and not (dist.is_initialized() and dist.get_world_size() == self.comm.size):
            raise StateError(f"colocate: torch.distributed adds losses and gradients of {self.comm.size} ranks: call "
                             "init_process_group first")
        if hasattr(self.model, "_mimo_colocated"):
            raise StateError("colocate: the model is colocated already")
        config = self.model.config.text_config
        if self.llm.dim("cp") > 1 and "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise UnsupportedError("colocate: sliding_attention layers under cp > 1")

    def _hook(self) -> None:
        self.model._mimo_colocated = self  # a copy of the model would need bridges of its own: copy.deepcopy says so
        self._core.get_image_features, self._core.get_video_features = self._image_features, self._video_features
        self._go_first()
        if self._partition is not None:
            AttentionInterface.register(ATTENTION, attention)
            self._core.language_model.config._attn_implementation = ATTENTION
            for layer in self._core.language_model.layers:
                layer.self_attn._mimo_colocated = self

    def _go_first(self) -> None:
        """Before FSDP's hook, which moves all arguments to the device, where the host would wait for ids, and gathers."""
        if self._hooked is not None:
            self._hooked.remove()
        self._hooked = self.model.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True)

    def _encode(self, pixels: torch.Tensor, _counts: list[int], _ends: torch.Tensor, grid: torch.Tensor) -> Any:
        """The vision tower, of the images that this rank encodes."""
        tower = self._core.visual
        out = tower(pixels.type(tower.dtype), grid_thw=grid, return_dict=True)
        return (out.pooler_output, *out.deepstack_features) if self._family.levels else out.pooler_output

    # A call of the model.

    def _before(self, _model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        """The arguments of this rank's shard, from those of whole sequences. What one rank refuses all ranks raise,
        before they meet in another call."""
        try:
            rule = self._partition
            refuse_arguments(args, kwargs, self.model.config.text_config, rule is not None)
            batch = WholeBatch(self.model, None if rule is None else rule.at(self.llm, self.comm.rank), kwargs)
        except Exception as error:
            self.balanced._refuse(error)
            raise
        self.balanced.plan([batch.step])
        self._batch = batch
        samples = self.balanced._samples
        if self._partition is not None and samples not in self._gathers:
            self._gathers[samples] = Bridge(self.llm, self.llm, comm=self.comm, src_partition=self._partition,
                                            layout="bsh", batch=samples, name="keys and values")
        # The number of samples goes with the call to each layer: a checkpoint may compute it again after another call.
        return (), self._with_targets(batch, batch.arguments(self.comm.device)) | {"mimo_samples": samples}

    def _with_targets(self, batch: WholeBatch, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Labels are moved on whole sequences, and the loss of a rank is its sum over N, the targets of all lanes."""
        labels = kwargs.get("labels")
        if labels is None:
            return kwargs
        shifted = kwargs.get("shift_labels")
        shifted = next_tokens(labels) if shifted is None else shifted
        shifted = batch.cut(shifted).to(self.comm.device, non_blocking=True).contiguous()
        count = kwargs.get("num_items_in_batch")
        if count is None:
            count = (shifted != PADDING).sum()
            if self.comm.size > 1:
                dist.all_reduce(count)
            count = (count // self.llm.dim("tp")).clamp(min=1)
        if self._average != 1:
            count = count / self._average
        return kwargs | {"labels": shifted, "shift_labels": shifted, "num_items_in_batch": count}

    def _image_features(self, *_args: Any, **_kwargs: Any) -> Any:
        """In place of the model's: rows of the images whose tokens this rank has."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise StateError("colocate: the model's features are computed inside of its forward: call the model itself")
        rows = self.balanced(batch.pixels.to(self.comm.device, non_blocking=True), micro_batch=0)
        images, videos = zip(*(batch.split(one) for one in (rows if isinstance(rows, list) else [rows])))
        self._videos = self._features(videos)
        return self._features(images)

    def _video_features(self, *_args: Any, **_kwargs: Any) -> Any:
        videos, self._videos = self._videos, None
        return videos

    def _features(self, tensors: Sequence[torch.Tensor]) -> Any:
        first, *levels = tensors
        out = BaseModelOutputWithPooling(pooler_output=(first,))
        if self._family.levels:  # since 5.18 they are lists of tensors, as there are encoder outputs as arguments
            listed = "mm_encoder_outputs" in inspect.signature(type(self._core).forward).parameters
            object.__setattr__(out, "deepstack_features", [(one,) if listed else one for one in levels])
        return out

    def _gather(self, k: torch.Tensor, v: torch.Tensor, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [b, heads, S, D] of whole sequences, from those of this shard, in one exchange."""
        both = torch.cat([k, v], 1).transpose(1, 2).flatten(2)
        whole = self._gathers[samples](both)
        whole = whole.view(*whole.shape[:2], 2 * k.shape[1], -1).transpose(1, 2)
        return whole[:, :k.shape[1]], whole[:, k.shape[1]:]

    def _runs_of(self, seq: int) -> Runs:
        if seq not in self._runs:
            assert self._partition is not None
            self._runs[seq] = runs_of(self._partition.at(self.llm, self.comm.rank).index(seq))
        return self._runs[seq]

    # Gradients and losses: sums over ranks.

    def shard(self, mesh: Any, parts: Sequence[Any] | None = None, **options: Any) -> None:
        """FSDP2 over all ranks: torch's fully_shard, with sums in place of averages. Collective.

        mesh     one dimension, all ranks
        parts    modules, the root last. None: each block of the tower, the tower, each layer, the model
        options  further arguments of fully_shard

        Errors: UnsupportedError where llm has tp > 1: there the tower is sharded over all ranks, the language model
        over those of one tp coordinate, each with sums().
        """
        from torch.distributed.fsdp import fully_shard
        if self.llm.dim("tp") > 1:
            raise UnsupportedError(f"shard: llm={self.llm} has tp: shard the tower over all ranks, the language model "
                                   "over those of one tp coordinate, and call sums() of each")
        if parts is None:
            visual, language = self._core.visual, self._core.language_model
            parts = [*visual.blocks, visual, *language.layers, self.model]
        for part in parts:
            sums(fully_shard(part, mesh=mesh, **options))
        self._go_first()

    def sum_gradients(self) -> None:
        """Without FSDP and DDP: add the gradients of all copies: of the tower over all ranks, of the language model
        over the ranks of one tp coordinate. Collective, after backward."""
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        used = torch.tensor([p.grad is not None for _, p in named], dtype=torch.int32, device=self.comm.device)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        works = []
        for (name, p), is_used in zip(named, used.tolist()):
            if is_used:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                local = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
                group = None if name.startswith("model.visual.") else self._copies()
                works.append(dist.all_reduce(local, group=group, async_op=True))
        for work in works:
            work.wait()

    def total(self, loss: torch.Tensor) -> torch.Tensor:
        """The whole loss, from this rank's part, without gradient. Collective."""
        whole = loss.detach().clone() / (self.llm.dim("tp") * self._average)
        if self.comm.size > 1:
            dist.all_reduce(whole)
        return whole

    def _copies(self) -> dist.ProcessGroup | None:
        """The ranks with this one's tp coordinate; None: all."""
        if self.llm.dim("tp") > 1 and self._ranks_of_tp is None:
            others = [name for name in self.llm.dims if name != "tp"]
            groups = self.llm.groups(*others) if others else [[rank] for rank in range(self.comm.size)]
            mine: dist.ProcessGroup = dist.new_subgroups_by_enumeration(groups)[0]  # type: ignore[no-untyped-call]
            self._ranks_of_tp = mine
        return self._ranks_of_tp

    def close(self) -> None:
        """Release the bridges; the model can't be called any more. Collective."""
        self.balanced.close()
        for bridge in self._gathers.values():
            bridge.close()


def sums(module: Any) -> Any:
    """Let a module of fully_shard add the gradients of its ranks. Local."""
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    return module


def next_tokens(labels: torch.Tensor) -> torch.Tensor:
    """The label of each position's next token: on whole sequences, before any cut."""
    return pad(labels, (0, 1), value=PADDING)[:, 1:]
