#!/usr/bin/env python3
"""The results of bench/run_gpu.sh as a table of what was wanted and what was reached, and a plot.

    plot_bench.py FOLDER

Reads FOLDER/nccl.jsonl and nccl_graph.jsonl (nccl_bench --json, without and with --graph),
torch_seed.jsonl, xla_reshard.jsonl, torch_bench.jsonl, torch_compiled.jsonl and dispatch*.jsonl. A file may be missing,
empty or cut short: its lines of the table say "no data", and the others are drawn. Prints the table, and
draws FOLDER/bench.png with gnuplot. Speed is measured, not asserted: a line that is missed is no failure.
"""
import json
import os
import shutil
import subprocess
import sys

MIB = 1 << 20
FAN_IN = ("tp=1,dp=4", "tp=1,cp=2,dp=2")
FAN_IN_ONE = ("tp=1,dp=4", "tp=1,cp=4,dp=1")
PAIR = ("tp=1,dp=2", "tp=1,cp=2,dp=1")
FAN_OUT = ("tp=4,dp=1", "tp=1,cp=2,dp=2")
BOTH = ("forward", "backward")
DISPATCHES = ("dispatch", "dispatch_graph", "dispatch_narrow", "dispatch_small")

# What these files do not have, and where to find it.
ELSEWHERE = [
    ("zero-copy memory beyond the tensors, under 1 MiB", "docs/routing.md counts it"),
    ("on the host: routed at least as fast as collective from 64 KiB, 8 ranks", "bridge_bench"),
]


# ------------------------------------------ reading -----------------------------------------------


def key_of(row):
    return row["src"], row["dst"], row["seq"], row["pass"]


def size_of(row):
    """What the better tensor order has less of: bytes of a step, or microseconds."""
    return row["peak_bytes"] if row["pass"] == "step" else row["us"]


def read_rows(folder, name):
    """The objects of a file of JSON lines; none where there is no file. Other lines, such as a
    launcher's warnings, are skipped. So is a line that a bench was writing when it died."""
    rows = []
    path = os.path.join(folder, name)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    rows += [json.loads(line)] if line.startswith("{") else []
                except ValueError:
                    print(f"{name}: line {number} is cut short")
    return rows


class Results:
    """The rows of a folder's files, by (src, dst, S, direction)."""

    def __init__(self, folder):
        plain, graph = (read_rows(folder, f"{name}.jsonl") for name in ("nccl", "nccl_graph"))
        self.plain = {key_of(row): row for row in plain if "src" in row}
        self.graph = {key_of(row): row for row in graph if "src" in row}
        self.addresses = [row for row in plain if "addresses" in row]
        self.experts = [row for name in DISPATCHES for row in read_rows(folder, f"{name}.jsonl")]
        self.torch, self.xla = {}, {}
        for row in read_rows(folder, "torch_seed.jsonl"):  # the faster of the two tensor orders
            best = min(row["us"], self.torch.get(key_of(row), row)["us"])
            self.torch[key_of(row)] = {"us": best}
        for row in read_rows(folder, "xla_reshard.jsonl"):
            self.xla[key_of(row)] = row
        self.ways = {}  # through PyTorch: (way, mode, the rest of the key), the faster tensor order
        for row in read_rows(folder, "torch_bench.jsonl") + read_rows(folder, "torch_compiled.jsonl"):
            key = row["peer"], row["mode"], *key_of(row)
            if key not in self.ways or size_of(row) < size_of(self.ways[key]):
                self.ways[key] = row

    def time(self, rows, key, *names):
        """The sum of the named times of a case, in microseconds; None where it was not measured."""
        row = getattr(self, rows).get(key)
        if not row or not row.get(names[0]):
            return None
        return sum(row[name] for name in names)

    def way(self, name, mode, key, what):
        """A number of a way through PyTorch, or None."""
        row = self.ways.get((name, mode, *key))
        if not row:
            return None
        if what == "bytes":
            return row["peak_bytes"] + row["own_bytes"]
        return row[what] if row[what] > 0 else None

    def cp_pair(self):
        """The grids of torch_bench.py's first case, on as many ranks as it had."""
        return next((key[2:4] for key in self.ways if ",cp=1," not in key[3]), PAIR)

    def chosen(self):
        """The rows that have the time of a bridge that chose its executor."""
        return {key: row for key, row in self.plain.items() if row.get("auto_us")}

    def keys(self):
        """Every case that any file has, in order."""
        ways = {key[2:] for key in self.ways if key[5] in BOTH}
        return sorted(ways.union(self.plain, self.graph, self.torch, self.xla),
                      key=lambda key: (key[2], key[0], key[1], BOTH.index(key[3])))


