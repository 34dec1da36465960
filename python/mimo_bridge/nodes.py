"""Nodes: the steps of a schedule cut into parts of layers, each in a lane. No ranks, no tensors."""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _c
from .errors import ArgumentError
from .schedule import Schedule, fields_of, list_of, stage_of, text_of

__all__ = ["Node", "NodeLayer", "Nodes", "NodesReport"]

Recompute = Literal["none", "keep_rows", "send_rows"]
# What is usual, by a name. The other parts of a layer: "post", in the last layer of a model.
LAYERS = {"dense": ("pre", "mlp"), "mixture": ("pre", "dispatch", "mlp", "combine"),
          "shared": ("pre", "dispatch", "shared", "mlp", "combine", "behind")}
ENDINGS = {"forward": "", "replay": ".replay", "inputs": ".bwd", "weights": ".dw"}  # of what computes


@dataclass(frozen=True)
class Node:
    """A part of a layer, or of what stands around the layers of a chunk, in one pass.

    part         pre, dispatch, shared, mlp, combine, behind, post; pre_process, post_process, send_recv,
                 grad_sync; encoder, call
    pass_        forward; replay (the forward that backward repeats); inputs, weights (the halves of backward)
    step         which step of the stage's list it belongs to
    micro_batch  or the group of an encoder or a call
    chunk        of the stage
    layer        of the chunk; 0 for what is no part of a layer
    lane         compute, exchanges, hops, bridge, sync
    """

    part: str
    pass_: str
    step: int
    micro_batch: int
    chunk: int
    layer: int
    lane: str

    def __str__(self) -> str:
        """As the library writes it: f.mlp0, b.mlp0.bwd, b.mlp0.dw; a move has one backward: b.combine0."""
        half = "f" if self.pass_ == "forward" else "b"
        layer = self.layer if self.part in _c.NODE_PARTS[:_c.NODE_LAYER_PARTS] else ""
        computes = self.lane == "compute" or self.pass_ == "replay"
        return f"{half}.{self.part}{layer}{ENDINGS[self.pass_] if computes else ''}"


@dataclass(frozen=True)
class NodeLayer:
    """A layer, as nodes are cut for it.

    parts      "dense" (pre, mlp), "mixture" (pre, dispatch, mlp, combine), "shared" (these, shared, behind), or
               the names of parts
    recompute  "none", "keep_rows" (computing parts run again; experts' rows and routes are kept), "send_rows"
               (rows are sent again as well)
    costs      those of this layer; None: as of the others
    """

    parts: str | Sequence[str] = "mixture"
    recompute: Recompute = "none"
    costs: Mapping[str, int] | None = None


Layers = Sequence[NodeLayer | str | Sequence[str]]  # of a chunk, from the first to the last


@dataclass(frozen=True)
class NodesReport:
    """Nodes in numbers: their time; that with exchanges that take no time (local), and with exchanges one
    behind the other with what computes (serial), in the costs' unit. hidden: the part of the exchanges that
    costs no time, in thousandths, 1 - (time - local) / (serial - local); ceiling: what hiding all of them would
    save of `serial`. lanes: the multiprocessors of all lanes that wait, on the stage with the most."""

    time: int
    local: int
    serial: int
    hidden: int
    ceiling: int
    lanes: int


