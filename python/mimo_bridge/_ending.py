"""What happens to communicators when the process ends.

A process that ends well meets the others once more, so that nobody's last call is cut off. One that
ends with an exception tells them, and waits for nobody.
"""
from __future__ import annotations

import atexit
import datetime
import logging
import os
import sys

from . import _c, _mpi
from .communicator import Communicator, living
from .errors import MimoError

MEETING = datetime.timedelta(seconds=30)  # how long a process that ends waits for the others

_log = logging.getLogger("mimo_bridge")
_pid = os.getpid()


def _forward_line(_context: int, level: int, text: bytes) -> None:
    _log.log(logging.WARNING if level == 1 else logging.INFO, "%s", text.decode(errors="replace"))


_c_log = _c.Log(_forward_line)


def _met(comm: Communicator) -> bool:
    """Whether all ranks of a communicator have come to their end."""
    if not comm._lock.acquire(timeout=MEETING.total_seconds()):
        comm.abort(f"rank {comm.rank} ended while another of its threads was in a call")
        return False
    try:
        if comm.failure is None:
            comm.timeout = min(comm.timeout, MEETING)
            comm.synchronize()
            comm.barrier()
        return comm.failure is None
    except MimoError as missed:
        _log.warning("at exit: %s", missed)
        return False
    finally:
        comm._lock.release()


def _end() -> None:
    if os.getpid() != _pid:
        return  # a forked child: everything is its parent's
    error: BaseException | None = getattr(sys, "last_value", None)
    failed, mpi = error is not None, _mpi.started()
    why = f"{type(error).__name__}: {error}" if failed else "another communicator failed"
    # Where the program has ended MPI itself, nobody can be met or told any more.
    left = [comm for comm in living() if mpi is None or comm.device.type == "cuda" or not mpi.finalized]
    for comm in left:
        if failed:
            comm.abort(f"rank {comm.rank} ended with {why}")
        elif not _met(comm):
            failed = True
    _c.lib.mimo_log_set(None, None)  # it would say of each communicator that it was left
    for comm in left:
        comm.leave()
    if mpi is not None and not failed:
        mpi.finalize()  # after a failure it could wait for ever


def install() -> None:
    """Called once, by the package."""
    _c.lib.mimo_log_set(_c_log, None)
    atexit.register(_end)
