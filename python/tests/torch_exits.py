#!/usr/bin/env python3
"""How processes end, each way in a launch of its own.

    torch_exits.py MPIRUN [WORD...]

Run by a Python that has torch; it starts the launches with the same Python.
"""
import concurrent.futures
import os
import subprocess
import sys
import time

COMMON = """
import datetime, os, sys
import torch
import mimo_bridge as mb
torch.set_num_threads(1)
comm = mb.Communicator(timeout=datetime.timedelta(seconds=TIMEOUT))
bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, layout="bsh", partition=mb.Partition())
x = torch.ones(1, 4, 1, requires_grad=True)
"""
MINUTE = 60
# name -> (ranks, seconds of the communicator's timeout, program, exit status is 0, words printed)
WAYS = {
    # Everything is alive at the end: a buffer, a tensor in it, a graph, an iteration of chunks; and
    # several communicators, which all ranks end in one order.
    "live objects": (2, MINUTE, """
buffer = mb.Buffer(4096, 2, comm=comm)
other = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, layout="bsh", buffer=buffer)
y = other(x)
loss = bridge(x).sum()
default = mb.Bridge(mb.Grid("dp=2"), mb.Grid("dp=2"))
default(x)
more = [mb.Communicator() for _ in range(6)]
parts = bridge.chunks(x, 2)
next(parts)
print("reached the end")
""", True, "reached the end"),
    # Rank 0 raises while rank 1 waits for it: the launcher ends rank 1, long before its timeout. UTF-8
    # does not have the letter, which the name of a file may.
    "an exception": (2, MINUTE, """
if comm.rank == 0:
    raise LookupError("no such file: \\udcff")
bridge(x)
print("never here")
""", False, "rank 0 aborted: rank 0 ended with LookupError: no such file"),
    # Inside backward, where torch calls us from C++.
    "an exception in backward": (2, MINUTE, """
y = bridge(x)
if comm.rank == 1:
    y.register_hook(lambda grad: 1 / 0)
y.sum().backward()
print("never here")
""", False, "ZeroDivisionError"),
    # A communicator has ended by its deadline, which the program took as good. Those after it are left.
    "a timeout that was handled": (2, 1, """
more = mb.Communicator(timeout=datetime.timedelta(seconds=60))
if comm.rank == 1:
    more.barrier()  # when rank 0 has given up
try:
    bridge(x)
    print("never here")
except mb.DeadlineError:
    if comm.rank == 0:
        more.barrier()
""", False, "rank 0 ended with another communicator failed"),
    # Ctrl-C on rank 1 while it waits for rank 0, which comes 3 seconds later: too late for a call that waits
    # for it, which would print "never here".
    "Ctrl-C in a wait": (2, MINUTE, """
import os, signal, threading, time
comm.barrier()
if comm.rank == 0:
    time.sleep(3)
else:
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    bridge(x)
    print("never here")
except KeyboardInterrupt:
    print("interrupted", comm.failure, flush=True)
    raise SystemExit(3)
except mb.AbortedError as error:
    print("told:", error, flush=True)
""", False, "interrupted the communicator has ended: ABORTED"),
    # The same in the creation of a communicator, for which the other rank is late.
    "Ctrl-C in a creation": (2, MINUTE, """
import os, signal, threading, time
comm.barrier()
if comm.rank == 0:
    time.sleep(3)
else:
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        mb.Communicator()
        print("never here")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
os._exit(3)
""", False, "interrupted"),
    # sys.exit on one rank is no exception that Python reports; the timeout ends it.
    "sys.exit": (2, 2, """
if comm.rank == 0:
    sys.exit(3)
bridge(x)
print("never here")
""", False, ""),
    # The program ends MPI, and leaves a communicator behind.
    "MPI ended before": (2, MINUTE, """
from mimo_bridge import _mpi
comm.barrier()
_mpi.start().library.MPI_Finalize()
print("reached the end")
""", True, "reached the end"),
    # closed twice, by the program and at exit; MPI by the program
    "closed": (1, MINUTE, """
comm.close()
comm.close()
print("closed", comm.closed)
""", True, "closed True"),
}
# Launchers that MPI knows nothing of: torchrun, which has set WORLD_SIZE, and srun.
ALONE = """
import os
import mimo_bridge as mb
for name, value, words in (("RANK", "0", "mimo_bridge.run --nproc-per-node 2 program.py (mimo_comm"),
                           ("SLURM_STEP_NUM_TASKS", "3", "srun started 3 processes")):
    os.environ[name] = value
    try:
        mb.Communicator()
        print("never here")
    except mb.StateError as error:
        assert words in str(error), error
    del os.environ[name]
os.environ.update(SLURM_STEP_NUM_TASKS="3", MIMO_ALONE="1")
print("alone in", mb.Communicator().size)
"""


def launch(command, program, seconds, **more):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **more}
    start = time.monotonic()
    done = subprocess.run([*command, "-c", program], capture_output=True, text=True, timeout=120,
                          env=environment, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


def check(name, command, program, succeeds, words, **more):
    status, output, seconds = launch(command, program, MINUTE, **more)
    wrong = []
    if (status == 0) != succeeds:
        wrong.append(f"exit status {status}")
    others = ("never here", "Segmentation", "Exception ignored", "NoneType")
    if words not in output or any(other in output for other in others):
        wrong.append(f"the words {words!r} are missing, or others are there")
    print(f"{'FAIL' if wrong else 'ok  '} {name} ({seconds:.1f} s)" + "".join(f": {w}" for w in wrong)
          + (f"\n{output}" if wrong else ""), flush=True)
    return not wrong


def main(arguments):
    mpirun, words = arguments[0], arguments[1:]
    # At once: most of a launch is the import of torch, or waiting.
    pool, ways = concurrent.futures.ThreadPoolExecutor(4), []
    for name, (ranks, timeout, program, succeeds, said) in WAYS.items():
        if words and not any(word in name for word in words):
            continue
        command = [mpirun, "--oversubscribe", "-n", str(ranks), sys.executable]
        if ranks == 1:
            command = [sys.executable]
            program = "import mimo_bridge as mb\ncomm = mb.Communicator()\n" + program
        else:
            program = COMMON.replace("TIMEOUT", str(timeout)) + program
        ways.append(pool.submit(check, name, command, program, succeeds, said))
    if not words or any(word in "other launchers" for word in words):
        ways.append(pool.submit(check, "other launchers", [sys.executable], ALONE, True, "alone in 1",
                                WORLD_SIZE="2"))
    return 0 if all([way.result() for way in ways]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
