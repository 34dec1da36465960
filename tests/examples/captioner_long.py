"""1,000 steps by nodes: with --same-bits a run with a forward beside a backward, with recompute and with the encoder in
pieces, writes the checkpoint of one rank that does one thing after the other, and no rank's memory grows. For
scripts/pipeline.sh.

    captioner_long.py MPIRUN CAPTIONER [STEPS]
"""
import filecmp
import os
import subprocess
import sys
import tempfile
import time

from captioner_runs import Captioner

SIZES = ["--image-size", "16", "--hidden", "16", "--heads", "2", "--layers", "2,2", "--seq", "96", "--lr", "0.003",
         "--global-batch", "4", "--seed", "7", "--same-bits=2,1", "--experts", "4,2", "--progress", "lines"]
ONE = (1, ["--encoder", "tp=1,dp=1", "--llm", "tp=1,cp=1,dp=1"])
OVERLAP = ["--micro-batches", "4", "--overlap"]
CASES = [
    (1, [*ONE[1], *OVERLAP, "--recompute=keep", "--encoder-pieces", "2"]),
    (2, ["--encoder", "tp=1,dp=2", "--llm", "tp=1,cp=1,dp=1,pp=2", *OVERLAP, "--recompute"]),
    (4, ["--encoder", "tp=1,dp=4", "--llm", "tp=1,cp=1,dp=2,pp=2", "--expert-grid", "ep=2", "--micro-batches", "2",
         "--overlap", "--encoder-pieces", "2"]),
]
WARM, MOST_GROWTH_KIB, LIMIT_S = 0.2, 1024, 1500


def resident_of(launch):
    """KiB of each rank of a launch."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/status", encoding="utf-8") as lines:
                status = dict(line.rstrip().split(":", 1) for line in lines)
        except OSError:
            continue
        if int(status["PPid"]) == launch.pid and "VmRSS" in status:
            found.append((int(name), int(status["VmRSS"].split()[0])))
    return [kib for _, kib in sorted(found)]


def lines_of(path):
    try:
        with open(path, encoding="utf-8") as log:
            return sum(1 for _ in log)
    except OSError:
        return 0


class Long:
    def __init__(self, captioner, steps):
        self.captioner, self.steps, self.wrong = captioner, steps, 0

    def train(self, name, ranks, flags):
        """(the checkpoint, KiB of the ranks early and at the end)."""
        path, log = (os.path.join(self.captioner.folder, word) for word in (name, name + ".log"))
        command = [self.captioner.mpirun, "--oversubscribe", "-n", str(ranks), self.captioner.program, *SIZES, *flags,
                   "--samples", self.captioner.samples, "--steps", str(self.steps), "--log", log, "--save", path]
        early, late, begin = [], [], time.monotonic()
        if os.path.exists(log):
            os.remove(log)
        with open(path + ".out", "w", encoding="utf-8") as out:
            launch = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            while launch.poll() is None and time.monotonic() - begin < LIMIT_S:
                done = lines_of(log)
                if not early and done >= WARM * self.steps:
                    early = resident_of(launch)
                if early and done < self.steps:
                    late = resident_of(launch) or late
                time.sleep(0.2)
        if launch.poll() != 0:
            launch.terminate()
            with open(path + ".out", encoding="utf-8") as out:
                sys.exit(f"{flags}: status {launch.wait()}\n{out.read()[-2000:]}")
        return path, early, late

    def check(self, one, ranks, flags):
        path, early, late = self.train("other", ranks, flags)
        same = filecmp.cmp(one, path, shallow=False)
        growth = max((after - before for before, after in zip(early, late)), default=0)
        right = same and len(early) == len(late) == ranks and growth <= MOST_GROWTH_KIB
        print(f"{'ok  ' if right else 'FAIL'} {self.steps} steps, {ranks} ranks, {' '.join(flags)}: "
              f"{'the file of one rank' if same else 'ANOTHER FILE'}, KiB {early} -> {late}", flush=True)
        self.wrong += not right


def main():
    mpirun, program, *steps = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16, 60)
        long = Long(captioner, int(steps[0]) if steps else 1000)
        one, _, _ = long.train("one", *ONE)
        for ranks, flags in CASES:
            long.check(one, ranks, flags)
        sys.exit(f"{long.wrong} are wrong" if long.wrong else 0)


main()
