#!/usr/bin/env python3
"""Two or four GPUs train to the same bits as one, over NCCL, by every executor.

    test_gpu_same_bits.py MPIRUN MIMO_ORACLE [--gpus] [RANKS]

mimo-oracle prints a line for each step: bits of loss and norm, hashes of gradients and parameters.
In the fixed order RANKS (default: 2) must print the lines of one, byte for byte; in the fast order they
print others, or this test sees nothing. Where CAPTIONER_SAMPLES names a file of samples (captioner
--prepare, 32 pixels a side), the captioner's checkpoints must be one file as well. Without --gpus all
runs on the host, by the executors that are there. Exit status 77 with fewer GPUs, or without CUDA.
"""
import filecmp
import os
import subprocess
import sys
import tempfile

SKIPPED, STEPS, LIMIT_S = 77, 10, 120
TRAIN = ["--same-bits", "8,4", "--train", str(STEPS)]
ONE = ["--encoder", "tp=1,dp=1", "--llm", "tp=1,cp=1,dp=1"]
# Encoder, LLM, other arguments, and whether the host has this executor. Each splits the LLM
# otherwise; of two ranks the bridge sums over cp in two, gathers samples in one, and hands them out in one.
PAIRS = {
    2: [("tp=2,dp=1", "tp=1,cp=2,dp=1", ["--executor", "collective"], True),
        ("tp=1,dp=2", "tp=1,cp=2,dp=1", ["--executor", "p2p"], True),
        ("tp=2,dp=1", "tp=1,cp=2,dp=1", ["--executor", "staged"], False),
        ("tp=1,dp=2", "tp=2,cp=1,dp=1", ["--sp", "--executor", "zero-copy"], True),
        ("tp=2,dp=1", "tp=1,cp=1,dp=2", ["--executor", "staged"], False),
        ("tp=1,dp=2", "tp=1,cp=1,dp=2", ["--micro-batches", "2", "--executor", "zero-copy"], True)],
    4: [("tp=1,dp=4", "tp=2,cp=2,dp=1", ["--executor", "zero-copy"], True),
        ("tp=2,dp=2", "tp=1,cp=4,dp=1", ["--executor", "staged"], False),
        ("tp=4,dp=1", "tp=1,cp=2,dp=2", ["--executor", "p2p"], True),
        ("tp=2,dp=2", "tp=4,cp=1,dp=1", ["--sp", "--executor", "zero-copy"], True),
        ("tp=1,dp=4", "tp=1,cp=1,dp=4", ["--micro-batches", "2", "--executor", "staged"], False)],
}
# Of the captioner alone: pictures that any rank may encode, mixtures of experts, and an LLM in stages, by each kind of
# schedule.
IMAGES = ["--images", "0-3", "--balance"]
KINDS = (["--encoder-alive", "4"], ["--schedule", "zero-bubble", "--encoder-alive", "0"],
         ["--schedule", "interleaved:2", "--encoder-group", "3"], ["--schedule", "three-phases"])
GRIDS_OF_STAGES = {2: ["tp=1,cp=1,dp=1,pp=2"], 4: ["tp=1,cp=1,dp=1,pp=4", "tp=2,cp=1,dp=1,pp=2"]}
ADAPTERS = [[], ["--adapters", "4"]]
CAPTIONER = ["--same-bits=8,4", "--steps", "20", "--hidden", "32", "--layers", "2,4",
             "--global-batch", "13"]
EXPERTS = ["--experts", "4,2"]  # shared by all ranks
# A forward beside a backward: exchanges on streams of their own, and the encoder cut where they leave a stage idle.
OVERLAP = ["--micro-batches", "3", "--overlap"]
OVERLAPS = [OVERLAP, [*OVERLAP, "--recompute"], [*OVERLAP, "--recompute=keep", "--encoder-pieces", "2"]]
FORMS = [[], IMAGES, EXPERTS]


