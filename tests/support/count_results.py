#!/usr/bin/env python3
"""Counts the tests of a testlog.json of Meson.

    count_results.py LOG STATUS

The last line is "N passed, N failed, N skipped". A launch of several tests (SEVERAL) counts with
each of them. The exit status is 0 only where nothing failed, and where STATUS is 0: the exit
status of meson test.
"""
import json
import re
import sys

KINDS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
SEVERAL = ("mpi_cases.py", "rank_runner.py")  # of a command that prints TAP
PLAN = re.compile(r"^1\.\.(\d+)$", re.M)  # before the tests, or behind them
TAP = re.compile(r"^(not ok|ok) \d+ - [^#\n]*(# SKIP)?", re.M)


def kinds_of(record):
    """passed, failed or skipped, for each test of one record."""
    of_all = KINDS.get(record["result"], "failed")
    said = record["stdout"] or ""
    kinds = ["failed" if word == "not ok" else "skipped" if skip else "passed"
             for word, skip in TAP.findall(said)]
    planned = PLAN.search(said)
    if not (planned or kinds) or not any(
            name in word for name in SEVERAL for word in record["command"]):
        return [of_all]
    if planned:
        kinds += ["failed"] * (int(planned[1]) - len(kinds))  # it was ended before these
    if of_all == "failed" and "failed" not in kinds:
        kinds.append("failed")
    return kinds


def count(lines):
    """Meson's own summary counts timeouts and unexpected passes apart."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for line in lines:
        for kind in kinds_of(json.loads(line)):
            counts[kind] += 1
    return counts


def main():
    log, status = sys.argv[1], int(sys.argv[2])
    counts = count([])
    try:
        with open(log, encoding="utf-8") as lines:
            counts = count(lines)
    except OSError:
        print("no test ran", file=sys.stderr)
        status = status or 1
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    return 1 if status or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
