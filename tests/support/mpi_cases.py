#!/usr/bin/env python3
"""Runs tests of one program of ranks in one launch, and prints a line of TAP for each.

    mpi_cases.py MPIRUN RANKS PROGRAM --filter SUITE/TEST [--filter SUITE/TEST]... [WORD...]

With WORDs, only the tests that have one of them in their names.

A launch ends at the first test that fails, dies or hangs. That test has failed. The tests behind it
are then launched again, each by itself, so no test hides the result of another.
"""
import re
import select
import subprocess
import sys
import time
import typing

SECONDS = 240  # that a test may take
SECONDS_TO_END = 10  # that mpirun has to end its ranks
SKIPPED = 77
MARK = re.compile(r"test (\S+/\S+) (begins|passed|failed)$")  # printed by mpi_test.c


class Launch(typing.NamedTuple):
    """What a launch printed in each test that began, in this order; the tests that passed; and its
    exit status, None where it hung."""

    said: dict
    passed: set
    status: typing.Optional[int]

    def ending(self):
        if self.status is None:
            return "the launch hung"
        return f"the launch ended with exit status {self.status}"


class Outcome(typing.NamedTuple):
    result: str  # "ok", "not ok" or "skip"
    said: str


def lines_of(process, seconds):
    """The lines that a process prints. TimeoutError where it prints no mark for that long."""
    rest, until = b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([process.stdout], [], [], max(0, until - time.monotonic()))
        if not ready:
            raise TimeoutError
        read = process.stdout.read1()
        *lines, rest = (rest + read).split(b"\n")
        for line in lines if read else [rest]:
            text = line.decode(errors="replace")
            if MARK.search(text):
                until = time.monotonic() + seconds
            yield text
        if not read:
            return


def end(process):
    """mpirun ends its ranks when it is asked to end."""
    process.terminate()
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()


def launch(command, tests, seconds):
    said, passed, now = {}, set(), None
    filters = [word for test in tests for word in ("--filter", test)]
    with subprocess.Popen([*command, *filters], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        try:
            for line in lines_of(process, seconds):
                mark = MARK.search(line)
                if mark and mark[2] == "begins":
                    now = mark[1]
                elif mark and mark[2] == "passed":
                    passed.add(mark[1])
                said.setdefault(now, []).extend([] if mark or not line else [line])
            status = process.wait(seconds)
        except (TimeoutError, subprocess.TimeoutExpired):
            status = None
            end(process)
    return Launch(said, passed, status)


def outcome_alone(run, test):
    said = "\n".join(line for lines in run.said.values() for line in lines)
    if run.status == SKIPPED:
        return Outcome("skip", said)
    if run.status == 0 and test in run.passed:
        return Outcome("ok", said)
    return Outcome("not ok", f"{said}\n{run.ending()}")


def outcomes_together(run, tests):
    """The outcomes of the first tests. An outcome that tells nothing of its test is left out."""
    outcomes = []
    for test in tests:
        if test not in run.passed:
            break
        outcomes.append(Outcome("ok", "\n".join(run.said.get(test, []))))
    if run.status in (0, SKIPPED):
        return outcomes
    begun = [test for test in run.said if test]
    if begun and begun[-1] in tests[:len(outcomes) + 1]:
        del outcomes[tests.index(begun[-1]):]
        said = "\n".join(run.said[begun[-1]])
        outcomes.append(Outcome("not ok", f"{said}\n{run.ending()} in this test, or behind it"))
    return outcomes


def run_tests(command, tests, seconds=SECONDS):
    """Each test's outcome, in the order of the tests."""
    if len(tests) > 1:
        found = outcomes_together(launch(command, tests, seconds), tests)
        yield from found
        tests = tests[len(found):]
    for test in tests:
        yield outcome_alone(launch(command, [test], seconds), test)


def comment(text):
    return "".join(f"# {line}\n" for line in text.splitlines())


def report(tests, outcomes):
    """Prints TAP. What failed tests said goes to stderr, as Meson shows only that of a TAP test.
    Returns the number of those tests."""
    failed = []
    print(f"1..{len(tests)}", flush=True)
    for number, (test, outcome) in enumerate(zip(tests, outcomes), 1):
        word = "not ok" if outcome.result == "not ok" else "ok"
        skip = " # SKIP" if outcome.result == "skip" else ""
        print(f"{word} {number} - {test}{skip}", flush=True)
        if word == "ok":
            print(comment(outcome.said), end="", flush=True)
        else:
            failed.append((test, outcome))
    for test, outcome in failed:
        print(f"{test} failed:\n{outcome.said}", file=sys.stderr)
    return len(failed)


def main():
    mpirun, ranks, program, *words = sys.argv[1:]
    tests = []
    while words[:1] == ["--filter"]:
        tests.append(words[1])
        words = words[2:]
    chosen = [test for test in tests if not words or any(word in test for word in words)]
    if not chosen:
        print(f"no test has {' or '.join(words)} in its name: {' '.join(tests)}", file=sys.stderr)
        return 2
    command = [mpirun, "--oversubscribe", "-n", ranks, program]
    return 1 if report(chosen, run_tests(command, chosen)) else 0


if __name__ == "__main__":
    sys.exit(main())
