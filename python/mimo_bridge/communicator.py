"""Communicators: all ranks, ready to move tensors of one device."""
from __future__ import annotations

import ctypes
import datetime
import os
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist

from . import _c, _mpi, _nccl
from ._signals import Signals
from .errors import (ArgumentError, DeadlineError, GridError, MimoError, MismatchError, StateError, Status,
                     UnsupportedError, error_of)
from .grid import Grid, check_grids

__all__ = ["Communicator", "default_communicator"]

# os.getpid() asks the system each time.
_this_process = [os.getpid()]
_inherited: list[object] = [None]  # a forked child: torch.distributed's world, as its parent began it


def _after_fork() -> None:
    _this_process[0] = os.getpid()
    _inherited[0] = dist.group.WORLD if dist.is_initialized() else None


os.register_at_fork(after_in_child=_after_fork)


def _stream_of(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# A stream as a number, where torch has it, without an object around it.
_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_of)


def _no_stream() -> None:
    return None


def stream_of(device: torch.device) -> Callable[[], int | None]:
    """A function that gives a device's current stream. Calls that are to keep the host for little time keep it."""
    return _no_stream if device.type == "cpu" else partial(_raw_stream, device.index)

DEFAULT_TIMEOUT = datetime.timedelta(minutes=30)  # as torch.distributed's
SHORT_TEXT = 96  # bytes of a text that ranks compare
T = TypeVar("T")


class Child(Protocol):
    """What a communicator closes before itself."""

    kind: str  # in sentences

    def in_use(self) -> str | None:
        """A sentence where release() would free what is in use: memory that a tensor lies in, or a
        call whose rows are on their way."""

    def release(self) -> None:
        """Destroy the C object, but never memory that a tensor lies in. Called once."""