class Nodes:
    """The order in which a forward of one micro-batch and the backward of another take turns, so that the
    exchanges of one are under the products of the other.

        schedule = Schedule(stages=1, micro_batches=8, encoder_group=0, overlap=True)
        nodes = Nodes(schedule, [["mixture"] * 4])
        for node in nodes.of(0):                    # f.pre_process f.pre0 f.dispatch0 ...

    schedule         what is cut: its steps FB have a forward beside a backward
    chunks           the layers of each chunk of the model, from the first chunk to the last. A layer is a
                     NodeLayer, or what its `parts` are
    costs            times of nodes as whole numbers of any unit: {"pre": 3} of all passes, or by the name of a
                     node without its layer: "f.mlp", "b.mlp.bwd", "b.mlp.dw", "b.combine"
    multiprocessors  of the device; 0: nothing shares them
    lanes            thread blocks of the kernels of each lane, as {"exchanges": 32}. "hops": of each neighbour
                     and direction. "compute": of collectives inside what computes
    early            the backward of PRE comes before the forward's MLP: less memory, less hidden
    grad_sync        gradients are summed over ranks behind the last micro-batch of each chunk

    Local, a pure function of its arguments: every rank has the lists of all stages. They are checked when they
    are made. Thread-safe.

    Errors: ArgumentError with the numbers (parts that do not go together, lanes that need more multiprocessors
    than the device has, 4 apart; steps FB and no mixture); UnsupportedError.
    """

    def __init__(self, schedule: Schedule, chunks: Sequence[Layers], *, costs: Mapping[str, int] | None = None,
                 multiprocessors: int = 0, lanes: Mapping[str, int] | None = None, early: bool = False,
                 grad_sync: bool = False) -> None:
        if not isinstance(schedule, Schedule):
            raise ArgumentError(f"Nodes: the schedule is {schedule!r}")
        wanted = schedule.stages * schedule.chunks
        if len(chunks) != wanted:
            raise ArgumentError(f"Nodes: {len(chunks)} lists of layers, and {schedule.stages} stages with "
                                f"{schedule.chunks} chunks have {wanted}")
        array = (_c.mimo_node_chunk * wanted)(*map(_chunk, chunks))
        desc = _desc(costs, lanes, multiprocessors=multiprocessors, early=early, grad_sync=grad_sync)
        handle = ctypes.c_void_p()
        _c.lib.mimo_nodes_create(ctypes.byref(handle), schedule._handle, array, ctypes.byref(desc))
        self._keep(handle, schedule.stages)

    @classmethod
    def of_step(cls, forward: Layers | None, backward: Layers | None, *, costs: Mapping[str, int] | None = None,
                multiprocessors: int = 0, lanes: Mapping[str, int] | None = None, early: bool = False,
                grad_sync: bool = False) -> Nodes:
        """One step alone: micro-batch 1 forward through one chunk, micro-batch 0 backward through another. None:
        the step has no such half. What ran before is taken as done."""
        halves = [layers if layers is None else ctypes.byref(_chunk(layers)) for layers in (forward, backward)]
        desc = _desc(costs, lanes, multiprocessors=multiprocessors, early=early, grad_sync=grad_sync)
        handle = ctypes.c_void_p()
        _c.lib.mimo_nodes_create_step(ctypes.byref(handle), *halves, ctypes.byref(desc))
        made = cls.__new__(cls)
        made._keep(handle, 1)
        return made

    def _keep(self, handle: ctypes.c_void_p, stages: int) -> None:
        weakref.finalize(self, _c.lib.mimo_nodes_destroy, handle)
        self._handle = handle
        self.stages = stages

    def __reduce__(self) -> str:
        raise TypeError("Nodes can't be copied or pickled: make others of the same arguments")

    def _stage(self, what: str, stage: int) -> int:
        return stage_of(f"Nodes.{what}", stage, self.stages)

    def _listed(self, stage: int) -> Any:
        return list_of(_c.lib.mimo_nodes_of, _c.mimo_node, self._handle, stage)

    def of(self, stage: int = 0) -> list[Node]:
        """The nodes of a stage in their order. ArgumentError: no such stage."""
        array = self._listed(self._stage("of", stage))
        return [Node(_c.NODE_PARTS[n.part], _c.NODE_PASSES[getattr(n, "pass")], n.step, n.micro_batch, n.chunk,
                     n.layer, _c.NODE_LANES[_c.lib.mimo_node_lane_of(n.part)]) for n in array]

    def waits(self, stage: int = 0) -> list[tuple[int, ...]]:
        """For each node of a stage the places of the nodes in other lanes that it waits for: of each lane the
        last one. What comes from other stages is not here."""
        stage, found = self._stage("waits", stage), (ctypes.c_int64 * len(_c.NODE_LANES))()
        edges = []
        for i in range(len(self._listed(stage))):
            _c.lib.mimo_nodes_waits(found, self._handle, stage, i)
            edges.append(tuple(place for place in found if place >= 0))
        return edges

    def times(self, stage: int = 0) -> list[tuple[int, int, int]]:
        """(begin, end, multiprocessors) of each node of a stage, where each begins as soon as it may. What
        computes is sized for the multiprocessors that the lanes beside it leave; 0: they are not counted."""
        stage = self._stage("times", stage)
        count = len(self._listed(stage))
        array = (_c.mimo_node_time * max(count, 1))()
        _c.lib.mimo_nodes_times(array, self._handle, stage)
        return [(time.begin, time.end, time.multiprocessors) for time in array[:count]]

    def report(self) -> NodesReport:
        """What the nodes take, and how much of the exchanges is hidden."""
        filled = _c.sized(_c.mimo_nodes_report)
        _c.lib.mimo_nodes_report_of(ctypes.byref(filled), self._handle)
        return NodesReport(*fields_of(filled))

    def check(self) -> None:
        """Prove them once more: each node once, in its step, behind all that it needs; lanes that have room;
        nobody waits for ever. ArgumentError with the node that breaks a rule."""
        _c.lib.mimo_nodes_check(self._handle)

    def __str__(self) -> str:
        """A line a step: "stage 0, F1: f.pre_process f.pre0 ..."."""
        return text_of(_c.lib.mimo_nodes_text, self._handle, _c.SCHEDULE_TEXT)

    def svg(self) -> str:
        """A timeline to look at, a row a lane."""
        return text_of(_c.lib.mimo_nodes_text, self._handle, _c.SCHEDULE_SVG)

    def trace(self) -> str:
        """The same as events for chrome://tracing and Perfetto: JSON."""
        return text_of(_c.lib.mimo_nodes_text, self._handle, _c.SCHEDULE_TRACE)

    @property
    def hash(self) -> int:
        """Of lists and of the lanes' multiprocessors, not of costs, for ranks to compare."""
        return int(_c.lib.mimo_nodes_hash(self._handle)) % 2**64