# ---------------------------------------- what is wanted ------------------------------------------


class Line:
    """One line of the table: a number, and the limit that it must keep. The limit is an upper one
    where `most` is set, otherwise a lower one."""

    def __init__(self, what, key, reached, wanted, most=True, unit="x"):
        self.what, self.key, self.unit = what, key, unit
        self.reached, self.wanted, self.most = reached, wanted, most

    def verdict(self):
        if self.reached is None:
            return "no data"
        good = self.reached <= self.wanted if self.most else self.reached >= self.wanted
        return "ok" if good else "missed"

    def text(self):
        src, dst, seq, direction = self.key
        case = f"{src} -> {dst}" if src else "any"
        reached = "-" if self.reached is None else f"{self.reached:.2f} {self.unit}"
        wanted = f"{'<=' if self.most else '>='} {self.wanted:g} {self.unit}"
        return f"{self.what:<34}{case:<28}{seq or '':>6} {direction:<9}{reached:>10} " \
               f"{wanted:>10}  {self.verdict()}"


def ratio(a, b):
    return a / b if a and b else None


def lines_of_all(what, wanted, reach, keys):
    """A line for each case; where there is no case, one line that says so."""
    found = [Line(what, key, reach(key), wanted) for key in keys]
    return found or [Line(what, ("", "", 0, ""), None, wanted)]


def link_lines(results):
    rows = results.plain
    big = [key for key in results.keys() if rows.get(key, {}).get("in_bytes", 0) >= 32 * MIB]

    def over_floor(name):
        return lambda key: ratio(results.time("plain", key, name),
                                 results.time("plain", key, "floor_us"))
    return (lines_of_all("zero-copy / floor", 1.05, over_floor("zero_copy_us"), big)
            + lines_of_all("zero-copy, 32 CTAs / floor", 1.10, over_floor("zero_copy32_us"), big))


def staged_lines(results):
    """Forward alone: backward with sums is reported, and has no goal."""
    rows = results.plain

    def cases(least, end):
        return [key for key in results.keys() if key[3] == "forward"
                and least <= rows.get(key, {}).get("in_bytes", 0) < end]

    def over(name, other):
        return lambda key: ratio(results.time("plain", key, name), results.time("plain", key, other))
    big, small = cases(32 * MIB, float("inf")), [key for key in cases(1, 8 * MIB) if key[2] == 256]
    return (lines_of_all("staged / floor", 1.15, over("staged_us", "floor_us"), big)
            + lines_of_all("staged, 8 MiB / floor", 1.3, over("staged_us", "floor_us"),
                           cases(8 * MIB, 9 * MIB))
            + lines_of_all("staged, 32 CTAs / floor", 1.25, over("staged32_us", "floor_us"), big)
            + lines_of_all("staged, small / p2p", 1, over("staged_us", "p2p_us"), small))


def address_lines(results):
    """The host's time of small calls whose tensors lie elsewhere each time, over those that stay."""
    lines = [Line(f"fresh/fixed {row['addresses']}, {row['tensors']} tensors", ("", "", 0, ""),
                  row["ratio"], 1.1) for row in results.addresses]
    return lines or [Line("fresh/fixed addresses", ("", "", 0, ""), None, 1.1)]


