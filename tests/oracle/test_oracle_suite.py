#!/usr/bin/env python3
"""What oracle_suite.py counts as a caught bug: each of these cases would hide a bug. Then: no run
is lost where another run of its launch dies."""
import os
import sys
import tempfile
import unittest

import oracle_suite


def result_of(worst, fault=None, phase="sgd", reached=True):
    return {"mutation_reached": reached, "first_failing_phase": phase, "failed_ranks": 0,
            "ranks": 8, "phases": [{"phase": phase, "worst": worst, "limit": 3e-6,
                                    "fault": fault}]}


class Caught(unittest.TestCase):
    def test_an_error_past_its_limit(self):
        self.assertTrue(oracle_suite.is_caught(result_of(3.1e-6), 1, "sgd"))

    def test_an_error_that_is_no_number(self):
        self.assertTrue(oracle_suite.is_caught(result_of(None), 1, "sgd"))

    def test_a_fault_alone(self):
        result = result_of(1e-7, "the reference moved 1.0e-05, and needs 1.2e-05")
        self.assertFalse(oracle_suite.is_caught(result, 1, "sgd"))

    def test_another_phase_or_status_or_a_bug_that_never_ran(self):
        self.assertFalse(oracle_suite.is_caught(result_of(1), 1, "adamw"))
        self.assertFalse(oracle_suite.is_caught(result_of(1), 0, "sgd"))
        self.assertFalse(oracle_suite.is_caught(result_of(1, reached=False), 1, "sgd"))

    def test_errors_on_some_ranks_only(self):
        result = result_of(1, phase="run") | {"failed_ranks": 7}
        self.assertFalse(oracle_suite.is_caught(result, 1, "run"))
        self.assertTrue(oracle_suite.is_caught(result | {"failed_ranks": 8}, 1, "run"))


# Replaces mpirun. A run whose seed is 13 ends its launch.
LAUNCHER = f"""#!{sys.executable}
import sys
words = sys.argv[5:]
if words[0] != "--runs":
    print("alone:", *words)
    sys.exit(3)
for number, line in enumerate(open(words[1]), 1):
    if "13" in line.split():
        sys.exit("a rank died")
    print("together:", line.strip())
    print(f"run {{number}}: exit status {{number % 2}}, 0.250 s", flush=True)
"""


class Launches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        launcher = os.path.join(folder.name, "launcher")
        with open(launcher, "w", encoding="utf-8") as f:
            f.write(LAUNCHER)
        os.chmod(launcher, 0o755)
        self.programs = (launcher, "mimo-oracle")

    def outcomes(self, rows):
        options = [["--llm", f"dp={ranks}", "--seed", str(seed)] for ranks, seed in rows]
        return [(outcome.said.strip(), outcome.status)
                for outcome in oracle_suite.launch_all(self.programs, options)]

    def test_equal_numbers_of_ranks_share_a_launch(self):
        self.assertEqual(self.outcomes([(2, 5), (4, 6), (2, 7)]), [
            ("together: --llm dp=2 --seed 5", 1), ("together: --llm dp=4 --seed 6", 1),
            ("together: --llm dp=2 --seed 7", 0)])

    def test_runs_that_did_not_end_run_alone(self):
        self.assertEqual(self.outcomes([(2, 5), (2, 13), (2, 7), (4, 6)]), [
            ("together: --llm dp=2 --seed 5", 1), ("alone: --llm dp=2 --seed 13", 3),
            ("alone: --llm dp=2 --seed 7", 3), ("together: --llm dp=4 --seed 6", 1)])


if __name__ == "__main__":
    unittest.main()