class Communicator:
    """All ranks of a group, ready to move tensors of one device. Collective, blocking.

    CUDA tensors move over NCCL. The ranks are those of `group` (None: the default group of
    torch.distributed), which is used here only. CPU tensors move over Open MPI. The ranks are those
    of mpirun, torch.distributed is not needed, and a `group` must have the same ranks.

    device   of this rank's tensors. None: the current CUDA device where the group works with NCCL,
             otherwise the CPU
    timeout  how long a call waits for other ranks before it raises DeadlineError. None: the group's,
             or MIMO_DEADLINE_MS, or 30 minutes. At most 30 days
    min_ctas, max_ctas  thread blocks of NCCL's own kernels; None leaves it to NCCL
    staging_bytes  device memory of the executor "staged"; None: 32 MiB
    blocking  True: NCCL's own waits, as for a first message between two ranks, have no timeout, and
             calls that send messages keep the host for less. None: they have the timeout

    One thread at a time works with a communicator and what was made from it; other threads wait
    their turn. abort() can be called at any time. An exception of a signal's handler (Ctrl-C:
    KeyboardInterrupt) ends a call that waits in the main thread, and with it the communicator, as abort()
    does. A forked child can neither use it nor make one over
    MPI or process groups that its parent began. Use it in a `with` block or call close(): when the
    process ends it is closed without waiting long.

    Errors, of one rank also an error of the others: StateError (CPU tensors under torchrun, a forked
    child), UnsupportedError (no MPI, or no CUDA in this build), ArgumentError, DeviceError (two ranks on
    one GPU), CommError, MismatchError.
    """

    device: torch.device
    rank: int
    size: int
    old_ranks: tuple[int, ...] | None  # of survivors(): what each rank was before; None: made otherwise
    _handle: ctypes.c_void_p | None
    _keep: object  # what C calls back

    def __init__(self, group: dist.ProcessGroup | None = None, *,
                 device: torch.device | str | int | None = None,
                 timeout: datetime.timedelta | None = None, min_ctas: int | None = None,
                 max_ctas: int | None = None, staging_bytes: int | None = None,
                 blocking: bool | None = None) -> None:
        _refuse_forked()
        self.device, deadline, wrong = _checked(group, device, timeout)
        common = self._begin(deadline)
        handle = ctypes.c_void_p()
        if wrong is not None and self.device.type == "cuda":
            _nccl.refuse(group)
            raise wrong
        try:
            if self.device.type == "cuda":
                self._keep = _nccl.create(handle, group, self.device, common, {
                    "min_ctas": min_ctas, "max_ctas": max_ctas, "staging_bytes": staging_bytes,
                    "blocking": blocking})
            else:
                _create_mpi(handle, common)
        except MimoError as error:
            self._signals.raise_caught()
            raise (wrong or error) from None
        self._take(handle)
        if self.device.type == "cpu":
            try:
                self._together("Communicator", lambda: self._check(wrong, group))
            except Exception as error:
                self.close()
                raise (wrong or error) from None

    def _begin(self, deadline: int) -> _c.mimo_comm_desc:
        """What a communicator has before its handle. It gives the descriptor that C makes it by."""
        self._lock = threading.RLock()
        self._turns = _Turn(self)
        self._pid = os.getpid()
        self._children: list[Child] = []
        self._keep = None
        self._signals = Signals()
        self.old_ranks = None
        common = _c.sized(_c.mimo_comm_desc, deadline=deadline)
        common.interrupted = self._signals.callback
        return common

    def _take(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        self.rank = int(_c.lib.mimo_comm_rank(handle))
        self.size = int(_c.lib.mimo_comm_size(handle))
        _living[self] = None

    def _check(self, wrong: Exception | None, group: dist.ProcessGroup | None) -> None:
        if wrong is not None:
            raise wrong
        if group is None:
            return
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        if (rank, size) != (self.rank, self.size):
            raise ArgumentError(f"Communicator: this is rank {rank} of {size} in the group, and rank "
                                f"{self.rank} of {self.size} of mpirun: CPU tensors need a group of "
                                "all ranks in mpirun's order")

    # What other modules of the package use.

    def _turn(self) -> _Turn:
        """For a `with` block in which this thread has the communicator. It gives the C handle."""
        return self._turns

    def _same_process(self) -> None:
        if self._pid != _this_process[0]:
            raise StateError(f"a forked child can't use the communicator of its parent ({self._pid}): "
                             "let data loaders spawn their workers, or keep bridges out of them")

    def _usable(self) -> bool:
        return self._handle is not None and self._pid == _this_process[0]

    def _together(self, call: str, local: Callable[[], T]) -> T:
        """Run `local` on every rank, and raise the first rank's failure on all. Collective. `call` names
        it in sentences; ranks that name different ones get MismatchError."""
        with self._turn() as handle:
            try:
                result = local()
            except Exception as error:
                _c.lib.mimo_comm_agree_named(handle, _c.fail(error), call.encode())
                raise
            _c.lib.mimo_comm_agree_named(handle, 0, call.encode())
            return result

    def _alike(self, what: str, mine: str) -> None:
        """MismatchError on every rank where this text, as far as it is short, is not the same on all.
        Collective. For what the C library is not told."""
        text = ctypes.create_string_buffer(mine.encode()[:SHORT_TEXT - 1], SHORT_TEXT)
        found = ctypes.create_string_buffer(SHORT_TEXT * self.size)
        with self._turn() as handle:
            _c.lib.mimo_comm_host_allgather(handle, found, text, SHORT_TEXT)
        texts = [found.raw[i:i + SHORT_TEXT].rstrip(b"\0").decode()
                 for i in range(0, len(found.raw), SHORT_TEXT)]
        for rank, other in enumerate(texts):
            if other != texts[0]:
                raise MismatchError(f"{what}: {texts[0]} on rank 0, and {other} on rank {rank}")

    def _stream(self) -> int | None:
        """The current stream of the device, NULL on the host."""
        return stream_of(self.device)()

    # Public.

    def group(self, grid: Grid, *dims: str) -> Communicator:
        """This rank's group along dimensions of a grid, as a communicator of its own: {etp, ep} for a
        Dispatch, say. Collective, blocking. Asked again for equal ones, it gives the same.

        grid  its ranks are those of this communicator. Ranks of the group are in the grid's order

        On each rank calls of the group and of this communicator have one order. The group shares this one's
        deadline as it is now, its turns among threads, and its end: abort() or a failure of one ends both.
        close() of the group is collective over this one, which closes it as well.

        Errors, on every rank: GridError (another number of ranks, an unknown dimension), ArgumentError,
        MismatchError (other grids or dimensions).
        """
        def place() -> tuple[int, int]:
            check_grids("group", grid)
            if (grid.size, grid.offset) != (self.size, 0):
                raise GridError(f"group: {grid!r} has {grid.size} ranks from {grid.offset} on, and the "
                                f"communicator has {self.size}")
            groups = grid.groups(*dims)
            mine = next(i for i, ranks in enumerate(groups) if self.rank in ranks)
            return mine, groups[mine].index(self.rank)

        color, key = self._together("group", place)
        names = frozenset(dims)
        self._alike("group", f"{','.join(sorted(names))} of {grid!r}")
        for child in self._children:
            if isinstance(child, _Group) and (child.grid, child.dims) == (grid, names):
                return child
        return _Group(self, (grid, names), color, key)

    def survivors(self, group: dist.ProcessGroup | None = None, *, least: int = 0,
                  timeout_ms: int = 0) -> Communicator:
        """A communicator of the ranks that are left, after this one has failed (`failure`). Collective over
        those, blocking. They keep their order; its `old_ranks` say what rank each of them was here. This one
        stays, for another try; then close it, and what was made from it, which waits for nobody.

        group       CUDA: a process group of the ranks that are left, in their old order; None: the default
                    group, which the program has made anew. Not used for CPU tensors
        least       how many ranks have to be left; 0: more than half
        timeout_ms  of this try; 0: twice the timeout, at least 10 seconds

        mpirun must not end the ranks when one dies: mpirun --enable-recovery. MPI is not finalized at the
        end of a program that went on without a rank.

        Errors: DeadlineError (who is gone or silent: try again), StateError (it has not failed; fewer than
        `least` are left), AbortedError (the others went on without this rank, which can only end),
        ArgumentError, CommError; CUDA: MismatchError (the group's order).
        """
        made = Communicator.__new__(Communicator)
        made.device = self.device
        with self._turn() as ended:
            common = made._begin(int(_c.lib.mimo_comm_deadline(ended)))
            made._keep = self._keep
            handle, ranks = ctypes.c_void_p(), (ctypes.c_int * self.size)()
            raised: list[BaseException] = []
            desc = _c.sized(_c.mimo_survivors_desc, least=least, timeout_ms=timeout_ms,
                            common=ctypes.pointer(common), ranks=ctypes.cast(ranks, ctypes.POINTER(ctypes.c_int)))
            if self.device.type == "cuda":
                desc.bootstrap = ctypes.pointer(_nccl.bootstrap_over(group, raised))
            try:
                _c.lib.mimo_comm_survivors(ctypes.byref(handle), ended, ctypes.byref(desc))
            except MimoError as error:
                made._signals.raise_caught()
                raise (raised[0] if raised else error) from None
        made._take(handle)
        made.old_ranks = tuple(ranks[:made.size])
        mpi = _mpi.started()
        if mpi is not None and made.size < self.size:
            mpi.complete = False
        return made

    @property
    def generation(self) -> int:
        """0, or after survivors() a number that is larger than all before, the same on all of its ranks. Local."""
        return int(_c.lib.mimo_comm_generation(self._any_time()))

    @property
    def closed(self) -> bool:
        """Whether it was closed, or left by forget(). Local."""
        return self._handle is None

    @property
    def timeout(self) -> datetime.timedelta:
        """How long a call waits for other ranks. Local; set it to the same on every rank."""
        return datetime.timedelta(milliseconds=_c.lib.mimo_comm_deadline(self._any_time()))

    @timeout.setter
    def timeout(self, value: datetime.timedelta) -> None:
        _c.lib.mimo_comm_set_deadline(self._any_time(), _milliseconds(value, None, self.device))

    @property
    def failure(self) -> MimoError | None:
        """What the communicator has ended with (DeadlineError, AbortedError), or None. Local, by
        any thread. After a failure every call fails, and close() waits for nobody."""
        status = int(_c.lib.mimo_comm_state(self._any_time()))
        return error_of(status, f"the communicator has ended: {Status(status).name}") if status else None

    def _any_time(self) -> ctypes.c_void_p:
        self._same_process()
        handle = self._handle
        if handle is None:
            raise StateError("the communicator is closed")
        return handle

    def barrier(self) -> None:
        """Return when every rank has arrived. Collective, blocking the host."""
        with self._turn() as handle:
            _c.lib.mimo_comm_barrier(handle)

    def synchronize(self) -> None:
        """Wait until the work on the current stream is done, at most for the timeout. Local. On the
        host it does nothing."""
        with self._turn() as handle:
            _c.lib.mimo_comm_synchronize(handle, self._stream())

    def abort(self, why: str = "") -> None:
        """End the communicator: calls of this rank that wait raise AbortedError, and so do those of
        the other ranks (on NCCL: at their own timeout). Local, by any thread, at any time."""
        _c.lib.mimo_comm_abort(self._any_time(), str(why).encode(errors="replace"))

    def forget(self) -> None:
        """Leave for good, without waiting for any rank, and release what can be released. Local."""
        self._same_process()
        handle, self._handle = self._handle, None
        if handle is None:
            return
        _living.pop(self, None)
        _c.lib.mimo_comm_forget(handle)
        with self._lock:
            self._release_children()

    def leave(self) -> None:
        """What remains to do when the process ends: as forget(), but nothing that was made from it is
        released. The process takes it along, and tensors may still lie there. Local."""
        handle, self._handle = self._handle, None
        _living.pop(self, None)
        if handle is not None:
            _c.lib.mimo_comm_forget(handle)

    def close(self) -> None:
        """Close what was made from it, newest first, and then itself. Collective, blocking: it
        begins with a barrier. Again: nothing. After abort() or a timeout it is local.

        Errors: StateError on every rank where, on one of them, a tensor still lies in a slot of a
        Buffer or chunks have not ended; then nothing is closed. DeadlineError where ranks are missing; then everything is released.
        """
        if self._handle is None:
            return
        if self._pid != os.getpid():
            self._handle = None  # the parent's
            return
        with self._turn() as handle:
            try:
                if not _c.lib.mimo_comm_state(handle):
                    _c.lib.mimo_comm_synchronize(handle, self._stream())
                    self._together("close of the communicator", self._check_children)
            except StateError:
                raise
            except MimoError:
                self.forget()
                raise
            _living.pop(self, None)
            self._release_children()
            self._handle = None
            _c.lib.mimo_comm_destroy(handle)

    def _check_children(self) -> None:
        for child in reversed(self._children):
            sentence = child.in_use()
            if sentence:
                raise StateError(sentence)

    def _release_children(self) -> None:
        while self._children:
            self._children.pop().release()

    def _close_child(self, child: Child) -> None:
        """Collective: every rank closes the same child."""
        with self._turn() as handle:
            if child not in self._children:
                return
            if not _c.lib.mimo_comm_state(handle):
                def check() -> None:
                    sentence = child.in_use()
                    if sentence:
                        raise StateError(sentence)
                _c.lib.mimo_comm_synchronize(handle, self._stream())
                self._together(f"close of a {child.kind}", check)
            self._children.remove(child)
            child.release()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None,
                 _trace: TracebackType | None) -> None:
        ends_well = isinstance(error, SystemExit) and not error.code
        if error is not None and not ends_well and self._usable():
            # This rank leaves in the middle of a step. The others shall not wait for it.
            self.abort(f"rank {self.rank} left with {type(error).__name__}: {error}")
            self.forget()
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"rank {self.rank} of {self.size}"
        return f"<mimo_bridge.Communicator {state}, {self.device}>"

    def __reduce__(self) -> str:
        raise TypeError("a Communicator can't be copied or pickled: it belongs to its process")


