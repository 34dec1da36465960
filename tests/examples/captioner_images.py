"""With --same-bits and several pictures a sample, every topology writes the checkpoint of one rank, whether its
encoder lanes encode what they load or --balance deals their pictures out: on 1 to 8 ranks, under tp, cp, sp and
pp, in micro-batches and encoder groups, recomputed, with adapters and with experts. The two may take turns in a
run. Samples of one picture are those of a run without --images. A rank that stops is named. For scripts/oracle.sh; the suite has a short
form (test_captioner_same_bits.py)."""
import itertools
import os
import re
import signal
import subprocess
import time

from captioner_runs import Checks, rank_pids, run_test

SIZES = ["--image-size", "16", "--hidden", "32", "--layers", "1,2", "--seq", "160", "--lr", "0.01", "--global-batch",
         "13", "--seed", "7", "--augment", "shift,flip,colour", "--same-bits=8,4", "--steps", "12"]
ONE = ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1, [])
TOPOLOGIES = [
    ("tp=1,dp=2", "tp=2,cp=1,dp=1", 2, ["--sp"]),
    ("tp=1,dp=3", "tp=1,cp=1,dp=3", 3, []),
    ("tp=1,dp=4", "tp=1,cp=4,dp=1", 4, ["--recompute"]),
    ("tp=2,dp=2", "tp=1,cp=2,dp=2", 4, ["--micro-batches", "4", "--encoder-group", "2"]),
    ("tp=1,dp=8", "tp=8,cp=1,dp=1", 8, ["--sp", "--micro-batches", "13"]), # a picture or none a lane
    ("tp=4,dp=2", "tp=2,cp=2,dp=2", 8, ["--sp"]),
    ("tp=1,dp=8", "tp=2,cp=4,dp=1", 8, ["--micro-batches", "3"]),
]
PIPELINES = [
    ("tp=1,dp=2", "tp=1,cp=1,dp=1,pp=2", 2, ["--micro-batches", "4", "--schedule", "interleaved"]),
    ("tp=2,dp=4", "tp=2,cp=1,dp=2,pp=2", 8, ["--micro-batches", "4", "--schedule", "zero-bubble", "--sp"]),
    ("tp=1,dp=8", "tp=1,cp=2,dp=1,pp=4", 8, ["--micro-batches", "5", "--schedule", "three-phases"]),
    ("tp=1,dp=8", "pp=4,tp=1,cp=1,dp=2", 8, ["--micro-batches", "7", "--encoder-group", "2"]),
]


class Images(Checks):
    def train(self, name, topology, *flags):
        self.captioner.succeeds(topology[2], *self.captioner.flags_of(
            topology, *SIZES, *topology[3], "--save", self.path(name), *flags))

    def expect(self, right, words):
        print(f"{'ok  ' if right else 'FAIL'} {words}", flush=True)
        self.wrong += not right

    def expect_same(self, words):
        self.expect(self.same_file("one", "other"), words)

    def compare(self, topologies, *flags):
        self.train("one", ONE, *flags)
        for topology, balance in itertools.product(topologies, ([], ["--balance"])):
            self.train("other", topology, *flags, *balance)
            self.expect_same(f"{topology[0]} -> {topology[1]} {' '.join([*topology[3], *flags, *balance])}")

    def resume(self):
        """The first half with --balance, the second half without, against the run that was compared last."""
        self.train("half", TOPOLOGIES[6], "--images", "0-4", "--balance", "--steps", "6")
        self.train("other", TOPOLOGIES[3], "--images", "0-4", "--resume", self.path("half"))
        self.expect_same("resumed without --balance")

    def lanes(self):
        """What the log says of the lanes: 4 of them, which have whole pictures."""
        log = self.path("log")
        self.train("other", TOPOLOGIES[2], "--images", "0-4", "--balance", "--log", log)
        steps = [line["balance"] for line in self.captioner.read_log(log) if "step" in line]
        self.expect(len(steps) == 12 and all(step["loaded"] >= step["encoded"] >= 1 for step in steps)
                    and any(step["loaded"] > 1.3 and step["moved"] > 0 for step in steps)
                    and max(step["encoded"] for step in steps) < 1.2, f"the log has {steps}")

    def stopped_rank(self):
        """One of four ranks stops in the middle: the run ends with sentences that name it."""
        log = self.path("stopped")
        command = ["timeout", "60", self.captioner.mpirun, "--oversubscribe", "-n", str(TOPOLOGIES[2][2]),
                   self.captioner.program, *self.captioner.flags_of(TOPOLOGIES[2], *SIZES, "--steps", "100000"),
                   "--images", "0-4", "--balance", "--log", log]
        run = subprocess.Popen(command, env=dict(os.environ, MIMO_DEADLINE_MS="2000"), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        while run.poll() is None and not (os.path.exists(log) and os.path.getsize(log) > 2000):
            time.sleep(0.05)
        os.kill(rank_pids(log)[2], signal.SIGSTOP)
        errors = run.communicate()[1]
        said = re.search(r"^captioner: (?!warning).*no sign of rank 2.*$", errors, re.M)
        self.expect(run.returncode == 1 and said, f"rank 2 stops: {said[0] if said else errors}")


def main(captioner):
    images = Images(captioner)
    images.compare(TOPOLOGIES + PIPELINES, "--images", "0-4")
    images.resume()
    images.lanes()
    images.stopped_rank()
    images.compare([TOPOLOGIES[1], TOPOLOGIES[5], PIPELINES[2]], "--images", "0-4", "--lora-rank", "4",
                   "--lora-targets", "all")
    images.compare([TOPOLOGIES[5], TOPOLOGIES[6]], "--images", "2-3", "--experts", "4,2", "--dtype", "bf16",
                   "--evaluate-every", "5")
    images.train("one", ONE)
    images.train("other", TOPOLOGIES[5], "--images", "1", "--balance")
    images.expect_same("samples of one picture")
    return images.wrong


run_test(main, one_in=60)
