#!/usr/bin/env python3
"""On two hosts of two ranks (on_hosts.sh) a rank ends, or the link between the hosts is cut: all that
live get MIMO_ERR_TIMEOUT within twice the deadline.

    test_host_faults.py MPIRUN FAULT_RANKS           four launches
    test_host_faults.py MPIRUN FAULT_RANKS --every   those of test_dead_ranks.py, and each with a cut

The ranks of a launch print, and leave without MPI_Finalize. mpirun does not see that, so it is ended
when the last line has come. One launch at a time: they share the link.
"""
import subprocess
import sys
import threading

from test_dead_ranks import (DEADLINE_MS, LAUNCHES, LIMIT_S, RANKS, VICTIM, faults, lines_in,
                             memory_left, names_rank, report, told, words_of)

FORWARD = "bridge 1 forward of 1: f32 sbh[2,2,3] from f32"
FEW = [
    ("forward", "data", "kill", "routed", FORWARD),
    ("buffer", "memory", "kill", "routed", "buffer create: "),
    ("barrier", "before", "cut", "routed", "barrier: "),
    ("forward", "data", "cut", "collective", FORWARD),
]


def every_launch():
    cut = [(call, moment, "cut", *rest) for call, moment, _, *rest in LAUNCHES]
    return list(dict.fromkeys(LAUNCHES + cut))


def awaited(end):
    """The (rank, what) that a launch prints."""
    if end == "cut":
        return {(rank, what) for rank in range(RANKS) for what in ("call", "next")}
    lines = {(rank, what) for rank in set(range(RANKS)) - {VICTIM} for what in ("call", "next", "new")}
    return lines | ({(VICTIM, "call")} if end == "sleep" else set())


def run(mpirun, program, launch):
    """The lines of the ranks, by (rank, what), and all that was printed."""
    command = [mpirun, "--enable-recovery", "--oversubscribe", "-n", str(RANKS), program, *launch[:4]]
    lines, output = {}, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        limit = threading.Timer(LIMIT_S, process.terminate)
        limit.start()
        for line in process.stdout:
            output.append(line)
            lines.update(lines_in(line))
            if lines.keys() >= awaited(launch[2]):
                process.terminate()
                break
        output.append(process.stdout.read())
        limit.cancel()
    return lines, "".join(output)


def names_other_host(rank, sentence):
    """Whether a sentence names a rank that the cut has taken away, or one that gave up earlier."""
    first = 0 if rank >= VICTIM else VICTIM
    return any(names_rank(other, sentence) for other in (first, first + 1))


def cut_faults(lines, launch):
    """What is wrong with the lines of a launch whose link was cut, each in words. In which call of the
    library's own the two hosts miss each other may differ."""
    missed = 0
    for rank in range(RANKS):
        status, ms, sentence = told(lines, rank, "call")
        if ms > 2 * DEADLINE_MS:
            yield f"rank {rank} gave up after {ms} ms"
        if status == "MIMO_OK" and launch[1] != "before":
            continue  # it had all that it needed from the other host
        missed += 1
        if status != "MIMO_ERR_TIMEOUT" or not names_other_host(rank, sentence):
            yield f"rank {rank} does not name the other host: {status}, {sentence}"
    if missed == 0:
        yield "nobody missed the other host"
    for rank in range(RANKS):
        status, ms, sentence = told(lines, rank, "next")
        if status != "MIMO_ERR_TIMEOUT" or ms > 2 * DEADLINE_MS:
            yield f"rank {rank}, next call: {status} after {ms} ms, {sentence}"


def main():
    mpirun, program = sys.argv[1:3]
    failed = 0
    for launch in every_launch() if sys.argv[3:] == ["--every"] else FEW:
        lines, output = run(mpirun, program, launch)
        cut = launch[2] == "cut"
        wrong = list(cut_faults(lines, launch) if cut else faults(lines, launch, RANKS))
        wrong += memory_left(output, launch[1] == "name" and not cut)
        failed += report(words_of(launch, lines), wrong, output)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
