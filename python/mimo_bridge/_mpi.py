"""MPI, as far as this package calls it itself: to begin, to end, and for the world communicator.

Its functions are found through libmimo-bridge-mpi, so they are those of the MPI that the library
runs with.
"""
from __future__ import annotations

import ctypes
import functools
import os

from . import _c, _load
from .errors import CommError, StateError, UnsupportedError

SERIALIZED = 2  # MPI_THREAD_SERIALIZED: backward may run on another thread
_importer = os.getpid()


class Mpi:
    """The process's MPI, initialised. `ours`: this package initialised it, and finalizes it. `complete`:
    no rank was left behind that MPI_Finalize would wait for."""

    complete = True

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        try:
            # Open MPI's MPI_COMM_WORLD is the address of this variable.
            variable = ctypes.c_char.in_dll(library, "ompi_mpi_comm_world")
        except ValueError:
            raise UnsupportedError("tensors in host memory need Open MPI: libmimo-bridge-mpi was built "
                                   "with another MPI") from None
        self.world = ctypes.c_void_p(ctypes.addressof(variable))
        self.ours = not self._flag("MPI_Initialized")
        # A process that the program forked after it had begun MPI has MPI's connections as well.
        self.process = os.getpid() if self.ours else _importer
        if self.ours:
            provided = ctypes.c_int()
            status = library.MPI_Init_thread(None, None, SERIALIZED, ctypes.byref(provided))
            if status:
                raise CommError(f"MPI_Init_thread failed: {status}")

    def _flag(self, name: str) -> bool:
        flag = ctypes.c_int()
        getattr(self.library, name)(ctypes.byref(flag))
        return bool(flag.value)

    @property
    def finalized(self) -> bool:
        """Whether MPI has ended. Nothing may call it then."""
        return self._flag("MPI_Finalized")

    def finalize(self) -> None:
        """End MPI where this package began it and no rank is missing. Collective: it may wait for all processes."""
        if self.ours and self.complete and not self.finalized:
            self.library.MPI_Finalize()


def start() -> Mpi:
    """Open libmimo-bridge-mpi and initialise MPI, unless the program has. Under mpirun it waits for
    all ranks. Errors: UnsupportedError where this installation has no MPI; StateError in a forked child
    of the process that began it: other ranks would take the child for its parent."""
    mpi = _opened()
    if mpi.process != os.getpid():
        raise StateError(f"a forked child can't use the MPI of its parent ({mpi.process}): let data loaders "
                         "spawn their workers, or keep communicators out of them")
    return mpi


@functools.cache
def _opened() -> Mpi:
    try:
        library = _load.open_mpi(_c.lib)
    except ImportError as error:
        raise UnsupportedError(f"tensors in host memory need MPI: {error}") from error
    _c.declare(library, _c.MPI_PROTOTYPES)
    return Mpi(library)


def started() -> Mpi | None:
    """What start() gave, or None where it was not called. Local."""
    return _opened() if _opened.cache_info().currsize else None
