#!/usr/bin/env python3
"""mimo_bridge.run starts ranks without the options and variables that mpirun needs, and says what is wrong."""
import concurrent.futures
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

from mimo_bridge import run as launcher

# Without torch, whose import takes seconds.
PROGRAM = """
import os, sys
rank, size, threads = (os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMP_NUM_THREADS"))
print(f"rank {rank} of {size}, {threads} threads, {sys.argv[1:]}", flush=True)
sys.exit(3 if "fail" in sys.argv else 0)
"""


def run(words, **changes):
    """The exit status of a launch, and all that is printed."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("OMPI_") and not name.endswith("_NUM_THREADS")}
    kept.update(changes)
    done = subprocess.run([sys.executable, "-m", "mimo_bridge.run", *words], env=kept, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def refused(words, path):
    """The same where no rank starts, in this process."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), mock.patch.dict(os.environ, PATH=path):
            launcher.main(words)
    except SystemExit as end:
        return (end.code, said.getvalue()) if isinstance(end.code, int) else (1, end.code)


def main():
    wrong = 0

    def expect(name, outcome, status, *parts):
        nonlocal wrong
        good = outcome[0] == status and all(part in outcome[1] for part in parts)
        wrong += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {outcome}"), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.py"
        program.write_text(PROGRAM)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ranks = pool.submit(run, ["--nproc-per-node", "3", str(program), "--nproc-per-node", "x"])
            fails = pool.submit(run, ["--nproc_per_node=2", str(program), "fail"], OMP_NUM_THREADS="2")
            module = pool.submit(run, ["--nproc-per-node", "2", "-m", "mimo_bridge"])
        expect("ranks", ranks.result(), 0,
               *(f"rank {rank} of 3, 1 threads, ['--nproc-per-node', 'x']" for rank in range(3)))
        expect("threads, a failure", fails.result(), 3, "rank 1 of 2, 2 threads, ['fail']")
        expect("a module", module.result(), 0, "self-test       ok")
        two = ["--nproc-per-node", "2", str(program)]
        expect("no ranks", refused(["--nproc-per-node", "0", str(program)], folder), 2,
               "--nproc-per-node 0: at least one rank")
        expect("no mpirun", refused(two, folder), 1, "mpirun was not found")
        other = pathlib.Path(folder) / "mpirun"
        other.write_text("#!/bin/sh\necho HYDRA build details:\n")
        other.chmod(0o755)
        expect("another MPI", refused(two, f"{folder}:/bin"), 1, "is not Open MPI's: HYDRA build details")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
