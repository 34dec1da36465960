"""What the peers share: the cases of bench/nccl_bench.c, grids, and lines of JSON with its keys.

Every line of a peer has "peer" (its name) and "us" (microseconds of one call). A peer may add keys.
"""
import argparse
import json

CALLS, REPEATS, WARM_UP = 20, 7, 3

PAIRS = [  # as in nccl_bench.c: src, dst, global samples
    ("tp=1,dp=2", "tp=1,cp=2,dp=1", 2), ("tp=2,dp=1", "tp=1,cp=2,dp=1", 2),
    ("tp=2,dp=1", "tp=1,cp=1,dp=2", 2), ("tp=1,dp=4", "tp=1,cp=2,dp=2", 4),
    ("tp=1,dp=4", "tp=1,cp=4,dp=1", 4), ("tp=2,dp=2", "tp=1,cp=4,dp=1", 2),
    ("tp=4,dp=1", "tp=1,cp=2,dp=2", 2), ("tp=2,dp=2", "tp=1,cp=2,dp=2", 2),
    ("tp=1,dp=1", "tp=1,cp=1,dp=1", 1),
]
SHAPES = [(256, 1024), (2048, 4096), (8192, 4096), (32768, 4096)]
DIRECTIONS = ("forward", "backward")


class Grid:
    """Ranks by coordinates: tp varies fastest, then cp, then dp."""

    def __init__(self, spec):
        size = dict(dim.split("=") for dim in spec.split(","))
        self.tp, self.cp, self.dp = (int(size.get(name, 1)) for name in ("tp", "cp", "dp"))
        self.size = self.tp * self.cp * self.dp

    def place(self, rank):
        """(tp, cp, dp) of a rank."""
        return rank % self.tp, rank // self.tp % self.cp, rank // (self.tp * self.cp)


class Case:
    def __init__(self, pair, shape):
        self.src_spec, self.dst_spec, self.batch = pair
        self.seq, self.hidden = shape
        self.src, self.dst = Grid(self.src_spec), Grid(self.dst_spec)

    def words(self):
        return f"{self.src_spec} -> {self.dst_spec}, S {self.seq}, H {self.hidden}"

    def line(self, peer, direction, microseconds, **more):
        return json.dumps({"src": self.src_spec, "dst": self.dst_spec, "batch": self.batch,
                           "seq": self.seq, "hidden": self.hidden, "pass": direction,
                           "peer": peer, "us": round(microseconds, 2), **more})


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: to test the script, not to measure (default cuda)")
    parser.add_argument("--seq", type=int, help="this sequence length alone")
    parser.add_argument("--hidden", type=int, help="this row size for every length")
    parser.add_argument("--pair", type=int, help="this pair of grids alone, counted from 0")
    return parser


def cases(asked, ranks):
    """The cases for this number of ranks. --seq may name a length that SHAPES has not."""
    lengths = [shape for shape in SHAPES if asked.seq in (None, shape[0])]
    lengths = lengths or [(asked.seq, SHAPES[0][1])]
    for number, pair in enumerate(PAIRS):
        if asked.pair in (None, number) and Grid(pair[0]).size == ranks:
            for seq, hidden in lengths:
                yield Case(pair, (seq, asked.hidden or hidden))


def median(times):
    return sorted(times)[len(times) // 2]
