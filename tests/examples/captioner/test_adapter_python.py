#!/usr/bin/env python3
"""Adapters that other programs write and read, against copy_adapter, which reads one with the
captioner's reader and writes it with the captioner's writer.

    test_adapter_python.py config COPY_ADAPTER         against Python's json
    test_adapter_python.py safetensors COPY_ADAPTER    against Python's safetensors
    test_adapter_python.py peft COPY_ADAPTER           against PEFT
    test_adapter_python.py experts CAPTIONER           PEFT loads what the captioner trained

Exit status 77 (skipped) where a package is missing.
"""
import hashlib
import importlib.util
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
CONFIG_FILE, TENSORS_FILE = "adapter_config.json", "adapter_model.safetensors"
TENSORS_HASH = "cbebee0570cc0726"
TENSORS_SUM = "6e2359566cd3275637b46fd558dc584f86f570d41b1822f7f69d14863cc51ae2"
PREFIX = "base_model.model."
CONFIG = {
    "alpha_pattern": {}, "auto_mapping": None, "base_model_name_or_path": None, "bias": "none",
    "fan_in_fan_out": False, "inference_mode": True, "init_lora_weights": True, "lora_alpha": 4,
    "lora_dropout": 0.0, "modules_to_save": None, "peft_type": "LORA", "r": 2, "rank_pattern": {},
    "target_modules": ["up"], "task_type": None, "use_dora": False, "use_rslora": False,
}


def expect(condition, words):
    if not condition:
        sys.exit(f"failed: {words}")


def need(*packages):
    for package in packages:
        if not importlib.util.find_spec(package):
            print(f"skipped: {sys.executable} has no {package}")
            sys.exit(SKIPPED)


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def write(data, *path):
    with open(os.path.join(*path), "wb") as file:
        file.write(data)


WORD = (1 << 64) - 1


def hash_int(value, number):
    """The captioner's hash (train/support/train_support.h), from its description."""
    value = (value + 0x9e3779b97f4a7c15 + number) & WORD
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        value = (value ^ value >> shift) * factor & WORD
    return value ^ value >> 31


def hash_of(tensors):
    """Of a file of tensors, as adapter_config.json has it."""
    length, = struct.unpack_from("<Q", tensors)
    header = json.loads(tensors[8:8 + length])
    header.pop("__metadata__", None)
    total = 0
    for index, (_, entry) in enumerate(sorted(header.items())):
        begin, end = (8 + length + at for at in entry["data_offsets"])
        value = hash_int(0xcbf29ce484222325, index)
        for byte in tensors[begin:end]:
            value = (value ^ byte) * 0x100000001b3 & WORD
        total += hash_int(value, end - begin)
    return f"{total & WORD:016x}"


def json_bytes(config):
    return json.dumps(config, indent=2, sort_keys=True).encode()


class Folders:
    def __init__(self, program, top):
        self.program, self.source, self.copy = program, f"{top}/from", f"{top}/below/to"
        os.mkdir(self.source)

    def run(self):
        """Copy `source`; (configuration, tensors) as they lie in `copy`."""
        done = subprocess.run([self.program, self.source, self.copy], stderr=subprocess.PIPE,
                              text=True, check=False)
        expect(done.returncode == 0, done.stderr)
        expect(sorted(os.listdir(self.copy)) == [CONFIG_FILE, TENSORS_FILE],
               f"{os.listdir(self.copy)} in the folder")
        return read(self.copy, CONFIG_FILE), read(self.copy, TENSORS_FILE)

    def put(self, config, tensors):
        write(json_bytes(config), self.source, CONFIG_FILE)
        write(tensors, self.source, TENSORS_FILE)


def tensor_file(tensors):
    """A safetensors file of (name, dtype, shape, bytes), in this order."""
    header, begin = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *(data for *_, data in tensors)])


def golden_tensors():
    """The example of two factors, B before A, and A without the prefix."""
    up = "llm.block0.mlp.up"
    return tensor_file([
        (f"{PREFIX}{up}.lora_B.weight", "F32", [4, 2], struct.pack("<8f", 1, 0, 0, 1, 1, -1, 2, 1)),
        (f"{up}.lora_A.weight", "F32", [2, 2], struct.pack("<4f", 1, 2, 0, 1))])


def random_alpha(chance):
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randrange(-100, 100000)
    if kind == 1:
        return chance.randrange(10**6) / 1000
    if kind == 2:
        return 2.0 ** chance.randrange(-24, 1023)  # adapter_config.c says why no smaller ones
    if kind == 3:
        return chance.uniform(-1, 1)
    if kind == 4:
        return 10.0 ** chance.randrange(-10, 20)
    value = math.nan
    while not math.isfinite(value):
        value = struct.unpack("<d", chance.randbytes(8))[0]
    return value