class _Group(Communicator):
    """Some ranks of another communicator, whose child it is."""

    kind = "group"

    def __init__(self, parent: Communicator, of: tuple[Grid, frozenset[str]], color: int, key: int) -> None:
        self.parent, (self.grid, self.dims) = parent, of
        self.device, self._pid = parent.device, parent._pid
        self._lock, self._signals = parent._lock, parent._signals  # a thread has both or none
        self._turns = _Turn(self)
        self._children = []
        handle = ctypes.c_void_p()
        with parent._turn() as whole:
            _c.lib.mimo_comm_split(ctypes.byref(handle), whole, color, key)
            parent._children.append(self)
        self._handle = handle
        self.rank = int(_c.lib.mimo_comm_rank(handle))
        self.size = int(_c.lib.mimo_comm_size(handle))

    def in_use(self) -> str | None:
        return next((sentence for child in reversed(self._children) if (sentence := child.in_use())), None)

    def release(self) -> None:
        handle, self._handle = self._handle, None
        self._release_children()
        _c.lib.mimo_comm_destroy(handle)

    def close(self) -> None:
        if self._handle is not None and not self.parent.closed:
            self.parent._close_child(self)

    def forget(self) -> None:
        self.parent.forget()


class _Turn:
    """Blocks of one communicator, one thread at a time. A class, because calls take it often."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def __enter__(self) -> ctypes.c_void_p:
        comm = self.comm
        if comm._pid != _this_process[0]:
            comm._same_process()
        comm._lock.acquire()
        if comm._signals.handler_runs():
            comm._lock.release()
            raise StateError("a signal's handler can't call a communicator that waits in a call: only abort()")
        handle = comm._handle
        if handle is None:
            comm._lock.release()
            raise StateError("the communicator is closed")
        return handle

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, DeadlineError) and self.comm._handle is not None:
            error.verdict, error.ranks = _c.verdict_of(self.comm._handle)
        self.comm._lock.release()
        if self.comm._signals.caught:
            self.comm._signals.raise_caught()


def _refuse_forked() -> None:
    """StateError in a forked child that still has the process groups of its parent, for which the other
    ranks would take it. (Of MPI, _mpi.start() knows.)"""
    if _inherited[0] is not None and dist.is_initialized() and dist.group.WORLD is _inherited[0]:
        raise StateError("Communicator: a forked child can't use the process groups of its parent: let data "
                         "loaders spawn their workers, or keep communicators out of them")


def _checked(group: dist.ProcessGroup | None, device: torch.device | str | int | None,
             timeout: datetime.timedelta | None) -> tuple[torch.device, int, Exception | None]:
    """The device, the deadline and what is wrong with them, perhaps on this rank alone: then the others wait
    for it, with a device of that type."""
    wrong, deadline = None, int(DEFAULT_TIMEOUT / datetime.timedelta(milliseconds=1))
    try:
        found = _device_of(group, device)
    except Exception as error:
        wrong, found = error, torch.device("cuda" if _works_with_nccl(group) else "cpu")
    try:
        deadline = _milliseconds(timeout, group, found)
    except Exception as error:
        wrong = wrong or error
    return found, deadline, wrong


def _works_with_nccl(group: dist.ProcessGroup | None) -> bool:
    try:
        nccl = dist.is_initialized() and "nccl" in str(dist.get_backend(group))
    except Exception:
        return False  # no group
    return nccl and torch.cuda.is_available()


def _device_of(group: dist.ProcessGroup | None, device: torch.device | str | int | None) -> torch.device:
    if device is None:
        device = "cuda" if _works_with_nccl(group) else "cpu"
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if found.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"Communicator: tensors of a {found.type} device can't be moved, only "
                               "those of cpu and cuda")
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type == "cuda":
        if not _c.has_nccl:
            raise UnsupportedError("Communicator: this libmimo-bridge was built without CUDA")
        if found.index is None:
            found = torch.device("cuda", torch.cuda.current_device())
    return found


def _create_mpi(handle: ctypes.c_void_p, common: _c.mimo_comm_desc) -> None:
    mpi = _mpi.start()
    try:
        mpi.library.mimo_comm_create_mpi(ctypes.byref(handle), mpi.world, ctypes.byref(common))
    except StateError as error:
        if "(WORLD_SIZE=" not in str(error):
            raise
        raise StateError("CPU tensors need mpirun, and this is torchrun, under which CUDA tensors move after "
                         "init_process_group('nccl'). For CPU tensors: python -m mimo_bridge.run "
                         f"--nproc-per-node {os.environ['WORLD_SIZE']} program.py ({error})") from None


def _milliseconds(timeout: datetime.timedelta | None, group: dist.ProcessGroup | None,
                  device: torch.device) -> int:
    if timeout is None:
        timeout = _nccl.timeout_of(group, device)
    if timeout is None:
        if os.environ.get("MIMO_DEADLINE_MS", "0") not in ("", "0"):
            return _c.FROM_ENV
        timeout = DEFAULT_TIMEOUT
    if not isinstance(timeout, datetime.timedelta):
        raise ArgumentError(f"Communicator: a timeout is a datetime.timedelta, not {timeout!r}")
    if timeout <= datetime.timedelta(0):
        # Without a deadline an abort leaves tensors in MPI's hands, and Python frees them.
        raise ArgumentError(f"Communicator: a timeout is longer than 0, this one is {timeout}")
    return max(1, int(timeout / datetime.timedelta(milliseconds=1)))


# Communicators that are to be closed when the process ends. Also what nobody names any more: closing
# is collective, and garbage is collected at another time on each rank. In the order of creation, which
# is the same on all of them; a set would go by addresses.
_living: dict[Communicator, None] = {}
_default: Communicator | None = None


def living() -> list[Communicator]:
    """The communicators of this process that are not closed, in the order of creation. Local."""
    return list(_living)


def default_communicator() -> Communicator:
    """The communicator that bridges and buffers are made from where none is named. The first call
    makes it (collective): Communicator() with no argument."""
    global _default
    if _default is None or _default.closed:
        _default = Communicator()
    return _default


def communicator_of(what: str, comm: Communicator | None) -> Communicator:
    """The communicator that a constructor was given; None: the default one. ArgumentError: it is another thing."""
    if comm is not None and not isinstance(comm, Communicator):
        raise ArgumentError(f"{what}: comm is a {type(comm).__name__}, and must be a Communicator: make one on every "
                            "rank, of a process group by mimo_bridge.Communicator(group), of some ranks by "
                            "comm.group(grid, dims)")
    return default_communicator() if comm is None else comm
