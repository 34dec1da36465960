"""A rank that is killed, or stops, amid training: the others end with a sentence each and a failure. Before that
a warning names it, also where it is the lead.

    test_captioner_missing.py MPIRUN CAPTIONER                on four ranks of the host
    test_captioner_missing.py MPIRUN CAPTIONER --gpus RANKS   a GPU for each rank, a death at each of ten moments;
                                                              CAPTIONER_SAMPLES names samples of 16 pixels a side

On GPUs no rank is named: NCCL may notice the death first.
"""
import os
import random
import re
import sys
import tempfile

from captioner_runs import Captioner, SMALL

DEADLINE_MS, STALL_MS, RANKS = 2000, 500, 4
# The rank MISSING gets the signal once the first step is logged, and is killed when the others have
# ended, or do not for a minute. mpirun --enable-recovery lets these run on. Each rank prints how it
# ended.
RUN = """
if [ "$OMPI_COMM_WORLD_RANK" = "$MISSING" ]; then
    "$@" & pid=$!
    until [ -s "$LOG" ]; do sleep 0.1; done
    sleep "$DELAY"
    kill -"$SIGNAL" $pid
    for tick in $(seq 600); do
        [ "$(ls "$LOG".end-* 2>/dev/null | wc -l)" = "$OTHERS" ] && echo "the others ended first" && break
        sleep 0.1
    done
    kill -KILL $pid 2>/dev/null
    wait $pid
else
    "$@"
fi
code=$?
touch "$LOG.end-$OMPI_COMM_WORLD_RANK"
echo "rank $OMPI_COMM_WORLD_RANK exit $code"
"""


def ends_of(captioner, signal, missing, ranks, delay, flags):
    """What a launch printed, and what is wrong with how its ranks ended, in words. The signal comes `delay` seconds
    behind the first step."""
    log = os.path.join(captioner.folder, f"log-{signal}-{missing}-{delay}")
    os.environ.update(MISSING=str(missing), SIGNAL=signal, LOG=log, DELAY=str(delay), OTHERS=str(ranks - 1),
                      MIMO_DEADLINE_MS=str(DEADLINE_MS), MIMO_STALL_MS=str(STALL_MS))
    done = captioner.mpirun_with([
        "--enable-recovery", "-n", str(ranks), "sh", "-c", RUN, "sh", captioner.program, *SMALL, "--steps", "5000",
        "--samples", captioner.samples, "--log", log, *flags])
    ends = re.findall(r"rank \d exit \d+", done.stdout)
    said = re.findall(r"^captioner: (?!warning: ).*$", done.stderr, re.M)
    expected = [f"rank {rank} exit {137 if rank == missing else 1}" for rank in range(ranks)]
    right = "the others ended first" in done.stdout and sorted(ends) == expected and len(said) == ranks - 1
    return done, [] if right else [f"{signal} of rank {missing} after {delay} s: {done.stdout}\n{done.stderr}"]


def check(captioner, signal, missing):
    """What is wrong, in words."""
    done, wrong = ends_of(captioner, signal, missing, RANKS, 0, ["--encoder", "tp=2,dp=2", "--llm", "tp=2,cp=2,dp=1"])
    named = re.search(rf"no sign of ranks? [\d, ]*{missing}", done.stderr)
    warned = re.search(rf"^captioner: warning: .* has waited .*; no sign of ranks? [\d, ]*{missing}", done.stderr, re.M)
    return wrong or ([] if named and warned else [f"nobody names rank {missing}: {done.stderr}"])


def moments_on_gpus(captioner, ranks):
    """A death at each of ten moments: what is wrong, in words."""
    dice = random.Random(ranks)
    flags = ["--device", "cuda", "--encoder", f"tp=1,dp={ranks}", "--llm", f"tp=1,cp={ranks},dp=1"]
    for moment in range(10):
        yield from ends_of(captioner, "KILL", dice.randrange(ranks), ranks, round(dice.random() / 10, 3), flags)[1]
        print(f"moment {moment + 1} of 10", flush=True)


def main():
    mpirun, program, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        if more[:1] == ["--gpus"]:
            captioner.samples = os.environ["CAPTIONER_SAMPLES"]
            sys.exit("\n".join(moments_on_gpus(captioner, int(more[1]))) or 0)
        captioner.prepare(16, one_in=24)
        wrong = [fault for case in (("KILL", 1), ("KILL", 0), ("STOP", 2)) for fault in check(captioner, *case)]
        sys.exit("\n".join(wrong) or 0)


main()
