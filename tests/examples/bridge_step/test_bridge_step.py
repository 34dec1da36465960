"""The example to copy succeeds on 2 and 4 ranks, and on any error all ranks end with one sentence."""
import concurrent.futures
import os
import re
import subprocess
import sys


# The other ranks of one that dies run on.
RUN_ON = ["--enable-recovery"]
# Each rank prints how it ended, and mpirun ends with 0. Where it sees a rank fail, it waits for two seconds.
ENDS_WELL = '"$@"; echo "rank $OMPI_COMM_WORLD_RANK exit $?"'


def launch(mpirun, ranks, *command, fault=""):
    """Exit status, and the example's own lines on stdout and on stderr."""
    command = ["timeout", "50", mpirun, "--oversubscribe", "-n", str(ranks), *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, "FAULT": fault})
    own = [line for line in done.stderr.splitlines() if line.startswith("bridge_step: ")]
    return done.returncode, done.stdout.splitlines(), own


def main():
    mpirun, program, faulty, build = sys.argv[1:]
    wrong = []

    def expect_success(ranks, rows, which):
        status, printed, said = launch(mpirun, ranks, which, "--device", "host")
        line = rf"bridge_step: {ranks} ranks, {rows} rows in place, loss \S+, gradient norm \S+"
        if status != 0 or len(printed) != 1 or not re.fullmatch(line, printed[0]) or said:
            wrong.append(f"{ranks} ranks: exit {status}, {printed}, {said}")

    def expect_sentence(words, ranks, *flags, fault=""):
        status, printed, said = launch(mpirun, ranks, "sh", "-c", ENDS_WELL, "sh", faulty, *flags, fault=fault)
        ends = [f"rank {rank} exit 1" for rank in range(ranks)]
        if sorted(printed) != ends or len(said) != 1 or not re.search(words, said[0]):
            wrong.append(f"'{words}' expected: exit {status}, {printed}, {said}")

    def expect_missing(fault, missing, killed):
        """Where a rank is missing, the others end with a sentence each, and so does one that is late."""
        words = "bridge_step: MIMO_ERR_TIMEOUT: .*(given|gave) up"
        status, printed, said = launch(mpirun, 4, *RUN_ON, "sh", "-c", ENDS_WELL, "sh", faulty, fault=fault)
        ends = [f"rank {rank} exit {137 if killed and rank == missing else 1}" for rank in range(4)]
        named = re.search(rf"no sign of ranks? [\d, ]*{missing}", "\n".join(said))
        right = named and all(re.match(words, line) for line in said)
        if sorted(printed) != ends or len(said) != 4 - killed or not right:
            wrong.append(f"{fault}: exit {status}, {printed}, {said}")

    # 2 micro-batches of 2 samples a rank, of 1 to 3 image rows and 2 or 3 audio rows each
    expect_success(2, 35, program)
    expect_success(4, 71, program)
    expect_success(4, 71, faulty)  # which has no fault of its own
    expect_sentence("MIMO_ERR_GRID: .*cp = 2 does not divide 3 ranks", 3)
    expect_sentence("MIMO_ERR_ARGUMENT: usage", 2, "--device", "tpu")
    if build == "host":
        expect_sentence("MIMO_ERR_UNSUPPORTED: .*no CUDA part", 2, "--device", "cuda")
    # Rank 1 fails alone, and rank 0 says why.
    expect_sentence("MIMO_ERR_ABORTED: .*rank 1 aborted: sample 0 has 0 at .* where -1 belongs", 2,
                    fault="row")
    expect_sentence("MIMO_ERR_ABORTED: .*rank 1 aborted: the gradient of sample 2, modality 0, row 2, "
                    "element 0 is 2 where 1 belongs", 4, fault="gradient")
    expect_sentence("MIMO_ERR_INTERNAL: sample 2 has -1 at position 2, element 0, where 49 belongs", 4,
                    fault="place")
    # At once, because each waits for a deadline.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(expect_missing, ("gone", "first_gone", "late"), (1, 0, 1), (True, True, False)))
    print("\n".join(wrong) or "each run ended as it must")
    sys.exit(1 if wrong else 0)


main()
