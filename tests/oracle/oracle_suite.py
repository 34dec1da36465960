#!/usr/bin/env python3
"""Runs mimo-oracle over topologies, and over mutations.

    oracle_suite.py MPIRUN MIMO_ORACLE PART...

Parts: small      pairs of grids on 1, 2, 4, 5, 6 and 12 ranks, other seeds on 5, and zero-copy on
                  2, 4, 6 and 8
       eight      every LLM grid of 8 ranks once, with and without sp, and every encoder grid
       every      every pair of both on 8 ranks, by both executors of the bridge
       adapters   adapters on every linear layer, or on some, on 4 topologies; and on the head alone, on one
       every-adapters   the same on every LLM grid of 8 ranks, and on pairs of 2, 4 and 6
       experts    mixtures of experts on 8 topologies, on 3 with adapters and zero-copy
       every-experts    mixtures on 32: each cut alone, several together, edp > 1 with and without
                  ep, 9 experts over 3, with and without sp; and again with adapters and zero-copy
       stages     an LLM in stages, on 4 topologies, by 1F1B, zero bubble and interleaved in turn;
                  three phases; groups of micro-batches, the last of which is not full; and experts,
                  on 2, once with a forward beside a backward
       every-stages     on 8 topologies, by each schedule and in three phases, with and without
                  adapters, where the encoder may go ahead of the LLM without limit, and by groups;
                  and on 6 with experts, also with a forward beside a backward, and this on 8
                  topologies without stages
       same-bits  the fixed order of additions: the bits of one rank on 6 topologies, and with
                  experts on 6, 10 steps, and every bug of --list-order-mutations differs from one
                  rank
       every-same-bits   the same bits on 20 topologies, 100 steps
       hosts      the bits of one rank on two hosts of two ranks (tests/support/on_hosts.sh)
       curves     losses of 20 steps with adapters at tp 1, 2, 4 and 8, by SGD and by AdamW
       mutations  every bug of --list-mutations must fail, in its phase, on its topology
       self-test  the bridge's own test passes on the topologies of the mutations, and fails for
                  the mutations of the bridge
       arguments  wrong ones are refused with a sentence, at once
       effects    what each bug does to 100 steps of training; nothing can fail here

Runs on equal numbers of ranks share a launch. Where the launch dies or hangs, the runs that did not
end are launched again one by one. The output is one line per run, and one line about all pairs at
the end. The full logs go to oracle-logs/ in the working directory. The exit status is 0 only where
every result is as it must be.
"""
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import typing

import oracle_same_bits

PARTS = {"small", "eight", "every", "adapters", "every-adapters", "experts", "every-experts",
         "stages", "every-stages", "same-bits", "every-same-bits", "hosts", "curves", "mutations",
         "self-test", "arguments", "effects"}
SECONDS = 120  # limit of one launch of one run, which takes a few
SECONDS_MORE = 5  # for each run that a launch makes
LOGS = "oracle-logs"
EXECUTORS = ["collective", "routed"]
ZERO_COPY = [("tp=2,dp=1", "tp=1,cp=1,dp=2", False), ("tp=1,dp=4", "tp=2,cp=2,dp=1", True),
             ("tp=2,dp=3", "tp=3,cp=1,dp=2", False), ("tp=4,dp=2", "tp=1,cp=2,dp=4", False),
             ("tp=2,dp=4", "tp=2,cp=2,dp=2", True)]
# How far weights move depends on the number of ranks and on the seed.
WIDE = [("tp=1,dp=5", "tp=1,cp=1,dp=5", False), ("tp=1,dp=12", "tp=3,cp=2,dp=2", True)]
SEEDS = [2, 3, 4]
ADAPTED = [("tp=2,dp=4", "tp=2,cp=2,dp=2", False), ("tp=2,dp=4", "tp=4,cp=1,dp=2", True),
           ("tp=8,dp=1", "tp=1,cp=4,dp=2", False), ("tp=1,dp=6", "tp=3,cp=2,dp=1", True)]
