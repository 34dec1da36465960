"""Mixtures of experts in the captioner. With --same-bits one checkpoint comes from every grid of experts,
whatever else a topology is, on 1, 2, 4 and 8 ranks, also in pipeline stages, with adapters and where a run goes
on elsewhere. In the fast order losses agree where ranks share an expert. Adapters are one file from every grid.

    test_captioner_experts.py MPIRUN CAPTIONER [every]     every: more topologies (scripts/oracle.sh)
"""
import filecmp
import json
import os
import re
import struct

from captioner_runs import Checks, Report, compare, read_tensors, write_tensors, run_test

ONE_EMOJI_IN = 60
# dp divides neither 13 samples nor a third of them: micro-batches have masked samples.
SIZES = ["--image-size", "16", "--hidden", "32", "--layers", "2,4", "--seq", "80", "--lr", "0.01",
         "--global-batch", "13", "--seed", "7", "--experts", "8,2"]
NODE_COST = "pre=30000,mlp=40000,dispatch=90000,combine=90000,encoder=50000,encoder.bwd=80000"
SAME_BITS = ["--same-bits=8,4", "--steps", "6"]
ONE = ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1)
# A topology, its grid of experts, and further flags.
SAME = [
    (ONE, "etp=1,ep=1", ["--micro-batches", "13"]),
    (("tp=1,dp=2", "tp=2,cp=1,dp=1", 2), "ep=2", ["--sp", "--micro-batches", "3", "--capacity", "2000"]),
    (("tp=2,dp=2", "tp=1,cp=2,dp=2", 4), "ep=4", ["--recompute"]),
    (("tp=1,dp=8", "tp=1,cp=1,dp=8", 8), "ep=4", ["--micro-batches", "3", "--overlap", "--recompute=keep", "--encoder-pieces", "2"]),
]
# In stages. The second one has the mixtures, blocks 1 and 3, in the second chunks; one chunk has no block.
STAGED = [
    (("tp=1,dp=4", "tp=2,cp=1,dp=1,pp=2", 4), "ep=2",
     ["--sp", "--micro-batches", "4", "--schedule", "zero-bubble"]),
    (("tp=1,dp=8", "pp=2,tp=1,cp=2,dp=2", 8), "ep=2",
     ["--micro-batches", "2", "--schedule", "interleaved", "--llm-pattern", "[*-]||[*-][*-]|[*-]", "--overlap",
      "--encoder-pieces", "2"]),
]
# Each pp, ep and number of ranks without and with a forward beside a backward.
EVERY_PAIR = [((f"tp=1,dp={ranks}", f"tp=1,cp=1,dp={ranks // pp},pp={pp}", ranks), f"ep={ep}",
               ["--micro-batches", "5", *overlap])
              for ranks in (2, 4, 8) for pp in (1, 2) for ep in (2, 4) if ranks // pp % ep == 0
              for overlap in ([], ["--overlap"])]