def xla_lines(results):
    wanted = [(8192, FAN_IN, BOTH, 1.35), (8192, FAN_IN_ONE, BOTH, 1.3),
              (8192, FAN_OUT, ("backward",), 1.75), (32768, FAN_IN, BOTH, 1.35),
              (32768, FAN_IN_ONE, BOTH, 1.2), (32768, FAN_OUT, ("backward",), 1.4),
              (256, FAN_IN, BOTH, 10), (256, FAN_IN_ONE, BOTH, 10),
              (256, FAN_OUT, ("backward",), 10)]
    lines = []
    for seq, pair, directions, times in wanted:
        for direction in directions:
            key = (*pair, seq, direction)
            reached = ratio(results.time("xla", key, "us"),
                            results.time("plain", key, "zero_copy_wall_us"))
            lines.append(Line("XLA / zero-copy, wall clock", key, reached, times, most=False))
    return lines


def torch_lines(results):
    lines = []
    for pair in (FAN_IN, FAN_IN_ONE):
        for direction, times in zip(BOTH, (4.8, 8.5)):
            key = (*pair, 8192, direction)
            reached = ratio(results.time("torch", key, "us"),
                            results.time("plain", key, "zero_copy_us"))
            lines.append(Line("PyTorch / zero-copy", key, reached, times, most=False))
    return lines


def bridge_lines(results):
    """What torch_bench.py measured: bridges through autograd, beside Megatron-LM's communicator."""
    lines, pair = [], results.cp_pair()
    for seq in (8192, 32768):
        for way, times in (("slots", (5, 7)), ("staged", (4.5, 6))):
            for direction, wanted in zip(BOTH, times):
                key = (*pair, seq, direction)
                reached = ratio(*(results.way(name, "eager", key, "us") for name in ("megatron", way)))
                lines.append(Line(f"Megatron / {way}, autograd", key, reached, wanted, most=False))
        key = (*pair, seq, "step")
        reached = ratio(*(results.way(name, "eager", key, "bytes") for name in ("slots", "megatron")))
        lines.append(Line("peak memory, slots / Megatron", key, reached, 0.5))
    for way in ("slots", "staged"):
        for direction in BOTH:
            key = (*pair, 256, direction)
            reached = results.way(way, "eager", key, "host_us")
            lines.append(Line(f"host, {way}, autograd", key, reached, 50, unit="us"))
            alone = results.way("autograd alone", "eager", key, "host_us")
            if reached and alone:
                lines[-1].what += f" (alone {alone:.0f})"
    return lines


def expert_lines(results):
    """Of tokens whose experts are all alike. On more than two ranks the link bounds more of a move, so more is
    wanted. Few tokens are bound by latency, and a graph shows that alone. Partial sums in f32 are twice the bytes."""
    lines = []
    for row in results.experts:
        if row.get("routing") != "even":
            continue
        few, many = row["tokens"] <= 128, row["ranks"] > 2
        key = ("", "", row["tokens"], "graph" if row["graph"] else "")
        rows = 1.5 if few else 1.12 if many else 1.2
        combine = 2.5 if few else (1.2 if many else 1.5) if row["narrow"] else (2.3 if many else 2.5)
        lines.append(Line(f"rows / floor, {row['ranks']} ranks", key, row.get("rows_ratio"), rows))
        lines.append(Line(f"combine {'bf16' if row['narrow'] else 'f32'} / floor, {row['ranks']} ranks", key,
                          row.get("combine_ratio"), combine))
        if row["graph"]:
            lines.append(Line(f"route, {row['ranks']} ranks", key, row["route_us"], 20, unit="us"))
    return lines or [Line("rows / floor", ("", "", 0, ""), None, 1.12)]


def still_lines(results):
    rows = results.plain
    still = [key for key in results.keys()
             if key[2] >= 2048 and rows.get(key, {}).get("in_bytes") == 0]
    return lines_of_all("nothing moves: zero-copy / copy", 1.1,
                        lambda key: ratio(results.time("plain", key, "zero_copy_us"),
                                          results.time("plain", key, "local_copy_us")), still)


