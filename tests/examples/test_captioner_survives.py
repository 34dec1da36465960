"""What is left of a run that ends before its time: a checkpoint after a signal to one rank, after a full
disk under the log, and every few steps; and a log with which a resumed run goes on. Each is compared with
a run that nothing happened to."""
import os
import re
import resource
import signal
import subprocess
import sys
import time

from captioner_runs import Checks, ENDS_WELL, rank_pids, read_tensors, run_test

SMALL = ["--image-size", "16", "--hidden", "16", "--heads", "4", "--layers", "1,2", "--experts", "4,2", "--seq",
         "80", "--lr", "0.01", "--global-batch", "8", "--micro-batches", "2", "--seed", "7", "--augment",
         "shift,flip,colour"]
TWO = "tp=2,dp=1", "tp=1,cp=2,dp=1"
STEPS = 28
LIMIT = 40000 # bytes: a log is smaller, and a checkpoint is larger
PATIENCE = 60  # seconds


def step_of(checkpoint):
    return int(read_tensors(checkpoint)[0]["step"])


class Survival(Checks):
    def __init__(self, captioner, diff):
        super().__init__(captioner)
        self.diff = diff

    def flags(self, name, *more, log=None):
        return self.captioner.flags_of(TWO, *SMALL, "--save", self.path(name + ".st"), "--log",
                                       log or self.path(name + ".log"), "--log-hashes", *more)

    def train(self, name, *more):
        self.captioner.succeeds(2, *self.flags(name, *more))

    def begin(self, name, *more):
        """A launch that goes on beside the test. Each rank's exit is printed."""
        command = ["timeout", "120", self.captioner.mpirun, "--oversubscribe", "-n", "2", "sh", "-c", ENDS_WELL,
                   "sh", self.captioner.program, *self.flags(name, *more)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, path, run):
        """Until there is something in the file."""
        end = time.monotonic() + PATIENCE
        while not (os.path.exists(path) and os.path.getsize(path) > 0):
            if run.poll() is not None or time.monotonic() > end:
                sys.exit(f"nothing came into {path}: {run.communicate()}")
            time.sleep(0.002)

    def is_that_of(self, whole, log, steps=STEPS):
        """mimo-diff reads the log, and finds every step of the run that nothing happened to."""
        done = subprocess.run([self.diff, self.path(whole), self.path(log)], capture_output=True, text=True,
                              check=False)
        wanted = rf"^equal: steps 1 to {steps} \({steps}\): tokens, loss, norm, gradients, parameters$"
        self.expect(done.returncode == 0 and re.search(wanted, done.stdout, re.M) and "alone" not in done.stdout
                    and "cut short" not in done.stdout, f"{log} is not {whole}:\n{done.stdout}{done.stderr}")

    def signal_to_one_rank(self, number, name):
        """The rank that does not write hears it."""
        run = self.begin(name, "--steps", str(STEPS))
        self.wait_for(self.path(name + ".log"), run)
        os.kill(rank_pids(self.path(name + ".st"))[1], number)
        said, errors = run.communicate()
        self.expect(re.findall(r"^exit (\d+)$", said, re.M) == ["1", "1"], f"{name}: {said}")
        sentence = re.search(rf"^captioner: rank 1: {number.name} ended the run\. The model after step (\d+) of "
                             rf"{STEPS} is in \S+{name}\.st, and --resume goes on with it$", errors, re.M)
        if not sentence:
            sys.exit(f"{name}: {errors}")
        saved = step_of(self.path(name + ".st"))
        self.expect(int(sentence[1]) == saved < STEPS, f"{name}: step {saved}, but {sentence[0]}")
        self.expect(self.captioner.read_log(self.path(name + ".log"))[-1]["step"] == saved,
                    f"{name}: the log ends elsewhere")
        self.train(name, "--steps", str(STEPS), "--resume", self.path(name + ".st"))
        self.is_that_of("whole.log", name + ".log")

    def full_disk(self):
        done = self.captioner.launch(2, *self.flags("full", "--steps", "2", log="/dev/full"))
        self.expect(done.returncode != 0 and re.search(
            r"^captioner: rank 0: cannot write step 1 to the log /dev/full: No space left on device$", done.stderr,
            re.M), f"no room for the first line: {done.stderr}")
        done = self.captioner.launch(2, *self.flags("full", "--steps", "2", "--log-hashes=none", log="/dev/full"))
        self.expect(done.returncode != 0 and re.search(
            r"^captioner: rank 0: cannot write step 1 to the log /dev/full: No space left on device\. The model "
            r"after step 1 of 2 is in \S+full\.st, and --resume goes on with it$", done.stderr, re.M),
            f"no room for a step: {done.stderr}")
        self.expect(step_of(self.path("full.st")) == 1, "the step is kept")

    def size_limit(self):
        """Between the sizes of log and checkpoint, of the rank that writes: SIGXFSZ would end it."""
        run = self.begin("limited", "--steps", str(STEPS), "--save-every", str(STEPS - 1))
        self.wait_for(self.path("limited.log"), run)
        pid = rank_pids(self.path("limited.st"))[0]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))
        said, errors = run.communicate()
        self.expect(re.findall(r"^exit (\d+)$", said, re.M) == ["1", "1"], f"limited: {said}")
        why = r"rank 0: cannot \S+( room for)? \S+limited\.st: File too large\."
        wanted = (rf"^captioner: warning: the save after step {STEPS - 1} failed: {why} For --resume, there is no \S+ "
                  rf"yet; the next try is after step {STEPS}$",
                  rf"^captioner: {why} The model after step {STEPS} is lost: for --resume, there is no \S+ yet$")
        for sentence in wanted:
            self.expect(re.search(sentence, errors, re.M), f"no {sentence}: {errors}")
        self.expect(self.captioner.read_log(self.path("limited.log"))[-1]["step"] == STEPS, "not all steps were taken")

    def killed(self):
        """Nobody hears that: what was saved before is there, whole. Later steps and half a line are in the
        log, and half a checkpoint beside the whole one."""
        run = self.begin("killed", "--steps", str(STEPS), "--save-every", "3")
        self.wait_for(self.path("killed.st"), run)
        for pid in rank_pids(self.path("killed.st")).values():
            os.kill(pid, signal.SIGKILL)
        run.communicate()
        saved = step_of(self.path("killed.st"))
        self.expect(saved % 3 == 0 and 0 < saved < STEPS, f"saved after step {saved}")
        with open(self.path("whole.log"), encoding="utf-8") as log:
            lines = log.readlines()
        with open(self.path("killed.log"), "w", encoding="utf-8") as log:
            log.writelines([*lines[:saved + 3], lines[saved + 3][:20]])
        half = self.path("killed.st.unfinished-1-0")
        with open(half, "w", encoding="utf-8") as file:
            file.write("half")
        self.train("killed", "--steps", str(STEPS), "--resume", self.path("killed.st"))
        self.is_that_of("whole.log", "killed.log")
        self.expect(not os.path.exists(half), f"{half} stays")

    def best(self):
        """A learning rate that is far too high: the run ends with the model of the step that was best. Its
        checkpoint is that of a run of that many steps: also what a step changes without a gradient, the biases of
        routers, and the moments."""
        high = ["--lr", "0.5", "--resume", self.path("whole.st")]
        done = self.captioner.launch(2, *self.flags("best", "--steps", str(STEPS + 12), "--evaluate-every", "4", *high))
        lines = self.captioner.read_log(self.path("best.log"))
        looks = {line["step"]: line["held_out"] for line in lines if "held_out" in line}
        step = min(looks, key=looks.get)
        self.expect(done.returncode == 0 and list(looks) == [32, 36, 40] and step < 40, f"{looks}: {done.stderr}")
        self.expect(f"\nback to step {step}, where the held-out loss was lowest: {looks[step]:.4f}\n" in done.stderr
                    and f"\nheld-out loss {looks[40]:.4f} after step 40\n" in done.stderr, done.stderr)
        self.expect(f"held-out loss with the right images    {looks[step]:.4f}\n" in done.stdout, done.stdout)
        self.expect(step_of(self.path("best.st")) == step, "the model of that step is saved")
        self.train("straight", "--steps", str(step), *high)
        self.expect(self.same_file("best.st", "straight.st"),
                    f"back at step {step} the model is not that of a run of {step} steps")


def main(captioner, diff):
    test = Survival(captioner, diff)
    test.train("whole", "--steps", str(STEPS))
    test.signal_to_one_rank(signal.SIGTERM, "terminated")
    test.signal_to_one_rank(signal.SIGINT, "interrupted")
    test.full_disk()
    test.size_limit()
    test.killed()
    test.best()
    test.expect_refused([], [(["--save-every", "2"], "--save-every needs a file: give --save FILE with it"),
                             (["--save", "x", "--save-every", "0"], "--save-every must be from 1 to ")])
    return test.wrong


run_test(main, one_in=60)
