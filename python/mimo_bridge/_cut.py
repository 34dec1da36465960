"""Autograd, cut at the parts of a model: each part of a micro-batch has a graph of its own, and the gradients of its
weights can come later than those of its inputs.

A plain loop has one graph, and torch decides when each of its nodes runs. Here a part begins at a node that stands
for its inputs and ends at the gradients that are given to it. Sums have the order of the plain loop: what later parts
give is added up before a part runs, and enters its graph where its outputs are.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from .errors import ArgumentError, UnsupportedError

Gradients = list[Tensor | None]
FSDP_NODE = "RegisterPostBackwardFunctionBackward"  # which reduces and frees what its module has
COMPILED_NODE = "CompiledFunctionBackward"  # which may write over what it saved
# The node of a Function that is written in Python computes all gradients at once, and may move rows or add to
# gradients by itself: it must run once.
_PythonNode: Any = torch.autograd.function.BackwardCFunction


class _Enter(torch.autograd.Function):
    """The inputs of a part. Its node stands for them and does not keep their memory, as leaves would."""

    @staticmethod
    def forward(ctx: Any, _anchor: Tensor, *xs: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.view_as(x) for x in xs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (None,) * (1 + len(grads))  # torch runs a graph's only root, asked or not


_enter: Any = super(torch.autograd.Function, _Enter).apply  # that of Function looks for functorch first
_ENTERED: Any = getattr(_Enter, "_backward_cls")  # the class of its nodes
_ANCHOR = torch.empty(0, requires_grad=True, device="cpu")  # so that it has a node


class Boundary(NamedTuple):
    """A node of the graph that has weights, and lies on the way to the inputs."""

    edges: list[GradientEdge]  # where its gradients come in
    variables: list[Tensor]  # whose gradients it alone gives


class Cut:
    """The graph of one part of one micro-batch.

    apart  gradients of weights come by weights(). With those of the inputs come: vectors (norms, biases), which cost
           nothing; weights that several operations of the part use, as their sum has an order; and those of operations
           that are written in Python (torch.autograd.Function, custom operators). Where a part has something that is
           compiled, all come with the inputs': its graph is gone then
    """

    def __init__(self, name: str, function: Callable[..., Any], values: Sequence[Any], apart: bool) -> None:
        self.name, self._values = name, len(values)
        self._entered = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
        inputs = [*values]
        with torch.enable_grad():
            # Detached: otherwise this graph would go on into those of earlier parts.
            opened = _enter(_ANCHOR, *[values[i].detach() for i in self._entered]) if self._entered else ()
            for i, x in zip(self._entered, opened):
                inputs[i] = x
            found = function(*inputs)
        self._inputs = [_edge_of(opened[0]), *map(_number_of, opened[1:])] if opened else []
        # A named tuple, such as a Route, is one value.
        self._outputs: tuple[Any, ...] | None = tuple(found) if type(found) in (tuple, list) else (found,)
        self._roots = [self._root_of(y) if isinstance(y, Tensor) and y.requires_grad else None for y in self._outputs]
        self._later: list[Boundary] = []
        self._now: list[Node] = []  # accumulating nodes of variables
        self.variables: list[Tensor] = []  # all that have elements
        self._survey(apart)
        # What a whole graph keeps for as long as somebody has this.
        self._kept = () if self._whole else values
        self._waiting: list[tuple[Boundary, Sequence[Tensor | None]]] = []

    def _root_of(self, y: Tensor) -> GradientEdge:
        return _number_of(y) if self._inputs and y.grad_fn is self._inputs[0].node else _edge_of(y)

    def take(self) -> tuple[Any, ...]:
        """The outputs, once: what is handed on is not kept here."""
        outputs, self._outputs = self._outputs, None
        assert outputs is not None
        return outputs

    def _survey(self, apart: bool) -> None:
        roots = [root for root in self._roots if root is not None]
        order, shape = _walk(roots, self._inputs[0].node if self._inputs else None)
        plan = _plan(shape)
        if plan.foreign:
            raise ArgumentError(f"Overlap: {self.name} uses a tensor of an earlier part that was not handed to it: its "
                                "gradient would be lost. Let the parts between return it")
        if plan.sharded:
            raise UnsupportedError(f"Overlap: {self.name} has modules that FSDP2 shards: it reduces gradients before "
                                   "those of weights are there")
        variables = {i: cast(Any, order[i]).variable for i in plan.variables}
        self.variables = [v for v in variables.values() if v.numel()]
        self._whole = not plan.compiled
        apart = apart and self._whole
        if apart:
            self._later = [Boundary([GradientEdge(order[i], number) for number in numbers], [variables[k] for k in own])
                           for i, numbers, own in plan.later]
        now = plan.now if apart else plan.variables
        self._now = [order[i] for i in now]

    def backward(self, grads: Sequence[Tensor | None]) -> Gradients:
        """The gradients of the values by those of the outputs; None: there is none. The graph stays whole as long as
        somebody has the Cut: on a device its memory is in use for longer than this call."""
        given = [(root, grad) for root, grad in zip(self._roots, grads) if root is not None and grad is not None]
        edges = [edge for boundary in self._later for edge in boundary.edges]
        asked = [*self._inputs, *(cast(Any, node).variable for node in self._now), *edges]
        result: Gradients = [None] * self._values
        if not given or not asked:
            return result
        found = torch.autograd.grad([root for root, _ in given], asked, [grad for _, grad in given],
                                    retain_graph=self._whole, allow_unused=True)
        for i, grad in zip(self._entered, found):
            result[i] = grad
        first = len(self._inputs)
        with torch.no_grad():
            for node, grad in zip(self._now, found[first:]):
                if grad is not None:
                    cast(Any, node)(grad)  # adds to the gradient of a variable as torch does, with its hooks
        rest = iter(found[first + len(self._now):])
        self._waiting = [(boundary, [next(rest) for _ in boundary.edges]) for boundary in self._later]
        return result

    def weights(self) -> None:
        """Add the gradients of the weights to what is there, once. Each operation by itself: from one to the next there
        is nothing to compute any more. What they are made of stays with the Cut, too."""
        for boundary, grads in self._waiting:
            given = [(edge, grad) for edge, grad in zip(boundary.edges, grads) if grad is not None]
            if given:
                torch.autograd.backward([edge for edge, _ in given], [grad for _, grad in given], retain_graph=True,
                                        inputs=boundary.variables)


def _edge_of(x: Tensor) -> GradientEdge:
    """Where the gradient of x comes in. It keeps the node: one of a Python Function needs more for that."""
    return get_gradient_edge(x) if x.grad_fn is None or isinstance(x.grad_fn, _PythonNode) else _number_of(x)


def _number_of(x: Tensor) -> GradientEdge:
    """The same of a node that is kept."""
    return GradientEdge(cast(Node, x.grad_fn), x.output_nr)


# ------------------------------------------- graphs -------------------------------------------

Shape = tuple[tuple[Any, ...], ...]  # of each node: its kind, then (number of a node, place) of each edge
ENTER, MATRIX, VECTOR = "enter", "matrix", "vector"  # kinds; the last two of variables; of other nodes the class


def _walk(roots: Sequence[GradientEdge], enter: Node | None) -> tuple[list[Node], Shape]:
    """The nodes of a graph, and what it looks like: mostly as that of the micro-batch before."""
    numbers: dict[Node | None, int] = {None: -1}
    order: list[Node] = []
    nexts: list[Any] = []
    stack: list[Node] = [root.node for root in reversed(roots)]
    while stack:
        node = stack.pop()
        if node in numbers:
            continue
        numbers[node] = len(order)
        order.append(node)
        edges: Any = () if node is enter else node.next_functions
        nexts.append(edges)
        for child, _ in edges:
            if child not in numbers:
                stack.append(child)
    shape = [(_kind_of(node, edges, enter), *[(numbers[child], place) for child, place in edges])
             for node, edges in zip(order, nexts)]
    first = ("roots", *[(numbers[root.node], root.output_nr) for root in roots])
    return order, (first, *shape)


def _kind_of(node: Any, edges: Any, enter: Node | None) -> Any:
    if node is enter:
        return ENTER
    if edges or not hasattr(node, "variable"):
        return type(node)
    return MATRIX if node.variable.dim() > 1 else VECTOR


class _Plan(NamedTuple):
    """What a graph of some shape has, as numbers of nodes."""

    foreign: bool  # it reaches the inputs of another part
    sharded: bool  # FSDP2 waits in it
    compiled: bool
    variables: list[int]
    now: list[int]  # variables whose gradients come with those of the inputs
    later: list[tuple[int, list[int], list[int]]]  # a boundary, the places of its gradients, its variables


@lru_cache(maxsize=1024)
def _plan(shape: Shape) -> _Plan:
    kinds = [node[0] for node in shape[1:]]
    edges: list[Sequence[tuple[int, int]]] = [node[1:] for node in shape[1:]]
    uses = _uses(kinds, edges, shape[0][1:])
    later: dict[int, list[int]] = {}
    for variable, by in uses.items():
        # The anchor of a move is a vector, too: a move runs once.
        if len(by) == 1 and by[0] >= 0 and kinds[variable] == MATRIX and not issubclass(kinds[by[0]], _PythonNode):
            later.setdefault(by[0], []).append(variable)
    waits = {variable for own_ones in later.values() for variable in own_ones}
    places = [{place for edge in (*edges, shape[0][1:]) for to, place in edge if to == i} for i in range(len(kinds))]
    classes = [kind for kind in kinds if isinstance(kind, type)]
    names = {kind.__name__ for kind in classes}
    return _Plan(any(issubclass(kind, _ENTERED) for kind in classes), FSDP_NODE in names, COMPILED_NODE in names, [*uses],
                 [variable for variable in uses if variable not in waits],
                 [(i, sorted(places[i]), variables) for i, variables in later.items()])


def _uses(kinds: Sequence[Any], edges: Sequence[Sequence[tuple[int, int]]],
          roots: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Of each variable the nodes that give its gradient, on the way to the inputs; -1: an output that does not depend
    on these."""
    on_way, own = _ways(kinds, edges)
    uses: dict[int, list[int]] = {i: [] for i, kind in enumerate(kinds) if kind in (MATRIX, VECTOR)}
    for i in range(len(kinds)):
        for variable in own[i] if on_way[i] else ():
            uses[variable].append(i)
    for i, _ in roots:
        for variable in () if on_way[i] else own[i]:
            uses[variable].append(-1)
    return uses


def _ways(kinds: Sequence[Any], edges: Sequence[Sequence[tuple[int, int]]]) -> tuple[list[bool], list[set[int]]]:
    """Of each node: whether it leads to the inputs, and the variables that it reaches by ways that do not."""
    on_way = [kind == ENTER for kind in kinds]
    own = [{i} if kind in (MATRIX, VECTOR) else set() for i, kind in enumerate(kinds)]
    for i in _children_first(edges):
        children = [child for child, _ in edges[i] if child >= 0]
        on_way[i] = on_way[i] or any(on_way[child] for child in children)
        own[i].update(*(own[child] for child in children if not on_way[child]))
    return on_way, own


def _children_first(edges: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """All nodes, each behind those that it leads to."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(i, False) for i in range(len(edges))]
    while stack:
        i, left = stack.pop()
        if left:
            order.append(i)
        elif i not in seen:
            seen.add(i)
            stack.append((i, True))
            stack.extend((child, False) for child, _ in edges[i] if child >= 0)
    return order
