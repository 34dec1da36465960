"""Overlap: expert exchanges of one micro-batch under the products of another, over modules cut into parts."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from . import _c
from ._lanes import DeviceLanes, HostLanes, Lanes
from ._walk import Model, Walk
from .dispatch import Dispatch
from .errors import ArgumentError, StateError
from .nodes import Node, Nodes
from .schedule import Schedule

__all__ = ["Overlap"]

Part = Callable[..., Any]


class Overlap:
    """Runs forward and backward of several micro-batches, the forward of one beside the backward of the one before:
    while rows of one go to their experts, the other computes. Collective, blocking on the CPU.

        overlap = mb.Overlap(embed, [{"pre": ..., "dispatch": ..., "mlp": ..., "combine": ...}, ...], lose,
                             dispatch=dispatch, micro_batches=8)
        losses = overlap(batches)       # [(loss,), ...]; gradients are added to .grad, as by backward()

    Backward is what autograd recorded of the parts, so there is no second list of functions. Losses and gradients
    have the bits of a plain loop, `for batch in batches: model(batch).backward()`, with shared behind dispatch: every
    gradient is a sum over micro-batches in their order.

    pre_process    called with a batch, gives what the first layer takes
    layers         the parts of each layer, by upstream's names:
                   pre       attention or a mixer, norms, the choice of experts
                   dispatch  the route, and rows to their experts
                   mlp       this rank's experts, or a dense MLP
                   combine   sums back
                   behind    what the sums are added to (may be missing, where nothing is)
                   shared    the shared expert: takes what pre gave; what it gives comes behind combine's, to behind
                   post      of the last layer: the head of multi-token prediction
                   A dense layer has pre, mlp or both
    post_process   gives the loss of a micro-batch, or a tuple that begins with it. Its gradient is 1: divide the
                   loss by the number of tokens of all micro-batches
    dispatch       of all these layers. Exchanges run one at a time, in one order on all ranks
    micro_batches  in a call
    early          give up activations of pre earlier, and hide less
    lanes          thread blocks of what else waits for other ranks meanwhile, on a device: {"compute": 16} for
                   collectives inside pre, such as a Bridge's

    A part is called with its batch, then with what the part before gave: a tensor, or a tuple whose other values
    (routes, masks) are handed on as they are. What a later part needs, such as a residual, the parts between
    return. Gradients of weights of pre, shared and mlp are nodes of their own, which fill what would be waiting;
    those of vectors, of torch.autograd.Function, of custom operators, and all of a part that has something compiled,
    come with those of inputs.

    On a device there is a stream for exchanges beside the caller's, and no call waits for the device. The dispatch
    needs a number of rows, and of thread blocks (ctas): those of all lanes must fit on the device together, with 4
    multiprocessors to spare. On the CPU the list is walked one node after the other: nothing is hidden there.
    A CUDA graph can have a whole call: then the host's work, of every node, does not count.
    DDP's hooks do not see these gradients, and modules that FSDP2 shards are refused: add gradients up over ranks
    behind the call.

    Errors: ArgumentError with the numbers (parts that do not go together or are missing, a dispatch without ctas,
    another number of batches), on every rank where it is made; MismatchError where ranks have other layers or
    micro-batches; of a call those of its parts (gradients may then have been added, and the next call works),
    ArgumentError (tied weights, tensors that were not handed on, a loss that is none), UnsupportedError (FSDP2).
    """

    def __init__(self, pre_process: Part, layers: Sequence[Mapping[str, Part]], post_process: Part, *,
                 dispatch: Dispatch, micro_batches: int, early: bool = False,
                 lanes: Mapping[str, int] | None = None) -> None:
        if not isinstance(dispatch, Dispatch):
            raise ArgumentError(f"Overlap: dispatch is {dispatch!r}")
        comm = dispatch.comm
        self.micro_batches = micro_batches

        def cut() -> Nodes:
            for name, part in _named(pre_process, layers, post_process):
                if not callable(part):
                    raise ArgumentError(f"Overlap: {name} is {part!r}, and must be callable")
                if name.startswith("route "):
                    raise ArgumentError(f"Overlap: {name} is no part here: dispatch sets the route")
            schedule = Schedule(stages=1, micro_batches=micro_batches, encoder_group=0, overlap=True)
            return Nodes(schedule, [[[*layer] for layer in layers]], early=early, **_budget(dispatch, lanes))

        self.nodes = comm._together("Overlap", cut)
        comm._alike("Overlap", f"{len(layers)} layers, {micro_batches} micro-batches, nodes {self.nodes.hash:016x}")
        self._model = Model(pre_process, layers, post_process)
        self._list, self._waits = _without_hops(self.nodes)
        self._lanes: Lanes = HostLanes() if comm.device.type == "cpu" else DeviceLanes(comm.device)

    def __call__(self, batches: Sequence[Any]) -> list[tuple[Any, ...]]:
        """What post_process gave for each micro-batch, detached. Gradients are added to those of the parameters.
        Collective. Errors: ArgumentError, StateError (gradients are disabled), those of the parts."""
        if len(batches) != self.micro_batches:
            raise ArgumentError(f"Overlap: {len(batches)} batches, and its nodes are of {self.micro_batches} "
                                "micro-batches, on every rank")
        if not torch.is_grad_enabled():
            raise StateError("Overlap: gradients are disabled: without a backward there is nothing to run beside a "
                             "forward")
        walk = Walk(self._model, self._list, batches)
        self._lanes.begin([node.lane for node in self._list], self._waits)
        try:
            walk.run(self._lanes)
        finally:
            self._lanes.end()
        return walk.results

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Overlap can't be copied or pickled: it stands on a Dispatch, which belongs to its process")


def _without_hops(nodes: Nodes) -> tuple[list[Node], list[list[int]]]:
    """The list of one stage, which sends to nobody, and nothing waits for that."""
    listed, waits = nodes.of(), nodes.waits()
    kept = [i for i, node in enumerate(listed) if node.part != "send_recv"]
    places = {i: place for place, i in enumerate(kept)}
    return [listed[i] for i in kept], [[places[i] for i in waits[k]] for k in kept]


def _named(pre_process: Part, layers: Sequence[Mapping[str, Part]], post_process: Part) -> list[tuple[str, Part]]:
    for i, layer in enumerate(layers):
        if not isinstance(layer, Mapping):
            raise ArgumentError(f"Overlap: layer {i} is {type(layer).__name__}, and must have its parts by their names")
    parts = [(f"{name} of layer {i}", part) for i, layer in enumerate(layers) for name, part in layer.items()]
    return [("pre_process", pre_process), *parts, ("post_process", post_process)]


def _budget(dispatch: Dispatch, lanes: Mapping[str, int] | None) -> dict[str, Any]:
    """The multiprocessors of a device, and what each lane takes of them."""
    if dispatch.comm.device.type == "cpu":
        return {"lanes": lanes}
    if dispatch.ctas == 0:
        raise ArgumentError("Overlap: the dispatch has no number of thread blocks (ctas): its moves would take all "
                            "multiprocessors")
    if dispatch.rows < 0:
        raise ArgumentError('Overlap: the dispatch has rows="exact", for which the host waits: give it a number')
    device = torch.cuda.get_device_properties(dispatch.comm.device)
    blocks = {"exchanges": _c.whole("Overlap: ctas", dispatch.ctas, 1), **(lanes or {})}
    return {"lanes": blocks, "multiprocessors": device.multi_processor_count}
