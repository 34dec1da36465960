"""With --same-bits the checkpoint after 10 steps is one file from every topology and every schedule, with adapters
and without, where blocks are recomputed, and where any rank encodes any picture. Elsewhere two topologies' differ.
What can't have the same bits is refused with a sentence."""
import re

from captioner_runs import Checks, read_tensors, write_tensors, run_test

ONE_EMOJI_IN = 60
STEPS = "10"
SIZES = ["--image-size", "16", "--hidden", "32", "--layers", "1,2", "--seq", "80", "--lr", "0.01",
         "--global-batch", "13", "--seed", "7", "--augment", "shift,flip,colour"]
ONE = ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1, [])
# dp divides neither 13 samples nor a third of them; one dp is no power of two.
TOPOLOGIES = [
    ("tp=1,dp=2", "tp=2,cp=1,dp=1", 2, ["--sp"]),
    ("tp=1,dp=3", "tp=1,cp=1,dp=3", 3, []),
    ("tp=1,dp=4", "tp=4,cp=1,dp=1", 4, ["--micro-batches", "2", "--recompute"]),
    ("tp=2,dp=2", "tp=1,cp=4,dp=1", 4, []),
    ("tp=8,dp=1", "tp=1,cp=1,dp=8", 8, []),
    ("tp=1,dp=8", "tp=8,cp=1,dp=1", 8, ["--sp", "--micro-batches", "3"]),
    ("tp=4,dp=2", "tp=2,cp=2,dp=2", 8, ["--sp", "--recompute"]),
]
# Stages of a pipeline, by every schedule. The LLM has 2 layers: of 4 stages, two have none. A pattern may cut
# elsewhere: then it is still the usual model.
PIPELINES = [
    ("tp=1,dp=2", "tp=1,cp=1,dp=1,pp=2", 2,
     ["--micro-batches", "4", "--schedule", "interleaved", "--encoder-alive", "0", "--llm-pattern", "|[*-]|[*-]|"]),
    ("tp=2,dp=4", "tp=2,cp=1,dp=2,pp=2", 8,
     ["--micro-batches", "4", "--schedule", "zero-bubble", "--sp", "--llm-pattern", "[*-][*-]|"]),
    ("tp=1,dp=8", "tp=1,cp=2,dp=1,pp=4", 8,
     ["--micro-batches", "5", "--schedule", "three-phases", "--recompute"]),
    ("tp=1,dp=8", "pp=4,tp=1,cp=1,dp=2", 8, ["--micro-batches", "7", "--encoder-group", "2"]),
]
# The same layers as blocks of their own, unevenly cut.
HALVES = ("tp=1,dp=2", "pp=2,tp=1,cp=1,dp=1", 2,
          ["--micro-batches", "3", "--llm-layers", "4", "--llm-pattern", "*|-*-", "--schedule", "zero-bubble"])
# Samples of several pictures, which any encoder lane encodes; one rank has one lane.
BALANCED = ("tp=2,dp=4", "tp=2,cp=2,dp=2", 8,
            ["--sp", "--micro-batches", "3", "--encoder-group", "2", "--balance"])
