"""Megatron-LM's 1F1B beside encoders that lie on all ranks: forward_backward() of megatron.py.

Megatron's loop asks its p2p communicator before each forward and each backward, on every stage. Hops is such a
communicator: it lets Run do what the Schedule of this stage has before that step. So the loop is Megatron's own.
"""
from __future__ import annotations

import array
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel.schedules import (
    forward_backward_pipelining_without_interleaving as one_forward_one_backward)

from ._gathering import Gathering
from ._hops import HopGroups, Hops
from ._pipeline_checks import check
from ._movement import update_all
from .bridge import Batch, Bridge
from .errors import ArgumentError, InternalError, MismatchError
from .grid import Grid
from .schedule import Schedule, Step

__all__ = ["Run", "forward_backward"]

CHECKED = "0.19.2"  # of megatron-core
Batches = Sequence[dict[str, Any]]  # MimoModel.forward's arguments of each micro-batch


def forward_backward(model: Any, alive: int, get_batch: Callable[[Any], Mapping[str, Any]],
                     given: dict[str, Any]) -> Any:
    """Megatron's own loop over a MimoModel in stages. `given`: the keywords of Megatron's function. Collective."""
    comm, train = model._comm, not given["forward_only"]
    count, size = given["num_microbatches"], given["micro_batch_size"]
    trained = [train and learns(one) for one in model.modality_submodules.values()]

    def begin() -> tuple[Batches, tuple[Step, ...]]:
        check(model, given)
        steps = steps_of("1f1b" if train else "forward", model.stages, count, alive, train and not any(trained),
                         model.stage)
        return read(given["data_iterator"], get_batch, count, comm.rank), steps

    batches, steps = comm._together("forward_backward", begin)
    comm._alike("forward_backward", f"{count} x {size}, encoder_alive={alive}, trained={trained}, forward_only="
                f"{not train}, hops={model._hops is not None}")
    tell(model, batches, size)
    groups = model._hops or HopGroups(comm, model._language, dist.get_backend(given["p2p_communicator"].pp_group))
    run = Run(model, batches, steps, train)
    hops = Hops(given["p2p_communicator"], groups, run.until)

    def finish() -> None:
        run.until(None)
        hops.end()

    model._hops = None  # an error leaves messages in them: then the next call makes others
    with hooks(model, finish) as finalizes:
        found = one_forward_one_backward(**{**given, "data_iterator": iter(batches), "p2p_communicator": hops})
        if not (train and finalizes):
            finish()
    model._hops = groups
    return found


@functools.lru_cache(maxsize=16)
def steps_of(kind: Any, stages: int, count: int, alive: int, frozen: bool, stage: int) -> tuple[Step, ...]:
    """The list of a stage. ArgumentError: what Schedule says, such as a limit that is too low."""
    return tuple(Schedule(kind, stages=stages, micro_batches=count, encoder_alive=alive,
                          encoder_frozen=frozen).steps(stage))


# What is known before the first step.


def read(iterator: Any, get_batch: Callable[[Any], Mapping[str, Any]], count: int, rank: int) -> Batches:
    """All micro-batches of a call, so that one that is missing is an error of all ranks, and before the first step."""
    if iterator is None:
        raise ArgumentError(f"forward_backward: rank {rank} has no data iterator: encoders lie on all ranks, so each "
                            "has its images")
    batches: list[dict[str, Any]] = []
    for _ in range(count):
        try:
            batches.append(dict(get_batch(iterator)))
        except StopIteration:
            raise ArgumentError(f"forward_backward: the data iterator of rank {rank} ended after {len(batches)} of "
                                f"{count} micro-batches") from None
    return batches


