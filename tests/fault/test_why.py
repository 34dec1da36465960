#!/usr/bin/env python3
"""mimo-why names whom the ranks of a run wait for.

    test_why.py MPIRUN WHY_RANKS MIMO_WHY

One launch of four ranks goes through all situations. While it stands in one, mimo-why looks at its processes
until it says what is expected, for LIMIT_S at most: on a busy machine ranks come later.
"""
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time

RANKS, LIMIT_S = 4, 20
PID = r"\(pid \d+, "
# Situation -> exit status, ranks that are named, and the verdict.
SITUATIONS = {
    "early": (2, [], r"no rings"),
    "nobody": (0, [], r"nobody waits"),
    "late": (1, [2], rf"rank 2 {PID}running\) has not begun call (\d+), barrier: its last one, call \d+, barrier, "
                     r"ended [\d.]+ s ago; ranks 0, 1, 3 wait in it"),
    "stopped": (1, [2], rf"rank 2 {PID}stopped\) has not begun call \d+, barrier: .*; ranks 0, 1, 3 wait in it"),
    "one": (1, [1, 2, 3], r"ranks 1-3 have not begun call \d+, barrier: of rank 1 its last one, .*; rank 0 waits in it"),
    "order": (1, [], r"ranks (0, 1|2, 3) are in call \d+, barrier; ranks (0, 1|2, 3) are in call \d+, barrier: other order"),
    "families": (1, [], r"ranks (0, 2|1, 3) are in call \d+, barrier; ranks (0, 2|1, 3) are in call \d+, barrier: other order"),
    "data": (1, [3], rf"rank 3 {PID}running\) has not begun call \d+, bridge 'image' forward: its last one, .* of another "
                     r"communicator, ended [\d.]+ s ago; ranks 0, 2 wait in it"),
    "left": (1, [1], rf"rank 1 {PID}running\) has begun and then left call \d+, bridge 'image' forward: .*; "
                     r"ranks 0, 2, 3 wait in it"),
    "threads": (1, None, rf"(?s)(?=.*rank 2 {PID}running\) has not begun call \d+, barrier: .*; ranks 0, 1, 3 wait in it)"
                         rf"(?=.*rank 3 {PID}running\) has not begun call \d+, barrier: .*; ranks 0-2 wait in it)"),
    "gone": (1, [2], rf"rank 2 {PID}gone\) is gone, and has not begun call \d+, barrier: its last one, call \d+, barrier, "
                     r"ended [\d.]+ s ago; ranks 0, 1, 3 wait in it"),
}


def read_ready(launch, situation):
    """The processes of the ranks, when all have come to a situation."""
    pids = {}
    while len(pids) < RANKS:
        line = launch.stdout.readline()
        if not line:
            raise SystemExit(f"{situation}: the launch ended, with {sorted(pids)}")
        found = re.match(rf"ready {situation} (\d+) (\d+)$", line)
        if found:
            pids[int(found[1])] = int(found[2])
        else:
            print(line, end="")
    return pids


def look(why, pids):
    """Exit status and JSON of mimo-why for the processes that are left."""
    alive = [str(pid) for pid in pids.values() if os.path.exists(f"/proc/{pid}/environ")]
    run = subprocess.run([why, "--json", *alive], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return run.returncode, json.loads(run.stdout) if run.stdout else {"verdict": run.stderr, "ranks": []}


def views_faults(why, pids, folder):
    """What is wrong with the calls for other programs' viewers, while rank 2 is late for a call."""
    pids = [str(pid) for pid in pids.values()]
    trace = subprocess.run([why, "--trace", *pids], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    open_calls = {event["pid"]: event["name"] for event in json.loads(trace.stdout)["traceEvents"]
                  if event["ph"] == "X" and event["args"]["open"]}
    if sorted(open_calls.values()) != ["barrier"] * 3:
        yield f"the trace has these open calls: {open_calls}"
    subprocess.run([why, "--flight", folder, *pids], capture_output=True, timeout=LIMIT_S, check=False)
    last = {}
    for rank in range(RANKS):
        dump = pickle.loads((pathlib.Path(folder) / f"mimo_rank_{rank}").read_bytes())
        last[rank] = dump["entries"][-1]
        name, group = last[rank]["process_group"][0], dump["pg_config"]
        if dump["version"] != "2.10" or group[name]["ranks"] != str(list(range(RANKS))):
            yield f"the dump of rank {rank}: version {dump['version']}, groups {group}"
    states = [last[rank]["state"] for rank in range(RANKS)]
    numbers = {last[rank]["collective_seq_id"] - (rank != 2) for rank in range(RANKS)}
    if states != ["started", "started", "completed", "started"] or len(numbers) != 1:
        yield f"the last entries are {last}"


def is_expected(expected, status, said):
    wanted, ranks, words = expected
    return status == wanted and ranks in (None, said["ranks"]) and re.match(words, said["verdict"])


def judge(why, situation, pids):
    """Look until mimo-why says what is expected. False where it never does."""
    until = time.monotonic() + LIMIT_S
    victim = pids[2]
    if situation == "stopped":
        os.kill(victim, signal.SIGSTOP)
    if situation == "gone":
        del pids[2]
    while True:
        status, said = look(why, pids)
        good = is_expected(SITUATIONS[situation], status, said)
        if good or time.monotonic() > until:
            break
    if situation == "stopped":
        os.kill(victim, signal.SIGCONT)
    if situation == "early":
        good = good and sorted(it["rank"] for it in said["without_ring"]) == list(range(RANKS))
    print(f"{'ok  ' if good else 'FAIL'} {situation}: {status} {said['verdict']}", flush=True)
    if not good:
        print(json.dumps(said, indent=1))
    return good


def after_death(mpirun, program, why, folder):
    """All ranks are killed while they wait for one. False where mimo-why does not say so from their files."""
    rings = pathlib.Path(folder) / "rings"
    rings.mkdir()
    environment = os.environ | {"MIMO_RING": "file", "MIMO_RING_FOLDER": str(rings)}
    command = [mpirun, "-x", "MIMO_RING", "-x", "MIMO_RING_FOLDER", "--enable-recovery", "--oversubscribe", "-n",
               str(RANKS), program, str(rings), "late"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as launch:
        try:
            pids = read_ready(launch, "late")
            ready = judge(why, "late", pids)
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)
            launch.communicate(timeout=LIMIT_S)
        except BaseException:
            launch.terminate()
            raise
    said = subprocess.run([why, str(rings)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    words = rf"rank 2 {PID}gone\) is gone, and has not begun call \d+, barrier: .*; ranks 0, 1, 3 wait in it\n"
    good = ready and said.returncode == 1 and re.match(words, said.stdout) is not None
    print(f"{'ok  ' if good else 'FAIL'} after death: {said.stdout.splitlines()[:1]}", flush=True)
    return good


def main():
    mpirun, program, why = sys.argv[1:4]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        command = [mpirun, "--enable-recovery", "--oversubscribe", "-n", str(RANKS), program, folder, *SITUATIONS]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launch:
            try:
                for situation in SITUATIONS:
                    pids = read_ready(launch, situation)
                    failed += not judge(why, situation, pids)
                    if situation == "late":
                        wrong = list(views_faults(why, pids, folder))
                        print(*wrong, sep="\n", end="")
                        failed += len(wrong)
                    (pathlib.Path(folder) / situation).touch()
                launch.communicate(timeout=LIMIT_S)
            except BaseException:
                launch.terminate()
                raise
        failed += not after_death(mpirun, program, why, folder)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