ADAPTED = [TOPOLOGIES[0], TOPOLOGIES[6], PIPELINES[0]]
ADAPTERS = ["--lora-rank", "4", "--lora-targets", "all"]
REFUSED = [
    (["--same-bits=6,1"], 1, "--same-bits needs powers of two, not \"6,1\""),
    (["--same-bits=8"], 1, "--same-bits needs two numbers, \"8,1\", not \"8\""),
    (["--same-bits=128,1"], 1, "--same-bits (V) must be from 1 to 64, not 128"),
    (["--same-bits", "--precision", "bf16"], 1, "products in bf16 have no fixed order"),
    (["--same-bits=16,1"], 1, "V 16: 8 heads do not divide into 16 parts"),
    (["--same-bits=64,1", "--heads", "64", "--hidden", "64"], 1,
     "V 64: the vocabulary of 288 does not divide into 64 parts"),
    (["--same-bits=8,64"], 1, "--seq 80 is not a multiple of 2*C = 128"),
    (["--same-bits", "--llm", "tp=1,cp=2,dp=1"], 2, "cp=2 is more than the 1 parts"),
    (["--same-bits=2,1", "--llm", "tp=4,cp=1,dp=1"], 4, "the LLM's tp=4 is more than the 2 parts"),
    (["--same-bits=2,1", "--encoder", "tp=4,dp=1"], 4,
     "the encoder's tp=4 is more than the 2 parts"),
    (["--micro-batches", "2", "--encoder-group", "3"], 1,
     "--encoder-group 3 is more than the micro-batches, --micro-batches 2"),
    (["--micro-batches", "2", "--encoder-group", "2", "--schedule", "three-phases"], 1,
     "--schedule three-phases encodes all micro-batches as one group: --encoder-group does not"),
    (["--schedule", "interleaved:3"], 1,
     "--schedule interleaved:3 cuts stages, and --llm has none: give it pp"),
    (["--llm", "tp=1,cp=1,dp=1,pp=2", "--encoder", "tp=2,dp=1"], 2,
     "its tp joins ranks 0 and 1, which --llm tp=1,cp=1,dp=1,pp=2 puts on stages 0 and 1"),
    (["--llm-pattern", "*-", "--lora-rank", "4", "--lora-targets", "llm.block0.mlp.up"], 1,
     "no linear layer ends with \".llm.block0.mlp.up\""),
    (["--llm", "tp=1,cp=1,dp=1,pp=2", "--micro-batches", "4", "--llm-pattern", "[*-]||[*-]"], 2,
     "--llm-pattern [*-]||[*-]: pattern: 3 segments over pp=2"),
    (["--llm", "tp=1,cp=1,dp=1,pp=2", "--micro-batches", "4", "--encoder-alive", "1"], 2,
     "schedule: encoder_alive 1: stage 0 needs 2 groups before the first one is done"),
]


# What Megatron calls the tensors of a layer, and those of none. An item of the pattern is a layer, whose final norm
# has another name where no item is a group.
KEYS = {"norm1.scale": "input_layernorm.weight", "norm1.shift": "input_layernorm.bias",
        "attention.qkv.weight": "self_attention.linear_qkv.weight",
        "attention.qkv.bias": "self_attention.linear_qkv.bias",
        "attention.out.weight": "self_attention.linear_proj.weight",
        "attention.out.bias": "self_attention.linear_proj.bias",
        "norm2.scale": "pre_mlp_layernorm.weight", "norm2.shift": "pre_mlp_layernorm.bias",
        "mlp.up.weight": "mlp.linear_fc1.weight", "mlp.up.bias": "mlp.linear_fc1.bias",
        "mlp.down.weight": "mlp.linear_fc2.weight", "mlp.down.bias": "mlp.linear_fc2.bias"}
OTHER_KEYS = {"llm.text.weight": "embedding.word_embeddings.weight",
              "llm.position.weight": "embedding.position_embeddings.weight",
              "llm.norm.scale": "decoder.{norm}.weight", "llm.norm.shift": "decoder.{norm}.bias",
              "llm.head.weight": "output_layer.weight"}


def megatron_tensors(path, norm="final_layernorm"):
    """A checkpoint with the captioner's keys, as one with Megatron's."""
    metadata, tensors = read_tensors(path)
    renamed = {}
    for name, value in tensors.items():
        whole, moment = re.fullmatch(r"(.*?)(\.adam_[mv])?", name).groups()
        block = re.fullmatch(r"llm\.block(\d+)\.(.*)", whole)
        if block:
            whole = f"decoder.layers.{block[1]}.{KEYS[block[2]]}"
        elif not name.startswith("encoder."):
            whole = OTHER_KEYS[whole].format(norm=norm)
        renamed[whole + (moment or "")] = value
    return {**metadata, "keys": "megatron"}, renamed