RANK = 4  # of adapters
FEW = f"{RANK}:encoder.block0.mlp.down,llm.block1.attention.qkv,llm.block0.mlp.up"
# Of single experts; the second one leaves all ranks but one along ep without any.
FEW_EXPERTS = f"{RANK}:attention.out,experts.0.up,experts.3.down,experts.5.up"
LAST_EXPERTS = f"{RANK}:experts.6.up,experts.7.down"
LAST_STAGE = f"{RANK}:llm.block4.mlp.up"
# Grids of the LLM, E,K, and grids of the experts: each of the one with each of the other.
MIXED = [(["tp=1"], "8,2", ["etp=1,ep=1"]),
         (["tp=2", "dp=2", "cp=2"], "8,2", ["etp=1,ep=1", "etp=2,ep=1", "etp=1,ep=2"]),
         (["dp=4"], "8,2", ["etp=1,ep=2"]),
         (["tp=2,cp=2"], "8,2", ["etp=1,ep=4", "etp=2,ep=2"]),
         (["cp=3,dp=2"], "9,2", ["etp=1,ep=3"]),
         (["tp=2,cp=2,dp=2", "tp=4,dp=2"], "8,2",
          ["etp=2,ep=4", "etp=2,ep=2", "etp=1,ep=8", "etp=2,ep=1"])]
# Some of them: the encoder's grid, the LLM's, whether with sp, E,K, the experts' grid, and the adapters,
# with zero-copy.
MIXED_FEW = [("dp=1", "tp=1", False, "8,2", "etp=1,ep=1", RANK),
             ("dp=2", "tp=2", False, "8,2", "etp=2,ep=1", 0),
             ("tp=2", "dp=2", False, "8,2", "etp=1,ep=2", 0),
             ("dp=2", "tp=2", False, "8,2", "etp=1,ep=1", RANK),
             ("dp=4", "dp=4", False, "8,2", "etp=1,ep=2", LAST_EXPERTS),
             ("tp=2,dp=2", "tp=2,cp=2", True, "8,2", "etp=2,ep=2", FEW_EXPERTS),
             ("dp=6", "cp=3,dp=2", False, "9,2", "etp=1,ep=3", 0),
             ("tp=2,dp=4", "tp=2,cp=2,dp=2", False, "8,2", "etp=2,ep=4", 0)]
# Stages: the encoder's grid, the LLM's, whether with sp. With pp = 8 some have no block.
STAGES = [("tp=1,dp=2", "pp=2", False), ("tp=1,dp=4", "pp=4", False),
          ("tp=2,dp=2", "tp=2,pp=2", True), ("tp=2,dp=4", "tp=2,cp=1,dp=2,pp=2", False),
          ("tp=1,dp=8", "tp=1,cp=2,dp=1,pp=4", False), ("tp=2,dp=4", "tp=2,cp=2,dp=1,pp=2", True),
          ("tp=1,dp=8", "pp=4,dp=2", False), ("tp=1,dp=8", "pp=8", False)]
# With experts: the encoder's grid, the LLM's, whether with sp, and the experts' grid on each stage.
MIXED_STAGES = [("tp=2,dp=2", "tp=2,pp=2", True, "etp=2"), ("dp=4", "dp=2,pp=2", False, "ep=2"),
                ("dp=4", "pp=4", False, "ep=1"), ("dp=8", "pp=2,cp=2,dp=2", False, "ep=2"),
                ("tp=2,dp=4", "tp=2,pp=2,cp=2", True, "etp=2,ep=2"),
                ("tp=2,dp=4", "tp=2,cp=2,pp=2", False, "ep=4")]
