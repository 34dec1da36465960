#!/usr/bin/env python3
"""Runs the cases on GPUs, under torchrun: python torch_gpu.py [RANKS] [WORD...]

RANKS is 2, or another number. Where there are fewer GPUs than ranks, they share them: that needs NCCL 2.30
and is best with nvidia-cuda-mps-control. Exit status 77 (skipped) where there is no GPU, where the library
has no CUDA, and where ranks can't share.
"""
import os
import pathlib
import shutil
import subprocess
import sys

words = sys.argv[1:]
ranks = int(words.pop(0)) if words and words[0].isdigit() else 2
listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout \
    if shutil.which("nvidia-smi") else ""
gpus = sum(line.startswith("GPU ") for line in listed.splitlines())
why = None if gpus else "no GPU"
if gpus:
    import torch

    from mimo_bridge import _c, _nccl
    if not torch.cuda.is_available() or not _c.has_nccl:
        why = "this torch, or this build of the library, has no CUDA"
    elif gpus < ranks:
        os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        nccl = _nccl.running_version()
        if nccl < (2, 30):
            why = f"{ranks} ranks on {gpus} GPUs need NCCL 2.30, and this is {'.'.join(map(str, nccl))}"
if why:
    print(f"skipped: {why}")
    sys.exit(77)
runner = pathlib.Path(__file__).with_name("rank_runner.py")
os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                          str(ranks), str(runner), *words])
