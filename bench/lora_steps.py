#!/usr/bin/env python3
"""Times steps of the captioner, trained in full and with adapters (rank 8, the default targets).

    lora_steps.py CAPTIONER [captioner argument...]

The two take turns, three runs of 24 steps each on one rank, so both meet the same other load of
the machine. The first 4 steps of a run warm up. A time is the median of the others of all runs. The
optimizer has two moments for each trained element.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

KINDS = {"trained in full": [], "adapters": ["--lora-rank", "8"]}
ONE_RANK = ["--encoder", "tp=1,dp=1", "--llm", "tp=1,cp=1,dp=1"]
RUNS, STEPS, WARM = 3, 24, 4


def run(command, log):
    """The times of the steps, and how many elements are trained."""
    done = subprocess.run([*command, "--steps", str(STEPS), "--log", log], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    said = re.search(r"^training (\d+) of \d+ parameters", done.stderr, re.M)
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line)["ms"] for line in lines][WARM:], int(said[1])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    command = [sys.argv[1], *ONE_RANK, *sys.argv[2:]]
    times, trained = {kind: [] for kind in KINDS}, {}
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        for _ in range(RUNS):
            for kind, flags in KINDS.items():
                os.path.exists(log) and os.remove(log)
                ms, trained[kind] = run([*command, *flags], log)
                times[kind] += ms
    full = statistics.median(times["trained in full"])
    for kind, ms in times.items():
        print(f"{kind:16} {4 * trained[kind]:10} trainable bytes {8 * trained[kind]:10} of the optimizer "
              f"{statistics.median(ms):9.2f} ms a step {statistics.median(ms) / full:6.3f}")


main()
