"""python -m mimo_bridge.run --nproc-per-node N program.py [ARGUMENT...]: ranks for CPU tensors.

Starts N processes of this Python on this host by Open MPI's mpirun, as torchrun does for GPUs: more
of them than cores, also as root, and each with one thread of its own unless OMP_NUM_THREADS says
otherwise. The exit status is mpirun's. Other hosts and other options: call mpirun.
"""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from typing import NoReturn

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mimo_bridge.run", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc-per-node", "--nproc_per_node", type=int, required=True, metavar="N",
                        help="ranks to start")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    if given.nproc_per_node < 1:
        parser.error(f"--nproc-per-node {given.nproc_per_node}: at least one rank")
    return given


def _mpirun() -> str:
    """The path of Open MPI's mpirun: another MPI's has other options."""
    found = shutil.which("mpirun")
    if not found:
        raise SystemExit("mpirun was not found: install Open MPI (Debian: openmpi-bin)")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version and "OpenRTE" not in version:
        raise SystemExit(f"{found} is not Open MPI's: {version.strip().partition(chr(10))[0]}")
    return found


def main(words: list[str] | None = None) -> NoReturn:
    given = _arguments(words)
    command = [_mpirun(), "--oversubscribe", "--bind-to", "none", "-n", str(given.nproc_per_node), sys.executable]
    command += ["-m"] * given.module + [given.program, *given.arguments]
    environment = {**dict.fromkeys(THREADS, "1"), **os.environ}
    if os.geteuid() == 0:
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main()