def tell(model: Any, batches: Batches, size: int) -> None:
    """Give the bridges the rows of all micro-batches. A call of theirs then agrees on nothing: where hops are on
    their way, a device could not serve an agreement. Collective, blocking."""
    comm, bridges = model._comm, {name: one.bridge for (name, _), one in model.colocated_comms.items()}
    mine = comm._together("forward_backward", lambda: counts_of(model.special_token_ids, bridges, batches, size))
    told = Gathering(comm, array.array("q", mine), len(mine) + 1, "forward_backward").wait()
    lanes = lanes_of(model._language, [list(one.words) for one in told])

    def rows_of(i: int, bridge: Bridge) -> list[Batch]:
        first, many = bridge.samples("src", size * len(lanes))
        rows = []
        for m in range(len(batches)):
            at = (i * len(batches) + m) * size
            samples = [n for lane in lanes for n in lane[at:at + size]]
            got = sum(mine[at:at + size]) if model.stage == 0 else 0
            rows.append(Batch(rows=(sum(samples[first:first + many]), got)))
        return rows

    update_all([bridge._movement for bridge in bridges.values()], [bridge._lanes() for bridge in bridges.values()],
               lambda: [rows_of(i, bridge) for i, bridge in enumerate(bridges.values())])


def counts_of(special: Mapping[str, int], names: Iterable[str], batches: Batches, size: int) -> list[int]:
    """Special ids of each modality, micro-batch and sample of this rank's lane. Waits once for the device. Local."""
    for m, batch in enumerate(batches):
        ids = batch["input_ids"]
        if ids.dim() != 2 or len(ids) != size:
            raise ArgumentError(f"forward_backward: input_ids of micro-batch {m} are {list(ids.shape)}, and "
                                f"micro_batch_size is {size}")
    counts = [(batch["input_ids"] == special[name]).sum(1) for name in names for batch in batches]
    return list(torch.cat(counts).tolist())


def lanes_of(language: Grid, told: Sequence[list[int]]) -> list[list[int]]:
    """The numbers of each dp lane. Its ranks of all stages must have told the same."""
    lanes: dict[int, int] = {}  # the first rank of each
    for rank, numbers in enumerate(told):
        first = lanes.setdefault(language.coords(rank).get("dp", 0), rank)
        if numbers != told[first]:
            raise MismatchError(f"forward_backward: the input_ids of rank {rank} have other special ids than those of "
                                f"rank {first} of the same lane")
    return [told[lanes[lane]] for lane in sorted(lanes)]


# Steps.


class Moved(NamedTuple):
    """A modality of a micro-batch between BF and BB. Autograd's graph is cut on both sides of the bridge, so that the
    backwards of bridge and encoder are steps of their own."""

    rows: torch.Tensor  # of the encoder, a leaf: what the bridge took
    y: torch.Tensor  # what it gave
    leaf: torch.Tensor  # the same, for the language model


