#!/usr/bin/env python3
"""Times five lists of a pipeline beside an encoder, from training steps of the captioner, and prints each
beside the three phases and beside what the simulator makes of it. All numbers come from one run.

    pipeline_bench.py CAPTIONER MIMO_PLAN [--stages 2] [--dp 1] [--nccl-bench PROGRAM] [captioner argument...]
    pipeline_bench.py CAPTIONER MIMO_PLAN --device cpu --hidden 32 --heads 2 --layers 1,4 --image-size 16 --seq 96

The LLM has --stages stages on each of --dp replicas, and 8 micro-batches; all ranks encode. L is two more than stages.
Goals are those of two stages alone. Lists take turns, a launch each in every round. The
first two steps of a launch warm up.

step       median of a step, over all launches of the list; / three: over that of three phases; plan: the same as
           mimo-plan simulates it, with the costs that a launch before the rounds printed. All lists were made for these
e + eb     what the encoder's steps cost for a micro-batch over what they cost in three phases, where 8 are taken at
           once. The plan knows no difference
/ sim      the step over what the simulator makes of the list with the costs that the launch itself printed; list: the
           same of the list alone, without gradients' sums and optimizer, of the last step
encoder    bytes of the encoder's saved state over those of three phases; L/n: the same in micro-batches, as mimo-plan
           counts them
states     saved states of the stage that has the most; report: what mimo-plan finds
walk       what walking the list keeps the host, over the step. On a device from launches with tiny layers, as the host
           waits for the device where that has much to do; on the host it includes the waits for messages

Where the captioner keeps other states than mimo-plan finds, the exit status is 1.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

MICRO_BATCHES, WARM = 8, 2
# Of two ranks: one encodes 4096 rows of a micro-batch, a stage computes 16384: about a quarter of a forward. A
# smaller batch would favour three phases, as its encoder takes 8 of them at once.
SIZES = ("--image-size 128 --hidden 1024 --heads 16 --layers 4,8 --seq 512 --precision bf16 "
         "--global-batch 256").split()
TINY = "--hidden 256 --heads 4 --layers 1,4 --global-batch 16".split()
CHUNKS = {"interleaved, 2 chunks": 2}  # of a stage; 1 elsewhere
MOST_SPREAD, MOST_WALK, MOST_HOP = 1.10, 0.01, 1.10
FIRST = "three phases"


def lists_of(stages):
    """{name: (the captioner's flags, mimo-plan's, the most that its step may take of three phases)}, and the name whose
    launch has the costs of all kinds of steps."""
    alive, goals = stages + 2, (0.98, 0.97, 0.93) if stages == 2 else (None, None, None)
    measured = f"zero bubble, L = {alive}"
    return {
        FIRST: (["--schedule", "three-phases"], ["--encoder-group", MICRO_BATCHES, "--alive", 1], None),
        f"L = {alive}": (["--encoder-alive", alive], ["--alive", alive], goals[0]),
        "no limit": (["--encoder-alive", 0], ["--alive", 0], goals[1]),
        measured: (["--schedule", "zero-bubble", "--encoder-alive", alive],
                   ["--kind", "zero-bubble", "--alive", alive], goals[2]),
        "interleaved, 2 chunks": (["--schedule", "interleaved:2"], ["--kind", "interleaved", "--vpp", 2], None),
    }, measured


def output_of(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def line_of(text, word):
    """The numbers of the captioner's line that begins with a word, as "cost f=1,b=2"."""
    found = re.search(f"^{word} (.*)$", text, re.M)
    if not found:
        sys.exit(f"the captioner printed no line '{word} ...':\n{text}")
    return found[1]


def numbers_of(line):
    return {name: int(number) for name, number in (pair.split("=") for pair in line.split(","))}


def cost_for(name, cost):
    """What steps of a list cost, where those of one chunk a stage cost that."""
    parts = [pair.split("=") for pair in cost.split(",")]
    chunks = CHUNKS.get(name, 1)
    return ",".join(f"{kind}={int(number) // chunks if kind in 'fbiw' else number}" for kind, number in parts)


class Launches:
    """Launches of the captioner, and what they printed."""

    def __init__(self, asked, more):
        ranks, self.sizes = asked.stages * asked.dp, [*SIZES, *more]
        self.lists, self.measured = lists_of(asked.stages)
        self.start = [asked.mpirun, "--oversubscribe", "-n", ranks, asked.captioner, "--device", asked.device,
                      "--encoder", f"tp=1,dp={ranks}", "--llm", f"tp=1,cp=1,dp={asked.dp},pp={asked.stages}",
                      "--micro-batches", MICRO_BATCHES, "--progress", "lines"]

    def run(self, name, steps, cost=None, sizes=()):
        """(milliseconds of the steps after the first ones, its line "cost", the numbers of its line "ran")."""
        cost = ["--cost", cost_for(name, cost)] if cost else []
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            text = output_of([*self.start, *self.sizes, *sizes, *self.lists[name][0], *cost, "--steps", steps, "--log", log])
            with open(log, encoding="utf-8") as lines:
                done = [json.loads(line) for line in lines]
        times = [step["ms"] for step in done if "ms" in step][WARM:]
        return times, line_of(text, "cost"), numbers_of(line_of(text, "ran"))


def planned(asked, name, flags, cost):
    """mimo-plan's report of a list."""
    out = output_of([asked.mimo_plan, "schedule", "--pp", asked.stages, "--micro-batches", MICRO_BATCHES, *flags,
                     "--cost", cost_for(name, cost), "--json"])
    return json.loads(out)["this"]