def random_targets(chance):
    letters = "abz09._ \"\\/~\u00e9\u20ac\ufffd\U0001f600\U0010ffff"
    names = ["".join(chance.choices(letters, k=chance.randrange(1, 9)))
             for _ in range(chance.randrange(1, 6))]
    return "all-linear" if chance.randrange(8) == 0 else names


def against_json(folders):
    folders.put(CONFIG, golden_tensors())
    config, tensors = folders.run()
    hashes = {"tensors": hash_of(tensors)}
    expect(hashes["tensors"] == TENSORS_HASH, f"hash {hashes}")
    expect(config == json_bytes({**CONFIG, "mimo_bridge": hashes}), f"{config} is another file")
    expect(hashlib.sha256(tensors).hexdigest() == TENSORS_SUM, f"{tensors} is another file")
    chance = random.Random(1)
    cases = int(os.environ.get("CASES", "60"))
    for _ in range(cases):
        alpha, targets = random_alpha(chance), random_targets(chance)
        given = {**CONFIG, "lora_alpha": alpha, "target_modules": targets,
                 "use_rslora": chance.random() < 0.5}
        folders.put({**given, "peft_version": "1", "loftq_config": {}}, golden_tensors())
        want = {**given, "mimo_bridge": hashes, "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
                "target_modules": targets if isinstance(targets, str) else sorted(set(targets))}
        got = folders.run()[0]
        expect(got == json_bytes(want), f"{got}\nis not\n{json_bytes(want)}")
    print(f"{cases} configurations as Python's json writes them")


def sixteen_bits(numpy, dtype, values):
    """(bytes as the dtype has them, the same values in F32)."""
    if dtype == "F16":
        halves = values.astype(numpy.float16)
        return halves.tobytes(), halves.astype(numpy.float32)
    halves = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
    return halves.tobytes(), (halves.astype(numpy.uint32) << 16).view(numpy.float32)


def against_safetensors(folders):
    need("numpy", "safetensors")
    import numpy
    import safetensors.numpy
    chance = numpy.random.default_rng(1)
    cases, count = 40, 0
    for _ in range(cases):
        rank, given, want = int(chance.integers(1, 9)), [], {}
        for layer in range(int(chance.integers(1, 8))):
            dtype = str(chance.choice(["F32", "F16", "BF16"]))
            prefix = PREFIX if chance.random() < 0.7 else ""
            for factor in "AB":
                other = int(chance.integers(1, 700))
                shape = [rank, other] if factor == "A" else [other, rank]
                name = f"llm.block{layer}.mlp.up.lora_{factor}.weight"
                values = chance.standard_normal(rank * other).astype(numpy.float32)
                data = values.tobytes()
                if dtype != "F32":
                    data, values = sixteen_bits(numpy, dtype, values)
                given.append((prefix + name, dtype, shape, data))
                want[PREFIX + name] = values.reshape(shape)
        chance.shuffle(given)
        folders.put({**CONFIG, "r": rank}, tensor_file(given))
        got = folders.run()[1]
        expect(got == safetensors.numpy.save(want, {"format": "pt"}),
               f"rank {rank}: other bytes than safetensors {safetensors.__version__} writes")
        read_back = safetensors.numpy.load_file(f"{folders.copy}/{TENSORS_FILE}")
        expect(all(numpy.array_equal(read_back[name], want[name]) for name in want), "other values")
        count += len(want)
    print(f"{cases} files of {count} tensors as safetensors {safetensors.__version__} writes them")


def against_peft(folders):
    need("torch", "safetensors", "peft")
    import peft
    import torch

    def base():
        torch.manual_seed(3)
        blocks = {f"block{i}": torch.nn.ModuleDict({"mlp": torch.nn.ModuleDict(
            {"up": torch.nn.Linear(24, 40), "down": torch.nn.Linear(40, 24)})}) for i in range(2)}
        return torch.nn.ModuleDict({"llm": torch.nn.ModuleDict(blocks)})

    def answer(model, x):
        with torch.no_grad():
            for i in range(2):
                mlp = model.get_submodule(f"llm.block{i}.mlp")
                x = mlp["down"](torch.relu(mlp["up"](x)))
        return x

    config = peft.LoraConfig(r=4, lora_alpha=6.5, target_modules=["up", "down"], use_rslora=True,
                             init_lora_weights=False)
    made = peft.get_peft_model(base(), config)
    made.save_pretrained(folders.source)
    written, got = folders.run()
    expect(got == read(folders.source, TENSORS_FILE), "other bytes than PEFT writes")
    expect(json.loads(written)["mimo_bridge"] == {"tensors": hash_of(got)}, f"{written} has no hash")
    loaded = peft.PeftModel.from_pretrained(base(), folders.copy)
    x = torch.randn(5, 24)
    expect(torch.equal(answer(made.base_model.model, x),
                       answer(loaded.base_model.model, x)), "the loaded adapter computes otherwise")
    expect(not torch.equal(answer(made.base_model.model, x), answer(base(), x)),
           "the adapter does nothing")
    used = loaded.peft_config["default"]
    expect((used.r, used.lora_alpha, used.use_rslora, sorted(used.target_modules))
           == (4, 6.5, True, ["down", "up"]), f"PEFT read {used}")
    shutil.copytree(folders.copy, folders.source, dirs_exist_ok=True)
    with torch.no_grad():
        for weight in loaded.parameters():
            weight.mul_(2)
    loaded.save_pretrained(folders.source)
    expect("mimo_bridge" not in json.loads(read(folders.source, CONFIG_FILE)), "PEFT keeps a hash")
    expect(folders.run()[1] not in (got, b""), "what PEFT saved over ours is read")
    print(f"PEFT {peft.__version__} loads what was written, and writes what was loaded")


