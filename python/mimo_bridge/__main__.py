"""python -m mimo_bridge: versions, what was found, and the self-test on the ranks of this launch.

Alone it tests one rank. Under mpirun it tests CPU tensors on all ranks; under torchrun, CUDA tensors.
With --info it only prints what was found. Exit status 1 where the self-test fails.
"""
from __future__ import annotations

import argparse
import ctypes
import os
import sys

import torch
import torch.distributed as dist

from . import Bridge, Communicator, Grid, MimoError, Partition, __version__, _c, _nccl
from ._load import open_mpi


def _mpi_line() -> str:
    """What libmimo-bridge-mpi runs with. MPI is not begun here."""
    try:
        library = open_mpi(_c.lib)
    except ImportError as error:
        return f"not found ({error})"
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace").split(",")[0].strip()


def _cuda_line() -> str:
    if not _c.has_nccl:
        return "not in this build: tensors of the CPU alone"
    if not torch.cuda.is_available():
        return "in this build, and torch finds no device"
    names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
    return f"{torch.cuda.device_count()} devices: {', '.join(sorted(names))}"


def _nccl_line() -> str:
    return "{}.{}.{}".format(*_nccl.running_version()) if _c.has_nccl else "not in this build"


def _found() -> str:
    lines = {
        "mimo_bridge": __version__,
        "libmimo-bridge": f"{_c.lib.mimo_version_text().decode()} ({_c.lib._name})",
        "torch": f"{torch.__version__} (CUDA {torch.version.cuda or 'none'})",
        "Python": sys.version.split()[0],
        "CUDA": _cuda_line(),
        "NCCL": _nccl_line(),
        "MPI": _mpi_line(),
    }
    return "\n".join(f"{name:15} {value}" for name, value in lines.items())


def _communicator() -> Communicator:
    """Of the ranks of this launch: torchrun's with CUDA, otherwise mpirun's."""
    if "LOCAL_RANK" in os.environ and torch.cuda.is_available() and _c.has_nccl:
        # More ranks than GPUs share them, where NCCL lets them.
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        dist.init_process_group("nccl")
    return Communicator()


def _pairs(ranks: int) -> list[tuple[Grid, Grid, Partition | None]]:
    """An encoder and an LLM on `ranks`, with as much cp and tp as fits."""
    tp = 2 if ranks % 2 == 0 else 1
    cp = 2 if ranks // tp % 2 == 0 else 1
    encoder, data = Grid(f"tp=1,dp={ranks}"), Grid(f"tp={tp},cp=1,dp={ranks // tp}")
    llm = Grid(f"tp={tp},cp={cp},dp={ranks // (tp * cp)}")
    return [(encoder, llm, Partition(sp=True)), (data, encoder, None), (encoder, llm, None)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mimo_bridge", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--info", action="store_true", help="no self-test")
    info = parser.parse_args().info
    if info:
        print(_found())
        return 0
    try:
        comm = _communicator()
    except MimoError as error:
        print(f"{_found()}\nself-test       not possible: {error}")
        return 1
    with comm:
        if comm.rank == 0:
            print(_found(), flush=True)
        for encoder, llm, partition in _pairs(comm.size):
            bridge = Bridge(encoder, llm, comm=comm, partition=partition)
            try:
                bridge.self_test()
            except MimoError as error:
                print(f"self-test       FAILED on rank {comm.rank}: {encoder} -> {llm}: {error}")
                return 1
            if comm.rank == 0:
                print(f"self-test       ok: {encoder} -> {llm} on {comm.device.type}", flush=True)
            bridge.close()
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