EVERY_SAME = [
    *EVERY_PAIR,
    (("tp=1,dp=8", "pp=2,tp=1,cp=2,dp=2", 8), "ep=2", ["--micro-batches", "2", "--schedule", "interleaved"]),
    (ONE, "etp=1", ["--micro-batches", "4", "--overlap"]),
    (("tp=1,dp=2", "tp=2,cp=1,dp=1", 2), "ep=2", ["--sp", "--micro-batches", "3", "--overlap"]),
    (("tp=1,dp=8", "tp=1,cp=2,dp=1,pp=4", 8), "ep=2",
     ["--micro-batches", "7", "--encoder-group", "2", "--overlap", "--recompute=keep"]),
    (("tp=2,dp=2", "tp=1,cp=1,dp=4", 4), "ep=4", ["--micro-batches", "4", "--overlap", "--encoder-pieces", "2",
                                                  "--encoder-alive", "0"]),
    (("tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2", 4), "ep=2", ["--micro-batches", "5", "--overlap", "--encoder-pieces", "2",
                                                       "--encoder-group", "2", "--recompute"]),
    (("tp=1,dp=2", "tp=1,cp=1,dp=1,pp=2", 2), "ep=1", ["--micro-batches", "3", "--overlap", "--recompute"]),
    (("tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2", 4), "ep=2", ["--micro-batches", "2", "--schedule", "interleaved",
                                                       "--overlap", "--recompute"]),
    (("tp=2,dp=2", "tp=1,cp=1,dp=4", 4), "ep=4", ["--micro-batches", "1", "--recompute=keep"]),
    (("tp=1,dp=2", "tp=1,cp=1,dp=1,pp=2", 2), "ep=1", ["--micro-batches", "5", "--recompute"]),
    (("tp=2,dp=4", "tp=2,pp=2,cp=2,dp=1", 8), "ep=2", ["--micro-batches", "3", "--schedule", "three-phases"]),
    (("tp=1,dp=8", "tp=1,cp=2,dp=1,pp=4", 8), "ep=2", ["--micro-batches", "7", "--encoder-group", "2"]),
    (("tp=1,dp=2", "tp=1,cp=2,dp=1", 2), "ep=1", []),
    (("tp=1,dp=3", "tp=1,cp=1,dp=3", 3), "ep=1", []),
    (("tp=1,dp=4", "tp=4,cp=1,dp=1", 4), "ep=2", ["--micro-batches", "2", "--recompute"]),
    (("tp=2,dp=2", "tp=1,cp=4,dp=1", 4), "ep=2", []),
    (("tp=4,dp=2", "tp=2,cp=2,dp=2", 8), "ep=8", ["--sp", "--recompute"]),
    (("tp=1,dp=8", "tp=8,cp=1,dp=1", 8), "ep=2", ["--micro-batches", "3"]),
]
ADAPTED = [STAGED[0]]
ADAPTERS = ["--lora-rank", "4", "--lora-targets", "all"]
# Under ep = 2 one rank has no expert with an adapter, and under pp = 2 one stage none at all.
ONE_ADAPTER = ["--lora-rank", "4", "--lora-targets", "block3.mlp.experts.5.up"]
FEW = ["--lora-rank", "4", "--lora-targets",
       "block1.attention.out,block1.mlp.experts.0.up,experts.3.down,experts.5.up"]
SHARED = (("tp=2,dp=2", "tp=2,cp=2,dp=1", 4), "etp=2,ep=2", ["--micro-batches", "3"])
EVERY_SHARED = [
    (("tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2", 4), "etp=2", ["--micro-batches", "3"]),
    (("tp=1,dp=2", "tp=2,cp=1,dp=1", 2), "etp=2", ["--sp"]),
    (("tp=1,dp=4", "tp=1,cp=1,dp=4", 4), "etp=4", []),
    (("tp=2,dp=4", "tp=2,cp=2,dp=2", 8), "etp=2,ep=4", ["--micro-batches", "3"]),
    (("tp=2,dp=4", "tp=4,cp=1,dp=2", 8), "etp=2", ["--sp"]),
]
# Adapters at step 0.
GRIDS = [(ONE, "etp=1", []), (("tp=1,dp=2", "tp=2,cp=1,dp=1", 2), "etp=2", ["--sp"]), SHARED]
EVERY_GRIDS = [(("tp=1,dp=2", "tp=1,cp=1,dp=2", 2), "ep=2", []),
               (("tp=1,dp=4", "tp=4,cp=1,dp=1", 4), "ep=2", []),
               (("tp=1,dp=4", "tp=1,cp=1,dp=2,pp=2", 4), "etp=2", []),
               (("tp=4,dp=2", "tp=2,cp=2,dp=2", 8), "etp=2,ep=2", [])]