class SameBits(Checks):
    def flags_of(self, topology, flags):
        return self.captioner.flags_of(topology, *SIZES, *topology[3], *flags)

    def refused(self, topology, *flags):
        """What a launch that must fail says; '' where it succeeds."""
        return self.captioner.refused(*self.flags_of(topology, flags), ranks=topology[2])

    def train(self, name, topology, *flags):
        flags = self.flags_of(topology, ["--save", self.path(name), *flags])
        self.said = self.captioner.succeeds(topology[2], *flags).stdout

    def compare(self, topologies, same, *flags):
        """Every topology's checkpoint against that of one rank."""
        self.train("one", ONE, *flags)
        for topology in topologies:
            self.train("other", topology, *flags)
            equal = self.same_file("one", "other")
            self.expect(equal == same, f"{topology[0]} -> {topology[1]} {' '.join(topology[3])} "
                        f"{'is one file with' if equal else 'differs from'} one rank's "
                        f"({' '.join(flags)})")

    def expect_dealt_out(self):
        """The run that was compared last has moved pictures."""
        said = re.search(r"^balance: .* had (\S+) times the mean if .*, and (\S+) as dealt out; (\d+)% of the "
                         r"pictures moved$", self.said, re.M)
        self.expect(said and float(said[1]) > float(said[2]) >= 1 and int(said[3]) > 0, said and said[0])

    def expect_resumed(self):
        """Half of the steps on another topology, against the one rank that was compared last; V and C
        must be those of the first half."""
        self.train("half", TOPOLOGIES[3], "--same-bits=8,4", "--steps", "5")
        self.train("two thirds", PIPELINES[0], "--same-bits=8,4", "--steps", "7", "--resume",
                   self.path("half"), "--keys", "megatron")
        self.train("other", TOPOLOGIES[0], "--same-bits=8,4", "--steps", STEPS, "--resume",
                   self.path("two thirds"))
        self.expect(self.same_file("one", "other"),
                    "resumed twice, on other topologies")
        self.expect(read_tensors(self.path("two thirds"))[1].keys() == {*megatron_tensors(self.path("one"))[1]},
                    "keys of Megatron, from stages")
        for order, said in ((["--same-bits=8,2"], "8,2"), ([], "none")):
            complaint = self.refused(ONE, *order, "--steps", STEPS, "--resume", self.path("half"))
            self.expect(f"was saved with --same-bits 8,4, but this run has {said}" in complaint,
                        f"resumed with --same-bits {said}: {complaint.strip()[:200]}")

    def expect_halves(self):
        """A checkpoint moved to the names that its layers have as blocks of their own, and gone on with in
        stages, against the whole blocks' that was compared last."""
        def halves_name(name):
            block = re.match(r"llm\.block(\d)\.", name)
            second = ".norm2." in name or ".mlp." in name
            return name.replace(block[0], f"llm.block{2 * int(block[1]) + second}.") if block else name

        moved = {}
        for name in ("half", "one"):
            metadata, tensors = read_tensors(self.path(name))
            metadata.update({"llm_layers": "4", "llm_pattern": "*-*-"})
            moved[name] = metadata, {halves_name(tensor): value for tensor, value in tensors.items()}
        write_tensors(self.path("moved"), *moved["half"])
        write_tensors(self.path("one moved"), *moved["one"])
        self.train("other", HALVES, "--same-bits=8,4", "--steps", STEPS, "--resume", self.path("moved"),
                   "--keys", "megatron")
        self.expect(read_tensors(self.path("other")) == megatron_tensors(self.path("one moved"), "final_norm"),
                    "layers as blocks of their own, with Megatron's keys")
        complaint = self.refused(PIPELINES[0], "--same-bits=8,4", "--resume", self.path("moved"))
        self.expect("was saved with --llm-pattern *-*-, but this run has none" in complaint,
                    f"resumed with other blocks: {complaint.strip()[:200]}")

    def expect_keys(self):
        """Megatron's keys are the same tensors. Cut over tp it is the file that stages write."""
        self.train("other", TOPOLOGIES[0], "--same-bits=8,4", "--steps", STEPS, "--resume", self.path("two thirds"),
                   "--keys", "megatron")
        self.expect(read_tensors(self.path("other")) == megatron_tensors(self.path("one")), "keys of Megatron")
        metadata, tensors = read_tensors(self.path("one"))
        write_tensors(self.path("other"), {**metadata, "keys": "hf"}, tensors)
        complaint = self.refused(ONE, "--same-bits=8,4", "--resume", self.path("other"))
        self.expect("other has keys \"hf\", and not those of the captioner or of megatron" in complaint,
                    f"keys of nobody: {complaint.strip()[:200]}")


def main(captioner):
    test = SameBits(captioner)
    test.compare(TOPOLOGIES + PIPELINES, True, "--same-bits=8,4", "--steps", STEPS)
    test.expect_resumed()
    test.expect_keys()
    test.expect_halves()
    test.compare(ADAPTED, True, "--same-bits=8,4", "--steps", STEPS, *ADAPTERS, "--evaluate-every", "4")
    test.compare([BALANCED], True, "--same-bits=8,4", "--steps", "8", "--images", "0-4")
    test.expect_dealt_out()
    test.compare(TOPOLOGIES[:1], False, "--steps", STEPS)
    for flags, ranks, said in REFUSED:
        test.expect_refused_on(ranks, [*SIZES, "--steps", "1", *flags], said)
    return test.wrong


run_test(main, one_in=ONE_EMOJI_IN)
