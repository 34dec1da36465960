"""Hashes in the captioner's log, and what mimo-diff says of logs and checkpoints: the same topology
twice is equal, also where the second run is resumed half-way; two topologies differ at the first step,
and are equal with --same-bits, also where one is a pipeline.
The hashes of parameters are those of the saved tensors, computed here from their definition."""
import re
import struct
import subprocess

from captioner_runs import Checks, read_tensors, write_tensors, run_test

ONE_EMOJI_IN = 60
SMALL = ["--image-size", "16", "--hidden", "16", "--heads", "4", "--layers", "1,2", "--experts", "4,2",
         "--seq", "80", "--lr", "0.01", "--global-batch", "8", "--micro-batches", "2", "--seed", "7"]
ONE = ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1)
TWO = ("tp=2,dp=1", "tp=2,cp=1,dp=1", 2)
STAGES = ("tp=1,dp=2", "tp=1,cp=1,dp=1,pp=2", 2)
WORD = 2 ** 64 - 1


def hash_int(state, value):
    x = (state + 0x9e3779b97f4a7c15 + value) & WORD
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & WORD
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & WORD
    return x ^ (x >> 31)


def hash_bytes(data):
    state = 0xcbf29ce484222325
    for byte in data:
        state = ((state ^ byte) * 0x100000001b3) & WORD
    return hash_int(state, len(data))


def hash_tensor(name, data):
    key = hash_bytes(name.encode())
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return sum(hash_int(hash_int(key, i), word) for i, word in enumerate(words)) & WORD


def hashes_of(checkpoint):
    """The hash of every parameter of a checkpoint, as text."""
    return {name: f"{hash_tensor(name, data):016x}" for name, (_, _, data) in read_tensors(checkpoint)[1].items()
            if not name.endswith((".adam_m", ".adam_v"))}


def total(hashes):
    return f"{sum(int(text, 16) for text in hashes) & WORD:016x}"


def saved_of(count):
    """Tensors in the checkpoint of `count` parameters: with two moments each, except the bias of the router."""
    return 3 * count - 2


class Diff(Checks):
    def __init__(self, captioner, program):
        super().__init__(captioner)
        self.program = program
        self.results = {}  # what each run said of held-out emoji

    def train(self, name, topology, *flags, hashes=("--log-hashes=tensors",)):
        """The lines of a run's log."""
        flags = self.captioner.flags_of(topology, *SMALL, "--log", self.path(name), *hashes, *flags)
        done = self.captioner.succeeds(topology[2], *flags)
        self.results[name] = re.search(r"^held-out loss.*?\n\n.*?\n\n", done.stdout, re.M | re.S)[0]
        return self.captioner.read_log(self.path(name))

    def ask(self, a, b, status, *patterns):
        """What mimo-diff says has that exit status and matches each pattern."""
        done = subprocess.run([self.program, self.path(a), self.path(b)], capture_output=True,
                              text=True, check=False)
        said = done.stdout + done.stderr
        print(said)
        self.expect(done.returncode == status, f"{a}, {b}: exit {done.returncode}")
        for pattern in patterns:
            self.expect(re.search(pattern, said, re.M), f"{a}, {b}: no \"{pattern}\"")

    def check_hashes(self, lines, checkpoint):
        """The last line has the hashes of the checkpoint, and sums that agree with its tensors."""
        last = lines[-1]
        saved = hashes_of(self.path(checkpoint))
        logged = {name: pair[0] for name, pair in last["tensors"].items()}
        self.expect(saved == logged, f"{checkpoint}: {saved}, but the log has {logged}")
        pairs = last["tensors"].values()
        self.expect(last["params"] == total(pair[0] for pair in pairs), "params is no sum")
        self.expect(last["grads"] == total(pair[1] for pair in pairs if pair[1]), "grads is no sum")


def compare_runs(diff):
    one = diff.train("one", ONE, "--steps", "2", "--save", diff.path("one.st"))
    two = diff.train("two", TWO, "--steps", "2", "--save", diff.path("two.st"))
    diff.train("again", TWO, "--steps", "1", "--save", diff.path("half.st"))
    again = diff.train("again", TWO, "--steps", "2", "--resume", diff.path("half.st"), "--save",
                       diff.path("again.st"))
    diff.expect([line.get("first_step") for line in again] == [1, None, 2, None], "starts of again")
    diff.expect(one[0]["params"] == two[0]["params"], "the runs start from other models")
    diff.check_hashes(one, "one.st")
    diff.check_hashes(two, "two.st")
    count = len(one[-1]["tensors"])
    diff.ask("two", "again", 0, rf"^equal: steps 1 to 2 \(2\): .* of {count} tensors$")
    diff.ask("two.st", "again.st", 0, rf"^equal: {saved_of(count)} tensors, ")
    diff.ask("one", "two", 1, r"^step 1 differs, first: loss$", r"^  start      equal$",
             rf"^  gradients  \d+ of {count} tensors differ, first in backward \S+: ",
             r"^the gradient of \S+ \(module (llm|encoder), \w+ over tp\):$",
             r"^  tp                1     2  ", r"^  micro-batches     2     2  added ")
    diff.ask("one.st", "two.st", 1, r"^first tensor: \S+, F32 \[", r"^  first element \[\d.*bits ",
             r"elements differ, by at most \S+$")
    diff.ask("one.st", "half.st", 2, "is of step 2 and .* of step 1")
    diff.ask("one.st", "one", 2, "give two of a kind")
    metadata, tensors = read_tensors(diff.path("one.st"))
    write_tensors(diff.path("odd.st"), {**metadata, "step": "2\x1b[2J\nequal: 2"}, tensors)
    diff.ask("one.st", "odd.st", 2, r"of step 2\\x1b\[2J\\nequal: 2: only the same step")