def _desc(costs: Mapping[str, int] | None, lanes: Mapping[str, int] | None, **fields: Any) -> _c.mimo_nodes_desc:
    desc = _c.sized(_c.mimo_nodes_desc, **fields)
    desc.costs = _costs(costs)  # the structure keeps what it points to
    for name, blocks in (lanes or {}).items():
        if name not in _c.NODE_LANES:
            raise ArgumentError(f"Nodes: {name!r} is no lane ({', '.join(_c.NODE_LANES)})")
        desc.lanes[_c.NODE_LANES.index(name)] = _c.fitting(ctypes.c_int64, f"Nodes: the lane {name}", blocks)
    return desc


def _chunk(layers: Layers) -> _c.mimo_node_chunk:
    if isinstance(layers, str) or not isinstance(layers, Sequence):
        raise ArgumentError(f"Nodes: {layers!r} is no list of layers")
    read = [layer if isinstance(layer, NodeLayer) else NodeLayer(layer) for layer in layers]
    words = [LAYERS.get(layer.parts, (layer.parts,)) if isinstance(layer.parts, str) else layer.parts
             for layer in read]
    array = (_c.mimo_node_layer * max(len(read), 1))()
    for i, layer in enumerate(read):
        last = i + 1 == len(read)
        array[i].parts = sum(1 << _part(name) for name in {*words[i]} if not (last and name == "post"))
        if layer.recompute not in _c.RECOMPUTES:
            raise ArgumentError(f"Nodes: recompute is {', '.join(_c.RECOMPUTES)}, not {layer.recompute!r}")
        array[i].recompute = _c.RECOMPUTES.index(layer.recompute)
        array[i].costs = _costs(layer.costs)
    return _c.mimo_node_chunk(layers=array, count=len(read), mtp=bool(words) and "post" in words[-1])


def _part(name: str) -> int:
    layer_parts = _c.NODE_PARTS[:_c.NODE_LAYER_PARTS]
    if name not in layer_parts:
        raise ArgumentError(f"Nodes: {name!r} is no part of a layer ({', '.join(layer_parts)}), nor "
                            f"{', '.join(LAYERS)}")
    return layer_parts.index(name)


def _costs(costs: Mapping[str, int] | None) -> Any:
    """A pointer to mimo_node_costs, or None. ArgumentError for a name that is none."""
    if costs is None:
        return None
    made = _c.sized(_c.mimo_node_costs)
    for name in sorted(costs, key=lambda name: "." in name):  # parts, then their passes
        number = _c.fitting(ctypes.c_int64, f"Nodes: the cost of {name}", costs[name])
        part, passes = _priced(name)
        for i in passes:
            made.of[part][i] = number
    return ctypes.pointer(made)


def _priced(name: str) -> tuple[int, list[int]]:
    """The part and the passes that a cost is of."""
    half, _, rest = name.rpartition(".") if name.count(".") < 2 else name.partition(".")
    word, _, ending = rest.partition(".")
    passes = {("", ""): [0, 1, 2, 3], ("f", ""): [0], ("b", ""): [2], ("b", "replay"): [1], ("b", "bwd"): [2],
              ("b", "dw"): [3]}.get((half, ending))
    if passes is None or word not in _c.NODE_PARTS:
        raise ArgumentError(f"Nodes: {name!r} is no node (a part: {', '.join(_c.NODE_PARTS)}; or f.PART, b.PART, "
                            "b.PART.bwd, b.PART.dw, b.PART.replay)")
    return _c.NODE_PARTS.index(word), passes