# Of SIZES, and of an MLP's tensors.
HIDDEN, INNER, EXPERTS = 32, 4 * 32, 8
MLP = ("up.weight", "up.bias", "down.weight", "down.bias")
# Ranks, flags behind those of SIZES, words of the refusal.
REFUSED = [
    (2, ["--expert-grid", "ep=2", "--llm", "tp=1,cp=1,dp=1,pp=2"],
     "--expert-grid ep=2: 2 ranks share experts, and the LLM's 1 of a stage leave a rest"),
    (1, ["--experts", "8,3"], "the inner width of 128 does not divide over the 3 experts of a token"),
    (1, ["--llm-layers", "1"], "blocks 1, 3, ... are mixtures, and the LLM has 1"),
    (1, ["--llm-pattern", "[*-]*-[*-]"],
     "--experts: blocks 1, 3, ... are mixtures, and block 1 of --llm-pattern is no [*-]"),
    (1, ["--expert-grid", "ep=2"], "--expert-grid ep=2: 2 ranks share experts, and the LLM's 1 leave a rest"),
    (1, ["--micro-batches", "3", "--node-cost", "mlp=4"], "--node-cost needs --overlap"),
    (1, ["--micro-batches", "3", "--encoder-pieces", "2"], "--encoder-pieces needs --overlap"),
    (1, ["--micro-batches", "3", "--overlap", "--encoder-pieces", "3"], "an encoder of 2 layers has no 3 pieces"),
    (1, ["--expert-grid", "tp=1"], "--expert-grid tp=1 names tp: it has etp and ep"),
    (1, ["--expert-grid", "etp=one"], "etp=one"),
    (2, ["--expert-grid", "ep=2", "--experts", "7,2"], "--experts 7,2: they do not divide over ep=2"),
    (2, ["--expert-grid", "etp=2", "--hidden", "8", "--experts", "64,32"],
     "the width of 1 inside an expert does not divide over etp=2"),
    (2, ["--expert-grid", "ep=2", "--capacity", "9"], "rows for its experts, its tile has 9"),
    (2, ["--expert-grid", "etp=2", "--same-bits"], "same bits need etp=1, not etp=2"),
    (3, ["--expert-grid", "ep=3", "--experts", "9,2", "--same-bits"],
     "same bits need an ep that is a power of two, not ep=3"),
    (1, ["--lora-rank", "4", "--lora-targets", "experts.8.up"],
     '"experts.8.up": no linear layer ends with ".experts.8.up"; there are: patch'),
]


def halves_of(mlp):
    """Two experts of an MLP's tensors: half of what is inside each, and half of the last bias."""
    half, row = INNER // 2, 4 * HIDDEN
    last = struct.unpack(f"<{HIDDEN}f", mlp["down.bias"])
    bias = struct.pack(f"<{HIDDEN}f", *(value / 2 for value in last))
    experts = []
    for first in (0, half):
        columns = [mlp["down.weight"][4 * (INNER * i + first):4 * (INNER * i + first + half)] for i in range(HIDDEN)]
        experts.append({"up.weight": ("F32", [half, HIDDEN], mlp["up.weight"][row * first:row * (first + half)]),
                        "up.bias": ("F32", [half], mlp["up.bias"][4 * first:4 * (first + half)]),
                        "down.weight": ("F32", [HIDDEN, half], b"".join(columns)),
                        "down.bias": ("F32", [HIDDEN], bias)})
    return experts


def words(case):
    (encoder, llm, _), grid, flags = case
    return f"{encoder} -> {llm}, experts {grid} {' '.join(flags)}"


def loads_of(printed):
    return [line for line in printed.splitlines() if line.startswith("load of the experts, ")]


