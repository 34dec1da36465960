"""Runs of the captioner that lose ranks, each beside the file of a run that nothing happened to. Shared by
test_captioner_survivors.py and scripts/survive.sh."""
import filecmp
import os
import re
import signal
import subprocess
import sys
import threading
import time

from captioner_runs import ENDS_WELL, rank_pids

SIZES = ["--image-size", "16", "--hidden", "32", "--heads", "8", "--layers", "1,3", "--seq", "80", "--lr", "0.01",
         "--global-batch", "8", "--micro-batches", "2", "--seed", "7", "--same-bits=8,2"]
DEADLINE_MS = 4000  # longer than a step takes on busy cores
PATIENCE = 400  # seconds, for a run on busy cores
POLL = 0.002
LEFT = re.compile(r"^captioner: of (\d+) ranks (\d+) are left", re.M)
WENT_ON = re.compile(r"^captioner: generation (\d+): (\d+) ranks go on from step (\d+), (.*)$", re.M)


class Setting:
    """Grids of a run, and of those that are left of it."""

    def __init__(self, ranks, flags, text):
        self.ranks, self.flags = ranks, flags
        self.survive = "--survive" + (f"={text}" if text else "")


SETTINGS = {
    "replicas": Setting(8, ["--encoder=tp=2,dp=4", "--llm=tp=2,cp=2,dp=2"], ""),
    "parts": Setting(8, ["--encoder=tp=2,dp=4", "--llm=tp=2,cp=2,dp=2"],
                     "7: ; 6: --encoder=tp=2,dp=3 --llm=tp=2,cp=1,dp=3 --micro-batches=4; 5:; 4:; 3:"),
    "stages": Setting(8, ["--encoder=tp=1,dp=8", "--llm=tp=1,cp=1,dp=4,pp=2", "--schedule=interleaved:2"],
                      "7: ; 6: --encoder=tp=1,dp=6 --llm=tp=1,cp=1,dp=3,pp=2 --schedule=zero-bubble; "
                      "5: --micro-batches=1; 4:; 3:"),
    # Ranks r and r + 3 keep copies for each other, and no other rank has their parts of the LLM.
    "thirds": Setting(6, ["--encoder=tp=2,dp=3", "--llm=tp=2,cp=1,dp=1,pp=3"],
                      "5: ; 4: --encoder=tp=2,dp=2 --llm=tp=2,cp=1,dp=1,pp=2; 3:"),
    "experts": Setting(8, ["--encoder=tp=1,dp=8", "--llm=tp=1,cp=1,dp=8", "--experts=8,2", "--expert-grid=ep=4"],
                       "7: ; 6: --expert-grid=ep=2; 5:; 4: --expert-grid=ep=4; 3:"),
}


class Run:
    """A launch that goes on beside the test, with its files NAME.st and NAME.log."""

    def __init__(self, captioner, name, setting, steps, *flags, **environment):
        self.save, self.log = (os.path.join(captioner.folder, f"{name}.{kind}") for kind in ("st", "log"))
        for path in (self.save, self.log):
            if os.path.exists(path):
                os.remove(path)
        command = ["timeout", str(PATIENCE), captioner.mpirun, "--enable-recovery", "--oversubscribe", "-n",
                   str(setting.ranks), "sh", "-c", ENDS_WELL, "sh", captioner.program, *SIZES, "--steps", str(steps),
                   "--save", self.save, "--log", self.log, *setting.flags, *flags]
        if not any(flag.startswith("--emoji-test") for flag in flags):
            command += ["--samples", captioner.samples]
        deadline = DEADLINE_MS if any(flag.startswith("--survive") for flag in flags) else 0
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "MIMO_DEADLINE_MS": str(deadline), **environment})
        self.said, self.errors, self.pids = "", "", {}
        self.lost, self.went = None, None # when the first rank was lost, and when the others went on
        self.readers = [threading.Thread(target=self.read, args=pair)
                        for pair in ((self.process.stdout, "said"), (self.process.stderr, "errors"))]
        for reader in self.readers:
            reader.start()

    def read(self, stream, name):
        for line in stream:
            setattr(self, name, getattr(self, name) + line)
            if name == "errors" and not self.went and WENT_ON.match(line):
                self.went = time.monotonic()

    def wait_for(self, words, holds):
        """Until it holds; False where the run has ended before."""
        end = time.monotonic() + PATIENCE
        while not holds():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > end:
                self.process.terminate()
                sys.exit(f"waited for {words}:\n{self.said}\n{self.errors}")
            time.sleep(POLL)
        return True

    def lines(self):
        try:
            with open(self.log, encoding="utf-8") as log:
                return sum(line.startswith('{"step"') for line in log)
        except FileNotFoundError:
            return 0

    def wait_for_step(self, step):
        """The ranks of the launch are all there by then."""
        here = self.wait_for(f"step {step}", lambda: self.lines() >= step)
        self.pids = self.pids or rank_pids(self.save)
        return here

    def wait_for_save(self):
        """A save is being written."""
        folder, name = os.path.split(self.save)
        return self.wait_for("a save", lambda: any(entry.startswith(name + ".unfinished-")
                                                   for entry in os.listdir(folder)))

    def wait_for_recovery(self, number=1):
        return self.wait_for("a recovery", lambda: len(LEFT.findall(self.errors)) >= number)

    def signal(self, rank, number=signal.SIGKILL):
        """False where it has ended already."""
        try:
            os.kill(self.pids[rank], number)
        except (KeyError, ProcessLookupError):
            return False
        self.lost = self.lost or time.monotonic()
        return True

    def end(self):
        """Wait for it, and return each rank's exit status, sorted."""
        self.process.wait()
        for reader in self.readers:
            reader.join()
        return sorted(map(int, re.findall(r"^exit (\d+)$", self.said, re.M)))

    def wrong(self, whole, statuses, ended):
        """What is not as it should be; None: nothing."""
        if ended != sorted(statuses):
            return f"ranks ended with {ended} and not {sorted(statuses)}"
        if not os.path.exists(self.save):
            return "there is no checkpoint"
        if not filecmp.cmp(self.save, whole, shallow=False):
            return f"{self.save} is not {whole}"
        folder, name = os.path.split(self.save)
        left = [entry for entry in os.listdir(folder) if entry.startswith(name + ".unfinished-")]
        return f"{left} are left" if left else None