def launch(mpirun, ranks, command):
    """What a launch printed. This test is over where it fails, or skips."""
    command = [mpirun, "--oversubscribe", "-n", str(ranks), *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks
            output, _ = process.communicate()
    if process.returncode != 0:
        print(f"{' '.join(command)}: exit status {process.returncode}\n"
              f"{output.decode(errors='replace')}")
        sys.exit(SKIPPED if process.returncode == SKIPPED else 1)
    return output


def lines_of(mpirun, ranks, command):
    lines = [line for line in launch(mpirun, ranks, command).splitlines()
             if line.startswith(b"step ")]
    if len(lines) != STEPS:
        sys.exit(f"{' '.join(command)}: {len(lines)} of {STEPS} steps")
    return lines


def compare(name, lines, expected, same):
    step = next((i for i, (a, b) in enumerate(zip(lines, expected), 1) if a != b), 0)
    right = (step == 0) == same
    print(f"{'' if right else 'WRONG: '}{name}: "
          f"{f'differs from one rank in step {step}' if step else 'the bits of one rank'}", flush=True)
    return right


def stages(ranks):
    """(encoder, LLM, arguments) of the pipelines."""
    return [(f"tp=1,dp={ranks}", llm, ["--micro-batches", "4", *kind]) for llm in GRIDS_OF_STAGES[ranks] for kind in KINDS]


def topologies(ranks, form):
    """(ranks, encoder, LLM, arguments) of the captioner's launches. On devices stages have no mixtures."""
    grids = [*dict.fromkeys(pair[:2] for pair in PAIRS[ranks])]
    if form is not EXPERTS:
        return [*((ranks, *pair, []) for pair in grids), *((ranks, *pipeline) for pipeline in stages(ranks))]
    shared = ["--expert-grid", f"ep={ranks}"]
    return [*((ranks, *pair, shared) for pair in grids), (1, ONE[1], ONE[3], OVERLAP),
            *((ranks, *grids[-1], [*shared, *overlap]) for overlap in OVERLAPS),
            (ranks, *grids[0], [*shared, *OVERLAP])]


def compare_checkpoints(mpirun, captioner, more, ranks):
    """Of these ranks against one, where there are samples."""
    samples, verdicts = os.environ.get("CAPTIONER_SAMPLES"), []
    if not samples or not os.path.exists(captioner):
        print("no CAPTIONER_SAMPLES, or no captioner: checkpoints were not compared")
        return verdicts
    with tempfile.TemporaryDirectory() as folder:
        one, other = os.path.join(folder, "one"), os.path.join(folder, "other")
        for form in FORMS:
            program = [captioner, *CAPTIONER, *form, *more, "--samples", samples]
            launch(mpirun, 1, [*program, *ONE, "--save", one])
            for count, encoder, llm, how in topologies(ranks, form):
                launch(mpirun, count, [*program, "--encoder", encoder, "--llm", llm, "--save", other, *how])
                verdicts.append(filecmp.cmp(one, other, shallow=False))
                print(f"{'' if verdicts[-1] else 'WRONG: '}captioner {' '.join([str(count), encoder, '->', llm, *how, *form])}: "
                      f"{'one file' if verdicts[-1] else 'another file'}", flush=True)
    return verdicts


def main():
    mpirun, oracle, *more = sys.argv[1:]
    gpus = more[:1] == ["--gpus"]
    ranks = int([*more[gpus:], "2"][0])
    device = ["--device", "cuda" if gpus else "cpu"]
    program = [oracle, *device, *TRAIN]
    verdicts = []
    for adapters in ADAPTERS:
        one = lines_of(mpirun, 1, [*program, *ONE, *adapters])
        for encoder, llm, how, _ in (pair for pair in PAIRS[ranks] if gpus or pair[3]):
            options = ["--encoder", encoder, "--llm", llm, *how, *adapters]
            verdicts.append(compare(" ".join(options), lines_of(mpirun, ranks, [*program, *options]), one, True))
    fast = ["--fast", "--encoder", f"tp=1,dp={ranks}", "--llm", f"tp={ranks},cp=1,dp=1"]
    verdicts.append(compare(" ".join(fast), lines_of(mpirun, ranks, [*program, *fast]),
                            lines_of(mpirun, 1, [*program, *ONE, "--fast"]), False))
    captioner = os.path.join(os.path.dirname(oracle), "../../examples/captioner/captioner")
    verdicts += compare_checkpoints(mpirun, captioner, device, ranks)
    print(f"{verdicts.count(True)} of {len(verdicts)} as they must be")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