def small_lines(results):
    lines = []
    for what, rows, name, most in (("small", "plain", "zero_copy_us", 8.5),
                                   ("small, in a graph", "graph", "zero_copy_us", 7.5),
                                   ("small, destination idle", "plain", "zero_copy_idle_us", 7.5)):
        small = [key for key in results.keys() if key[2] == 256 and key in getattr(results, rows)]
        some = lines_of_all(what, most, lambda key, r=rows, n=name: results.time(r, key, n), small)
        for line in some:
            line.unit = "us"
        lines += some
    return lines


def bare_lines(results):
    measured = [key for key in results.keys() if key in results.plain]
    sent = [key for key in measured if results.plain[key]["in_bytes"] > 0]
    lines = []
    for what, keys, name, parts, most in (
            ("p2p / bare and copies", sent, "p2p_us", ("bare_p2p_us", "p2p_copies_us"), 1.15),
            ("collective / bare and copies", measured, "collective_us",
             ("bare_collective_us", "collective_copies_us"), 1.10)):
        lines += lines_of_all(
            what, most,
            lambda key, n=name, p=parts: ratio(results.time("plain", key, n),
                                               sum(results.plain[key][part] for part in p)), keys)
    return lines


def noise_of(row):
    """The times of one executor, chosen by a bridge and pinned: the longer over the shorter."""
    pinned = row[row["auto"].replace("-", "_") + "_us"]
    return max(row["auto_us"] / pinned, pinned / row["auto_us"])


def auto_lines(results):
    """The worst case of the executor that was chosen by measuring, and of the default one."""
    of_two = ("collective_us", "p2p_us")
    of_three = (*of_two, "zero_copy_us")
    elsewhere = (*of_two, "staged_us")
    lines = []
    for what, name, best in (("chosen", "auto_us", of_three),
                             ("chosen, no buffer", "auto_elsewhere_us", elsewhere),
                             ("default", "zero_copy_us", of_three),
                             ("default, no buffer", "staged_us", elsewhere)):
        ratios = {key: row[name] / min(row[one] for one in best if one in row)
                  for key, row in results.chosen().items()}
        worst = max(ratios, key=ratios.get, default=("", "", 0, ""))
        lines.append(Line(f"worst {what} / best", worst, ratios.get(worst), 1.05))
    return lines


def print_table(results):
    lines = [line for make in (link_lines, staged_lines, address_lines, xla_lines, torch_lines,
                               bridge_lines, expert_lines, still_lines, small_lines, bare_lines, auto_lines)
             for line in make(results)]
    print(f"{'what':<34}{'case':<28}{'S':>6} {'':<9}{'reached':>10} {'wanted':>10}")
    for line in lines:
        print(line.text())
    noise = max(map(noise_of, results.chosen().values()), default=1)
    print(f"one executor timed twice, as chosen and as pinned: at most {noise:.2f} x apart")
    for what, where in ELSEWHERE:
        print(f"{what}: not in these files ({where})")
    verdicts = [line.verdict() for line in lines]
    print(", ".join(f"{verdicts.count(word)} {word}" for word in ("ok", "missed", "no data")))
    print_ways(results)


WAYS = ("exchange", "slots", "staged", "p2p", "functional all-to-all", "functional", "megatron")


