#!/usr/bin/env python3
"""mimo_bridge.run starts ranks without the options and variables that mpirun needs, and says what is wrong."""
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """
import os, sys
import mimo_bridge as mb
comm = mb.Communicator()
print(f"rank {comm.rank} of {comm.size}, {os.environ['OMP_NUM_THREADS']} threads, {sys.argv[1:]}", flush=True)
sys.exit(3 if "fail" in sys.argv else 0)
"""


def run(words, path=None, **changes):
    """The exit status and all that is printed."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("OMPI_") and not name.endswith("_NUM_THREADS")}
    kept.update(changes)
    if path is not None:
        kept["PATH"] = path
    done = subprocess.run([sys.executable, "-m", "mimo_bridge.run", *words], env=kept, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


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
        other = pathlib.Path(folder) / "mpirun"
        expect("ranks", run(["--nproc-per-node", "3", str(program), "--nproc-per-node", "x"]), 0,
               *(f"rank {rank} of 3, 1 threads, ['--nproc-per-node', 'x']" for rank in range(3)))
        expect("threads, a failure", run(["--nproc_per_node=2", str(program), "fail"], OMP_NUM_THREADS="2"), 3,
               "rank 1 of 2, 2 threads, ['fail']")
        expect("a module", run(["--nproc-per-node", "2", "-m", "mimo_bridge"]), 0, "self-test       ok")
        expect("no ranks", run(["--nproc-per-node", "0", str(program)]), 2, "--nproc-per-node 0: at least one rank")
        expect("no mpirun", run(["--nproc-per-node", "2", str(program)], path=folder), 1, "mpirun was not found")
        other.write_text("#!/bin/sh\necho HYDRA build details:\n")
        other.chmod(0o755)
        expect("another MPI", run(["--nproc-per-node", "2", str(program)], path=f"{folder}:/bin"), 1,
               "is not Open MPI's: HYDRA build details")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