class Experts(Checks):
    def launch(self, case, *flags):
        topology, grid, more = case
        flags = self.captioner.flags_of(topology, *SIZES, "--expert-grid", grid, *more, *flags)
        return self.captioner.succeeds(topology[2], *flags).stdout

    def one_checkpoint(self, cases, *flags):
        """Of all cases, against one rank with one micro-batch: so gradients are sums over all samples of
        the step, divided by the tokens of all, and masked samples count nowhere."""
        one = self.launch((ONE, "etp=1", []), *SAME_BITS, *flags, "--save", self.path("one"))
        for case in cases:
            other = self.launch(case, *SAME_BITS, *flags, "--save", self.path("other"))
            self.expect(self.same_file("one", "other"),
                        f"{words(case)} {' '.join(flags)} has another checkpoint than one rank")
            self.expect(loads_of(one) and loads_of(one) == loads_of(other),
                        f"{words(case)} says {loads_of(other)}, and one rank {loads_of(one)}")

    def drawn_by_nodes(self, case):
        """Two lanes a stage as planned and as run, each node of each stage once, and what nodes cost. The plan is
        made of the costs that were given, and the checkpoint does not depend on them: after one_checkpoint."""
        folder = self.path("drawn")
        printed = self.launch(case, *SAME_BITS, "--out", folder, "--save", self.path("other"), "--node-cost", NODE_COST)
        self.expect(self.same_file("one", "other"), f"{words(case)} --node-cost {NODE_COST}: another checkpoint")
        with open(os.path.join(folder, "schedule_run.json"), encoding="utf-8") as f:
            events = [event for event in json.load(f)["traceEvents"] if event["ph"] == "X"]
        names = [(event["pid"], event["name"], event["args"]["micro_batch"], event["ts"]) for event in events]
        self.expect(len(set(names)) == len(names), f"{words(case)}: an event twice")
        for stage in (0, 1):
            own = [event for event in events if event["pid"] == stage]
            moves = [event for event in own if event["tid"] == 1]
            self.expect({"f.pre_process", "b.post_process.bwd"} <= {event["name"] for event in own} and
                        all(event["ts"] + event["dur"] > 0 for event in own), f"{words(case)}: stage {stage}: {own}")
            self.expect(moves, f"{words(case)}: stage {stage} moves nothing")
        for name, said in (("schedule.svg", r"time \d{6,},"), ("schedule_run.svg", r"ran in \d")):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text = f.read()
            for lane in ("compute", "exchanges"):
                self.expect(re.search(f"pp 2, 2 micro-batches: {said}", text) and f"stage 1 {lane}<" in text, f"{name}: {text}")
        costs = re.search(r"^node-cost (pre\.fwd=\d+,.*,mlp\.dw=\d+,.*)$", printed, re.M)
        self.expect(costs and self.captioner.launch(1, "--node-cost", costs[1], "--help").returncode == 0,
                    f"no costs that a run takes in {printed}")

    def goes_on_elsewhere(self, first, *flags):
        """Half of the steps, on another grid of experts than the second half; after one_checkpoint."""
        self.launch(first, "--same-bits=8,4", "--steps", "3", *flags, "--save", self.path("half"))
        self.launch(STAGED[0], *SAME_BITS, *flags, "--resume", self.path("half"), "--save", self.path("other"))
        self.expect(self.same_file("one", "other"),
                    f"a run {' '.join(flags)} that went on under another grid of experts, in stages")

    def other_experts(self):
        """After goes_on_elsewhere."""
        saved = "was saved with --experts 8,2, but this run has "
        self.expect_refused(self.captioner.flags_of(ONE, *SIZES, "--steps", "7"), [
            *(([*SAME_BITS, "--resume", self.path("half"), "--experts", other], saved + other)
              for other in ("4,2", "8,1")),
            (["--experts", "4,2", "--base", self.path("half")], saved + "4,2")])

    def losses(self, sizes, *flags):
        """Of a run on one rank."""
        log = self.path("step")
        self.captioner.succeeds(1, *self.captioner.flags_of(ONE, *sizes, "--log", log, *flags))
        return [line["loss"] for line in self.captioner.read_log(log)]

    def halves_of_mlps(self):
        """A checkpoint of mixtures, of one without: experts with even numbers are one half of the MLP that was
        there, the others are the other half, and routers are zeros."""
        metadata, tensors = read_tensors(self.path("dense"))
        tensors = {name: value for name, value in tensors.items() if not name.endswith((".adam_m", ".adam_v"))}
        for block in (1, 3):
            prefix = f"llm.block{block}.mlp."
            halves = halves_of({name: tensors.pop(prefix + name)[2] for name in MLP})
            for expert in range(EXPERTS):
                tensors.update({f"{prefix}experts.{expert}.{name}": value
                                for name, value in halves[expert % 2].items()})
            tensors[f"{prefix}router.weight"] = ("F32", [EXPERTS, HIDDEN], bytes(4 * EXPERTS * HIDDEN))
            tensors[f"{prefix}router.bias"] = ("F32", [EXPERTS], bytes(4 * EXPERTS))
        write_tensors(self.path("halves"), {**metadata, "experts": "8,2"}, tensors)

    def halves_are_the_mlp(self):
        """A router of zeros chooses experts 0 and 1 with equal weights, which add up to 2: so the mixture is the MLP
        of which they are the halves. Experts that nobody chooses get a gradient from the balance alone, and it
        moves their rows of the router."""
        dense = SIZES[:-2]
        self.losses(dense, "--steps", "0", "--save", self.path("dense"))
        self.halves_of_mlps()
        whole, = self.losses(dense, "--steps", "1", "--base", self.path("dense"))
        halves, = self.losses(SIZES, "--steps", "1", "--base", self.path("halves"), "--save", self.path("stepped"))
        self.expect(abs(halves - whole) < 1e-6 * whole, f"two halves of an MLP have the loss {halves}, not {whole}")
        moment = read_tensors(self.path("stepped"))[1]["llm.block1.mlp.router.weight.adam_m"][2]
        for expert in range(EXPERTS):
            self.expect(any(moment[4 * HIDDEN * expert:4 * HIDDEN * (expert + 1)]),
                        f"the router's row of expert {expert} has no gradient")

    def one_curve(self, cases):
        log = self.path("log")
        steps = ["--steps", "3", "--log", log]

        def train(case):
            if os.path.exists(log):
                os.remove(log)
            printed = self.launch(case, *steps, "--out", self.captioner.folder)
            self.load_is_reported(printed)
            return self.captioner.read_log(log)

        straight = train((ONE, "etp=1", []))
        for case in cases:
            self.wrong += compare(words(case), train(case), straight, 1e-4)

    def load_is_reported(self, printed):
        said = re.search(r"^load of the experts, llm\.block1: busiest (\S+) times the mean \(expert \d\), least "
                         r"(\S+) \(expert \d\), in 3 steps$", printed, re.M)
        self.expect(said and 0 <= float(said[2]) <= 1 <= float(said[1]) <= 4, f"no load in {printed}")

    def files(self, folder):
        return [os.path.join(self.path(folder), name)
                for name in ("adapter_config.json", "adapter_model.safetensors")]

    def same_adapter(self, one, other):
        return all(filecmp.cmp(*pair, shallow=False) for pair in zip(self.files(one), self.files(other)))

    def one_adapter(self, cases):
        """At step 0. Then one of few layers is trained where ranks share experts, and goes through another
        topology."""
        base = ["--base", self.path("base")]
        start = [*base, "--lora-rank", "4", "--steps", "0", "--adapter-out"]
        self.launch((ONE, "etp=1", []), "--steps", "2", "--save", self.path("base"))
        plain = Report(self.launch(cases[0], *start, self.path("adapter"))).right
        for case in cases[1:]:
            self.launch(case, *start, self.path("again"))
            self.expect(self.same_adapter("adapter", "again"), f"{words(case)}: another adapter at step 0")
        done = self.launch(SHARED, *base, *FEW, "--steps", "4", "--lr", "0.1", "--adapter-out",
                           self.path("trained"), "--merge", self.path("merged"))
        trained = Report(done).right
        again = self.launch(SAME[1], *base, "--steps", "0", "--adapter", self.path("trained"), "--adapter-out",
                            self.path("again"))
        self.expect(self.same_adapter("trained", "again"), "the round trip of a trained adapter")
        merged = Report(self.launch((ONE, "etp=1", []), "--base", self.path("merged"), "--steps", "0")).right
        for name, loss in (("loaded elsewhere", Report(again).right), ("merged", merged)):
            self.expect(abs(loss - trained) < 2e-4, f"{name}: loss {loss}, not {trained}")
        self.expect(abs(plain - trained) > 1e-3, f"loss {plain} and {trained}: the adapter changes too little")


def main(captioner, *every):
    test = Experts(captioner)
    test.one_checkpoint([*SAME, *STAGED, *(EVERY_SAME if every else [])])
    test.drawn_by_nodes(STAGED[1])
    test.goes_on_elsewhere(SAME[2])
    test.other_experts()
    test.halves_are_the_mlp()
    test.one_checkpoint([*ADAPTED, *(EVERY_SAME if every else [])], *ADAPTERS)
    for few in (ONE_ADAPTER, FEW) if every else (ONE_ADAPTER,):
        test.one_checkpoint(EVERY_SAME if every else [], *few)
        test.goes_on_elsewhere(SAME[1], *few)
    test.one_curve([SHARED, *(EVERY_SHARED if every else [])])
    test.one_adapter([*GRIDS, *(EVERY_GRIDS if every else [])])
    for ranks, flags, said in REFUSED:
        test.expect_refused_on(ranks, [*SIZES, "--steps", "7", *flags], said)
    return test.wrong


run_test(main, one_in=ONE_EMOJI_IN)
