"""The exceptions of this package: one class for each status of the library.

Each class is also the builtin exception that a caller would expect (a wrong shape is a ValueError),
and all of them are MimoError. Importing this module loads nothing.
"""
from __future__ import annotations

import enum

__all__ = [
    "Status", "MimoError", "ArgumentError", "ShapeError", "GridError", "StateError", "NotFoundError",
    "ExistsError", "SizeOverflowError", "OutOfMemoryError", "UnsupportedError", "MismatchError",
    "CommError", "DeadlineError", "AbortedError", "InputOutputError", "InternalError", "DeviceError",
    "error_of",
]


class Status(enum.IntEnum):
    """The status codes of <mimo/status.h>."""

    OK = 0
    ARGUMENT = 1
    SHAPE = 2
    GRID = 3
    STATE = 4
    NOT_FOUND = 5
    EXISTS = 6
    OVERFLOW = 7
    MEMORY = 8
    UNSUPPORTED = 9
    MISMATCH = 10
    COMM = 11
    TIMEOUT = 12
    ABORTED = 13
    IO = 14
    INTERNAL = 15
    DEVICE = 16


class MimoError(Exception):
    """A failure, with the sentence that says what was wrong. `status` is the library's code.

    `verdict` and `ranks` are those of a DeadlineError of a communicator: who waited for whom when this rank gave
    up, in words, and the first ranks that others waited for. Otherwise both are empty."""

    status: Status = Status.INTERNAL
    verdict: str = ""
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:  # KeyError and OSError would print something else
        return str(self.args[0]) if self.args else self.status.name


class ArgumentError(MimoError, ValueError):
    """An argument that has no meaning."""

    status = Status.ARGUMENT


class ShapeError(MimoError, ValueError):
    """A shape, dtype or layout that does not fit."""

    status = Status.SHAPE


class GridError(MimoError, ValueError):
    """A grid, or a pair of grids, that breaks a rule."""

    status = Status.GRID


class StateError(MimoError, RuntimeError):
    """An object that is not in the state that the call needs: closed, forked, updated since."""

    status = Status.STATE


class NotFoundError(MimoError, KeyError):
    """No such object."""

    status = Status.NOT_FOUND


class ExistsError(MimoError, KeyError):
    """The object exists already."""

    status = Status.EXISTS


class SizeOverflowError(MimoError, OverflowError):
    """A size that does not fit its type."""

    status = Status.OVERFLOW


class OutOfMemoryError(MimoError, MemoryError):
    """No memory."""

    status = Status.MEMORY


class UnsupportedError(MimoError, NotImplementedError):
    """Something that this library, or this build of it, can't do."""

    status = Status.UNSUPPORTED


class MismatchError(MimoError, RuntimeError):
    """Ranks that disagree about a call."""

    status = Status.MISMATCH


class CommError(MimoError, RuntimeError):
    """MPI or NCCL failed."""

    status = Status.COMM


class DeadlineError(MimoError, TimeoutError):
    """A rank was missing for longer than the communicator's timeout."""

    status = Status.TIMEOUT


class AbortedError(MimoError, RuntimeError):
    """A rank aborted the communicator."""

    status = Status.ABORTED


class InputOutputError(MimoError, OSError):
    """Input or output failed."""

    status = Status.IO


class InternalError(MimoError, RuntimeError):
    """The library contradicts itself, or a check of rows (MIMO_CHECK=samples) failed."""

    status = Status.INTERNAL


class DeviceError(MimoError, RuntimeError):
    """The device failed."""

    status = Status.DEVICE


_CLASSES: dict[int, type[MimoError]] = {
    kind.status: kind
    for kind in (ArgumentError, ShapeError, GridError, StateError, NotFoundError, ExistsError,
                 SizeOverflowError, OutOfMemoryError, UnsupportedError, MismatchError, CommError,
                 DeadlineError, AbortedError, InputOutputError, InternalError, DeviceError)
}


def error_of(status: int, sentence: str) -> MimoError:
    """The exception of a status, with the library's sentence. Local."""
    return _CLASSES.get(status, InternalError)(sentence)
