#!/usr/bin/env python3
"""examples/torch: the loss curve of 4 ranks is that of one process, and it falls; also with experts, whose
copies are on 2 of 4 ranks and whose exchanges stand beside another micro-batch, where any rank encodes any image, and
of a model of transformers on 2 ranks.

    torch_example.py MPIRUN PROGRAM [OPTION...]     without the options, and with them; qwen_vl.py with them alone
"""
import concurrent.futures
import importlib.util
import os
import subprocess
import sys
import tempfile

from noise_samples import write_samples


def curve(launcher, path, *options):
    # 10 samples: what 4 ranks along dp do not divide
    command = [*launcher, sys.executable, sys.argv[2], *path, "--steps", "6", "--batch", "10", *options]
    env = {**os.environ, "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    lines = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=env).stdout
    return [float(line.split()[-1]) for line in lines.splitlines() if line.startswith("step")]


def compare(samples, *options, ranks=4):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # half of the time is the import of torch
        alone = pool.submit(curve, [], samples, *options)
        together = curve([sys.argv[1], "--oversubscribe", "-n", str(ranks)], samples, *options)
        alone = alone.result()
    print(*options, alone, together, sep="\n")
    if len(alone) != 6 or len(together) != 6 or max(abs(a - b) for a, b in zip(alone, together)) > 1e-4:
        sys.exit("the curves differ")
    if alone[-1] > alone[0] - 0.5:
        sys.exit("the loss does not fall")


if sys.argv[2].endswith("qwen_vl.py"):  # it makes its samples
    if not importlib.util.find_spec("transformers"):
        print("skipped: no transformers")
        sys.exit(77)
    compare([], *sys.argv[3:], ranks=2)  # each rank imports transformers for seconds
    sys.exit(0)
with tempfile.TemporaryDirectory() as folder:
    samples = os.path.join(folder, "samples")
    write_samples(samples)
    compare([samples])
    if sys.argv[3:]:
        compare([samples], *sys.argv[3:])
