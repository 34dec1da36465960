"""A captioner of 8 ranks loses random ones at random moments, and ends with the very file of a run that nothing
happened to: a rank is killed, or two of them, the second while the others recover; rank 0 while it writes a
checkpoint; a rank is stopped and wakes when the others have gone on. For scripts/survive.sh; the suite has a short
form (test_captioner_survivors.py).

    captioner_survivors.py MPIRUN CAPTIONER [COUNT [SEED]]
"""
import collections
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time

from captioner_runs import Captioner
from survivor_runs import DEADLINE_MS, Run, Setting, SETTINGS, WENT_ON

STEPS = 12
TIMES, MORE_KIB = 20, 2048
SAVES = [["--save-every=5"], ["--save-memory=3"], ["--save-every=4", "--save-memory=3"],
         ["--save-every=30", "--save-memory=2"]]


def pause(rng, most):
    time.sleep(rng.uniform(0, most))


class Events:
    """What happens to a run. Each returns how its ranks shall end."""

    def __init__(self, run, rng, ranks):
        self.run, self.rng, self.ranks = run, rng, ranks

    def lose(self, rank, number=signal.SIGKILL, status=137):
        """Nothing happens where the rank had ended before."""
        return [status] if self.run.signal(rank, number) else [0]

    def kill(self):
        pause(self.rng, 0.4)
        return self.lose(self.rng.randrange(self.ranks))

    def kill_in_a_save(self):
        self.run.wait_for_save()
        pause(self.rng, 0.01)
        return self.lose(0)

    def kill_two(self):
        first, second = self.rng.sample(range(self.ranks), 2)
        return self.lose(first) + self.lose(second)

    def kill_in_a_recovery(self):
        first, second = self.rng.sample(range(self.ranks), 2)
        lost = self.lose(first)
        if lost == [0]:
            return lost
        if self.rng.random() < 0.5: # before they have agreed who is left
            pause(self.rng, 3)
        else:
            self.run.wait_for_recovery()
            pause(self.rng, 1)
        return lost + self.lose(second)

    def stop(self):
        rank = self.rng.randrange(self.ranks)
        lost = self.lose(rank, signal.SIGSTOP, 1)
        self.run.wait_for_recovery()
        pause(self.rng, 1)
        self.run.signal(rank, signal.SIGCONT)
        return lost


def holdings(pid):
    """KiB, descriptors, and what all have in /dev/shm; None where the process has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            memory = re.search(r"^VmData:\s+(\d+) kB", status.read(), re.M)
        return int(memory[1]), len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir("/dev/shm"))
    except (OSError, TypeError):
        return None


NAMES = ["kill"] * 10 + ["kill_in_a_save"] * 3 + ["kill_two"] + ["kill_in_a_recovery"] * 3 + ["stop"] * 3


class Survivors:
    def __init__(self, captioner):
        self.captioner, self.wrong, self.wholes = captioner, 0, {}
        self.seen, self.seconds = collections.Counter(), []

    def whole(self, name):
        """The file of a run that nothing happens to."""
        if name not in self.wholes:
            run = Run(self.captioner, f"whole-{name}", SETTINGS[name], STEPS)
            ended = run.end()
            if ended != [0] * SETTINGS[name].ranks:
                sys.exit(f"{name}: {ended}\n{run.errors}")
            self.wholes[name] = run.save
        return self.wholes[name]

    def lose(self, number, seed):
        rng = random.Random(f"{seed} {number}")
        name, event, saves = rng.choice(sorted(SETTINGS)), rng.choice(NAMES), rng.choice(SAVES)
        if event == "kill_in_a_save":
            saves = SAVES[2]
        whole, setting = self.whole(name), SETTINGS[name]
        run = Run(self.captioner, "run", setting, STEPS, setting.survive, *saves)
        begun = time.monotonic()
        step = rng.randrange(1, STEPS - 1)
        run.wait_for_step(step)
        lost = getattr(Events(run, rng, setting.ranks), event)()
        ended = run.end()
        statuses = lost + [0] * (setting.ranks - len(lost))
        wrong = run.wrong(whole, statuses, ended)
        went = "; ".join(f"{left} from step {step}" for _, left, step, _ in WENT_ON.findall(run.errors))
        print(f"{'FAIL' if wrong else 'ok  '} {number}: {name}, {event} after step {step}, {' '.join(saves)}: {went} "
              f"({time.monotonic() - begun:.1f} s)", flush=True)
        self.seen[event] += bool(went)
        if event == "kill" and run.went:
            self.seconds.append(run.went - run.lost - DEADLINE_MS / 1000)
        if wrong:
            print(wrong, run.errors, run.said, sep="\n", flush=True)
            self.wrong += 1

    def recover_often(self, setting):
        """Twenty times in one run: a rank is stopped, the others give up, and it comes back in time. In the second
        half no rank takes more memory, files or shared memory than a little."""
        run = Run(self.captioner, "often", setting, 9999, setting.survive, "--save-memory=1", MIMO_DEADLINE_MS="1000")
        run.wait_for_step(3)
        halves = {}
        for number in range(1, TIMES + 1):
            run.signal(setting.ranks - 1, signal.SIGSTOP)
            time.sleep(1.5)
            run.signal(setting.ranks - 1, signal.SIGCONT)
            run.wait_for("a generation", lambda: len(WENT_ON.findall(run.errors)) >= number)
            lines = run.lines()
            run.wait_for("its steps", lambda: run.lines() > lines + 2)
            if number in (TIMES // 2, TIMES):
                halves[number] = [holdings(run.pids.get(rank)) for rank in range(setting.ranks)]
        run.process.terminate()
        run.end()
        flat = len(halves) == 2 and all(last and last[0] - first[0] < MORE_KIB and last[1:] == first[1:]
                                        for first, last in zip(*halves.values()))
        print(f"{'ok  ' if flat else 'FAIL'} by number of recoveries, KiB, descriptors and entries of /dev/shm: {halves}")
        if not flat:
            print(run.errors)
            self.wrong += 1


def main():
    mpirun, program, count, seed = (*sys.argv[1:], *("100", "1")[len(sys.argv) - 3:])
    with tempfile.TemporaryDirectory() as folder:
        test = Survivors(Captioner(mpirun, program, folder))
        test.captioner.prepare(16, one_in=60)
        for number in range(int(count)):
            test.lose(number, seed)
        print(f"{int(count) - test.wrong} of {count} runs ended with the file of one that nothing happened to; "
              f"they went on after {dict(test.seen)}")
        if test.seconds:
            print(f"a killed rank: the model was back {statistics.median(test.seconds):.1f} s after the deadline's "
                  f"end, at most {max(test.seconds):.1f} s")
        test.recover_often(Setting(3, ["--encoder=tp=1,dp=3", "--llm=tp=1,cp=1,dp=3"], ""))
        sys.exit(f"{test.wrong} runs failed" if test.wrong else 0)


main()
