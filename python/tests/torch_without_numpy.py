#!/usr/bin/env python3
"""A program of two ranks in which numpy can't be imported: `pip install .` brings torch, and torch does not
bring numpy.

    mpirun -n 2 python torch_without_numpy.py

Exit status 1 where something of the package needs it.
"""
from __future__ import annotations

import ctypes
import importlib.abc
import sys
import warnings


class NoNumpy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "numpy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, NoNumpy())
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import mimo_bridge as mb  # noqa: E402
from megatron_import import process_groups  # noqa: E402
from mimo_bridge import _nccl  # noqa: E402
from rank_runner import raises, same  # noqa: E402


def bootstrap(comm):
    """What the library is started with on GPUs, over gloo: bytes of all ranks, in rank order."""
    errors = []
    gather = _nccl._gather_over(None, errors)
    mine = ctypes.create_string_buffer(bytes([comm.rank, 0, 255]), 3)
    found = ctypes.create_string_buffer(3 * comm.size)
    status = gather(None, ctypes.addressof(found), ctypes.addressof(mine), 3)
    assert not errors, errors[0]
    assert status == 0 and found.raw == b"\x00\x00\xff\x01\x00\xff", (status, found.raw)


def bridges(comm):
    """A bridge into a buffer and back."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, partition=mb.Partition(), layout="bsh",
                       buffer=mb.Buffer(4096, comm=comm), grad_buffer=mb.Buffer(4096, comm=comm))
    x = torch.full((1, 4, 1), 1.0 + comm.rank, requires_grad=True)
    y = bridge(x)
    same(y.detach()[:, :, 0], torch.tensor([[1.0, 1.0], [2.0, 2.0]]))
    y.square().sum().backward()
    same(x.grad, 2 * x.detach())


def main():
    raises(ImportError, "numpy", __import__, "numpy")
    raises(RuntimeError, "Numpy is not available", torch.zeros(1).numpy)
    torch.set_num_threads(1)
    with mb.Communicator() as comm:
        with process_groups(comm):
            raises(RuntimeError, "Numpy is not available", dist.all_gather_object, [None] * 2, b"bytes")
            bootstrap(comm)
        bridges(comm)


if __name__ == "__main__":
    main()
