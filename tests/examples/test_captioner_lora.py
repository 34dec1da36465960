"""Adapters of the captioner: one file from every topology, at step 0 and after a round trip; one loss
curve; merged weights; a resumed run; and what is refused."""
import os
import pathlib
import re
import shutil
import struct

from captioner_runs import Checks, Report, SMALL, compare, read_tensors, run_test

DEMO = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "demo.sh")
RANK = ["--lora-rank", "4", "--lora-alpha", "24"] # another alpha than a run has by itself
# A launch of 8 ranks takes its time, and there are dozens here.
TOPOLOGIES = [
    ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1),
    ("tp=2,dp=2", "tp=2,cp=2,dp=1", 4),
    ("tp=4,dp=1", "tp=1,cp=2,dp=2", 4),
    ("tp=1,dp=4", "tp=2,cp=1,dp=2", 4),
]
# Below, each with its flags. Encoder and LLM cut their factors into 1, 2 and 4 slices.
SP = ["--sp"]
MORE = [(("tp=2,dp=1", "tp=1,cp=2,dp=1", 2), []), (("tp=1,dp=2", "tp=2,cp=1,dp=1", 2), SP),
        (("tp=2,dp=2", "tp=4,cp=1,dp=1", 4), SP)]
WIDE = ("tp=8,dp=1", "tp=8,cp=1,dp=1", 8)
HEADS = 8
STEPS = ["--steps", "4"]
EVALUATE = ["--steps", "0"]
# Flags behind those of a run from the base, and words of the refusal.
REFUSED = [
    (["--lora-alpha", "8"], "--lora-alpha needs adapters: give --lora-rank or --adapter with it"),
    (["--merge", "M"], "--merge needs adapters"),
    (["--lora-rank", "0"], "--lora-rank must be from 1 to 1024, not 0"),
    ([*RANK, "--lora-alpha", "0"], "--lora-alpha must be above 0, not 0"),
    ([*RANK, "--lora-targets", "foo"],
     '--lora-targets "foo": no linear layer ends with ".foo"; there are: patch, project, attention.qkv'),
    ([*RANK, "--lora-targets", "all-linear,up"],
     '--lora-targets: "all-linear" is there beside other targets'),
    ([*RANK, "--lora-targets", ","], '--lora-targets "," names no layer'),
    ([*RANK, "--lora-targets", "up,encoder.block1.mlp.up"],
     '--lora-targets "encoder.block1.mlp.up": no linear layer ends with'),
    ([*RANK, "--lora-targets", "block01.mlp.up"], '--lora-targets "block01.mlp.up": no linear layer'),
    ([*RANK, "--lora-alpha", "1e300"], "the adapter's scale is 2.5e+299, of alpha 1e+300 and rank 4"),
    (["--adapter", "ADAPTER", "--lora-rank", "8"], "--lora-rank is 8, but the adapter in ADAPTER has r 4"),
    (["--adapter", "ADAPTER", "--lora-alpha", "8"],
     "--lora-alpha is 8, but the adapter in ADAPTER has lora_alpha 24"),
    (["--adapter", "ADAPTER", "--lora-rslora"],
     "--lora-rslora is given, but the adapter in ADAPTER has use_rslora false"),
    (["--lora-rslora"], "--lora-rslora needs adapters"),
    (["--adapter", "ADAPTER", "--lora-targets", "up,qkv"],
     "--lora-targets is qkv,up, but the adapter in ADAPTER has down,out,qkv,up"),
    (["--adapter", "ADAPTER.lora"], "says nothing of alpha: give --lora-alpha with it"),
    (["--adapter", "EMPTY.lora", "--lora-alpha", "8"], "empty.lora is a LORA file without a tensor"),
    (["--adapter", "ADAPTER", "--hidden", "64"], "--hidden 32, but this run has 64"),
    ([*RANK, "--resume", "BASE"], "--resume goes on with a run and --base starts one"),
]