def hops_of(asked):
    """[bytes, by bridge / bare] of each size."""
    if not asked.nccl_bench:
        return []
    out = output_of([asked.mpirun, "--oversubscribe", "-n", 2, asked.nccl_bench, "--hops", "--json"])
    lines = map(json.loads, out.splitlines())
    return [(line["hop_bytes"], line["bridge_us"] / line["bare_us"]) for line in lines]


def take_rounds(asked, launches, cost):
    """{list: its launches}, by rounds. None begins that would end after the limit."""
    taken, begun, longest = {name: [] for name in launches.lists}, time.monotonic(), 0
    for number in range(asked.rounds):
        start = time.monotonic()
        if number and start - begun + longest > asked.limit_s:
            print(f"no time for more than {number} of {asked.rounds} rounds", file=sys.stderr)
            break
        for name in launches.lists:
            taken[name].append(launches.run(name, asked.steps, cost))
            times, own_cost, ran = taken[name][-1]
            print(f"round {number + 1}, {name}: {statistics.median(times):.1f} ms, cost {own_cost}, {ran}",
                  file=sys.stderr)
        longest = max(longest, time.monotonic() - start)
    return taken


def row_of(launches, walked, report, most):
    """The numbers of a list, from its launches."""
    step = statistics.median([ms for times, _, _ in launches for ms in times])
    ran = launches[-1][2]
    return {"step_ms": step, "walk": walked / 1e3 / step, "goal": most,
            "encoder_us": statistics.median(sum(numbers_of(cost)[kind] for kind in ("e", "eb"))
                                            for _, cost, _ in launches),
            "over_simulated": statistics.median(statistics.median(times) * 1e3 / ran["simulated"]
                                                for times, _, ran in launches),
            "list_over_simulated": statistics.median(ran["time"] / ran["simulated"] for _, _, ran in launches),
            "planned": report["time"], "encoder_bytes": ran["encoder_bytes"], "encoder_alive": ran["encoder_alive"],
            "saved_states": ran["saved_states"], "saved_bytes": ran["saved_bytes"],
            "report": [report["encoder_alive"], report["saved_states"]], "costs": [cost for _, cost, _ in launches]}


def print_row(name, row, three):
    def over(key):
        return row[key] / three[key]
    held, states = row["report"]
    goal = f"{row['goal']:.2f}" if row["goal"] else "-"
    print(f"{name:22} {row['step_ms']:9.2f} {over('step_ms'):7.3f} {goal:>5} {over('planned'):6.3f} "
          f"{over('encoder_us'):6.3f} {row['over_simulated']:6.3f} {row['list_over_simulated']:6.3f} "
          f"{over('encoder_bytes'):8.4f} {held / three['report'][0]:7.4f} {row['saved_states']:7} {states:7} "
          f"{row['walk']:7.2%}")


def verdict(wanted, found, most):
    print(f"{wanted}: {found:.3f}, wanted at most {most}: {'reached' if found <= most else 'missed'}")


def print_table(rows):
    three = rows[FIRST]
    print(f"{'list':22} {'step ms':>9} {'/ three':>7} {'goal':>5} {'plan':>6} {'e + eb':>6} {'/ sim':>6} {'list':>6} "
          f"{'encoder':>8} {'L/n':>7} {'states':>7} {'report':>7} {'walk':>7}")
    for name, row in rows.items():
        print_row(name, row, three)
    for name, row in rows.items():
        if row["goal"]:
            verdict(f"{name} over three phases", row["step_ms"] / three["step_ms"], row["goal"])
    over = [row["over_simulated"] for row in rows.values()]
    verdict("steps over simulated times, the largest over the smallest", max(over) / min(over), MOST_SPREAD)
    verdict("walking over a step", max(row["walk"] for row in rows.values()), MOST_WALK)


def faults_of(rows):
    """Counts that differ from the report's: not a matter of speed."""
    for name, row in rows.items():
        kept = [row["encoder_alive"], row["saved_states"]]
        if kept != row["report"]:
            yield f"{name}: {kept} micro-batches of the encoder and saved states, and mimo-plan finds {row['report']}"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captioner")
    parser.add_argument("mimo_plan")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: to test the program, not to measure (default cuda)")
    parser.add_argument("--stages", type=int, default=2, help="of the LLM (default 2)")
    parser.add_argument("--dp", type=int, default=1, help="replicas of the LLM (default 1)")
    parser.add_argument("--rounds", type=int, default=2, help="launches of each list (default 2)")
    parser.add_argument("--steps", type=int, default=10, help=f"of a launch; {WARM} warm up (default 10)")
    parser.add_argument("--limit-s", type=float, default=1e9, help="no round begins that would end later")
    parser.add_argument("--nccl-bench", help="time hops by this program too")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--json", help="write the numbers there as well")
    return parser


def main():
    asked, more = options().parse_known_args()
    launches = Launches(asked, more)
    lists = launches.lists
    _, cost, _ = launches.run(launches.measured, WARM + 1)
    small = {name: launches.run(name, 2 * WARM, cost, TINY) for name in lists if asked.device == "cuda"}
    taken = take_rounds(asked, launches, cost)
    walked = {name: small.get(name, taken[name][-1])[2]["walked"] for name in lists}
    rows = {name: row_of(taken[name], walked[name], planned(asked, name, flags, cost), goal)
            for name, (_, flags, goal) in lists.items()}
    print(f"cost {cost}")
    print_table(rows)
    hops = hops_of(asked)
    for size, ratio in hops:
        verdict(f"a hop of {size >> 20} MiB by bridge over bare calls", ratio, MOST_HOP)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as out:
            json.dump({"cost": cost, "lists": rows, "hops": hops}, out, indent=1)
    faults = list(faults_of(rows))
    sys.exit("\n".join(faults) if faults else 0)


main()
