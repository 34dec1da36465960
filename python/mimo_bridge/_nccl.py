"""NCCL communicators, started by torch.distributed, with staging from torch's allocator."""
from __future__ import annotations

import ctypes
import datetime
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from . import _c
from .errors import StateError


def create(handle: ctypes.c_void_p, group: dist.ProcessGroup | None, device: torch.device,
           common: _c.mimo_comm_desc, options: dict[str, int | None]) -> object:
    """Make the communicator of a group's ranks into `handle`. Collective, blocking. The result must
    live as long as the communicator: the library calls it. `options` are fields of mimo_nccl_desc. An
    exception inside the gather is raised as it is."""
    if not dist.is_initialized():
        raise StateError("Communicator: CUDA tensors need torch.distributed: call "
                         "torch.distributed.init_process_group('nccl') first")
    try:
        reserve, release = _torch_allocator(device)
        desc = _c.sized(_c.mimo_nccl_desc, device=device.index, common=ctypes.pointer(common),
                        reserve=reserve, release=release,
                        **{name: value for name, value in options.items() if value is not None})
    except Exception:
        refuse(group)
        raise
    _create(handle, group, ctypes.byref(desc))
    return reserve, release


def refuse(group: dist.ProcessGroup | None) -> None:
    """This rank can't make its communicator. The others of the group would wait for it, so it makes a call
    that fails on all. Collective, blocking."""
    if _c.has_nccl and dist.is_initialized():
        try:
            _create(ctypes.c_void_p(), group, None)
        except Exception:
            pass  # as it should be


def _create(handle: ctypes.c_void_p, group: dist.ProcessGroup | None, desc: Any) -> None:
    raised: list[BaseException] = []
    bootstrap = bootstrap_over(group, raised)
    try:
        _c.lib.mimo_comm_create_nccl(ctypes.byref(handle), ctypes.byref(bootstrap), desc)
    except Exception as error:
        if raised:
            raise raised[0] from error
        raise


def bootstrap_over(group: dist.ProcessGroup | None, raised: list[BaseException]) -> _c.mimo_bootstrap:
    """A gather of a group's ranks. What is raised inside it is appended to `raised`."""
    return _c.sized(_c.mimo_bootstrap, rank=dist.get_rank(group), ranks=dist.get_world_size(group),
                    allgather=_gather_over(group, raised))


def timeout_of(group: dist.ProcessGroup | None, device: torch.device) -> datetime.timedelta | None:
    """The timeout of a group's backend for a device, or None where there is none to be found."""
    if not dist.is_initialized():
        return None
    try:
        whole: Any = group if group is not None else dist.group.WORLD
        found = whole._get_backend(device).options._timeout  # torch has no public way
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, datetime.timedelta) else None


def _gather_over(group: dist.ProcessGroup | None, raised: list[BaseException]) -> Any:
    """mimo_bootstrap.allgather over torch.distributed, which has a timeout of its own. Bytes as they are:
    all_gather_object needs numpy, which torch does not bring."""
    size = dist.get_world_size(group)
    device = "cpu" if "cpu:" in dist.get_backend_config(group) else "cuda"

    def gather(_context: int, to: int, source: int, count: int) -> int:
        try:
            mine = torch.frombuffer((ctypes.c_char * count).from_address(source), dtype=torch.uint8)
            every = torch.empty(size * count, dtype=torch.uint8, device=device)
            dist.all_gather_into_tensor(every, mine.to(device), group=group)
            every = every.cpu()
            ctypes.memmove(to, every.data_ptr(), size * count)
            return 0
        except BaseException as error:  # an exception can't pass through C
            raised.append(error)
            return 1

    return _c.AllGather(gather)


def _torch_allocator(device: torch.device) -> tuple[Any, Any]:
    """mimo_nccl_desc.reserve and .release: the caching allocator, so that memory for staging is
    shared with tensors, and counted with them."""
    alloc: Callable[..., int] = torch.cuda.caching_allocator_alloc
    delete: Callable[[int], None] = torch.cuda.caching_allocator_delete

    def reserve(_context: int, size: int, stream: int | None) -> int | None:
        try:
            return alloc(size, device, stream or 0)
        except Exception:  # no memory: the library says so, with the number of bytes
            return None

    def release(_context: int, data: int, _size: int, _stream: int | None) -> None:
        try:
            delete(data)
        except Exception:
            pass  # the process ends, and the allocator has gone before

    return _c.Reserve(reserve), _c.Release(release)


def running_version() -> tuple[int, int, int]:
    """Of the NCCL that the library and torch run with. torch.cuda.nccl.version() is of the one that torch
    was built with. The library needs has_nccl."""
    found = ctypes.c_int()
    _c.lib.ncclGetVersion(ctypes.byref(found))
    return found.value // 10000, found.value // 100 % 100, found.value % 100