def tensors_of(folder):
    """{name: rows of bytes} of an adapter's folder."""
    _, tensors = read_tensors(os.path.join(folder, "adapter_model.safetensors"))
    return {name: [data[row:row + 4 * width] for row in range(0, len(data), 4 * width)]
            for name, (_, (_, width), data) in tensors.items()}


def tensors_of_v1(path):
    """The same of a LORA file, in its order of rows."""
    with open(path, "rb") as file:
        data = file.read()
    (magic, version, count), at, rows = struct.unpack_from("<3I", data), 12, {}
    for _ in range(count):
        length, = struct.unpack_from("<I", data, at)
        name = data[at + 4:at + 4 + length].decode()
        dims, height, columns = struct.unpack_from("<Iqq", data, at + 4 + length)
        at += 4 + length + 20
        rows[name] = [data[at + 4 * row * columns:at + 4 * (row + 1) * columns] for row in range(height)]
        at += 4 * height * columns
    return rows if (magic, version, dims, at) == (0x4C4F5241, 1, 2, len(data)) else {}


def apart(rows):
    """Rows that lie head by head, each with its queries, keys and values: all queries, all keys, all
    values."""
    width = len(rows) // (3 * HEADS)
    return [rows[(3 * head + kind) * width + row] for kind in range(3) for head in range(HEADS)
            for row in range(width)]


