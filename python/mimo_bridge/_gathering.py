"""Whole numbers that every rank tells all, gathered while other calls go on."""
from __future__ import annotations

import array
import contextlib
import ctypes
from typing import Any, NamedTuple

from . import _c
from .communicator import Communicator
from .errors import MimoError

__all__ = ["Gathering", "Told"]


class Told(NamedTuple):
    """The numbers of one rank."""

    words: memoryview  # "q"
    address: int  # of words[0]
    memory: Any  # that they lie in


class Gathering:
    """A gather that has begun. Collective, blocking for an agreement, as is the end of it.

    `room` is how many numbers a rank can tell at first. Where a rank has more, all gather again at the end. `name`
    says in sentences whose gather it is.
    """

    kind = "gather"

    def __init__(self, comm: Communicator, numbers: array.array[int], room: int, name: str) -> None:
        self._comm, self._numbers, self.room, self._name = comm, numbers, room, name.encode()
        self._handle = ctypes.c_void_p()
        with comm._turn() as handle:
            self._begin(handle)
            comm._children.append(self)

    def _begin(self, comm: ctypes.c_void_p) -> None:
        needs = len(self._numbers) + 1
        self._sent = (ctypes.c_int64 * self.room)(needs)
        if needs <= self.room:
            ctypes.memmove(ctypes.addressof(self._sent) + 8, self._numbers.buffer_info()[0], 8 * (needs - 1))
        self._found = (ctypes.c_int64 * (self.room * self._comm.size))()
        _c.lib.mimo_comm_host_allgather_start(ctypes.byref(self._handle), comm, self._found, self._sent,
                                              ctypes.sizeof(self._sent), self._name)

    def wait(self) -> list[Told]:
        """What the ranks told, by rank."""
        with self._comm._turn() as handle:
            self._comm._children.remove(self)
            _c.lib.mimo_comm_host_allgather_wait(ctypes.byref(self._handle))
            most = max(self._found[::self.room])
            if most > self.room:
                while self.room < most:
                    self.room *= 2
                self._begin(handle)
                _c.lib.mimo_comm_host_allgather_wait(ctypes.byref(self._handle))
        return self._told()

    def _told(self) -> list[Told]:
        words, address = memoryview(self._found).cast("B").cast("q"), ctypes.addressof(self._found)
        return [Told(words[at + 1:at + words[at]], address + 8 * (at + 1), self._found)
                for at in range(0, len(words), self.room)]

    # As a child of its communicator, which ends before it was waited for.

    def in_use(self) -> str | None:
        return None

    def release(self) -> None:
        with contextlib.suppress(MimoError):
            _c.lib.mimo_comm_host_allgather_wait(ctypes.byref(self._handle))
