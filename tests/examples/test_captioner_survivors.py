"""A captioner loses ranks, goes on without them in the same processes, and ends with the very file of a run that
nothing happened to: what is in memory, what is in the checkpoint where both copies are lost, a rank that was stopped
and wakes; and what it does where it can't go on. captioner_survivors.py has many of these. All runs are under way at
the same time: most of their time they wait for a deadline."""
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from captioner_runs import Captioner, Checks, LIST, run_test
from survivor_runs import DEADLINE_MS, rank_pids, Run, Setting, SETTINGS, WENT_ON

STEPS = 10
SMALL = Setting(3, ["--encoder=tp=1,dp=3", "--llm=tp=1,cp=1,dp=3"], "")


class Survivors(Checks):
    def __init__(self, captioner, diff, left_early):
        super().__init__(captioner)
        self.diff = diff
        self.left_early = Captioner(captioner.mpirun, left_early, captioner.folder)

    def whole(self, setting):
        run = Run(self.captioner, "whole", setting, STEPS)
        ended = run.end()
        if ended != [0] * setting.ranks:
            sys.exit(f"{setting.flags}: {ended}\n{run.errors}")
        return run

    def ends_well(self, run, whole, statuses, went):
        """Its file and all steps of its log are those of the whole run. `went`: a pattern of the only generation's
        line. On busy cores a run comes further before its rank is killed."""
        wrong = run.wrong(whole.save, statuses, run.end())
        self.expect(wrong is None, f"{wrong}\n{run.errors}{run.said}")
        said = [line.group() for line in WENT_ON.finditer(run.errors)]
        self.expect(len(said) == 1 and re.fullmatch(f"captioner: generation 1: {went}", said[0]) is not None,
                    f"not {went}: {run.errors}")
        done = subprocess.run([self.diff, whole.log, run.log], capture_output=True, text=True, check=False)
        self.expect(done.returncode == 0 and f"equal: steps 1 to {STEPS} ({STEPS})" in done.stdout,
                    f"another log:\n{done.stdout}{done.stderr}")

    def rank_0_dies(self, setting, whole):
        run = Run(self.captioner, "died", setting, STEPS, setting.survive, "--save-memory=3")
        run.wait_for_step(5)
        run.signal(0)
        self.ends_well(run, whole, [0] * 5 + [137], "5 ranks go on from step [369], which is in memory")
        self.expect("captioner: of 6 ranks 5 are left, without 0\n" in run.errors, run.errors)

    def both_copies_die(self, setting, whole):
        run = Run(self.captioner, "file", setting, STEPS, setting.survive, "--save-memory=3", "--save-every=2")
        run.wait_for_step(4)
        run.wait_for("the save", lambda: run.lines() >= 5)
        for rank in (1, 4):
            run.signal(rank)
        self.ends_well(run, whole, [0] * 4 + [137] * 2, f"4 ranks go on from step ([468]|10), which is in {run.save}")

    def stopped(self, setting, whole):
        """It wakes when the others have gone on. An unfinished file of its is open, as in the midst of a picture."""
        out = self.path("stopped.out")
        run = Run(self.captioner, "stopped", setting, STEPS, setting.survive, f"--save-every={STEPS}", f"--out={out}")
        run.wait_for_step(2)
        unfinished = os.path.join(out, f"loss-curve.png.unfinished-{run.pids[0]}-0")
        with open(unfinished, "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            run.signal(0, signal.SIGSTOP)
            run.wait_for_recovery()
            run.signal(0, signal.SIGCONT)
            run.process.wait()
        self.expect(not os.path.exists(unfinished), f"{unfinished} stays")
        self.ends_well(run, whole, [0] * 5 + [1], "5 ranks go on from step 0, as nothing was saved yet")
        words = "captioner: mimo_comm_survivors: ranks 1, 2, 3, 4, 5 went on without this one, rank 0, as generation 1"
        self.expect(f"{words}\n" in run.errors, f"the stopped rank says nothing: {run.errors}")

    def no_grids(self, setting):
        """The checkpoint stays, for --resume."""
        run = Run(self.captioner, "none", setting, STEPS, "--survive=4:", "--save-every=2")
        run.wait_for_step(4)
        run.signal(5)
        ended = run.end()
        self.expect(ended == [1] * 5 + [137], f"{ended}\n{run.errors}")
        self.expect("captioner: 5 ranks are left, and --survive has grids for 4. The model after step " in run.errors
                    and f" is in {run.save}, for --resume\n" in run.errors, run.errors)

    def not_prepared(self, setting):
        """Those that are left cannot replace the log. The checkpoint stays, for --resume."""
        run = Run(self.captioner, "loop", setting, STEPS, setting.survive, "--save-every=2")
        run.wait_for_step(4)
        os.symlink(run.log, run.log + ".loop")
        os.rename(run.log + ".loop", run.log)
        run.signal(5)
        ended = run.end()
        self.expect(ended == [1] * 5 + [137], f"{ended}\n{run.errors}")
        said = re.findall(rf"^captioner: .*{run.log}.*\. The model after step \d+ is in {run.save}, for --resume$",
                          run.errors, re.M)
        self.expect(len(said) > 0, run.errors)

    def dies_while_it_renders(self, setting):
        """Rank 0, from a long list. The next one has a short list."""
        names = self.path("names.txt")
        shutil.copy(LIST, names)
        run = Run(self.captioner, "render", setting, 1, setting.survive, "--save-memory=1", f"--emoji-test={names}",
                  XDG_CACHE_HOME=self.path("cache"), MIMO_STALL_MS="50")
        run.wait_for("the wait", lambda: re.search(r"warning: samples: .*no sign of rank 0", run.errors))
        run.pids = rank_pids(run.save)
        os.replace(self.path("emoji.txt"), names)
        run.signal(0)
        ended = run.end()
        self.expect(ended == [0] * (setting.ranks - 1) + [137], f"{ended}\n{run.errors}")

    def ended_before(self, setting, ranks):
        """Ranks pass the last meeting, end, and are missing to the others, which have nothing left to do."""
        run = Run(self.left_early, f"early{ranks}", setting, 2, setting.survive, "--save-every=2", LEFT_EARLY=ranks)
        ended = run.end()
        self.expect(ended == [0] * setting.ranks, f"{ended}\n{run.errors}")
        self.expect(not WENT_ON.search(run.errors) and run.said.count("\ncheckpoint: ") == 1, run.errors + run.said)

    def too_few(self, setting):
        """Half of them are not enough. Rank 0 is none of those that say so."""
        run = Run(self.captioner, "few", setting, STEPS, setting.survive, "--save-every=2")
        run.wait_for_step(4)
        for rank in (0, 1, 2):
            run.signal(rank)
        ended = run.end()
        self.expect(ended == [1] * 3 + [137] * 3, f"{ended}\n{run.errors}")
        said = re.findall(r"^captioner: .*[1-3] of 6 ranks are left .* at least 4 have to be.* The model after step "
                          r"\d+ is in \S+few\.st, for --resume$", run.errors, re.M)
        self.expect(len(said) == 3, run.errors)

    def refused_at_once(self):
        """Before anything is made; test_captioner_survival.c has all texts."""
        grids = ["--encoder=tp=1,dp=3", "--llm=tp=1,cp=1,dp=3", "--save-memory=1"]
        for deadline, flags, words in ((0, "--survive", "--survive needs a deadline"),
                                       (DEADLINE_MS, "--survive=2: --encoder=dp=3",
                                        "--survive, 2 ranks: --encoder dp=3 is a grid of 3")):
            os.environ["MIMO_DEADLINE_MS"] = str(deadline)
            said = self.captioner.refused(*grids, flags, ranks=3)
            self.expect(words in said, f"not refused with {words}: {said}")


def main(captioner, diff, left_early):
    test = Survivors(captioner, diff, left_early)
    setting = SETTINGS["thirds"]
    whole = test.whole(setting)
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(lose, setting, whole) for lose in (test.stopped, test.rank_0_dies, test.both_copies_die)]
        runs += [pool.submit(lose, setting) for lose in (test.no_grids, test.not_prepared, test.too_few)]
        runs.append(pool.submit(test.dies_while_it_renders, SMALL))
        runs += [pool.submit(test.ended_before, SMALL, ranks) for ranks in ("2", "12")]
    for run in runs:
        run.result()
    test.refused_at_once()
    return test.wrong


run_test(main, one_in=60)
