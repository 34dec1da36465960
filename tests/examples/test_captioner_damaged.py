"""Adapters and checkpoints that must not be taken: values that are no finite numbers, a folder of which
only one file was saved, an adapter of another base."""
import json
import os
import re
import shutil
import struct

from captioner_runs import Checks, SMALL, read_tensors, write_tensors, run_test

ONE, TWO = ("tp=1,dp=1", "tp=1,cp=1,dp=1"), ("tp=2,dp=1", "tp=2,cp=1,dp=1")
EVALUATE = ["--steps", "0"]
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
B = "llm.block0.mlp.up.lora_B"
NAN, INFINITE, HUGE = float("nan"), float("-inf"), 3e38


def place_of(path, tensor):
    """The byte at which a tensor of a safetensors file begins."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return 8 + length + json.loads(file.read(length))[tensor]["data_offsets"][0]


def put(path, byte, value):
    with open(path, "r+b") as file:
        file.seek(byte)
        file.write(struct.pack("<f", value))


class Damaged(Checks):
    def __init__(self, captioner):
        super().__init__(captioner)
        self.made = 0
        self.base, self.saved = self.path("base.safetensors"), self.path("saved.safetensors")
        self.adapter, self.v1 = self.path("adapter"), self.path("adapter.lora")

    def flags_of(self, flags, ranks=1):
        return self.captioner.flags_of(ONE if ranks == 1 else TWO, *SMALL, *flags)

    def takes(self, *flags):
        self.captioner.succeeds(1, *self.flags_of(flags))

    def fails(self, *flags, ranks=1):
        """What a launch that must fail says; '' where it succeeds."""
        return self.captioner.refused(*self.flags_of(flags, ranks), ranks=ranks)

    def refuses(self, pattern, *flags, ranks=1):
        """Nothing is written either."""
        out = [self.path("out.lora"), self.path("out.safetensors")]
        said = self.fails(*flags, "--save", out[1], *(["--adapter-out", out[0]] if "--adapter" in flags else []),
                          ranks=ranks)
        sentences = re.findall(r"^captioner: .*$", said, re.M)
        self.expect(len(sentences) == 1 and re.search(pattern, sentences[0]),
                    f"{flags} should be refused with {pattern}: {said}")
        self.expect(not any(map(os.path.exists, out)), f"{flags}: something was written")

    def copy(self, source):
        self.made += 1
        made = self.path(f"copy{self.made}" + os.path.splitext(source)[1])
        (shutil.copytree if os.path.isdir(source) else shutil.copyfile)(source, made)
        return made

    def with_value(self, source, tensor, value, element=0):
        made = self.copy(source)
        put(made, place_of(made, tensor) + 4 * element, value)
        return made

    def without_hashes(self):
        """As other programs write it."""
        made = self.copy(self.adapter)
        config = self.read(made)
        self.expect(set(config.pop("mimo_bridge")) == {"base", "tensors"}, "hashes of the folder")
        self.write(made, config)
        return made

    def read(self, folder):
        with open(os.path.join(folder, CONFIG), encoding="utf-8") as file:
            return json.load(file)

    def write(self, folder, config):
        with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
            json.dump(config, file)

    def make_files(self):
        self.takes("--steps", "1", "--save", self.base)
        start = ["--base", self.base, "--lora-rank", "2", "--steps", "1"]
        self.takes(*start, "--adapter-out", self.adapter, "--save", self.saved)
        self.takes("--base", self.base, "--adapter", self.adapter, *EVALUATE, "--adapter-out", self.v1)

    def checkpoints_that_are_not_finite(self):
        weight = "llm.block1.mlp.down.weight"
        for value, words in ((NAN, "nan"), (INFINITE, "-inf")):
            path = self.with_value(self.base, weight, value, 7)
            self.refuses(f"{re.escape(path)}: element 7 of tensor {weight} is {words}, and not a finite",
                         "--base", path, *EVALUATE)
        path = self.with_value(self.base, "encoder.patch.bias.adam_v", NAN)
        self.refuses(f"{re.escape(path)}: element 0 of tensor encoder.patch.bias.adam_v is nan", "--resume", path,
                     *EVALUATE)

    def tensors_of_another_model(self):
        """Each is called what it is; what a base does not take of a checkpoint stays there."""
        weight, short = "llm.block1.mlp.down.weight", "encoder.patch.bias"
        metadata, tensors = read_tensors(self.base)
        dtype, shape, data = tensors[weight]
        for name, changed, words in (
                (weight, ("F16", shape, data[::2]), f"tensor {weight} is F16, and this program computes in F32"),
                (weight, (dtype, shape[::-1], data), f"tensor {weight} is F32 {shape[::-1]}, and not F32 {shape}"),
                ("more.weight", tensors[short], "a tensor more.weight that this model has no place for"),
                ("more.weight.adam_m", tensors[short], "a tensor more.weight.adam_m that this model"),
                ("x.lora_A.weight", tensors[short], "a tensor x.lora_A.weight that this model")):
            path = self.path(f"changed{self.made}.safetensors")
            self.made += 1
            write_tensors(path, metadata, {**tensors, name: changed})
            self.refuses(re.escape(words), "--base", path, *EVALUATE)
        self.refuses(re.escape(words), "--resume", path, *EVALUATE)
        write_tensors(path, {**metadata, "dropout": "0.1"}, tensors)
        self.refuses("was saved with dropout 0.1, which this program does not know", "--resume", path, *EVALUATE)
        self.takes("--base", self.saved, *EVALUATE)

    def texts_for_a_terminal(self):
        """What a file says stays in its sentence."""
        metadata, tensors = read_tensors(self.saved)
        path = self.path("odd.safetensors")
        for key, words in ("hidden", "its metadata say "), ("lora_targets", "was saved with --lora-targets "):
            write_tensors(path, {**metadata, key: "3\x1b[2J\nlogin: \u009b"}, tensors)
            said = self.fails("--resume", path, "--lora-rank", "2", "--steps", "2")
            self.expect(words in said and r"3\x1b[2J\nlogin: \xc2\x9b" in said and said.count("\n") == 1,
                        f"{key} of an odd file: {said!r}")

    def weights_that_are_too_large(self):
        """They are numbers: no learning rate helps."""
        path = self.with_value(self.base, "llm.head.weight", HUGE)
        put(path, place_of(path, "llm.head.weight") + 4, HUGE)
        said = self.fails("--base", path, "--steps", "1")
        self.expect("the weights that this run began with are too large" in said and "--lr" not in said,
                    f"weights of {HUGE}: {said}")

    def adapters_that_are_not_finite(self):
        bare = self.without_hashes()
        tensors, name = os.path.join(bare, TENSORS), f"base_model.model.{B}.weight"
        last = 4 * 32 * 2 - 1 # of the rows of tp rank 1
        put(tensors, place_of(tensors, name) + 4 * last, NAN)
        for ranks in 1, 2:
            self.refuses(f"{re.escape(bare)}: element {last} of tensor {B}.weight is nan", "--base", self.base,
                         "--adapter", bare, *EVALUATE, ranks=ranks)
        v1 = self.copy(self.v1)
        with open(v1, "rb") as file:
            begins = file.read().index(B.encode()) + len(B) + 4 + 2 * 8
        put(v1, begins, INFINITE)
        self.refuses(f"{re.escape(v1)}: element 0 of tensor {B}.weight is -inf", "--base", self.base, "--adapter",
                     v1, "--lora-alpha", "16", *EVALUATE)

    def merged_weights_that_overflow(self):
        path, bare = self.path("merged.safetensors"), self.without_hashes()
        self.write(bare, {**self.read(bare), "lora_alpha": 6e38})
        tensors = os.path.join(bare, TENSORS)
        for factor in "AB":
            name = f"base_model.model.llm.block0.mlp.up.lora_{factor}.weight"
            put(tensors, place_of(tensors, name), 100)
        said = self.fails("--base", self.base, "--adapter", bare, *EVALUATE, "--merge", path)
        self.expect(f"{path}: element 0 of tensor llm.block0.mlp.up.weight is inf" in said
                    and not os.path.exists(path), f"an overflow is merged: {said}")

    def alphas(self):
        bare = self.without_hashes()
        for alpha in -16, 0:
            self.write(bare, {**self.read(bare), "lora_alpha": alpha})
            self.refuses(f"the adapter in {re.escape(bare)} has lora_alpha {alpha}, and not a number above 0",
                         "--base", self.base, "--adapter", bare, *EVALUATE)

    def torn(self):
        """The files of two savings. Each without its hash is taken, as other programs write it."""
        later, start = self.path("later"), ["--base", self.base, "--lora-rank", "2", "--lora-alpha", "1600"]
        self.takes(*start, "--steps", "1", "--adapter-out", later)
        torn = self.copy(self.adapter)
        shutil.copyfile(os.path.join(later, TENSORS), os.path.join(torn, TENSORS))
        self.refuses(f"the files in {re.escape(torn)} are not of one adapter: {TENSORS} has the hash [0-9a-f]{{16}}, "
                     f"and {CONFIG} was written for [0-9a-f]{{16}}", "--base", self.base, "--adapter", torn,
                     *EVALUATE)
        self.takes("--base", self.base, "--adapter", self.without_hashes(), *EVALUATE)

    def other_bases(self):
        other = self.path("other.safetensors")
        self.takes("--seed", "8", *EVALUATE, "--save", other)
        flags = ["--base", other, "--adapter", self.adapter, *EVALUATE]
        self.refuses(f"the adapter in {re.escape(self.adapter)} was trained on other weights: on those with the "
                     "hash [0-9a-f]{16}, and these have [0-9a-f]{16}. Give its base, or --adapter-other-base", *flags)
        self.refuses("was trained on other weights", *flags, ranks=2)
        self.takes(*flags, "--adapter-other-base", "--adapter-out", self.path("moved"))
        self.takes("--base", other, "--adapter", self.path("moved"), *EVALUATE)
        self.refuses("--adapter-other-base needs an adapter of another base", "--base", other,
                     "--adapter-other-base", *EVALUATE)


def main(captioner):
    test = Damaged(captioner)
    test.make_files()
    test.checkpoints_that_are_not_finite()
    test.tensors_of_another_model()
    test.texts_for_a_terminal()
    test.weights_that_are_too_large()
    test.adapters_that_are_not_finite()
    test.merged_weights_that_overflow()
    test.alphas()
    test.torn()
    test.other_bases()
    return test.wrong


run_test(main, one_in=60)