def compare_adapters(diff):
    """What is frozen has no gradient, and is there all the same."""
    lines = diff.train("adapters", TWO, "--steps", "1", "--lora-rank", "2")
    for name, (_, grads) in lines[-1]["tensors"].items():
        frozen = lines[0]["tensors"][name]["rule"] == "frozen"
        diff.expect(frozen == (".lora_" not in name) and frozen == (grads is None), name)
        diff.expect(frozen == (lines[0]["tensors"][name]["params"] == lines[-1]["tensors"][name][0])
                    or name.endswith("lora_A.weight"), f"{name}: what is trained moves")
    diff.ask("two", "adapters", 2, r"have other tensors: number \d+ is ")


def compare_same_bits(diff):
    """With --same-bits topologies have equal hashes, and say the same of held-out emoji; another V is another
    order."""
    keys = ["--keys", "megatron", "--save"]
    lines = diff.train("fixed", ONE, "--steps", "2", "--same-bits=4,1", *keys, diff.path("fixed.st"))
    diff.train("fixed-two", TWO, "--steps", "2", "--same-bits=4,1", *keys, diff.path("fixed-two.st"))
    diff.train("fixed-stages", STAGES, "--steps", "2", "--same-bits=4,1", "--save", diff.path("own.st"))
    diff.train("other", TWO, "--steps", "1", "--same-bits=2,1")
    diff.expect(lines[0]["same_bits"] == "4,1", "the order is in the log")
    count = len(lines[-1]["tensors"])
    diff.ask("fixed", "fixed-two", 0, rf"^equal: steps 1 to 2 .* {count} tensors$")
    diff.ask("fixed", "fixed-stages", 0, rf"^equal: steps 1 to 2 .* {count} tensors$")
    names = diff.results["fixed"].partition("held-out emoji")[2].rstrip().splitlines()[1:]
    diff.expect(len(names) == 2 and diff.results["fixed"] == diff.results["fixed-stages"],
                f"one rank says {diff.results['fixed']}, stages say {diff.results['fixed-stages']}")
    diff.ask("fixed.st", "fixed-two.st", 0, rf"^equal: {saved_of(count)} tensors, ")
    diff.ask("two.st", "fixed.st", 2, r"llm\.|decoder\.")
    diff.ask("fixed", "other", 1, r"add in other orders \(--same-bits: 4,1 and 2,1\)")
    hashed = diff.train("hashed", TWO, "--steps", "1", "--same-bits=4,1", hashes=())
    diff.expect(hashed[0]["params"] == lines[0]["params"] and "tensors" not in hashed[0]
                and hashed[1]["grads"] == lines[1]["grads"], "--log alone has the model's hashes")
    plain = diff.train("plain", TWO, "--steps", "1", "--same-bits=2,1",
                       hashes=("--log-hashes=none",))
    diff.expect(plain[0]["same_bits"] == "2,1" and "params" not in plain[0] | plain[1],
                "--log-hashes=none leaves the order")
    diff.ask("hashed", "plain", 1, r"add in other orders \(--same-bits: 4,1 and 2,1\)")


def check_megatron_keys(diff):
    """Of experts, by their shapes: fc1 widens and fc2 narrows. A reader that has the words of the writer sees
    nothing. Block 1 is the mixture."""
    _, tensors = read_tensors(diff.path("fixed.st"))
    shapes = {name: shape for name, (_, shape, _) in tensors.items() if not name.endswith((".adam_m", ".adam_v"))}
    hidden, experts, inner = 16, 4, 4 * 16 // 2
    for expert in range(experts):
        prefix = f"decoder.layers.1.mlp.experts.local_experts.{expert}.linear_"
        diff.expect({name.removeprefix(prefix): shape for name, shape in shapes.items() if name.startswith(prefix)} ==
                    {"fc1.weight": [inner, hidden], "fc1.bias": [inner], "fc2.weight": [hidden, inner],
                     "fc2.bias": [hidden]}, f"keys of expert {expert}: {shapes}")
    diff.expect(shapes.get("decoder.layers.1.mlp.router.weight") == [experts, hidden]
                and shapes.get("decoder.layers.1.mlp.router.expert_bias") == [experts], f"keys of the router: {shapes}")
    _, own = read_tensors(diff.path("own.st"))
    up = own["llm.block1.mlp.experts.2.up.weight"]
    diff.expect(up == tensors["decoder.layers.1.mlp.experts.local_experts.2.linear_fc1.weight"], "expert 2 has others")


def main(captioner, mimo_diff):
    diff = Diff(captioner, mimo_diff)
    compare_runs(diff)
    compare_adapters(diff)
    compare_same_bits(diff)
    check_megatron_keys(diff)
    return diff.wrong


run_test(main, one_in=ONE_EMOJI_IN)
