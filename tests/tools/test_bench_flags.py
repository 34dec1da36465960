"""Every flag of a program in bench/, at tiny sizes: it runs, and prints what it is for.

    test_bench_flags.py MPIRUN PROGRAM [FIRST-ARGUMENT...] [--gpus]

A program's own --help names its flags. One that no launch below has is an error, so a new flag needs a
launch. Without --gpus the flags are compared with the launches, and those of the host run. With --gpus
those run that need a GPU. Exit status 77 where not one of them can run here.
"""
import importlib.util
import os
import re
import subprocess
import sys
import typing

from test_dead_ranks import count_gpus

LIMIT_S = 200


class Launch(typing.NamedTuple):
    words: str  # of the command line
    prints: str  # a pattern of a line that must come
    ranks: int = 0  # 0: without mpirun
    gpus: int = 0  # how many it needs; 0: it runs on the host
    needs: str = ""  # a module of Python that must be there


ROWS = r"[\d.]+ +[\d.]+"
TINY_LORA = "--hidden 64 --rows 8 --rank 2 --repeats 1"
TINY_BALANCE = ("--hidden 8 --layers 1 --heads 2 --width 6 --llm-hidden 8 --largest 128 --samples 2 --batches 1 "
                "--repeats 1")
TINY_OVERLAP = ("--hidden 16 --inner 16 --heads 2 --experts 4 --choices 2 --tokens 8 --layers 1 --micro-batches 2 "
                "--repeats 1")
TINY_HF = "--hidden 32 --layers 2 --vision 32,2 --seq 64 --batch 2 --largest 6 --steps 2"
TINY_PIPELINE = ("--device cpu --steps 3 --image-size 16 --hidden 32 --heads 2 --layers 1,4 --seq 96 --global-batch 8 "
                 "--precision f32")
TINY_NODES = "--hidden 16 --inner 8 --experts 8 --top-k 2 --tokens 16 --layers 2 --micro-batches 2 --repeats 1"
TINY_WAYS = "--case cp --seq 64 --hidden 4 --repeats 1"
MEGATRON = f" --megatron {os.environ['MIMO_MEGATRON']}" if os.environ.get("MIMO_MEGATRON") else ""
TINY_PEER = "--seq 64 --hidden 8"
TINY_EXPERTS = "--tokens 24 --experts 8 --top-k 3 --hidden 16"
TINY_DISPATCH = f"{TINY_EXPERTS} --repeats 1 --calls 1"
A_CHUNK = r'"chunk_first_us":[^0].*"chunk_whole_us":[^0]'
LAUNCHES = {
    "ring_bench": [Launch("", "the ring takes", ranks=1), Launch("--json", '"ring_ns":', ranks=1)],
    "survivors_bench": [Launch("", "abort: 2 ranks go on after", ranks=2), Launch("--json", '"ms":', ranks=2)],
    "plan_bench": [Launch("", "backward"), Launch("--json", '"peers":')],
    "product_bench": [Launch("--only qkv --repeats 1", f"qkv.* {ROWS}"),
                      Launch("--only qkv --repeats 1 --device cuda", f"qkv.* {ROWS}", gpus=1)],
    "lora_bench": [Launch(TINY_LORA, f"frozen.* {ROWS}"),
                   Launch(f"{TINY_LORA} --device cuda", f"frozen.* {ROWS}", gpus=1)],
    "nodes_bench": [Launch(f"{TINY_NODES} --same-bits", r"one hot rank +2\.00 ", 2),
                      Launch(f"{TINY_NODES} --device cpu --precision bf16 --capacity 64 --json", '"load":2.000,.*"ceiling":', 2),
                      Launch(f"{TINY_NODES} --device cuda --ctas 16 --carveout", r"one hot rank +2\.00 ", 2, 2),
                      Launch(f"{TINY_NODES} --device cuda --ctas 16 --same-bits --graph", r"one hot rank +2\.00 ", 2, 2)],
    "lora_steps.py": [Launch("--hidden 16 --heads 2 --layers 1,1 --global-batch 2", "adapters.* ms a step")],
    "pipeline_bench.py": [Launch(f"{TINY_PIPELINE} --stages 2 --dp 1 --rounds 2 --limit-s 0 --json /dev/null --mpirun mpirun",
                                 "zero bubble.* over three phases: ")],
    "bridge_bench": [Launch("--repeats 1 --kib 64", "zero-copy 8 tensors", 2),
                     Launch("--repeats 1 --kib 64 --kib 128 --json", '"kib_per_rank":128', 2)],
    "dispatch_bench": [Launch(f"{TINY_DISPATCH} --device cpu", r"add \+ reduce-scatter .* x combine\n(.*\n)*one-rank", 2),
                       Launch(f"{TINY_DISPATCH} --routing zipf --ctas 16 --narrow --json", '"narrow":true.*"scattered_ratio":', 4),
                       Launch(f"{TINY_DISPATCH} --device cuda --ctas 16", r"route, rows, combine +\d", 1, 1),
                       Launch(f"{TINY_DISPATCH} --device cuda --graph --json", '"rows_ratio":', 2, 2)],
    "nccl_bench": [Launch("--seq 256 --chunks", f"forward.* {ROWS}", ranks, ranks) for ranks in (1, 2)]
    + [Launch("--seq 256 --pair 8 --json --chunks", A_CHUNK, 1, 1),
       Launch("--seq 256 --pair 8 --json --graph", '"auto_us":[^0]', 1, 1),
       Launch("--seq 256 --pair 0 --json --chunks", A_CHUNK, 2, 2),
       Launch("--seq 256 --pair 0 --json --graph", '"auto_us":[^0]', 2, 2),
       Launch("--hops", r"a hop of .* ratio", 2, 2), Launch("--hops --json", '"bare_us":[^0]', 2, 2)],
    "torch_seed.py": [Launch(f"--device cpu --pair 0 {TINY_PEER}", '"us": ', 2, needs="torch"),
                      Launch(f"--pair 8 {TINY_PEER}", '"us": ', 1, 1, "torch")],
    "torch_experts.py": [Launch(f"--device cpu {TINY_EXPERTS} --routing zipf", '"way": "scattered", "us": ', 2, needs="torch"),
                         Launch(TINY_EXPERTS, '"one-rank", "way": "scattered", "us": ', 2, 2, "torch")],
    "xla_reshard.py": [Launch(f"--device cpu --ranks 2 --pair 0 {TINY_PEER}", '"us": ', needs="jax"),
                       Launch(f"--ranks 1 --pair 8 {TINY_PEER}", '"us": ', gpus=1, needs="jax")],
    "torch_bench.py": [Launch(f"--device cpu {TINY_WAYS} --modes eager{MEGATRON}",
                              f'"peer": "{"megatron" if MEGATRON else "slots"}"', 2, needs="torch"),
                       Launch(f"{TINY_WAYS} --modes eager,graph --blocking", '"mode": "graph"', 2, 2, "torch")],
    "balance_bench.py": [Launch(f"--device cpu {TINY_BALANCE} --ours ahead,planned --json /dev/null", "planned .*x", 2,
                                needs="torch"),
                         Launch(f"{TINY_BALANCE} --ours p2p,staged,slots,ahead,planned", "planned .*x", 2, 2, "torch")],
    "overlap_bench.py": [Launch(f"--device cpu {TINY_OVERLAP} --blocks 16 --routings zipf,hot --json /dev/null",
                                r"hot +16 .*\d\.\d\d\n", 2, needs="torch"),
                         Launch(f"{TINY_OVERLAP} --blocks 16,32 --routings even --carveout", r"even +32 .*\d\.\d\d\n",
                                2, 2, "torch"),
                         Launch(f"{TINY_OVERLAP} --blocks 16 --routings even --graph", r"even +16 .*\d\.\d\d\n",
                                2, 2, "torch")],
    "hf_bench.py": [Launch(f"--device cpu {TINY_HF} --dtypes f32 --limit 1e-4", "dp usual .* ms .* apart\n", 2,
                           needs="transformers"),
                    Launch(f"{TINY_HF} --dtypes f32,bf16", "dp usual .* ms .* apart\n", 2, 2, "transformers")],
    "torch_transports.py": [Launch("--device cpu --rows 16,6 --mib 0.001 --repeats 1 --modes eager",
                                   "staged is slower in .* of 10", 2, needs="torch"),
                            Launch("--rows 16 --mib 0.01 --repeats 1 --modes graph", "staged is slower in .* of 6", 2, 2, "torch")],
}
# A flag that needs what is not everywhere: where it is missing, the flag is in no launch.
ELSEWHERE = {"survivors_bench": {"--kill"}, "torch_bench.py": {"--megatron"}, "pipeline_bench.py": {"--nccl-bench"}}
# A program without flags of its own: they are the captioner's.
NO_FLAGS = {"lora_steps.py"}


