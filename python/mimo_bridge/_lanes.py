"""Where the nodes of a list run: on the host one after the other, on a device a stream for each lane."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

_cuda: Any = torch.cuda  # torch does not annotate streams
__all__ = ["DeviceLanes", "Holds", "HostLanes", "Lanes"]


class Lanes(Protocol):
    """Lanes of one walk through a list of nodes."""

    def begin(self, lanes: Sequence[str], waits: Sequence[Sequence[int]]) -> None:
        """A walk begins. lanes: that of each node; waits: the places that each waits for."""

    def node(self, i: int) -> AbstractContextManager[Any]:
        """What runs inside is enqueued as node i, behind what it waits for."""

    def hold(self, i: int, things: Sequence[Any]) -> None:
        """Node i has used these: keep their memory until no lane can give it away too early."""

    def end(self) -> None:
        """The walk is over, or has failed: the caller's stream is behind all nodes."""


class HostLanes:
    """The caller's thread, and no device or one stream of it: nodes run where they stand."""

    def begin(self, lanes: Sequence[str], waits: Sequence[Sequence[int]]) -> None:
        pass

    def node(self, i: int) -> AbstractContextManager[Any]:
        return nullcontext()

    def hold(self, i: int, things: Sequence[Any]) -> None:
        pass

    def end(self) -> None:
        pass


class Holds:
    """References that are kept until lanes have waited for each other.

    Claim: memory that is freed here can be given away by its lane at once, whichever lane it was made in.
    Why: torch gives memory of a stream to the next one that asks on this stream, at the host's time. Where node i was
    the last to use it, every other lane has by then enqueued a wait for node i, or for one behind it in i's lane. So
    what it enqueues next runs after node i.
    Counterexample: rows that b.dispatch reads were made by b.mlp.bwd, on the stream of COMPUTE. Freed with its call,
    f.mlp would write into them while they are being sent.
    Tensor.record_stream() is safe as well, but frees when the device has come by, not the host: memory grows.
    """

    def __init__(self, lanes: Sequence[str]) -> None:
        self._lanes = lanes
        self._others = {lane: [other for other in dict.fromkeys(lanes) if other != lane] for lane in lanes}
        self._waited: dict[tuple[str, str], int] = {}  # (who, for which lane): the last node
        self._kept: dict[str, list[tuple[int, Sequence[Any]]]] = {lane: [] for lane in lanes}  # by who used it

    def keep(self, i: int, things: Sequence[Any]) -> None:
        if self._others[self._lanes[i]]:
            self._kept[self._lanes[i]].append((i, things))

    def waited(self, i: int, place: int) -> None:
        """The lane of node i has waited for the node at this place."""
        lane, other = self._lanes[i], self._lanes[place]
        if place <= self._waited.get((lane, other), -1):
            return
        self._waited[lane, other] = place
        passed = min(self._waited.get((who, other), -1) for who in self._others[other])
        kept = self._kept[other]
        self._kept[other] = [one for one in kept if one[0] > passed]


class DeviceLanes:
    """A stream for each lane, an event for each node that another lane waits for. COMPUTE is the caller's stream. The
    others are made once, with a higher priority: otherwise the few thread blocks of a move that is ready would stand
    behind all of the product that runs. Nothing waits on the host, and all of it can be captured.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: dict[str, Any] = {}
        self._free: list[Any] = []  # events that nobody will wait for any more
        self._events: dict[int, Any] = {}
        self._holds = Holds([])

    def begin(self, lanes: Sequence[str], waits: Sequence[Sequence[int]]) -> None:
        self._lanes, self._waits = lanes, waits
        self._last_reader = {place: i for i, places in enumerate(waits) for place in places}
        self._holds = Holds(lanes)
        self._streams["compute"] = _cuda.current_stream(self.device)
        for lane in dict.fromkeys(lanes):
            if lane not in self._streams:
                self._streams[lane] = _cuda.Stream(self.device, priority=-1)
            if lane != "compute":
                self._streams[lane].wait_stream(self._streams["compute"])

    def node(self, i: int) -> AbstractContextManager[Any]:
        return _Node(self, i)

    def enter(self, i: int) -> Any:
        stream = self._streams[self._lanes[i]]
        for place in self._waits[i]:
            stream.wait_event(self._events[place])
            self._holds.waited(i, place)
            if self._last_reader[place] == i:
                self._free.append(self._events.pop(place))
        return _cuda.stream(stream)

    def leave(self, i: int) -> None:
        if i in self._last_reader:
            event = self._free.pop() if self._free else _cuda.Event()
            event.record(self._streams[self._lanes[i]])
            self._events[i] = event

    def hold(self, i: int, things: Sequence[Any]) -> None:
        self._holds.keep(i, things)

    def end(self) -> None:
        compute = self._streams["compute"]
        others = [stream for lane, stream in self._streams.items() if lane != "compute"]
        for stream in others:
            compute.wait_stream(stream)
        if not _cuda.is_current_stream_capturing():  # a graph has joined its streams here
            for stream in others:
                stream.wait_stream(compute)  # its memory may be in use there
        self._free.extend(self._events.values())
        self._events.clear()
        self._holds = Holds([])


class _Node:
    """The block of a node on a device."""

    def __init__(self, lanes: DeviceLanes, i: int) -> None:
        self._lanes, self._i = lanes, i

    def __enter__(self) -> None:
        self._stream = self._lanes.enter(self._i)
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)
        if error[0] is None:
            self._lanes.leave(self._i)