TARGETS = ["qkv", "experts.0.up", "experts.0.down", "experts.3.down"]
SIZES = ["--encoder", "tp=1,dp=1", "--llm", "tp=1,cp=1,dp=1", "--image-size", "16", "--seq", "96", "--hidden",
         "32", "--layers", "1,2", "--experts", "4,2", "--global-batch", "8"]


def launch(program, *flags):
    done = subprocess.run([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if "cannot open the font" in done.stderr:
        print("skipped: no font of emoji")
        sys.exit(SKIPPED)
    expect(done.returncode == 0, done.stderr)


def by_captioner(program, top):
    """What it trains: files of the base and of the merged model, and the folder of the adapter."""
    samples, base, merged, adapter = (f"{top}/{name}" for name in ("samples", "base", "merged", "adapter"))
    launch(program, "--image-size", "16", "--prepare", samples)
    launch(program, *SIZES, "--samples", samples, "--steps", "1", "--save", base)
    launch(program, *SIZES, "--samples", samples, "--steps", "3", "--lr", "0.1", "--base", base, "--lora-rank", "4",
           "--lora-targets", ",".join(TARGETS), "--adapter-out", adapter, "--merge", merged)
    return base, merged, adapter


def back_to_captioner(program, top, base, folder):
    """The tensors of an adapter that PEFT saved, as the captioner writes them again."""
    launch(program, *SIZES, "--samples", f"{top}/samples", "--steps", "0", "--base", base, "--adapter", folder,
           "--adapter-out", f"{top}/again")
    return read(top, "again", TENSORS_FILE)


def module_of(torch, values):
    """A model of linear layers with these names, a list of experts among them, and their weights."""
    model = torch.nn.Module()
    for name, weight in values.items():
        *path, leaf, kind = name.split(".")
        bias = values.get(f"{name.removesuffix('weight')}bias")
        if kind != "weight" or weight.dim() != 2 or bias is None:
            continue
        at = model
        for part in path:
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
            at = at._modules[part]
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight.clone(), bias.clone()
        at.add_module(leaf, layer)
    return model


def experts(program, top):
    """An adapter of attention and of some experts gives PEFT the weights that the captioner merges."""
    need("torch", "safetensors", "peft")
    import peft
    import safetensors.torch
    import torch
    base_file, merged_file, adapter = by_captioner(program, top)
    base, merged = safetensors.torch.load_file(base_file), safetensors.torch.load_file(merged_file)
    loaded = peft.PeftModel.from_pretrained(module_of(torch, base), adapter)
    loaded.save_pretrained(f"{top}/peft")
    expect(back_to_captioner(program, top, base_file, f"{top}/peft") == read(adapter, TENSORS_FILE),
           "PEFT saves another adapter than it loaded")
    changed = set()
    for name, weight in loaded.merge_and_unload().named_parameters():
        off = (weight - merged[name]).abs().max().item()
        expect(off <= 1e-6 * (1 + weight.abs().max().item()), f"{name} is off by {off}")
        if "experts" in name and not torch.equal(merged[name], base[name]):
            changed.add(name.removeprefix("llm.block1.mlp.").removesuffix(".weight"))
    expect(changed == set(TARGETS[1:]), f"{changed} of the experts' weights were merged, not {TARGETS[1:]}")
    made = peft.get_peft_model(module_of(torch, base), peft.LoraConfig(r=4, target_modules="all-linear"))
    made.save_pretrained(f"{top}/all")
    given = set(json.loads(read(f"{top}/all", CONFIG_FILE))["target_modules"])
    back_to_captioner(program, top, base_file, f"{top}/all")
    taken = set(json.loads(read(top, "again", CONFIG_FILE))["target_modules"])
    left = {name.split(".")[-1] for name in given - taken}
    expect(left == {"router"} and taken < given, f"of {given} the captioner takes {taken}")
    print(f"PEFT {peft.__version__} merges an adapter of some experts as the captioner does")


def main():
    if sys.argv[1] == "experts":
        with tempfile.TemporaryDirectory() as top:
            experts(sys.argv[2], top)
        return
    against = {"config": against_json, "safetensors": against_safetensors, "peft": against_peft}
    with tempfile.TemporaryDirectory() as top:
        against[sys.argv[1]](Folders(sys.argv[2], top))


main()