def command_of(mpirun, program, launch, first):
    """The command line of a launch, or of --help."""
    words = [sys.executable, program] if program.endswith(".py") else [program]
    ranks = ["-n", str(launch.ranks)] if launch.ranks else []
    return [*([mpirun, "--oversubscribe", *ranks] if ranks else []), *words, *first, *launch.words.split()]


def flags_of(program):
    """The long flags that --help names."""
    done = subprocess.run(command_of("", program, Launch("--help", ""), []), capture_output=True, text=True,
                          check=True, timeout=LIMIT_S)
    return set(re.findall(r"^ +(?:-\S(?: \S+)?, )?(--[\w-]+)", done.stdout, re.MULTILINE)) - {"--help", "--usage", "--version"}


def lacks(launch, gpus):
    """What this machine lacks to run it."""
    shared = gpus > 0 and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    if launch.gpus > gpus and not shared:
        return f"{launch.gpus} GPUs"
    # Found, not imported: torch takes two seconds, and its launch imports it again.
    if launch.needs and not importlib.util.find_spec(launch.needs):
        return launch.needs
    return ""


def fault_of(command, launch):
    """What is wrong with a launch, in words."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        return f"still running after {LIMIT_S} s\n{late.output}"
    if done.returncode:
        return f"exit status {done.returncode}\n{done.stdout}"
    return "" if re.search(launch.prints, done.stdout) else f"no line has {launch.prints}\n{done.stdout}"


def main():
    mpirun, program, *first = sys.argv[1:]
    on_gpus = "--gpus" in first
    first = [word for word in first if word != "--gpus"]
    name = os.path.basename(program)
    launches = LAUNCHES[name]
    words = {word for launch in launches for word in launch.words.split()} | ELSEWHERE.get(name, set())
    # One run of a program asks for its flags: --help imports torch as well.
    failed, ran = sorted(flags_of(program) - words) if name not in NO_FLAGS and not on_gpus else [], 0
    for flag in failed:
        print(f"FAIL {name} {flag}: no launch has this flag")
    gpus = count_gpus()
    for launch in launches:
        if on_gpus != (launch.gpus > 0):
            continue
        lacking = lacks(launch, gpus)
        fault = "" if lacking else fault_of(command_of(mpirun, program, launch, first), launch)
        ran += not lacking
        failed += [launch] if fault else []
        print(f"{f'SKIP (no {lacking})' if lacking else 'FAIL' if fault else 'ok  '} {name} {launch.words} "
              f"on {launch.ranks or 'no'} ranks{': ' if fault else ''}{fault}", flush=True)
    sys.exit(1 if failed else 0 if ran else 77)


main()