SCHEDULES = ["1f1b", "zero-bubble", "interleaved:2"]
FIXED = [("tp=2,dp=4", "tp=2,cp=2,dp=2", False), ("tp=8,dp=1", "tp=2,cp=4,dp=1", True)]
TRAIN = ["--train", "100"]
USAGE = 2  # the exit status of wrong arguments
AT_A_TIME = 4
AT_ONCE = 15  # seconds; ranks that wait for others give up after 20
TWO_RANKS = ["--encoder", "tp=1,dp=2", "--llm", "tp=1,cp=1,dp=2"]
REFUSED = [
    (["--seed", "-5"], '--seed needs a whole number from 0, not "-5"'),
    (["--seed", "99999999999999999999999"], "--seed must be at most 18446744073709551615"),
    (["--seed", ""], '--seed needs a whole number from 0, not ""'),
    (["--train", "3x"], '--train needs a whole number, not "3x"'),
    (["--train", "4294967297"], "--train must be from 1 to 2147483647, not 4294967297"),
    (["--encoder", "pp=2,dp=1"], "--encoder pp=2,dp=1 has pp=2: the oracle models no pp there"),
    (["--encoder", "tp=2,dp=1", "--llm", "pp=2"],
     "--encoder tp=2,dp=1: its tp joins ranks 0 and 1, which --llm pp=2 puts on stages 0 and 1"),
    (["--llm", "pp=2", "--experts", "8,2", "--expert-grid", "ep=2"],
     "--expert-grid ep=2: 2 ranks share experts, and the LLM's 1 of a stage leave a rest"),
    (["--schedule", "two-phases"], "--schedule must be one of 1f1b|zero-bubble|interleaved[:V]|three-phases, not "
     '"two-phases"'),
    (["--schedule", "interleaved:5"], "--schedule interleaved must be from 2 to 4, not 5"),
    (["--encoder-group", "2", "--schedule", "three-phases"], "--schedule three-phases encodes all "
     "micro-batches as one group: --encoder-group and --encoder-alive do not go with it"),
    (["--encoder-group", "0"], "--encoder-group must be from 1 to 2147483647, not 0"),
    (["--schedule", "interleaved:2"],
     "--schedule interleaved:2 with --llm tp=1,cp=1,dp=2: there are no stages"),
    (["--encoder-alive", "0"], "--encoder-alive must be from 1 to 2147483647, not 0"),
    (["--encoder", "cp=2,dp=1"], "--encoder cp=2,dp=1 has cp=2: the oracle models no cp there"),
    (["--llm", "ep=2"], "--llm ep=2 has ep=2: the oracle models no ep there"),
    (["--adapters", "0:head"], "--adapters must be from 1 to 64, not 0"),
    (["--experts", "8"], '--experts needs two numbers, "8,2", not "8"'),
    (["--experts", "2,3"], '--experts "2,3": a token can\'t have 3 of 2 experts'),
    (["--experts", "8,2", "--expert-grid", "etp=3,ep=2"],
     "--expert-grid etp=3,ep=2: 6 ranks share experts, and the LLM's 2 leave a rest"),
    (["--experts", "8,2", "--expert-grid", "edp=2"],
     "--expert-grid edp=2 names edp: it has etp and ep"),
    (["--same-bits", "8"], '--same-bits needs two numbers, "8,1", not "8"'),
    (["--same-bits", "16,1", "--train", "3"],
     "--same-bits with V 16: 8 heads do not divide into 16 parts"),
    (["--micro-batches", "4"], "--micro-batches must be from 1 to 3, not 4"),
    (["--encoder", "tp"], "part 1 of the grid 'tp' is 'tp'"),
]


def encoders(ranks):
    return [f"tp={tp},dp={ranks // tp}" for tp in divisors(ranks)]


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def llms(ranks):
    """Every grid (tp, cp, dp) of `ranks` ranks, and again with sp where tp > 1."""
    found = []
    for tp in divisors(ranks):
        for cp in divisors(ranks // tp):
            spec = f"tp={tp},cp={cp},dp={ranks // tp // cp}"
            found += [(spec, sp) for sp in ([False, True] if tp > 1 else [False])]
    return found


def dp_of(spec):
    return int(spec.rsplit("dp=", 1)[1])


def fits(encoder, llm):
    """One dp divides the other, as the collective executor requires of grids in the order tp, cp,
    dp. routed takes any grids."""
    small, large = sorted((dp_of(encoder), dp_of(llm)))
    return large % small == 0


def executors_of(pair):
    return EXECUTORS if fits(pair[0], pair[1]) else EXECUTORS[1:]


def executor_in_turn(pair, i):
    executors = executors_of(pair)
    return executors[i % len(executors)]


def all_pairs(ranks):
    return [(e, *l) for e in encoders(ranks) for l in llms(ranks)]


def dealt_pairs(ranks, start):
    """Each LLM grid once, with the encoder's grids in turn."""
    dealt = encoders(ranks)
    return [(dealt[(start + i) % len(dealt)], *llm) for i, llm in enumerate(llms(ranks))]


def ranks_of(spec):
    ranks = 1
    for dim in spec.split(","):
        ranks *= int(dim.split("=")[1])
    return ranks


def options_of(pair, executor):
    encoder, llm, sp = pair
    return ["--encoder", encoder, "--llm", llm, "--executor", executor, *(["--sp"] if sp else [])]


class Outcome:
    """One run: its output on stdout and on stderr, its exit status, and its seconds."""

    def __init__(self, said, complaint, status, seconds):
        self.said, self.complaint, self.status, self.seconds = said, complaint, status, seconds

    def result(self):
        """The JSON of a comparison. None where the run printed none."""
        lines = [line for line in self.said.splitlines() if line.startswith("{")]
        return json.loads(lines[0]) if len(lines) == 1 else None


def mpirun(programs, ranks, words, seconds):
    """A launch. A launch that hangs is ended by SIGTERM, which mpirun passes on to its ranks."""
    command = ["timeout", str(seconds), programs[0], "--oversubscribe", "-n", str(ranks),
               programs[1], *words]
    begin = time.monotonic()
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         check=False)
    return Outcome(run.stdout, run.stderr, run.returncode, time.monotonic() - begin)