class Run:
    """One call: it does the steps of this stage's list that are not Megatron's."""

    def __init__(self, model: Any, batches: Batches, steps: Sequence[Step], train: bool) -> None:
        self._model, self._batches, self._train = model, batches, train
        self._steps, self._last = iter(steps), len(batches) - 1
        self._bridges = {name: comm.bridge for (name, _), comm in model.colocated_comms.items()}
        self._learns = {name: train and learns(model.modality_submodules[name]) for name in self._bridges}
        self._made: dict[int, dict[str, torch.Tensor] | Exception] = {}  # of E, until EB
        self._moved: dict[int, dict[str, Moved]] = {}
        self._gradients: dict[int, dict[str, torch.Tensor]] = {}  # of BB, until EB
        for module in model.modality_submodules.values():
            if hasattr(module, "set_is_first_microbatch"):
                module.set_is_first_microbatch()

    def until(self, kind: str | None) -> None:
        """Do the steps up to the next one of Megatron's, which must be of this kind; None: all that are left."""
        for step in self._steps:
            if step.kind not in "FB":
                getattr(self, f"_{step.kind}")(step.index)
                continue
            if step.kind != kind:
                self._lost(kind, f"{step.kind}{step.index}")
            if kind == "F":
                self._forward(step.index)
            return
        if kind is not None:
            self._lost(kind, "its end")

    @staticmethod
    def _lost(kind: str | None, step: str) -> NoReturn:
        raise InternalError(f"forward_backward: Megatron's loop is at {kind or 'its end'}, the schedule at {step} "
                            f"(checked with {CHECKED})")

    def _forward(self, m: int) -> None:
        self._model._rows = {name: one.leaf for name, one in self._moved[m].items()}
        if not any(self._learns.values()):  # no backward comes
            del self._moved[m], self._made[m]

    def _E(self, m: int) -> None:
        config, batch = self._model.config, self._batches[m]
        inputs = batch.get("modality_inputs")
        if inputs is not None:
            batch["modality_inputs"] = None  # nobody needs them again: pixels of all micro-batches are large
        autocast = torch.autocast("cuda", dtype=config.autocast_dtype) if config.enable_autocast else (
            contextlib.nullcontext())
        try:
            with torch.set_grad_enabled(self._train), autocast:
                self._made[m] = self._model._encode(inputs)
        except Exception as error:  # of this rank: the next call of a bridge tells the others
            self._made[m] = error

    def _BF(self, m: int) -> None:
        self._moved[m] = {name: bridge._movement.guarded(self._move, name, m)
                          for name, bridge in self._bridges.items()}

    def _move(self, name: str, m: int) -> Moved:
        made, bridge, learns = self._made[m], self._bridges[name], self._learns[name]
        if isinstance(made, Exception):
            raise made
        bridge.select(m)
        rows = made[name].detach().requires_grad_(learns)
        with torch.set_grad_enabled(learns):
            y = bridge(rows)
        return Moved(rows, y, y.detach().requires_grad_(learns))

    def _BB(self, m: int) -> None:
        self._gradients[m] = {}
        for name, one in self._moved.pop(m).items():
            if self._learns[name]:
                torch.autograd.backward(one.y, torch.zeros_like(one.y) if one.leaf.grad is None else one.leaf.grad)
                assert one.rows.grad is not None
                self._gradients[m][name] = one.rows.grad

    def _EB(self, m: int) -> None:
        made, gradients = self._made.pop(m), self._gradients.pop(m)
        assert not isinstance(made, Exception)
        with contextlib.ExitStack() as quiet:
            if m != self._last:  # a DDP starts to reduce in the last backward, of which there is one a call
                for module in self._model.modality_submodules.values():
                    if overlaps(module):
                        quiet.enter_context(module.no_sync())
            pairs = [(made[name], gradient) for name, gradient in gradients.items()]
            torch.autograd.backward([x for x, _ in pairs], [gradient for _, gradient in pairs])


def learns(module: torch.nn.Module) -> bool:
    """Whether any parameter of an encoder is trained."""
    return any(parameter.requires_grad for parameter in module.parameters())


def overlaps(module: Any) -> bool:
    """Whether a DDP begins to reduce gradients during backward."""
    return isinstance(module, DistributedDataParallel) and bool(module.ddp_config.overlap_grad_reduce)


@contextlib.contextmanager
def hooks(model: Any, finish: Callable[[], None]) -> Iterator[bool]:
    """The config's hooks during a call: gradients are finalised behind `finish`, and the hooks of gradients are the
    language model's own. Those of MimoModel would start to reduce the encoders' gradients while their backward is to
    come, and nothing would say so. Gives whether there is a finalisation."""
    config, language = model.config, model.language_model
    finalize, no_sync, grad_sync = kept = (config.finalize_model_grads_func, config.no_sync_func,
                                           config.grad_sync_func)

    def finalized(models: Any, num_tokens: Any, **more: Any) -> Any:
        finish()
        return finalize(models, num_tokens, **more)

    def own(hook: Any) -> Any:
        return None if getattr(hook, "__self__", None) is model else hook

    try:
        config.finalize_model_grads_func = finalize and finalized
        config.no_sync_func = language.no_sync if overlaps(language) else own(no_sync)
        config.grad_sync_func = language.start_grad_sync if overlaps(language) and grad_sync else own(grad_sync)
        yield finalize is not None
    finally:
        config.finalize_model_grads_func, config.no_sync_func, config.grad_sync_func = kept
        model._rows = None