def print_ways(results):
    """Every time that torch_bench.py measured, in microseconds, and two ratios."""
    cases = sorted({(key[2:5], key[1], key[5]) for key in results.ways if key[5] in BOTH},
                   key=lambda case: (case[0][:2], case[1], case[0][2], BOTH.index(case[2])))
    if not cases:
        return
    print(f"\n{'through PyTorch, us':<50}" + "".join(f"{name.replace('functional', 'func.'):>17}" for name in WAYS)
          + f"{'Megatron/slots':>16}{'slots/exchange':>16}")
    for case, mode, direction in cases:
        key = (*case, direction)
        times = {name: results.way(name, mode, key, "us") for name in WAYS}
        times["exchange"] = results.way("exchange", "eager", key, "us")
        words = ["-" if time is None else f"{time:.1f}" for time in times.values()]
        ratios = (ratio(times["megatron"], times["slots"]), ratio(times["slots"], times["exchange"]))
        words += ["-" if one is None else f"{one:.2f}" for one in ratios]
        print(f"{case[0]} -> {case[1]} S {case[2]} {mode} {direction}".ljust(50)
              + "".join(f"{word:>{16 if place >= len(WAYS) else 17}}" for place, word in enumerate(words)))


# ------------------------------------------- the plot ---------------------------------------------

# The title of a series, the file of its rows, and a time there or a way through PyTorch.
SERIES = [("link floor", "plain", "floor_us"), ("zero-copy", "plain", "zero_copy_us"),
          ("p2p", "plain", "p2p_us"), ("collective", "plain", "collective_us"),
          ("XLA (wall clock)", "xla", "us"), ("PyTorch", "torch", "us"),
          ("zero-copy, graph", "graph", "zero_copy_us"), ("slots, autograd", "ways", "slots"),
          ("staged, autograd", "ways", "staged")]
COLOURS = ["black", "dark-green", "skyblue", "orange", "red", "blue", "green", "purple", "brown"]


def drawn(results, rows, key, name):
    return results.way(name, "eager", key, "us") if rows == "ways" else results.time(rows, key, name)


def short_name(key):
    """The label of a case under the axis: two lines, without dimensions of size 1."""
    sides = [" ".join(dim.replace("=", "") for dim in spec.split(",") if not dim.endswith("=1"))
             for spec in key[:2]]
    return f"{sides[0]} >\\n{sides[1]}\\nS {key[2]}"


def data_block(results, keys):
    rows = []
    for place, key in enumerate(keys):
        times = [drawn(results, rows_of, key, name) for _, rows_of, name in SERIES]
        words = ["?" if time is None else f"{time:.3f}" for time in times]
        rows.append(" ".join([str(place), *words]))
    return "\n".join(rows)


def panel(results, direction):
    keys = [key for key in results.keys() if key[3] == direction]
    names = ", ".join(f'"{short_name(key)}" {place}' for place, key in enumerate(keys))
    data = f"${direction}"
    curves = [f'{data} using 1:{column + 2} with points pt {column + 4} ps 1.6 '
              f'lc rgb "{COLOURS[column]}" title "{title}"'
              for column, (title, rows, name) in enumerate(SERIES)
              if any(drawn(results, rows, key, name) for key in keys)]
    if not curves:
        return []
    return [f"{data} << END", data_block(results, keys), "END", f'set title "{direction}"',
            f"set xtics ({names})", f"set xrange [-0.5:{len(keys) - 0.5}]",
            f"plot {', '.join(curves)}"]


def draw(results, path):
    """The times of every case in both passes, on a logarithmic scale."""
    panels = [line for direction in BOTH for line in panel(results, direction)]
    if not panels:
        return print("nothing to draw")
    if not shutil.which("gnuplot"):
        return print(f"no {path}: gnuplot is not installed (Debian: gnuplot-nox)")
    width = max(1200, 75 * len(results.keys()) // 2)
    script = [f'set terminal png size {width},1200 font "DejaVuSans,10"', f'set output "{path}"',
              'set datafile missing "?"', "set logscale y", 'set ylabel "microseconds"',
              "set grid", "set key top left", "set bmargin 5", "set multiplot layout 2,1"]
    subprocess.run(["gnuplot"], input="\n".join(script + panels) + "\n", text=True, check=True)
    return print(path)


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__.split("\n\n")[1].strip())
    results = Results(sys.argv[1])
    print_table(results)
    draw(results, os.path.join(sys.argv[1], "bench.png"))


if __name__ == "__main__":
    main()
