"""The table and the plot of bench/plot_bench.py, from files written by hand: targets reached, missed and
absent, and files that are missing, empty or cut short."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

CASE = {"src": "tp=1,dp=4", "dst": "tp=1,cp=2,dp=2", "batch": 4, "hidden": 4096}
TIMES = {"in_bytes": 32 << 20, "floor_us": 100, "floor32_us": 108, "zero_copy_us": 104,
         "zero_copy32_us": 112, "zero_copy_idle_us": 103, "zero_copy_wall_us": 120, "p2p_us": 228,
         "bare_p2p_us": 190, "p2p_copies_us": 10, "collective_us": 230, "bare_collective_us": 190,
         "collective_copies_us": 10, "local_copy_us": 80, "auto": "zero-copy", "auto_us": 105,
         "auto_elsewhere": "staged", "auto_elsewhere_us": 119.7, "staged_us": 114, "staged32_us": 126}
STILL = {**TIMES, "src": "tp=4,dp=1", "in_bytes": 0, "floor_us": 0, "zero_copy_us": 87}

EXPERTS = {"routing": "even", "ranks": 4, "tokens": 4096, "narrow": False, "graph": False, "route_us": 30}

# file, direction, S, other keys of the line
WRITTEN = [
    ("nccl", "forward", 8192, TIMES),
    ("nccl", "backward", 8192, {**TIMES, "zero_copy_us": 106}),
    ("nccl", "forward", 2048, STILL),
    ("nccl", "forward", 2049, {**TIMES, "in_bytes": 8 << 20, "staged_us": 131, "auto": "staged",
                               "auto_elsewhere": "staged", "auto_elsewhere_us": 131}),
    ("nccl", "forward", 256, {**TIMES, "in_bytes": 1 << 18, "zero_copy_us": 8.5,
                              "zero_copy_idle_us": 7.6}),
    ("nccl_graph", "forward", 256, {**TIMES, "zero_copy_us": 7.4}),
    ("torch_seed", "forward", 8192, {"peer": "pytorch", "order": "sbh", "us": 900}),
    ("torch_seed", "forward", 8192, {"peer": "pytorch", "order": "bsh", "us": 520}),
    ("torch_seed", "backward", 8192, {"peer": "pytorch", "order": "bsh", "us": 900}),
    ("xla_reshard", "forward", 8192, {"peer": "xla", "us": 161}),
    ("dispatch", "", 0, {**EXPERTS, "rows_ratio": 1.13, "combine_ratio": 2.3}),
    ("dispatch_small", "", 0, {**EXPERTS, "tokens": 128, "narrow": True, "graph": True, "rows_ratio": 1.49,
                               "combine_ratio": 2.51, "route_us": 19}),
    ("dispatch_narrow", "", 0, {**EXPERTS, "ranks": 2, "narrow": True, "rows_ratio": 1.2, "combine_ratio": 1.51}),
    ("dispatch_graph", "", 0, {**EXPERTS, "routing": "zipf", "rows_ratio": 99}),
    # of no case: the host's times with addresses that stay or change
    ("nccl", "", 0, {"addresses": "p2p", "tensors": 2, "ratio": 1.09}),
    ("nccl", "", 0, {"addresses": "zero-copy", "tensors": 64, "ratio": 1.12}),
]

# words of a line, in order
EXPECTED = [
    "zero-copy / floor .* 8192 forward +1.04 x .* ok",
    "zero-copy / floor .* 8192 backward +1.06 x .* missed",
    "zero-copy, 32 CTAs / floor .* 8192 forward +1.12 x .* missed",
    "staged / floor .* 8192 forward +1.14 x .* ok",
    "staged, 8 MiB / floor .* 2049 forward +1.31 x .* missed",
    "staged, 32 CTAs / floor .* 8192 forward +1.26 x .* missed",
    "staged, small / p2p .* 256 forward +0.50 x .* ok",
    "fresh/fixed p2p, 2 tensors +any .* 1.09 x .* ok",
    "fresh/fixed zero-copy, 64 tensors +any .* 1.12 x .* missed",
    "XLA / zero-copy, wall clock +tp=1,dp=4 .* 8192 forward +1.34 x .* missed",
    "XLA / zero-copy, wall clock +tp=1,dp=4 .* 8192 backward +- .* no data",
    "XLA / zero-copy, wall clock +tp=4,dp=1 .* 32768 backward +- .* no data",
    "PyTorch / zero-copy .*,cp=2,dp=2 +8192 forward +5.00 x .* ok",
    "PyTorch / zero-copy .*,cp=2,dp=2 +8192 backward +8.49 x .* missed",
    "rows / floor, 4 ranks +any +4096 +1.13 x .* missed",
    "combine f32 / floor, 4 ranks +any +4096 +2.30 x .* ok",
    "rows / floor, 4 ranks +any +128 graph +1.49 x .* ok",
    "combine bf16 / floor, 4 ranks +any +128 graph +2.51 x .* missed",
    "route, 4 ranks +any +128 graph +19.00 us .* ok",
    "rows / floor, 2 ranks +any +4096 +1.20 x .* ok",
    "combine bf16 / floor, 2 ranks +any +4096 +1.51 x .* missed",
    "nothing moves: zero-copy / copy +tp=4,dp=1 .* 2048 forward +1.09 x .* ok",
    "small .* 256 forward +8.50 us .* ok",
    "small, in a graph .* 256 forward +7.40 us .* ok",
    "small, destination idle .* 256 forward +7.60 us .* missed",
    "p2p / bare and copies .* 8192 forward +1.14 x .* ok",
    "collective / bare and copies .* 8192 forward +1.15 x .* missed",
    "worst chosen / best +tp=1,dp=4 .* 256 forward +12.35 x .* missed",
    "worst chosen, no buffer / best +tp=1,dp=4 .* 8192 forward +1.05 x .* ok",
    "worst default / best +tp=1,dp=4 .* 1.00 x .* ok",
    "one executor timed twice, .* at most 12.35 x apart",
    "not in these files",
]


WAY = {"src": "tp=1,dp=2", "dst": "tp=1,cp=2,dp=1", "seq": 256, "pass": "forward", "peer": "slots", "mode": "eager",
       "us": 60, "host_us": 50}
# a line of each file whose times are drawn
ALONE = {name: {**CASE, "seq": seq, "pass": direction, **more}
         for name, direction, seq, more in WRITTEN if seq} | {"torch_bench": WAY}


def run(program, folder):
    done = subprocess.run([sys.executable, program, folder], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def table_of(program, rows):
    with tempfile.TemporaryDirectory() as folder:
        for name, direction, seq, more in rows:
            line = {**CASE, "seq": seq, "pass": direction, **more} if seq else more
            with open(f"{folder}/{name}.jsonl", "a", encoding="utf-8") as file:
                file.write("a launcher warns\n" + json.dumps(line) + "\n")
        status, table = run(program, folder)
        return table if status == 0 else f"exit status {status}: {table}"


def drawn_alone(program):
    """What is wrong where one file alone has a line, and where that one is cut short."""
    for name, line in ALONE.items():
        for others in ("missing", "empty"):
            with tempfile.TemporaryDirectory() as folder:
                for other in ALONE if others == "empty" else ():
                    open(f"{folder}/{other}.jsonl", "w", encoding="utf-8").close()
                with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n" + json.dumps(line)[:40] + "\n")
                status, text = run(program, folder)
                drawn = os.path.exists(f"{folder}/bench.png") or not shutil.which("gnuplot")
                if status or not drawn or f"{name}.jsonl: line 2 is cut short" not in text:
                    yield f"{name} alone, others {others}: exit status {status}, drawn {drawn}: {text}"


def main():
    table = table_of(sys.argv[1], WRITTEN)
    missing = [words for words in EXPECTED if not re.search(words, table)]
    empty = table_of(sys.argv[1], [])
    if " ok\n" in empty or " missed\n" in empty or "0 ok, 0 missed, " not in empty:
        missing.append("no data at all")
    if missing:
        print(table, empty)
        sys.exit("\n".join(["not in the table:", *missing]))
    wrong = list(drawn_alone(sys.argv[1]))
    if wrong:
        sys.exit("\n".join(wrong))


main()
