"""A rank that is killed, or stops, amid training: the others end with a sentence each and a failure. Before that
a warning names it, also where it is the lead."""
import os
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
    kill -"$SIGNAL" $pid
    for tick in $(seq 600); do
        [ "$(ls "$LOG".end-* 2>/dev/null | wc -l)" = 3 ] && echo "the others ended first" && break
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


def check(captioner, signal, missing):
    """What is wrong, in words."""
    log = os.path.join(captioner.folder, f"log-{signal}-{missing}")
    os.environ.update(MISSING=str(missing), SIGNAL=signal, LOG=log, MIMO_DEADLINE_MS=str(DEADLINE_MS),
                      MIMO_STALL_MS=str(STALL_MS))
    done = captioner.mpirun_with([
        "--enable-recovery", "-n", str(RANKS), "sh", "-c", RUN, "sh", captioner.program, *SMALL, "--steps", "5000",
        "--encoder", "tp=2,dp=2", "--llm", "tp=2,cp=2,dp=1", "--samples", captioner.samples, "--log", log])
    ends = re.findall(r"rank \d exit \d+", done.stdout)
    said = re.findall(r"^captioner: (?!warning: ).*$", done.stderr, re.M)
    named = re.search(rf"no sign of ranks? [\d, ]*{missing}", done.stderr)
    warned = re.search(rf"^captioner: warning: .* has waited .*; no sign of ranks? [\d, ]*{missing}", done.stderr, re.M)
    expected = [f"rank {rank} exit {137 if rank == missing else 1}" for rank in range(RANKS)]
    if "the others ended first" in done.stdout and sorted(ends) == expected and len(said) == RANKS - 1 \
            and named and warned:
        return []
    return [f"{signal} of rank {missing}: {done.stdout}\n{done.stderr}"]


def main():
    mpirun, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        captioner = Captioner(mpirun, program, folder)
        captioner.prepare(16, one_in=24)
        wrong = [fault for case in (("KILL", 1), ("KILL", 0), ("STOP", 2)) for fault in check(captioner, *case)]
        sys.exit("\n".join(wrong) or 0)


main()
