"""Schedules: what each stage of a pipeline does beside an encoder that lies on all ranks. No ranks, no
tensors."""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import _c
from .errors import ArgumentError

__all__ = ["Schedule", "ScheduleMemory", "ScheduleReport", "Step"]

Kind = Literal["1f1b", "interleaved", "zero_bubble", "forward"]


@dataclass(frozen=True)
class Step:
    """A step of a stage.

    kind   F, B (forward, backward of a micro-batch), I, W (the parts of a backward), FB (a forward beside
           the backward of another micro-batch), E, EB (the encoder's forward and backward of a group of
           micro-batches), BF, BB (the bridge's, calls that end when all stages have begun them)
    index  micro-batch, or group of E, EB, BF, BB
    chunk  of the stage; 0 for a group
    back, back_chunk  of an FB: micro-batch and chunk of its backward; otherwise None
    """

    kind: str
    index: int
    chunk: int = 0
    back: int | None = None
    back_chunk: int | None = None


@dataclass(frozen=True)
class ScheduleMemory:
    """What a stage holds at most: micro-batches in encoder groups, chunks of micro-batches between forward
    and backward, those between I and W, and states to allocate (the sum over chunks of each one's most)."""

    encoder_alive: int
    chunks_alive: int
    weights_waiting: int
    saved_states: int


@dataclass(frozen=True)
class ScheduleReport:
    """A schedule in numbers, of the costs' unit: its time; what all stages together wait; the time of three
    phases, and of the LLM alone, with the same LLM steps; the steps of the busiest stage; the smallest
    `encoder_alive`; and the most that any stage holds (ScheduleMemory)."""

    time: int
    idle: int
    three_phases: int
    llm_alone: int
    lower_bound: int
    least_alive: int
    encoder_alive: int
    chunks_alive: int
    weights_waiting: int
    saved_states: int


class Schedule:
    """A list of steps for each stage: the LLM's by a known order, or by a table of
    torch.distributed.pipelining (from_csv), and between them the encoder's.

        schedule = Schedule(stages=4, micro_batches=16, encoder_alive=6)
        print(schedule.report().time, schedule.steps(0))

    kind            "1f1b", "interleaved" (`chunks` a stage; micro_batches is a multiple of stages),
                    "zero_bubble", or "forward" alone
    encoder_group   micro-batches that the encoder takes at once; micro_batches: three phases; 0: no encoder
    encoder_alive   groups that a stage holds at most; 0: no limit
    encoder_frozen  the encoder has no backward
    overlap         a forward beside the backward of another micro-batch, as one step
    costs           times of steps as whole numbers of any unit, as {"F": 4, "B": 8}; E and EB of one
                    micro-batch; "head" comes on top of F, I and W of the last chunk and twice on top of B;
                    "hop" is the way between stages

    Local, a pure function of its arguments: every rank has the lists of all stages. A schedule is checked
    when it is made. Thread-safe.

    Errors: ArgumentError with the numbers, such as a limit below what stage 0 needs; SizeOverflowError.
    """

    def __init__(self, kind: Kind = "1f1b", *, stages: int, micro_batches: int, chunks: int = 1,
                 encoder_group: int = 1, encoder_alive: int = 0, encoder_frozen: bool = False,
                 overlap: bool = False, costs: Mapping[str, int] | None = None) -> None:
        desc = _desc(kind, costs, stages=stages, chunks=chunks, micro_batches=micro_batches,
                     encoder_group=encoder_group, encoder_alive=encoder_alive,
                     encoder_frozen=encoder_frozen, overlap=overlap)
        handle = ctypes.c_void_p()
        _c.lib.mimo_schedule_create(ctypes.byref(handle), ctypes.byref(desc))
        self._keep(handle, desc)

    @classmethod
    def from_csv(cls, text: str, *, stages: int, micro_batches: int, chunks: int = 1,
                 encoder_group: int = 1, encoder_alive: int = 0, encoder_frozen: bool = False,
                 forward: bool = False, any_order: bool = False,
                 costs: Mapping[str, int] | None = None) -> Schedule:
        """A schedule with the LLM's steps of a table as torch writes it ("compute_only"): a row a stage,
        cells such as 5B1. Stage p has chunk p of the model and one of each further `stages` chunks, in any
        placement. `forward`: the table has no backward. `any_order`: its backwards may come in any order of
        micro-batches, as those of torch's LoopedBFS; gradients are sums in that order, so their bits are not
        those of other schedules.

        Errors: those of Schedule, and ArgumentError with the row and cell that is no step, or the first step
        that breaks a rule, such as stages that wait for each other.
        """
        desc = _desc("forward" if forward else "1f1b", costs, stages=stages, chunks=chunks,
                     micro_batches=micro_batches, encoder_group=encoder_group, encoder_alive=encoder_alive,
                     encoder_frozen=encoder_frozen, any_order=any_order)
        handle = ctypes.c_void_p()
        _c.lib.mimo_schedule_create_csv(ctypes.byref(handle), ctypes.byref(desc),
                                        _c.text("Schedule.from_csv: the table", text))
        made = cls.__new__(cls)
        made._keep(handle, desc)
        return made

    def _keep(self, handle: ctypes.c_void_p, desc: _c.mimo_schedule_desc) -> None:
        weakref.finalize(self, _c.lib.mimo_schedule_destroy, handle)
        self._handle = handle
        self.stages, self.chunks = int(desc.stages), int(desc.chunks)

    def __reduce__(self) -> str:
        raise TypeError("a Schedule can't be copied or pickled: make another one of the same arguments")

    def _stage(self, what: str, stage: int) -> int:
        return stage_of(f"Schedule.{what}", stage, self.stages)

    def steps(self, stage: int) -> list[Step]:
        """The steps of a stage in their order. ArgumentError: no such stage."""
        array = self._listed(self._stage("steps", stage))
        return [Step(_c.STEP_KINDS[s.kind], s.index, s.chunk,
                     *((s.back, s.back_chunk) if _c.STEP_KINDS[s.kind] == "FB" else ())) for s in array]

    def _listed(self, stage: int) -> Any:
        return list_of(_c.lib.mimo_schedule_steps, _c.mimo_schedule_step, self._handle, stage)

    def times(self, stage: int, costs: Mapping[str, int] | None = None) -> list[tuple[int, int]]:
        """When each step of a stage begins and ends. `costs`: others than those of the schedule."""
        stage = self._stage("times", stage)
        count = len(self._listed(stage))
        begin, end = (ctypes.c_int64 * count)(), (ctypes.c_int64 * count)()
        _c.lib.mimo_schedule_times(begin, end, self._handle, stage, _costs(costs))
        return list(zip(begin, end))

    def memory(self, stage: int) -> ScheduleMemory:
        """What a stage holds."""
        filled = _c.sized(_c.mimo_schedule_memory)
        _c.lib.mimo_schedule_memory_of(ctypes.byref(filled), self._handle, self._stage("memory", stage))
        return ScheduleMemory(*fields_of(filled))

    def report(self, costs: Mapping[str, int] | None = None) -> ScheduleReport:
        """What the schedule takes, beside others. `costs`: what its lists would take with these."""
        filled = _c.sized(_c.mimo_schedule_report)
        _c.lib.mimo_schedule_report_of(ctypes.byref(filled), self._handle, _costs(costs))
        return ScheduleReport(*fields_of(filled))

    def check(self) -> None:
        """Prove it once more: each step once and after its inputs, calls in one order, nobody waits for
        ever. ArgumentError with the step that breaks a rule."""
        _c.lib.mimo_schedule_check(self._handle)

    def __str__(self) -> str:
        """A line a stage: "stage 0: E0 BF0 F0 B0 BB0 EB0"."""
        return text_of(_c.lib.mimo_schedule_text, self._handle, _c.SCHEDULE_TEXT)

    def csv(self) -> str:
        """The LLM's steps as torch.distributed.pipelining reads them ("compute_only")."""
        return text_of(_c.lib.mimo_schedule_text, self._handle, _c.SCHEDULE_CSV)

    def svg(self) -> str:
        """A timeline to look at."""
        return text_of(_c.lib.mimo_schedule_text, self._handle, _c.SCHEDULE_SVG)

    def trace(self) -> str:
        """The same as events for chrome://tracing and Perfetto: JSON."""
        return text_of(_c.lib.mimo_schedule_text, self._handle, _c.SCHEDULE_TRACE)

    @property
    def hash(self) -> int:
        """Of sizes and lists, not of costs, for ranks to compare."""
        return int(_c.lib.mimo_schedule_hash(self._handle)) % 2**64