def ranks_in(options):
    return ranks_of(options[options.index("--llm") + 1])


def launch_alone(programs, options):
    return mpirun(programs, ranks_in(options), options, SECONDS)


def runs_that_ended(printed):
    """The outcome of each completed run of a launch, from what rank 0 printed."""
    ended, said = [], []
    for line in printed.splitlines():
        end = re.fullmatch(r"run (\d+): exit status (\d+), (\S+) s", line)
        if not end:
            said.append(line)
            continue
        ended.append(Outcome("\n".join(said), "", int(end[2]), float(end[3])))
        said = []
    return ended


def launch_together(programs, rows):
    """Runs on equal numbers of ranks, in one launch. Where the launch dies or hangs, each run that
    did not end is launched again by itself, so that no run fails because of another."""
    with tempfile.NamedTemporaryFile("w", suffix=".runs") as runs:
        runs.writelines(" ".join(options) + "\n" for options in rows)
        runs.flush()
        launched = mpirun(programs, ranks_in(rows[0]), ["--runs", runs.name],
                          SECONDS + SECONDS_MORE * len(rows))
    ended = runs_that_ended(launched.said)
    if len(ended) < len(rows):
        print(f"{launched.complaint}\na launch of {len(rows)} runs ended after {len(ended)}: the "
              "others run again, each by itself", flush=True)
    return ended + [launch_alone(programs, options) for options in rows[len(ended):]]


def launch_all(programs, rows):
    """Each run's outcome, in the order of the rows: one launch for each number of ranks."""
    outcomes = [None] * len(rows)
    for ranks in dict.fromkeys(map(ranks_in, rows)):
        places = [i for i, options in enumerate(rows) if ranks_in(options) == ranks]
        for i, outcome in zip(places, launch_together(programs, [rows[i] for i in places])):
            outcomes[i] = outcome
    return outcomes


def compared(programs, rows, names):
    """(result, outcome) of each comparison. Its log file has the run's name."""
    whole = [[*options, "--json", "--log", f"{LOGS}/{name}.log"]
             for options, name in zip(rows, names)]
    for options, outcome in zip(whole, launch_all(programs, whole)):
        if not outcome.result():
            print(f"{' '.join(options)} printed no result:\n{outcome.said}{outcome.complaint}",
                  flush=True)
        yield outcome.result(), outcome


def excess_of(result, name):
    """The worst error of a phase as a multiple of its limit; infinite where the error is NaN."""
    for phase in result["phases"]:
        if phase["phase"] == name and phase["worst"] is not None:
            return phase["worst"] / phase["limit"]
    return float("inf")


def worst_phase(result):
    """(excess, phase) of the phase with the largest excess."""
    rows = [(excess_of(result, phase["phase"]), phase["phase"]) for phase in result["phases"]]
    return max(rows) if rows else (float("inf"), "run")


def gradient_error(result):
    """The worst error of all gradients; infinite where nothing was compared, or where it is NaN."""
    for phase in result["phases"]:
        if phase["phase"] == "gradients" and phase["worst"] is not None:
            return phase["worst"]
    return float("inf")


