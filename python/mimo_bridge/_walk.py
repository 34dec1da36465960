"""The walk through a list of nodes: values from part to part, gradients back, each node once and in the list's
order. It decides nothing."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._cut import Cut, Gradients
from ._lanes import Lanes
from .errors import ArgumentError
from .nodes import Node

Place = tuple[int, str]  # a part of the model: layer and name. What is no part of a layer is of layer 0
Key = tuple[int, Place]  # of one micro-batch
APART = ("pre", "shared", "mlp")  # whose gradients of weights are a node of their own
WAY = ("pre", "dispatch", "mlp", "combine", "behind", "post")  # through a layer; shared stands beside it
FIRST, LAST = (0, "pre_process"), (0, "post_process")


class Model:
    """The parts of a model, and which takes what of which."""

    def __init__(self, pre_process: Callable[..., Any], layers: Sequence[Mapping[str, Callable[..., Any]]],
                 post_process: Callable[..., Any]) -> None:
        self.parts: dict[Place, Callable[..., Any]] = {FIRST: pre_process, LAST: post_process}
        self.sources: dict[Place, list[Place]] = {FIRST: []}
        before = FIRST
        for i, layer in enumerate(layers):
            self.parts |= {(i, name): part for name, part in layer.items()}
            for name in (name for name in WAY if name in layer):
                self.sources[i, name] = [before]
                before = i, name
            if "shared" in layer:
                self.sources[i, "shared"] = [(i, "pre")]
                self.sources[i, "behind"].append((i, "shared"))
        self.sources[LAST] = [before]
        self.readers: dict[Place, list[Place]] = {place: [] for place in self.parts}
        for place, sources in self.sources.items():
            for source in sources:
                self.readers[source].append(place)


class Walk:
    """One walk: micro-batches from the first to the last."""

    def __init__(self, model: Model, nodes: Sequence[Node], batches: Sequence[Any]) -> None:
        self._model, self._nodes, self._batches = model, nodes, batches
        self._values: dict[Key, tuple[Any, ...]] = {}  # what parts gave, until the last reader has it
        self._sizes: dict[Key, int] = {}  # how much that is
        self._unread: dict[Key, int] = {}
        self._cuts: dict[Key, Cut] = {}
        self._grads: dict[Key, dict[Place, Gradients]] = {}  # of what a part gave, by who read it
        self._owners: dict[Tensor, Place] = {}  # of variables
        self.results: list[tuple[Any, ...]] = []

    def run(self, lanes: Lanes) -> None:
        runs = {"forward": self._forward, "inputs": self._backward, "weights": self._weights}
        for i, node in enumerate(self._nodes):
            with lanes.node(i):
                things = runs[node.pass_]((node.micro_batch, (node.layer, node.part)))
            lanes.hold(i, things)
            del things

    def _forward(self, key: Key) -> list[Any]:
        number, place = key
        values = [value for source in self._model.sources[place] for value in self._read((number, source))]
        cut = Cut(name_of(*key), partial(self._model.parts[place], self._batches[number]), values, place[1] in APART)
        given = cut.take()
        self._own(cut, place)
        self._cuts[key] = cut
        self._sizes[key] = len(given)
        if place == LAST:
            self._finish(key, given)
        else:
            self._values[key] = given
            self._unread[key] = len(self._model.readers[place])
        return [values, given]

    def _read(self, key: Key) -> tuple[Any, ...]:
        self._unread[key] -= 1
        return self._values[key] if self._unread[key] else self._values.pop(key)

    def _own(self, cut: Cut, place: Place) -> None:
        """A variable has one part: otherwise its gradient would be a sum in another order than that of a plain loop."""
        for variable in cut.variables:
            owner = self._owners.setdefault(variable, place)
            if owner != place:
                raise ArgumentError(f"Overlap: {cut.name} and {name_of(0, owner)} share a parameter of shape "
                                    f"{list(variable.shape)} (tied weights): each parameter belongs to one part")

    def _finish(self, key: Key, given: tuple[Any, ...]) -> None:
        """The loss of a micro-batch is there. Its gradient is 1."""
        loss = given[0]
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise ArgumentError(f"Overlap: {name_of(*key)} gave {_described(loss)}: its first result is the loss, one "
                                "number with a gradient")
        self.results.append(tuple(y.detach() if isinstance(y, Tensor) else y for y in given))
        self._grads[key] = {LAST: [torch.ones_like(loss), *[None] * (len(given) - 1)]}

    def _backward(self, key: Key) -> list[Any]:
        """What a combine was added to has no node: it runs behind the one that gives its gradient."""
        things = self._back(key)
        number, place = key
        for source in self._model.sources[place]:
            if source[1] == "behind":
                things += self._back((number, source))
        return things

    def _back(self, key: Key) -> list[Any]:
        number, place = key
        several = self._grads.pop(key)
        grads = self._summed(place, several)
        cut = self._cuts[key] if place[1] in APART else self._cuts.pop(key)
        found = cut.backward(grads)
        rest = iter(found)
        for source in self._model.sources[place]:
            mine = [next(rest) for _ in range(self._sizes[number, source])]
            self._grads.setdefault((number, source), {})[place] = mine
        return [several, grads, found, cut]

    def _summed(self, place: Place, by_reader: Mapping[Place, Gradients]) -> Gradients:
        """The gradients of what a part gave: of at most two readers, so the order of additions is one."""
        several = [by_reader[reader] for reader in self._model.readers[place] or [LAST]]
        return [_sum([one for one in ones if one is not None]) for ones in zip(*several)]

    def _weights(self, key: Key) -> list[Any]:
        cut = self._cuts.pop(key)
        cut.weights()
        return [cut]


def _sum(grads: Sequence[Tensor]) -> Tensor | None:
    return None if not grads else grads[0] if len(grads) == 1 else grads[0] + grads[1]


def name_of(number: int, place: Place) -> str:
    layer, part = place
    return f"micro-batch {number}, {part}" + ("" if place in (FIRST, LAST) else f" of layer {layer}")


def _described(x: Any) -> str:
    if not isinstance(x, Tensor):
        return repr(x)
    return f"a tensor of shape {list(x.shape)}{'' if x.requires_grad else ' without a gradient'}"