def stage_of(what: str, stage: int, stages: int) -> int:
    number = _c.whole(f"{what}: stage", stage)
    if not 0 <= number < stages:
        raise ArgumentError(f"{what}: there is no stage {number} of {stages}")
    return number


def list_of(function: Any, kind: Any, handle: ctypes.c_void_p, stage: int) -> Any:
    """What a function of C lists of a stage: structures, which the object owns."""
    count = ctypes.c_int64()
    found = function(ctypes.byref(count), handle, stage)
    return ctypes.cast(found, ctypes.POINTER(kind * count.value)).contents


def text_of(function: Any, handle: ctypes.c_void_p, form: int) -> str:
    """What a function of C writes of an object, in one of the formats."""
    length = ctypes.c_int64()
    function(ctypes.byref(length), None, 0, handle, form)
    found = ctypes.create_string_buffer(length.value + 1)
    function(None, found, length.value + 1, handle, form)
    return found.value.decode()


def fields_of(filled: ctypes.Structure) -> list[Any]:
    """What a structure holds behind its size."""
    return [getattr(filled, field[0]) for field in filled._fields_[1:]]


def _desc(kind: str, costs: Mapping[str, int] | None, **fields: Any) -> _c.mimo_schedule_desc:
    if kind not in _c.SCHEDULE_KINDS:
        raise ArgumentError(f"Schedule: kind is {', '.join(_c.SCHEDULE_KINDS)}, not {kind!r}")
    desc = _c.sized(_c.mimo_schedule_desc, kind=_c.SCHEDULE_KINDS[kind], **fields)
    desc.costs = _costs(costs)  # the structure keeps what it points to
    return desc


def _costs(costs: Mapping[str, int] | None) -> Any:
    """A pointer to mimo_step_costs, or None. ArgumentError for a name that is none."""
    if costs is None:
        return None
    made = _c.sized(_c.mimo_step_costs)
    for name, value in costs.items():
        number = _c.fitting(ctypes.c_int64, f"Schedule: the cost of {name}", value)
        if name in ("head", "hop"):
            setattr(made, name, number)
        elif name in _c.STEP_KINDS:
            made.of[_c.STEP_KINDS.index(name)] = number
        else:
            raise ArgumentError(f"Schedule: {name!r} is no step ({', '.join(_c.STEP_KINDS)}), head or hop")
    return ctypes.pointer(made)