class Run(typing.NamedTuple):
    """One comparison."""

    pair: tuple
    executor: str
    seed: int = 1
    adapters: int | str = 0  # their rank, and ":" with names of layers
    same_bits: bool = False
    experts: tuple = ()
    schedule: str = ""
    alive: int = 0
    group: int = 0
    overlap: bool = False

    def text(self):
        encoder, llm, sp = self.pair
        text = f"{encoder} -> {llm}{' sp' if sp else ''} {self.executor}"
        text += f" adapters {self.adapters}" if self.adapters else ""
        text += " same bits" if self.same_bits else ""
        text += f" experts {' '.join(self.experts)}" if self.experts else ""
        text += f" {self.schedule}" if self.schedule else ""
        text += " overlap" if self.overlap else ""
        text += f" alive {self.alive}" if self.alive else ""
        text += f" groups of {self.group}" if self.group else ""
        return text + (f" seed {self.seed}" if self.seed != 1 else "")

    def options(self):
        adapters = ["--adapters", str(self.adapters)] if self.adapters else []
        order = oracle_same_bits.ORDER if self.same_bits else []
        flags = zip(["--experts", "--expert-grid"], self.experts)
        experts = [word for flag in flags for word in flag]
        schedule = ["--schedule", self.schedule] if self.schedule else []
        alive = ["--encoder-alive", str(self.alive)] if self.alive else []
        group = ["--encoder-group", str(self.group)] if self.group else []
        overlap = ["--overlap"] if self.overlap else []
        return [*options_of(self.pair, self.executor), "--seed", str(self.seed), *adapters, *order,
                *experts, *schedule, *alive, *group, *overlap]


def judge_pair(text, result, outcome):
    excess, phase = worst_phase(result)
    passed = result["passed"] and outcome.status == 0 and excess <= 1
    verdict = f"margin {1 / excess:5.1f}" if passed else "FAIL"
    where = phase if passed else (result["first_failing_phase"] + " " + result["sentence"])
    print(f"{text:50} {verdict}  {where:10} {outcome.seconds:5.1f} s", flush=True)
    return passed


def check_pairs(programs, runs, rows):
    texts = [row.text() for row in rows]
    options = [row.options() for row in rows]
    names = [re.sub("[ =,>]+", "-", text) for text in texts]
    verdicts = []
    for text, (result, outcome) in zip(texts, compared(programs, options, names)):
        verdicts.append(bool(result) and judge_pair(text, result, outcome))
        if result:
            runs.append((text, result))
    return verdicts


def print_matrix(runs):
    """The numbers that docs/correctness.md gives for all pairs together."""
    error, where = max((gradient_error(result), text) for text, result in runs)
    (excess, phase), nearest = max((worst_phase(result), text) for text, result in runs)
    print(f"{len(runs)} pairs: the worst gradient error is {error:.1e} ({where}), the smallest "
          f"margin {1 / excess:.1f} ({phase}, {nearest})", flush=True)


def effect_of(result):
    """The effect on each module's gradients."""
    return "".join(f"{m['module']} gradients x {m['gradient_ratio'] or 0:.3g} "
                   f"(error {m['gradient_error'] or 0:.2g}); " for m in result["modules"])


def is_caught(result, status, phase):
    """A phase may fail for another reason, such as a reference that hardly moved. Only an error
    past its limit shows the bug."""
    if status == 0 or not result["mutation_reached"] or result["first_failing_phase"] != phase:
        return False
    if phase == "run":
        return result["failed_ranks"] == result["ranks"]
    return excess_of(result, phase) > 1


def judge_mutation(row, result, outcome):
    name, phase, topology = row[:3]
    first = result["first_failing_phase"]
    caught = is_caught(result, outcome.status, phase)
    how = f"{excess_of(result, first):8.2g} times the limit"
    if phase == "run":
        how = f"an error on {result['failed_ranks']} of {result['ranks']} ranks"
    verdict = "caught in" if caught else f"NOT CAUGHT in {phase}, but in"
    print(f"{name:18} {verdict} {first or 'no phase':10} {how}; {effect_of(result)}{topology}, "
          f"{outcome.seconds:.1f} s", flush=True)
    return caught


def check_mutations(programs):
    rows = list_mutations(programs)
    options = [row[2].split() + ["--mutate", row[0]] for row in rows]
    names = [f"mutation-{row[0]}" for row in rows]
    return [bool(result) and judge_mutation(row, result, outcome)
            for row, (result, outcome) in zip(rows, compared(programs, options, names))]


def train(programs, options):
    """The last line of a run with --train. A bug that ends the run says so there."""
    run = mpirun(programs, ranks_in(options), [*options, *TRAIN], 5 * SECONDS)
    return (run.said.splitlines() or ["nothing printed"])[0]


def show_effects(programs):
    """First each topology without a bug, then each bug."""
    rows = list_mutations(programs)
    for topology in dict.fromkeys(row[2] for row in rows):
        print(f"no bug, {topology}: {train(programs, topology.split())}", flush=True)
        for name, _, other, sentence, _ in rows:
            if other == topology:
                outcome = train(programs, topology.split() + ["--mutate", name])
                print(f"  {name} ({sentence}): {outcome}", flush=True)
    return [True]


