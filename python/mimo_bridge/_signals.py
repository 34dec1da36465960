"""Signals that arrive while a call waits inside the C library.

Python runs the handlers of signals in the main thread, between two instructions of its own. So the library
asks from time to time while it waits, and the handlers run then.
"""
from __future__ import annotations

from collections.abc import Generator
from typing import Any

from . import _c

_callbacks: list[object] = []  # for good: a wait in another thread may ask once more after the last call


class Signals:
    """Of one communicator: what C asks, and the exceptions that handlers raised meanwhile."""

    def __init__(self) -> None:
        self.caught: list[BaseException] = []
        self._looks: Any = _looks(self.caught)
        next(self._looks)
        self.callback = _c.Interrupted(self._looks.send)
        _callbacks.append(self.callback)

    def handler_runs(self) -> bool:
        """Whether this is called by a handler, in the midst of the wait. For a thread whose turn it is."""
        return bool(self._looks.gi_running)

    def raise_caught(self) -> None:
        """The exception of a handler, if there was one. By then the communicator has ended."""
        if self.caught:
            raise self.caught.pop() from None


def _looks(caught: list[BaseException]) -> Generator[int, None, None]:
    """Answers 0 until a handler raises, and then 1: the wait is to end.

    A generator, because handlers run as soon as Python does: in a function that would be before its `try`,
    and ctypes would drop the exception."""
    try:
        while True:
            yield 0
    except GeneratorExit:
        raise
    except BaseException as error:
        caught.append(error)
    while True:
        yield 1
