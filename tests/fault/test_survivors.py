#!/usr/bin/env python3
"""A rank dies, and another one at each step of the recovery: the others go on, and know the same.

    test_survivors.py MPIRUN SURVIVOR_RANKS

mpirun --enable-recovery leaves the others running and always exits 0, so the verdict rests on what they
print. A launch that outlives its limit is ended by SIGTERM, and has failed.
"""
import concurrent.futures
import re
import sys

from test_dead_ranks import LIMIT_S, launch_ranks, report

VICTIM, RANKS = 2, 5
AT_A_TIME = 3  # ranks mostly wait
ATTEMPT = re.compile(r"rank (\d) attempt (MIMO_\w+) (\d+) ms: (.*)")
PLACE = re.compile(r"rank (\d) on with ([\d ]+) generation (\d+)")

# Ranks that have to be left (0: more than half), who else ends, how, and when.
LAUNCHES = [
    ("0", "-1", "kill", "call"),
    ("0", "0", "kill", "1:3"),    # some have heard that it is
    ("0", "0", "kill", "2:2"),    # some have it
    ("0", "3", "kill", "3:1"),
    ("0", "0", "kill", "4:1"),
    ("0", "0", "kill", "4:3"),
    ("0", "3", "kill", "5:1"),
    ("0", "1", "kill", "settle"),
    ("0", "3", "stop", "call"),
    ("0", "3", "stop", "3:1"),
    ("0", "3", "stop", "5:1"),
    ("5", "-1", "kill", "call"),
    ("4", "0", "kill", "2:1"),
    ("2", "3", "kill", "5:1"),
]


def faults_of_the_rest(attempts, launch, gone):
    """Fewer are left than have to be: what each of the others says last."""
    for rank in set(range(RANKS)) - gone:  # some may have left before it looks
        status, _, sentence = attempts.get(rank, [("nothing", 0, "")])[-1]
        found = re.search(rf"(\d) of {RANKS} ranks are left after .*, and at least (\d) have to be; "
                          r"ranks? ([\d, ]+) (?:is|are) gone$", sentence)
        if (status != "MIMO_ERR_STATE" or not found or int(found[1]) > RANKS - len(gone) or found[2] != launch[0]
                or not gone <= {int(each) for each in found[3].split(", ")}):
            yield f"rank {rank}: {status}, {sentence}"


def faults(output, launch):
    """What is wrong with what the ranks of a launch print, each in words."""
    least, second, how, moment = launch
    attempts, places = {}, {}
    for rank, status, ms, sentence in ATTEMPT.findall(output):
        attempts.setdefault(int(rank), []).append((status, int(ms), sentence))
    for rank, members, generation in PLACE.findall(output):
        places[int(rank)] = ([int(each) for each in members.split()], int(generation))
    gone = {VICTIM, int(second)} - {-1}
    left = sorted(set(range(RANKS)) - gone)
    if len(left) < int(least):
        yield from faults_of_the_rest(attempts, launch, gone)
        return
    generations = {places.get(rank, (None, 0))[1] for rank in left}
    for rank in left:
        if places.get(rank, (None, 0))[0] != left:
            yield f"rank {rank} goes on with {places.get(rank)}, not {left}"
    if len(generations) != 1 or 0 in generations:
        yield f"generations {generations}"
    if how == "stop":  # it wakes, and learns that it is out
        status, _, sentence = attempts.get(int(second), [("nothing", 0, "")])[-1]
        ranks = ", ".join(map(str, left))
        words = f"ranks {ranks} went on without this one, rank {second}, as generation {max(generations)}"
        if status != "MIMO_ERR_ABORTED" or words not in sentence or int(second) in places:
            yield f"the rank that was stopped: {status}, {sentence}"
    elif moment == "settle":  # the new communicator has ended, and its ranks know the dead one
        if any(ms > 500 for rank in left for _, ms, _ in attempts[rank][1:]):
            yield f"a rank waits for one that is gone: {attempts}"
    elif moment.startswith(("3", "4", "5")):
        # Those that had accepted give that attempt up: they see who died, or another rank that gave up.
        told = [sentence for rank in left for status, _, sentence in attempts[rank] if status == "MIMO_ERR_TIMEOUT"]
        if not any(f"rank {second} is gone" in each for each in told) or any("no sign" in each for each in told):
            yield f"nobody names rank {second}: {told}"


def main():
    mpirun, program = sys.argv[1:3]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        runs = pool.map(lambda launch: launch_ranks(mpirun, RANKS, [program, *launch]), LAUNCHES)
        for launch, (output, ended) in zip(LAUNCHES, runs):
            wrong = list(faults(output, launch)) + ([] if ended else [f"no end within {LIMIT_S} s"])
            slowest = max((int(ms) for _, _, ms, _ in ATTEMPT.findall(output)), default=0)
            failed += report(f"{' '.join(launch)}: {slowest} ms", wrong, output)
    print(f"{failed} of {len(LAUNCHES)} launches failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