def judge_self_test(options, passes, outcome):
    """The bridge's self-test passes, or fails on every rank."""
    ranks = ranks_in(options)
    said = (outcome.said.splitlines() or ["nothing printed"])[0]
    wanted = "the bridge passes" if passes else f"FAIL on {ranks} of {ranks} ranks"
    right = said.startswith(wanted) and (outcome.status == 0) == passes
    print(f"{'' if right else 'WRONG: '}{' '.join(options)}: {said}", flush=True)
    return right


def check_self_test(programs):
    """First each topology without a bug, then each bug."""
    mutations = [row for row in list_mutations(programs) if row[4]]
    rows = [(row[2], "", True) for row in mutations]
    rows = list(dict.fromkeys(rows)) + [(row[2], f" --mutate {row[0]}", False)
                                        for row in mutations]
    options = [f"{topology} --self-test{mutate}".split() for topology, mutate, _ in rows]
    return [judge_self_test(words, passes, outcome) for words, (_, _, passes), outcome
            in zip(options, rows, launch_all(programs, options))]


def check_arguments(programs, wrong, sentence):
    """Wrong arguments on two ranks. Of two equal options the last one counts."""
    run = mpirun(programs, 2, [*TWO_RANKS, *wrong], SECONDS)
    said = f"mimo-oracle: {sentence}" in run.complaint
    right = said and run.status == USAGE and run.seconds < AT_ONCE
    print(f"{' '.join(wrong):36} {'refused' if right else 'NOT REFUSED, or otherwise'}, exit "
          f"status {run.status}, {run.seconds:.1f} s", flush=True)
    return right


def check_same_bits(programs, runs, every):
    """The reference is that of the fast order: the fixed one is as near to it."""
    def launch(rows):
        return launch_all(programs, rows)
    verdicts = oracle_same_bits.check(launch, every)
    if every:
        return verdicts
    compared_rows = [Run(pair, executor_in_turn(pair, i), adapters=i % 2 * RANK, same_bits=True)
                     for i, pair in enumerate(FIXED)]
    return verdicts + check_pairs(programs, runs, compared_rows) + oracle_same_bits.check_bugs(
        launch, list_mutations(programs, "--list-order-mutations"))


def list_mutations(programs, flag="--list-mutations"):
    """Without mpirun."""
    run = subprocess.run([programs[1], flag], capture_output=True, text=True,
                         timeout=SECONDS, check=True)
    return [line.split("\t") for line in run.stdout.splitlines()]


def in_turn(pairs, adapters=0):
    """Runs of pairs, with the executors in turn."""
    return [Run(pair, executor_in_turn(pair, i), adapters=adapters) for i, pair in enumerate(pairs)]


