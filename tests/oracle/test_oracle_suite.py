#!/usr/bin/env python3
"""What oracle_suite.py counts as a bug that was caught: each of these would hide one."""
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


if __name__ == "__main__":
    unittest.main()
