#!/usr/bin/env python3
"""examples/torch/survive.py: a rank of 4 is killed, and the loss curve is that of one process.

    torch_survive.py MPIRUN SURVIVE
"""
import concurrent.futures
import os
import re
import subprocess
import sys

STEPS, AT, LIMIT_S = 7, 3, 200


def lines(*launcher, options=()):
    command = [*launcher, sys.executable, sys.argv[2], "--steps", str(STEPS), *options]
    env = {**os.environ, "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=env, timeout=LIMIT_S).stdout


def curve(text):
    return [(int(step), float(loss)) for step, loss in re.findall(r"^step (\d+) loss ([\d.]+)$", text, re.MULTILINE)]


with concurrent.futures.ThreadPoolExecutor(1) as pool:  # most of the time is the import of torch
    alone = pool.submit(lines)
    together = lines(sys.argv[1], "--enable-recovery", "--oversubscribe", "-n", "4",
                     options=("--kill", "0", "--at", str(AT)))
    wanted, found = curve(alone.result()), curve(together)
print(together)
if [step for step, _ in found] != list(range(STEPS)) or [step for step, _ in wanted] != list(range(STEPS)):
    sys.exit(f"steps {found}, alone {wanted}")
if max(abs(a - b) for (_, a), (_, b) in zip(found, wanted)) > 1e-4:
    sys.exit(f"the curves differ: {found}, alone {wanted}")
if "generation 1: ranks (1, 2, 3) of 4 go on after " not in together:
    sys.exit("nobody says who goes on")
if wanted[-1][1] > wanted[0][1] - 0.05:
    sys.exit("the loss does not fall")
