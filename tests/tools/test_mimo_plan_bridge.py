"""mimo-plan bridge as a user runs it: worked examples, random pairs of grids against a reference that
lists every row, and bad input. Usage: test_mimo_plan_bridge.py MIMO_PLAN"""

import json
import math
import random
import subprocess
import sys

PROGRAM = sys.argv[1]
DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "f8": 1}
failures = []


def run(*arguments):
    done = subprocess.run([PROGRAM, "bridge", *arguments], capture_output=True, text=True,
                          timeout=60)
    return done.returncode, done.stdout, done.stderr


def expect(condition, arguments, what):
    if not condition:
        failures.append(f"mimo-plan bridge {' '.join(arguments)}: {what}")


def arguments_of(src, dst, batch=8, seq=8, *more):
    return ["--src", src, "--dst", dst, "--batch", str(batch), "--seq", str(seq), "--hidden", "16",
            "--dtype", "bf16", *more]


def answer(*arguments):
    """The JSON of a call that must succeed; None where it does not."""
    status, out, err = run(*arguments, "--json")
    expect(status == 0 and err == "", arguments, f"status {status}, stderr {err!r}")
    return json.loads(out) if status == 0 else None


# ------------------------------------------ reference ------------------------------------------

def parse(spec):
    return [(name, int(size)) for name, size in (part.split("=") for part in spec.split(","))]


def size_of(spec, name):
    return dict(parse(spec)).get(name, 1)


def coords_of(spec, relative):
    coords = {}
    for name, size in parse(spec):
        coords[name] = relative % size
        relative //= size
    return coords


