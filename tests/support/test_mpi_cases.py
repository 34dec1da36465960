#!/usr/bin/env python3
"""No test of a shared launch hides another's result, and each is counted."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

import count_results
import mpi_cases

# Replaces mpirun. A test's name says how it ends.
LAUNCHER = f"""#!{sys.executable}
import sys, time
tests = sys.argv[6::2]
together = "together" if len(tests) > 1 else "alone"
def say(text):
    print(text, flush=True)
for test in tests:
    how = test.split("/")[1].rstrip("0123456789")
    if how == "skips":
        sys.exit(77)
    if how == "never_begins":
        sys.exit(3)
    say(f"test {{test}} begins")
    say(f"{{test}} {{together}}")
    if how == "dies":
        sys.exit(9)
    if how == "exits":
        sys.exit(0)
    if how == "hangs":
        time.sleep(60)
    if how == "fails" or how == "needs_company" and together == "alone":
        say(f"test {{test}} failed")
        sys.exit(1)
    if how == "slow":
        time.sleep(0.6)
    if how != "mumbles" or together == "alone":
        say(f"noise and test {{test}} passed")
    if how == "leaves_badly":
        sys.exit(5)
    if how == "never_ends":
        time.sleep(60)
"""
SECONDS = 1  # for a test that hangs, and enough for the others


class Launches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.launcher = os.path.join(folder.name, "launcher")
        with open(self.launcher, "w", encoding="utf-8") as f:
            f.write(LAUNCHER)
        os.chmod(self.launcher, 0o755)
        self.command = [self.launcher, "--oversubscribe", "-n", "3", "program"]

    def ends(self, *names, seconds=SECONDS):
        """(result, the tests' own words) of each test."""
        tests = [f"s/{name}" for name in names]
        outcomes = list(mpi_cases.run_tests(self.command, tests, seconds))
        self.assertEqual(len(outcomes), len(tests))
        return [(outcome.result, " ".join(outcome.said.splitlines())) for outcome in outcomes]

    def results(self, *names):
        return [result for result, _ in self.ends(*names)]

    def test_all_pass(self):
        self.assertEqual(self.ends("a", "b", "c", seconds=60), [
            ("ok", "s/a together"), ("ok", "s/b together"), ("ok", "s/c together")])

    def test_one_test(self):
        self.assertEqual(self.ends("a", seconds=60), [("ok", "s/a alone")])
        self.assertEqual(self.results("dies"), ["not ok"])
        self.assertEqual(self.results("hangs"), ["not ok"])
        self.assertEqual(self.results("never_begins"), ["not ok"])
        self.assertEqual(self.results("leaves_badly"), ["not ok"])
        self.assertEqual(self.results("never_ends"), ["not ok"])
        self.assertEqual(self.results("exits"), ["not ok"])

    def test_that_fails(self):
        self.assertEqual(self.ends("a", "fails", "b", "fails2", seconds=60), [
            ("ok", "s/a together"),
            ("not ok", "s/fails together the launch ended with exit status 1 in this test, or "
             "behind it"),
            ("ok", "s/b alone"),
            ("not ok", "s/fails2 alone the launch ended with exit status 1")])

    def test_that_dies(self):
        self.assertEqual(self.ends("a", "dies", "b", seconds=60), [
            ("ok", "s/a together"),
            ("not ok", "s/dies together the launch ended with exit status 9 in this test, or "
             "behind it"),
            ("ok", "s/b alone")])
        self.assertEqual(self.results("dies", "a", "dies2"), ["not ok", "ok", "not ok"])

    def test_that_hangs(self):
        self.assertEqual(self.ends("a", "hangs", "b"), [
            ("ok", "s/a together"),
            ("not ok", "s/hangs together the launch hung in this test, or behind it"),
            ("ok", "s/b alone")])

    def test_the_limit_is_that_of_one_test(self):
        self.assertEqual(self.ends("slow1", "slow2", "slow3"), [
            ("ok", f"s/slow{i} together") for i in (1, 2, 3)])

    def test_whose_end_is_not_seen(self):
        self.assertEqual(self.results("a", "mumbles", "b", "dies"), ["ok", "ok", "ok", "not ok"])

    def test_launch_that_ends_badly_behind_a_test(self):
        self.assertEqual(self.results("a", "leaves_badly", "b"), ["ok", "not ok", "ok"])
        self.assertEqual(self.results("a", "leaves_badly"), ["ok", "not ok"])
        self.assertEqual(self.results("a", "never_ends"), ["ok", "not ok"])

    def test_what_ends_a_launch_without_a_word_runs_alone(self):
        self.assertEqual(self.results("a", "skips", "b"), ["ok", "skip", "ok"])
        self.assertEqual(self.results("never_begins", "a"), ["not ok", "ok"])
        self.assertEqual(self.results("a", "exits", "b"), ["ok", "not ok", "ok"])

    def printed(self, *words):
        text, complaint = io.StringIO(), io.StringIO()
        sys.argv = ["mpi_cases.py", self.launcher, "3", "program"]
        sys.argv += [part for word in words
                     for part in (["--filter", word] if "/" in word else [word])]
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(complaint):
            status = mpi_cases.main()
        return status, text.getvalue(), complaint.getvalue()

    def test_words_choose(self):
        self.assertEqual(self.printed("s/a", "s/b", "s/ab", "b"), (
            0, "1..2\nok 1 - s/b\n# s/b together\nok 2 - s/ab\n# s/ab together\n", ""))
        self.assertEqual(self.printed("s/a", "s/b", "x", "y"), (
            2, "", "no test has x or y in its name: s/a s/b\n"))

    def test_report(self):
        status, text, complaint = self.printed("s/a", "s/fails", "s/skips")
        self.assertEqual(status, 1)
        self.assertEqual(text.splitlines(), [
            "1..3", "ok 1 - s/a", "# s/a together", "not ok 2 - s/fails", "ok 3 - s/skips # SKIP"])
        self.assertTrue(complaint.startswith("s/fails failed:\ns/fails together\n"), complaint)
        self.assertEqual(self.printed("s/a"), (0, "1..1\nok 1 - s/a\n# s/a alone\n", ""))


def record(result, stdout, command=("python3", "mpi_cases.py")):
    return json.dumps({"result": result, "stdout": stdout, "command": command})


class Counts(unittest.TestCase):
    def counted(self, *records):
        return tuple(count_results.count(records).values())

    def test_a_plain_test(self):
        self.assertEqual(self.counted(record("OK", None, ["a"]), record("EXPECTEDFAIL", "", ["a"]),
                                      record("SKIP", "", ["a"]), record("TIMEOUT", "", ["a"]),
                                      record("OK", "1..7\n", ["a"])), (3, 1, 1))

    def test_each_of_a_launch(self):
        self.assertEqual(self.counted(record("OK", "1..2\nok 1 - s/a\n# ok 7 - s/b\nok 2 - s/b\n"),
                                      record("OK", "1..2\nok 1 - s/a # SKIP\nok 2 - s/b\n")),
                         (3, 0, 1))
        self.assertEqual(self.counted(record("ERROR", "1..2\nok 1 - s/a\nnot ok 2 - s/b\n")),
                         (1, 1, 0))

    def test_notes_of_tests(self):
        self.assertEqual(self.counted(record("OK", "1..4\nok 1 - s/a # 0.1 s\nok 2 - s/b # SKIP why\n"
                                             "ok 3 - mutation: of two words\nnot ok 4 - s/c # sum 1\n",
                                             ["mpirun", "rank_runner.py"])), (2, 1, 1))

    def test_a_plan_behind_the_tests(self):
        self.assertEqual(self.counted(record("OK", "ok 1 - s/a\nok 2 - s/b\n1..2\n")), (2, 0, 0))
        self.assertEqual(self.counted(record("ERROR", "ok 1 - s/a\n")), (1, 1, 0))

    def test_a_launch_that_was_ended(self):
        self.assertEqual(self.counted(record("TIMEOUT", "1..3\nok 1 - s/a\n")), (1, 2, 0))
        self.assertEqual(self.counted(record("TIMEOUT", "1..1\nok 1 - s/a\n")), (1, 1, 0))
        self.assertEqual(self.counted(record("ERROR", "")), (0, 1, 0))


if __name__ == "__main__":
    unittest.main()
