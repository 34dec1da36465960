#!/usr/bin/env python3
"""A stage of a pipeline dies before a step of its list: the others get a sentence that says in which step
they waited, within twice the deadline.

    test_dead_stages.py MPIRUN PIPELINE_RANKS          before a few steps, and before none
    test_dead_stages.py MPIRUN PIPELINE_RANKS --every  before every step
"""
import concurrent.futures
import re
import sys

from test_dead_ranks import AT_A_TIME, DEADLINE_MS, RANKS, VICTIM, names_rank, report, run, told

STEPS = 36  # of a list: 6 micro-batches of F and B, and E, BF, BB and EB of as many groups
FEW = [("0", "kill"), ("13", "kill"), ("27", "exit"), (str(STEPS), "kill")]
# At the end of a walk, where all that was sent arrives, there is no step.
WAITED = re.compile(r"(?:stage (\d), (?:micro-batch|group) \d: )?bridge '(?:activations|gradients|images)' ")


def call_faults(lines, rank):
    """What is wrong with how the walk of a rank ended. A stage may have had all that it needed."""
    status, ms, sentence = told(lines, rank, "call")
    if status == "MIMO_OK":
        return
    waited = WAITED.match(sentence)
    if status != "MIMO_ERR_TIMEOUT" or not waited or waited[1] not in (None, str(rank)):
        yield f"stage {rank}: {status}, {sentence}"
    if ms > 2 * DEADLINE_MS:
        yield f"stage {rank} gave up after {ms} ms"


def faults(lines, step):
    """What is wrong with the lines of a launch, each in words."""
    living = set(range(RANKS)) - {VICTIM}
    ended = [told(lines, rank, "next") for rank in living]
    if step == STEPS:
        if any(told(lines, rank, "call")[0] != "MIMO_OK" for rank in range(RANKS)):
            yield f"nobody died: {lines}"
        return
    for rank in living:
        yield from call_faults(lines, rank)
    # A neighbour of the dead stage names it. Others may give up first, as they wait for that neighbour.
    if not any(names_rank(VICTIM, told(lines, rank, what)[2]) for rank in living for what in ("call", "next")):
        yield f"nobody names the dead stage: {lines}"
    for status, ms, sentence in ended:
        if status != "MIMO_ERR_TIMEOUT" or ms > 2 * DEADLINE_MS:
            yield f"next call: {status} after {ms} ms, {sentence}"


def main():
    mpirun, program = sys.argv[1:3]
    every = sys.argv[3:] == ["--every"]
    launches = [(str(step), "kill") for step in range(STEPS + 1)] if every else FEW
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        runs = pool.map(lambda launch: run(mpirun, RANKS, [program, *launch]), launches)
        for launch, (lines, output) in zip(launches, runs):
            wrong = ["still running"] if lines is None else list(faults(lines, int(launch[0])))
            failed += report(f"before step {launch[0]}, {launch[1]}", wrong, output)
    sys.exit(1 if failed else 0)


main()
