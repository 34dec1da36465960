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
    kernels = [ring["kernels"] for ring in look(why, dict(enumerate(pids)))[1]["rings"]]
    if kernels != [[]] * RANKS:
        yield f"hosts have kernels: {kernels}"
    states = [last[rank]["state"] for rank in range(RANKS)]
    numbers = {last[rank]["collective_seq_id"] - (rank != 2) for rank in range(RANKS)}
    if states != ["started", "started", "completed", "started"] or len(numbers) != 1:
        yield f"the last entries are {last}"


def start_watch(why, *words):
    """mimo-why that looks again and again, into a pipe."""
    return subprocess.Popen([why, "--watch", "0.05", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_watch(watch):
    """Its exit status and what it has printed since, once it has ended by itself."""
    try:
        out, errors = watch.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        watch.kill()
        watch.communicate()
        return None, "it does not end"
    out = out or ""
    wild = set(out + errors) & set("\x1b\r\b\0")
    return watch.returncode, out + errors + (f"wild letters {wild}" if wild else "")


def watch_faults(why, pids):
    """What is wrong with looks at rank 2, which is late: each comes when it is done, and SIGINT ends them."""
    with start_watch(why, "--json", *map(str, pids.values())) as watch:
        looks = [json.loads(watch.stdout.readline()) for _ in range(3)]  # a pipe gets each look at once
        watch.send_signal(signal.SIGINT)
        status, rest = end_watch(watch)
    if any(look["ranks"] != [2] for look in looks):
        yield f"looks name ranks {[look['ranks'] for look in looks]}"
    if status != 1 or not all(json.loads(line)["ranks"] == [2] for line in rest.splitlines()):
        yield f"SIGINT: status {status}, then {rest!r}"
    with start_watch(why, *map(str, pids.values())) as watch:
        first = watch.stdout.readline()
        watch.stdout.close()  # nobody reads any more
        watch.stdout = None
        status, rest = end_watch(watch)
    if not first.startswith("rank 2 (pid ") or status != -signal.SIGPIPE or rest:
        yield f"a closed pipe: {first!r}, status {status}, then {rest!r}"


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
            watches = [start_watch(why, "--json", str(rings)), start_watch(why, *map(str, pids.values()))]
            seen = [watch.stdout.readline() for watch in watches]
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)
            launch.communicate(timeout=LIMIT_S)
        except BaseException:
            launch.terminate()
            raise
    ends = [end_watch(watch) for watch in watches]
    last = json.loads(ends[0][1].splitlines()[-1]) if ends[0][0] == 1 else {"ranks": None}
    if last["ranks"] != [2] or ends[1][0] != 2 or not ends[1][1].endswith("no rings\n\n"):
        print(f"FAIL watches that saw {seen} end with {ends}")
        ready = False
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
                        wrong = [*views_faults(why, pids, folder), *watch_faults(why, pids)]
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
