#!/usr/bin/env python3
"""Two GPUs train to the same bits as one, over NCCL, by every executor.

    test_gpu_same_bits.py MPIRUN MIMO_ORACLE [--gpus]

mimo-oracle prints a line for each step: bits of loss and norm, hashes of gradients and parameters.
In the fixed order two ranks must print the lines of one, byte for byte; in the fast order they print
others, or this test sees nothing. Without --gpus all runs on the host, by the executors that are
there. Exit status 77 with fewer than two GPUs, or without CUDA.
"""
import subprocess
import sys

SKIPPED, STEPS, LIMIT_S = 77, 10, 120
TRAIN = ["--same-bits", "8,4", "--train", str(STEPS)]
ONE = ["--encoder", "tp=1,dp=1", "--llm", "tp=1,cp=1,dp=1"]
# Encoder, LLM, other arguments, and whether the host has this executor. Each splits the LLM
# otherwise; the bridge sums over cp in two, gathers samples in one, and hands them out in one.
PAIRS = [
    ("tp=2,dp=1", "tp=1,cp=2,dp=1", ["--executor", "collective"], True),
    ("tp=1,dp=2", "tp=1,cp=2,dp=1", ["--executor", "p2p"], True),
    ("tp=2,dp=1", "tp=1,cp=2,dp=1", ["--executor", "staged"], False),
    ("tp=1,dp=2", "tp=2,cp=1,dp=1", ["--sp", "--executor", "zero-copy"], True),
    ("tp=2,dp=1", "tp=1,cp=1,dp=2", ["--executor", "staged"], False),
    ("tp=1,dp=2", "tp=1,cp=1,dp=2", ["--micro-batches", "2", "--executor", "zero-copy"], True),
]
ADAPTERS = [[], ["--adapters", "4"]]


def lines_of(mpirun, ranks, command):
    """The lines of the steps. The run is over where a launch fails, or skips."""
    command = [mpirun, "--oversubscribe", "-n", str(ranks), *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks
            output, _ = process.communicate()
    lines = [line for line in output.splitlines() if line.startswith(b"step ")]
    if process.returncode != 0 or len(lines) != STEPS:
        print(f"{' '.join(command)}: exit status {process.returncode}, {len(lines)} of {STEPS} "
              f"steps\n{output.decode(errors='replace')}")
        sys.exit(SKIPPED if process.returncode == SKIPPED else 1)
    return lines


def compare(name, lines, expected, same):
    step = next((i for i, (a, b) in enumerate(zip(lines, expected), 1) if a != b), 0)
    right = (step == 0) == same
    print(f"{'' if right else 'WRONG: '}{name}: "
          f"{f'differs from one rank in step {step}' if step else 'the bits of one rank'}", flush=True)
    return right


def main():
    mpirun, oracle, gpus = sys.argv[1], sys.argv[2], sys.argv[3:] == ["--gpus"]
    program = [oracle, "--device", "cuda" if gpus else "cpu", *TRAIN]
    pairs = [pair for pair in PAIRS if gpus or pair[3]]
    verdicts = []
    for adapters in ADAPTERS:
        one = lines_of(mpirun, 1, [*program, *ONE, *adapters])
        for encoder, llm, more, _ in pairs:
            options = ["--encoder", encoder, "--llm", llm, *more, *adapters]
            two = lines_of(mpirun, 2, [*program, *options])
            verdicts.append(compare(" ".join(options), two, one, True))
    fast = ["--fast", "--encoder", "tp=1,dp=2", "--llm", "tp=2,cp=1,dp=1"]
    verdicts.append(compare(" ".join(fast), lines_of(mpirun, 2, [*program, *fast]),
                            lines_of(mpirun, 1, [*program, *ONE, "--fast"]), False))
    print(f"{verdicts.count(True)} of {len(verdicts)} as they must be")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