def mixed_rows():
    """Every row of MIXED, with and without sp where there is tp; with the encoder's grids in turn, and
    again with adapters and zero-copy."""
    rows = []
    for llm_grids, experts, expert_grids in MIXED:
        for llm, grid in itertools.product(llm_grids, expert_grids):
            dealt = encoders(ranks_of(llm))
            for sp in [False, True] if "tp=" in llm and ranks_of(llm) > 2 else [False]:
                pair = (dealt[len(rows) // 2 % len(dealt)], llm, sp)
                few = [RANK, FEW_EXPERTS, LAST_EXPERTS][len(rows) // 2 % 3]
                rows += [Run(pair, executor, adapters=adapters, experts=(experts, grid))
                         for executor, adapters in (("routed", 0), ("zero-copy", few))]
    return rows


def staged_rows():
    """Every topology by every schedule: alone; with adapters and zero-copy; with the encoder ahead of
    the LLM by all 4 micro-batches; and in groups of 3 and 1. And in three phases."""
    rows = [Run(pair, executor, adapters=rank, schedule=schedule, alive=alive, group=group)
            for pair, schedule in itertools.product(STAGES, SCHEDULES)
            if "pp=8" not in pair[1] or schedule != SCHEDULES[-1]  # it takes 8 micro-batches
            for executor, rank, alive, group in (("routed", 0, 0, 0), ("zero-copy", RANK, 0, 0),
                                                 ("routed", RANK, 4, 0), ("zero-copy", 0, 0, 3))]
    rows += [Run(pair, executor, adapters=rank, schedule="three-phases")
             for pair in STAGES for executor, rank in (("routed", 0), ("zero-copy", RANK))]
    rows += [mixed_stages(row, i, schedule, True) for i, row in enumerate(MIXED_STAGES)
             for schedule in SCHEDULES[::2]]
    rows += [Run(row[:3], "routed", adapters=row[5], experts=tuple(row[3:5]), overlap=True) for row in MIXED_FEW]
    return rows + [mixed_stages(row, i, schedule) for i, row in enumerate(MIXED_STAGES)
                   for schedule in [*SCHEDULES, "three-phases"]]


def mixed_stages(row, i, schedule, overlap=False):
    """Every second one with adapters of few experts and zero-copy."""
    return Run(row[:3], "zero-copy" if i % 2 else "routed", adapters=LAST_EXPERTS if i % 2 else 0,
               experts=("8,2", row[3]), schedule=schedule, overlap=overlap)


def rows_of(part):
    """The runs of a part."""
    if part == "small":
        pairs = all_pairs(1) + all_pairs(2)[::2] + dealt_pairs(4, 0) + dealt_pairs(6, 1)[::2] + WIDE
        return (in_turn(pairs) + [Run(WIDE[0], "routed", seed) for seed in SEEDS]
                + [Run(pair, "zero-copy") for pair in ZERO_COPY])
    if part == "eight":
        return in_turn(dealt_pairs(8, 0))
    if part == "adapters":
        return (in_turn(ADAPTED[::2], RANK) + in_turn(ADAPTED[1::2], FEW)
                + [Run(("tp=2,dp=2", "tp=2,cp=2,dp=1", False), "routed", adapters=f"{RANK}:head")])
    if part == "experts":
        return [Run(tuple(row[:3]), "zero-copy" if row[5] else "routed", adapters=row[5],
                    experts=tuple(row[3:5])) for row in MIXED_FEW]
    if part == "stages":
        adapters = [0, LAST_STAGE, 0, RANK]
        return [Run(pair, "routed", adapters=adapters[i], schedule=SCHEDULES[i % 3])
                for i, pair in enumerate(STAGES[:3] + STAGES[-1:])] + [
                    Run(STAGES[0], "zero-copy", schedule="three-phases"),
                    Run(("dp=1", "tp=1", False), "routed", group=3)] + [
                    mixed_stages(row, i, SCHEDULES[1 + i], i == 1) for i, row in enumerate(MIXED_STAGES[:2])]
    if part == "every-stages":
        return staged_rows()
    if part == "every-experts":
        return mixed_rows()
    if part == "every-adapters":
        pairs = all_pairs(2) + dealt_pairs(4, 1) + dealt_pairs(6, 0) + dealt_pairs(8, 1)
        return in_turn(pairs, RANK - 1)
    return [Run(pair, executor) for pair in all_pairs(8) for executor in executors_of(pair)]


def check_part(programs, runs, part):
    if part == "mutations":
        return check_mutations(programs)
    if part in ("same-bits", "every-same-bits"):
        return check_same_bits(programs, runs, part == "every-same-bits")
    if part == "hosts":
        os.environ["MIMO_LOG"] = "warn"  # says what is out of reach
        return oracle_same_bits.check_hosts(lambda rows: launch_all(programs, rows),
                                            lambda options: launch_alone(programs, options))
    if part == "curves":
        return oracle_same_bits.check_curves(lambda rows: launch_all(programs, rows))
    if part == "self-test":
        return check_self_test(programs)
    if part == "arguments": # such a launch mostly waits for its own end
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(lambda row: check_arguments(programs, *row), REFUSED))
    if part == "effects":
        return show_effects(programs)
    return check_pairs(programs, runs, rows_of(part))


def main():
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    programs, parts = (sys.argv[1], os.path.abspath(sys.argv[2])), sys.argv[3:]
    unknown = set(parts) - PARTS
    if unknown:
        print(f"unknown parts: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    os.makedirs(LOGS, exist_ok=True)
    wrong, runs = 0, []  # runs: (name, result) of every pair
    for part in parts:
        begin = time.monotonic()
        outcomes = check_part(programs, runs, part)
        wrong += outcomes.count(False) + (not outcomes)
        print(f"{part}: {outcomes.count(True)} of {len(outcomes)} as they must be, "
              f"{time.monotonic() - begin:.0f} s", flush=True)
    if runs:
        print_matrix(runs)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
