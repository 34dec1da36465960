#!/usr/bin/env python3
"""Transports staged and p2p side by side, for rows of many lengths, on P ranks: what transport AUTO's choice
rests on. Prints a line of JSON for each size, and then the rows where staged was slower.

    torchrun --nproc-per-node 2 torch_transports.py [--rows 16,8192] [--mib 0.25,8] [--repeats 5] [--modes eager]
    mpirun -n 2 python3 torch_transports.py --device cpu --rows 16 --mib 0.01 --modes eager

The encoder has dp=P, the LLM cp=P or tp=P with sequence parallelism, as in torch_bench.py: all but a P-th
of each sample moves. --rows are bytes of a row, --mib what a rank receives. "off" is a tile whose address is an odd
multiple of 2 bytes, which a caching allocator gives to no whole tensor.
"""
import argparse
import json
import torch
import torch.distributed as dist

from torch_bench import Ours, Passes, Setting, start_ranks, time_all

ROWS = (16, 32, 64, 128, 512, 2048, 8192, 8190)
MIB = (0.03125, 0.25, 2, 8, 32)
MOST_TOKENS = 1 << 20  # of a sample: more take minutes to check


class Shifted(Setting):
    """A setting whose tiles begin 2 bytes off."""

    def given(self, order):
        return tuple(off(tile) for tile in super().given(order))


def off(tile):
    memory = torch.empty(tile.numel() + 1, dtype=tile.dtype, device=tile.device)
    moved = memory[1:].view(tile.shape)
    moved.copy_(tile.detach())
    return moved.requires_grad_(tile.requires_grad)


def tokens(mib, row, ranks):
    """Of a sample, so that a rank receives so much."""
    return int(mib * 2**20 * ranks / (ranks - 1) / row) // (2 * ranks) * (2 * ranks)


def settings(asked, comm):
    ranks = comm.size
    for kind in ("cp", "sp"):
        for row in asked.rows:
            for mib in asked.mib:
                seq = tokens(mib, row, ranks)
                if 2 * ranks <= seq <= MOST_TOKENS:
                    yield kind, Setting(kind, (seq, row // 2), comm.rank, ranks, comm.device)
    seq = max(2 * ranks, tokens(max(asked.mib), 8192, ranks))
    yield "off", Shifted("cp", (seq, 4096), comm.rank, ranks, comm.device)


def measure(asked, comm, out):
    """Collective. `out` gets a line for each size, mode and pass."""
    for kind, setting in settings(asked, comm):
        ways = [Ours(name, setting, comm) for name in ("staged", "p2p")]
        for mode in asked.modes:
            passes = [Passes(way, setting, mode) for way in ways]
            times = time_all(passes, setting, asked.repeats)
            for one in passes:
                one.close()
            for direction in ("forward", "backward"):
                (staged, staged_host), (p2p, p2p_host) = times[0, direction], times[1, direction]
                out({"case": kind, "row": 2 * setting.case.hidden, "seq": setting.case.seq, "mode": mode,
                     "pass": direction, "staged_us": round(staged, 1), "p2p_us": round(p2p, 1),
                     "ratio": round(staged / p2p, 3), "staged_host_us": round(staged_host, 1),
                     "p2p_host_us": round(p2p_host, 1)})
        for way in ways:
            way.close()


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rows", type=lambda text: [int(n) for n in text.split(",")], default=ROWS)
    parser.add_argument("--mib", type=lambda text: [float(n) for n in text.split(",")], default=MIB)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["graph"])
    return parser


def main():
    asked = options().parse_args()
    comm = start_ranks(asked.device)
    if comm.size < 2:
        raise SystemExit("torch_transports.py is for two or more ranks, and this is 1")
    lines = []
    measure(asked, comm, lines.append)
    if comm.rank == 0:
        for line in lines:
            print(json.dumps(line), flush=True)
        slower = [line for line in lines if line["ratio"] > 1]
        for line in slower:
            print("staged is slower:", json.dumps(line))
        print(f"staged is slower in {len(slower)} of {len(lines)}")
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