def positions(seq, cp, c, tp, t, sp):
    """Global rows of a shard in local order, by the formulas of the specification."""
    chunk = seq // (2 * cp)
    rows = [i if cp == 1 else c * chunk + i if i < chunk else
            (2 * cp - 1 - c) * chunk + (i - chunk) for i in range(seq // cp)]
    count = seq // (cp * tp)
    return rows[t * count:(t + 1) * count] if sp else rows


def ranges(rows):
    merged = []
    for row in rows:
        if merged and merged[-1][1] == row:
            merged[-1][1] += 1
        else:
            merged.append([row, row + 1])
    return merged


def slice_of(batch, spec, coords):
    count = batch // size_of(spec, "dp")
    return [coords["dp"] * count, (coords["dp"] + 1) * count]


def groups(src, dst, offset):
    """Members of a group agree on everything but dp, which runs over one block of k."""
    src_dp, dst_dp = size_of(src, "dp"), size_of(dst, "dp")
    if src_dp == dst_dp:
        return "equal", 1, []
    wide = src if src_dp > dst_dp else dst
    k = max(src_dp, dst_dp) // min(src_dp, dst_dp)
    found = {}
    ranks = math.prod(size for _, size in parse(wide))
    for relative in range(ranks):
        coords = coords_of(wide, relative)
        key = (coords["dp"] // k, coords["tp"], coords.get("cp", 0))
        found.setdefault(key, []).append((coords["dp"], offset + relative))
    return ("fan_in" if wide == src else "fan_out", k,
            [[rank for _, rank in sorted(found[key])] for key in sorted(found)])


def expected_rank(case, relative):
    src, dst, batch, seq, offset, sp, row_bytes = case
    at = {"src": coords_of(src, relative), "dst": coords_of(dst, relative)}
    rows = positions(seq, size_of(dst, "cp"), at["dst"].get("cp", 0), size_of(dst, "tp"),
                     at["dst"]["tp"], sp)
    samples = {side: slice_of(batch, spec, at[side]) for side, spec in (("src", src), ("dst", dst))}
    has = {(b, s) for b in range(*samples["src"]) for s in range(seq)}
    needs = {(b, s) for b in range(*samples["dst"]) for s in rows}
    kept = len(has & needs) * row_bytes
    return {"rank": offset + relative, **at, "src_samples": samples["src"],
            "dst_samples": samples["dst"], "tokens": ranges(rows),
            "forward": {"recv_bytes": len(needs - has) * row_bytes, "local_bytes": kept},
            "backward": {"recv_bytes": len(has - needs) * row_bytes, "local_bytes": kept}}


def check_case(case, arguments):
    src, dst, _, _, offset, _, _ = case
    got = answer(*arguments)
    if got is None:
        return
    direction, scale, gather = groups(src, dst, offset)
    expect(list(got) == ["direction", "scale", "gather_groups", "ranks"], arguments, list(got))
    expect((got["direction"], got["scale"], got["gather_groups"]) == (direction, scale, gather),
           arguments, f"{got['direction']} {got['scale']} {got['gather_groups']} instead of "
           f"{direction} {scale} {gather}")
    ranks = math.prod(size for _, size in parse(src))
    expect(len(got["ranks"]) == ranks, arguments, f"{len(got['ranks'])} ranks")
    for way in ("forward", "backward"):
        sent = sum(rank[way].pop("send_bytes") for rank in got["ranks"])
        received = sum(rank[way]["recv_bytes"] for rank in got["ranks"])
        expect(sent == received, arguments, f"{way}: {sent} bytes sent, {received} received")
    for relative, rank in enumerate(got["ranks"]):
        wanted = expected_rank(case, relative)
        expect(list(rank) == list(wanted) and rank == wanted, arguments,
               f"{rank} instead of {wanted}")


# --------------------------------------------- cases -------------------------------------------

def draw_pair(source):
    """Two grids of one size whose dp sizes divide one another, dp slowest, as placement asks."""
    src_dp, dst_dp = source.choice([(4, 2), (2, 4), (6, 3), (3, 3), (1, 4), (8, 1), (2, 6), (1, 1)])
    cp = source.choice([1, 2, 3, 4])
    tp = source.choice([1, 2, 3])
    ranks = math.lcm(src_dp, dst_dp * cp * tp)
    dims = [("tp", ranks // (dst_dp * cp)), ("cp", cp)]
    if source.random() < 0.3:
        dims.reverse()
    if source.random() < 0.3:
        dims.insert(source.randrange(3), ("pp", 1))
    dst = ",".join(f"{name}={size}" for name, size in dims + [("dp", dst_dp)])
    return f"tp={ranks // src_dp},dp={src_dp}", dst


def random_pairs():
    source = random.Random(7)
    for _ in range(80):
        src, dst = draw_pair(source)
        cp, tp, sp = size_of(dst, "cp"), size_of(dst, "tp"), source.random() < 0.4
        step = 2 * cp * (tp if sp else 1)
        seq = step * source.randint(1, 3)
        batch = math.lcm(size_of(src, "dp"), size_of(dst, "dp")) * source.randint(1, 2)
        hidden, offset = source.randint(1, 40), source.choice([0, 0, 5])
        dtype = source.choice(sorted(DTYPE_BYTES))
        arguments = ["--src", src, "--dst", dst, "--batch", str(batch), "--seq", str(seq),
                     "--hidden", str(hidden), "--dtype", dtype, "--offset", str(offset), "--order",
                     source.choice(["sbh", "bsh"])] + (["--sp"] if sp else [])
        check_case((src, dst, batch, seq, offset, sp, hidden * DTYPE_BYTES[dtype]), arguments)


def worked_examples():
    got = answer(*arguments_of("tp=2,dp=4", "tp=2,cp=2,dp=2"))
    expect(got["gather_groups"] == [[0, 2], [1, 3], [4, 6], [5, 7]], ["fan-in"], got)
    places = [(r["dst"]["dp"], r["dst"]["tp"], r["dst"]["cp"]) for r in got["ranks"]]
    expect(places == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 0), (1, 0, 1),
                      (1, 1, 1)], ["fan-in"], places)
    expect(got["ranks"][0]["tokens"] == [[0, 2], [6, 8]], ["fan-in"], got["ranks"][0])
    expect(got["ranks"][2]["tokens"] == [[2, 6]], ["fan-in"], got["ranks"][2])
    got = answer(*arguments_of("tp=4,dp=2", "tp=1,cp=2,dp=4"))
    expect(got["gather_groups"] == [[0, 2], [1, 3], [4, 6], [5, 7]], ["fan-out"], got)
    expect([r["forward"]["recv_bytes"] for r in got["ranks"]] == [0] * 8, ["fan-out"], got)

    arguments = arguments_of("tp=2,dp=4", "tp=2,cp=2,dp=2", 8, 64, "--rank", "0", "--json")
    _, out, _ = run(*arguments)
    flow = '{"recv_bytes":2048,"send_bytes":2048,"local_bytes":2048}'
    expect(out == '{"direction":"fan_in","scale":2,"gather_groups":[[0,2],[1,3],[4,6],[5,7]],'
           '"ranks":[{"rank":0,"src":{"tp":0,"dp":0},"dst":{"tp":0,"cp":0,"dp":0},'
           '"src_samples":[0,2],"dst_samples":[0,4],"tokens":[[0,16],[48,64]],'
           f'"forward":{flow},"backward":{flow}}}]}}\n', arguments, out)


def large_numbers():
    """Counts past 2^53 stay whole numbers; 16,384 ranks are quick work."""
    arguments = ["--src", "tp=1,dp=2", "--dst", "tp=1,cp=2,dp=1", "--batch", "2", "--seq", "4",
                 "--hidden", str(2**50 + 1), "--dtype", "f64"]
    got = answer(*arguments)
    expect(got["ranks"][0]["forward"]["recv_bytes"] == 2 * 8 * (2**50 + 1), arguments, got)
    arguments = arguments_of("tp=8,dp=2048", "tp=8,cp=8,dp=256", 4096, 8192)
    got = answer(*arguments)
    expect([r["rank"] for r in got["ranks"]] == list(range(16384)), arguments, "ranks")
    expect(len(got["gather_groups"]) == 2048, arguments, "groups")


def text():
    arguments = arguments_of("tp=1,dp=4", "tp=1,cp=2,dp=2", 4, 4, "--offset", "8")
    status, out, err = run(*arguments)
    expect(status == 0 and err == "", arguments, f"status {status}, stderr {err!r}")
    for line in ("tp=1,dp=4 -> tp=1,cp=2,dp=2 on ranks 8 to 11: fan_in by 2",
                 "2 gather groups:  {8 9}  {10 11}",
                 "     9  dp 1               [1,2)        cp 1 dp 0                [0,2)        "
                 "[1,3)",
                 "   forward  collective            512  routed            256   50.0%",
                 "  backward  collective           1024  routed            256   25.0%",
                 "     8 (64)   64    .    ."):
        expect(line + "\n" in out, arguments, f"no line {line!r} in\n{out}")
    _, out, _ = run(*arguments_of("tp=1,dp=4", "tp=1,cp=2,dp=2", 4, 4, "--rank", "2"))
    expect("     2  dp 2" in out and "     1  dp 1" not in out, ["--rank 2"], out)
    _, out, _ = run(*arguments_of("tp=1,dp=32", "tp=1,dp=32", 32, 4))
    expect("collective" in out and "(kept)" not in out, ["32 ranks"], out)
    status, out, _ = run("--help")
    expect(status == 0 and "--src" in out, ["--help"], out)


# --------------------------------------------- errors ------------------------------------------

def expect_error(words, *arguments):
    """Status 2, nothing on stdout, one sentence on stderr that holds the words."""
    for form in ([], ["--json"]):
        status, out, err = run(*arguments, *form)
        expect(status == 2 and out == "", arguments, f"status {status}, stdout {out!r}")
        expect(err.startswith("mimo-plan: ") and err.endswith("\n") and err.count("\n") == 1,
               arguments, f"stderr {err!r} is not one sentence")
        for word in words:
            expect(word in err, arguments, f"no {word!r} in {err!r}")


def bad_usage():
    good = arguments_of("tp=2,dp=2", "tp=2,dp=2")
    for i in range(0, len(good), 2):
        expect_error([f"{good[i]} is missing"], *good[:i], *good[i + 2:])
    expect_error(["'more'"], *good, "more")
    expect_error(["'--loud'"], *good, "--loud")
    expect_error(["--order is 'hsb'"], *good, "--order", "hsb")
    expect_error(["'f99'"], *good, "--dtype", "f99")
    for option in ("--batch", "--seq", "--hidden"):
        expect_error([option, "0"], *good, option, "0")
        expect_error([option, "'x'"], *good, option, "x")
    expect_error(["--offset", "-1"], *good, "--offset", "-1")
    expect_error(["rank 4", "0 to 3"], *good, "--rank", "4")
    expect_error(["rank 3", "4 to 7"], *good, "--rank", "3", "--offset", "4")
    expect_error(["'tp'"], *arguments_of("tp", "tp=2,dp=2"))
    expect_error(["does not fit 64 bits"], *good, "--hidden", str(2**62))
    expect_error(["does not fit 64 bits"], *good, "--hidden", str(2**56))


def bad_pairs():
    for words, src, dst, *rest in (
            (["'dp'"], "tp=4", "tp=2,dp=2"),
            (["'tp'"], "tp=2,dp=2", "dp=4"),
            (["4 ranks", "8"], "tp=2,dp=2", "tp=2,dp=4"),
            (["cp = 2"], "tp=1,cp=2,dp=2", "tp=2,dp=2"),
            (["pp = 2"], "tp=1,pp=2,dp=2", "tp=2,dp=2"),
            (["pp = 2"], "tp=2,dp=2", "tp=1,pp=2,dp=2"),
            (["ep = 2"], "tp=2,dp=2", "tp=1,ep=2,dp=2"),
            (["dp = 3", "dp = 2"], "tp=2,dp=3", "tp=3,dp=2", 6),
            (["placement", "rank 1"], "tp=2,dp=2", "dp=2,tp=2"),
            (["6", "dp = 4"], "tp=1,dp=4", "tp=2,dp=2", 6),
            (["2", "dp = 4"], "tp=2,dp=2", "tp=1,dp=4", 2),
            (["10", "4"], "tp=2,dp=2", "tp=1,cp=2,dp=2", 8, 10)):
        expect_error(words, *arguments_of(src, dst, *rest))
    expect_error(["12", "6", "4"], *arguments_of("tp=4,dp=2", "tp=4,cp=2,dp=1", 8, 12, "--sp"))


for check in (worked_examples, random_pairs, large_numbers, text, bad_usage, bad_pairs):
    check()
print("\n".join(failures) if failures else "all as expected")
sys.exit(1 if failures else 0)