class Adapters(Checks):
    def __init__(self, captioner):
        super().__init__(captioner)
        self.base = self.path("base.safetensors")

    def run(self, topology, *flags):
        return self.captioner.run(topology, *SMALL, "--base", self.base, *flags, pictures=False)

    def files(self, folder):
        """The bytes of both."""
        return [pathlib.Path(folder, name).read_bytes()
                for name in ("adapter_config.json", "adapter_model.safetensors")]

    def one_file_from_every_topology(self):
        """Before the first step."""
        first = None
        for topology, flags in (*((topology, []) for topology in (*TOPOLOGIES, WIDE)), *MORE):
            out = self.path("step0")
            self.run(topology, *RANK, *flags, *EVALUATE, "--adapter-out", out)
            found = self.files(out)
            first = first or found
            self.expect(found == first, f"the adapter of {topology} at step 0 is another file")

    def trained(self, printed, adapter):
        """What is trained is what the file of the adapter holds, whole."""
        size = sum(len(row) for rows in tensors_of(adapter).values() for row in rows)
        said = re.search(r"^training (\d+) of (\d+) parameters: ", printed, re.M)
        self.expect(said and 4 * int(said[1]) == size and int(said[2]) > int(said[1]),
                    f"an adapter of {size} bytes: {said and said[0]}")

    def one_curve(self, straight):
        for topology in (TOPOLOGIES[0], WIDE):
            seen = self.captioner.train(topology, *SMALL, "--base", self.base, *RANK, *STEPS)
            self.wrong += compare(f"adapters on {topology[0]} -> {topology[1]}", seen, straight, 1e-4)
        seen = self.captioner.train(TOPOLOGIES[1], *SMALL, "--base", self.base, *RANK, "--steps", "2",
                                    "--precision", "bf16")
        self.wrong += compare("adapters in bf16", seen, straight[:2], 1e-2)
        self.expect(seen[0]["loss"] != straight[0]["loss"], "bf16 does nothing")

    def starts_as_the_base(self, straight):
        """B is zero before the first step, so its loss has the bits of the base's."""
        seen = self.captioner.train(TOPOLOGIES[1], *SMALL, "--base", self.base, "--steps", "1")
        self.expect(seen[0]["loss"] == straight[0]["loss"],
                    f"loss {straight[0]['loss']} with adapters, {seen[0]['loss']} of the base")

    def round_trips(self, adapter, losses):
        """From one topology's adapter through others, and both kinds of files."""
        again, v1, back = self.path("again"), self.path("again.lora"), self.path("back")
        for topology, flags in (*((topology, []) for topology in TOPOLOGIES[1:3]), MORE[-1]):
            seen = Report(self.run(topology, "--adapter", adapter, *flags, *EVALUATE, "--adapter-out",
                                   again)[0].stdout)
            self.expect(self.files(again) == self.files(adapter), f"the round trip over {topology}")
            self.expect(abs(seen.right - losses.right) < 2e-4,
                        f"loss {seen.right} of {losses.right} on {topology}")
        topology = TOPOLOGIES[3]
        self.run(topology, "--adapter", adapter, *EVALUATE, "--adapter-out", v1)
        self.run(topology, "--adapter", v1, "--lora-alpha", "24", *EVALUATE, "--adapter-out",
                 back)
        self.expect(self.files(back) == self.files(adapter), f"LORA v1 over {topology}")
        self.rows_of_v1(adapter, v1)

    def rows_of_v1(self, adapter, v1):
        """A file of tp=2, by its description: one that is written and read alike wrongly shows here."""
        found, expected = tensors_of_v1(v1), {}
        for name, rows in tensors_of(adapter).items():
            packed = name.endswith("qkv.lora_B.weight")
            expected[name.removeprefix("base_model.model.").removesuffix(".weight")] = apart(rows) if packed else rows
            self.expect(not packed or apart(rows) != rows, f"{name} has equal rows")
        self.expect(found == expected, f"{v1} has other rows than {adapter}")

    def merged(self, merged, losses):
        done = self.captioner.run(TOPOLOGIES[2], *SMALL, "--base", merged, *EVALUATE, pictures=False)[0]
        seen = Report(done.stdout)
        self.expect(abs(seen.right - losses.right) < 2e-4, f"merged loss {seen.right} of {losses.right}")
        plain = Report(self.run(TOPOLOGIES[2], *EVALUATE)[0].stdout)
        self.expect(abs(plain.right - losses.right) > 5e-4, "the adapter changes too little to test it")

    def resumed(self, straight):
        saved = self.path("saved.safetensors")
        self.run(TOPOLOGIES[1], *RANK, "--steps", "2", "--save", saved)
        seen = self.captioner.train(TOPOLOGIES[2], *SMALL, *RANK, *STEPS, "--resume", saved)
        self.wrong += compare("resumed", seen, straight[2:], 1e-4)
        resume = ["--resume", saved]
        self.refused([([*resume, "--lora-rank", "5"], "--lora-rank 4, but this run has 5"),
                      ([*resume, *RANK, "--lora-alpha", "2"], "--lora-alpha 24, but this run has 2"),
                      ([*resume, *RANK, "--lora-targets", "up"],
                       "--lora-targets down,out,qkv,up, but this run has up"),
                      (resume, "--lora-rank 4, but this run has none"),
                      (["--resume", self.base, *RANK], "--lora-rank none, but this run has 4")])

    def long_lists(self):
        """Of targets, which a checkpoint remembers by a hash: lists that begin alike differ."""
        layers = [f"{module}.block{i}.{name}" for module, count in (("encoder", 1), ("llm", 2))
                  for i in range(count)
                  for name in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")]
        saved = self.path("long.safetensors")
        flags = [*RANK, "--lora-targets", ",".join(layers)]
        self.run(TOPOLOGIES[0], *flags, *EVALUATE, "--save", saved)
        self.captioner.run(TOPOLOGIES[0], *SMALL, *flags, *EVALUATE, "--resume", saved, pictures=False)
        layers[-1] = "head"
        self.refused([(["--resume", saved, *RANK, "--lora-targets", ",".join(layers)],
                       "--lora-targets 12 layers with the hash ")])

    def scaled_by_the_root(self):
        """rsLoRA, by its flag and by the file of an adapter, on resuming as well."""
        flags, other, saved = [*RANK, "--lora-rslora"], self.path("rslora"), self.path("rslora.safetensors")
        ends = [Report(self.run(topology, *more)[0].stdout) for topology, more in (
            (TOPOLOGIES[0], [*flags, "--steps", "1", "--save", saved, "--adapter-out", other]),
            (TOPOLOGIES[1], [*flags, *STEPS]),
            (TOPOLOGIES[1], [*RANK, *STEPS]),
            (TOPOLOGIES[0], ["--adapter", other, *EVALUATE]))]
        with open(os.path.join(other, "adapter_config.json"), encoding="utf-8") as file:
            self.expect('"use_rslora": true' in file.read(), "the folder says use_rslora")
        resumed = Report(self.captioner.run(TOPOLOGIES[2], *SMALL, *flags, *STEPS, "--resume", saved,
                                            pictures=False)[0].stdout)
        self.expect(abs(resumed.right - ends[1].right) < 2e-4, f"loss {resumed.right} of {ends[1].right}")
        self.expect(abs(ends[1].right - ends[2].right) > 5e-4, "rsLoRA changes too little to test it")
        self.expect(abs(ends[3].right - ends[0].right) < 2e-4, f"loss {ends[3].right} of {ends[0].right}")
        self.refused([(["--resume", saved, *RANK], "--lora-rslora true, but this run has none")])

    def refused(self, rows):
        """Each row: flags of a run on one rank, and words of its refusal."""
        self.expect_refused(self.captioner.flags_of(TOPOLOGIES[0], *SMALL, "--steps", "5"), rows)

    def flags_of_the_demo(self):
        """scripts/demo.sh knows which flags may stand without a value."""
        printed = self.captioner.launch(1, "--help").stdout
        flags = set(re.findall(r"^ {2}(?: {4}|-., )(--[a-z-]+)(?![a-z=-])", printed, re.M))
        with open(DEMO, encoding="utf-8") as script:
            known = re.search(r"^ +\*=\* \| (.*)\) ;; # may stand without a value$", script.read(), re.M)
        known = set(known[1].split(" | ")) | {"--help", "--usage", "--version"}
        self.expect(flags == known, f"{sorted(flags)} of the captioner, {sorted(known)} of the demo")

    def few_targets(self):
        """Of the head alone: no gradient crosses the bridge, and the curve is one as well."""
        flags = [*RANK, "--lora-targets", "head", "--steps", "2"]
        curve = None
        for topology in TOPOLOGIES[:2]:
            seen = self.captioner.train(topology, *SMALL, "--base", self.base, *flags)
            curve = curve or seen
            self.wrong += compare(f"the head alone on {topology[0]}", seen, curve, 1e-4)


def main(captioner):
    test = Adapters(captioner)
    captioner.train(TOPOLOGIES[1], *SMALL, "--steps", "3", "--save", test.base)
    test.one_file_from_every_topology()
    adapter, merged = test.path("adapter"), test.path("merged.safetensors")
    done, straight = test.run(TOPOLOGIES[1], *RANK, *STEPS, "--adapter-out", adapter, "--merge",
                              merged)
    losses = Report(done.stdout)
    test.trained(done.stderr, adapter)
    test.one_curve(straight)
    test.starts_as_the_base(straight)
    test.round_trips(adapter, losses)
    test.merged(merged, losses)
    test.resumed(straight)
    test.long_lists()
    test.scaled_by_the_root()
    test.few_targets()
    test.flags_of_the_demo()
    shutil.copy(test.path("again.lora"), adapter + ".lora")
    empty = test.path("empty.lora")
    with open(empty, "wb") as file:
        file.write(b"AROL\1\0\0\0\0\0\0\0")
    places = {"EMPTY.lora": empty, "BASE": test.base, "ADAPTER": adapter, "ADAPTER.lora": adapter + ".lora",
              "M": test.path("m")}
    test.refused([(["--base", test.base, *(places.get(flag, flag) for flag in flags)],
                   words.replace("ADAPTER", adapter)) for flags, words in REFUSED])
    return test.wrong


run_test(main, one_in=60)
