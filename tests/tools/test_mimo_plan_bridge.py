"""mimo-plan bridge as a user runs it: worked examples, random pairs of grids against a reference
that lists every row, and bad input. Usage: test_mimo_plan_bridge.py MIMO_PLAN"""

import math
import random
import sys

from planner import Planner

PLAN = Planner(sys.argv[1], "bridge")
run, expect, answer = PLAN.run, PLAN.expect, PLAN.document
DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "f8": 1}


def arguments_of(src, dst, batch=8, seq=8, *more):
    return ["--src", src, "--dst", dst, "--batch", str(batch), "--seq", str(seq), "--hidden", "16",
            "--dtype", "bf16", *more]


def expect_error(words, *arguments):
    for form in ([], ["--json"]):
        PLAN.expect_error(words, *arguments, *form)


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
    """Global rows of a shard in local order, by the formulas of docs/concepts.md."""
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
    """Members of a group agree on everything except dp, which runs over one block of k."""
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
    fan, scale, gather = groups(src, dst, offset)
    expect(list(got) == ["fan", "scale", "gather_groups", "links", "ranks"], arguments,
           list(got))
    expect((got["fan"], got["scale"], got["gather_groups"]) == (fan, scale, gather),
           arguments, f"{got['fan']} {got['scale']} {got['gather_groups']} instead of "
           f"{fan} {scale} {gather}")
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
    """Two grids of one size. Their dp sizes divide one another, and dp is slowest, as pairing
    requires."""
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
    even = ('{"bytes":16384,"pairs":8,"busiest":{"from":0,"to":2,"bytes":2048,"imbalance":1},'
            '"in":{"rank":0,"bytes":2048,"imbalance":1},"out":{"rank":0,"bytes":2048,"imbalance":1}}')
    expect(out == '{"fan":"fan_in","scale":2,"gather_groups":[[0,2],[1,3],[4,6],[5,7]],'
           f'"links":{{"forward":{even},"backward":{even}}},'
           '"ranks":[{"rank":0,"src":{"tp":0,"dp":0},"dst":{"tp":0,"cp":0,"dp":0},'
           '"src_samples":[0,2],"dst_samples":[0,4],"tokens":[[0,16],[48,64]],'
           f'"forward":{flow},"backward":{flow}}}]}}\n', arguments, out)


def large_numbers():
    """Counts past 2^53 are still whole numbers."""
    arguments = ["--src", "tp=1,dp=2", "--dst", "tp=1,cp=2,dp=1", "--batch", "2", "--seq", "4",
                 "--hidden", str(2**50 + 1), "--dtype", "f64"]
    got = answer(*arguments)
    expect(got["ranks"][0]["forward"]["recv_bytes"] == 2 * 8 * (2**50 + 1), arguments, got)


def expect_large(src, dst, batch, peers):
    """16,384 ranks with equal numbers of messages; `peers` is for forward and backward. Rows of 32
    bytes."""
    arguments = arguments_of(src, dst, batch, 8192)
    got = answer(*arguments)
    expect([r["rank"] for r in got["ranks"]] == list(range(16384)), arguments, "ranks")
    expect(len(got["gather_groups"]) * got["scale"] == 16384, arguments, "groups")
    shared = batch * 8192 * 32 // max(size_of(src, "dp"), size_of(dst, "dp")) // size_of(dst, "cp")
    for way, count in zip(("forward", "backward"), peers):
        flow = {"recv_bytes": count * shared, "send_bytes": count * shared, "local_bytes": shared}
        expect(all(r[way] == flow for r in got["ranks"]), arguments, (way, flow, got["ranks"][0]))
        links = got["links"][way]
        expect((links["pairs"], links["bytes"]) == (16384 * count, 16384 * count * shared),
               arguments, links)


def large_grids():
    """Grids where a rank has up to thousands of peers. Nothing is done for each peer."""
    expect_large("tp=8,dp=2048", "tp=8,cp=8,dp=256", 4096, (7, 7))
    expect_large("tp=8,dp=2048", "tp=8,cp=2048,dp=1", 2048, (2047, 2047))
    expect_large("tp=1,dp=16384", "tp=8,cp=256,dp=8", 16384, (2047, 255))
    expect_large("tp=16384,dp=1", "tp=1,cp=1,dp=16384", 16384, (0, 16383))


# ----------------------------------------- any two grids ---------------------------------------

def deal(batch, dp, d):
    """The samples of a dp coordinate: the first batch mod dp coordinates hold one more."""
    first = d * (batch // dp) + min(d, batch % dp)
    return [first, first + batch // dp + (d < batch % dp)]


def holding(spec, relative, batch, seq, cut, sp):
    """Samples and positions of a rank; None where it is outside the grid, or at pp > 0."""
    coords = coords_of(spec, relative)
    if not 0 <= relative < math.prod(size for _, size in parse(spec)) or coords.get("pp", 0) > 0:
        return None
    cp, tp = size_of(spec, "cp") if cut else 1, size_of(spec, "tp")
    rows = positions(seq, cp, coords.get("cp", 0) if cut else 0, tp, coords.get("tp", 0), sp)
    return deal(batch, size_of(spec, "dp"), coords.get("dp", 0)), rows


def rows_of(held):
    return {(b, s) for b in range(*held[0]) for s in held[1]} if held else set()


def draw_grid(source, names, most):
    dims = [(name, source.randint(1, most)) for name in names]
    source.shuffle(dims)
    return ",".join(f"{name}={size}" for name, size in dims)


def check_general(case, arguments):
    src, dst, src_offset, dst_offset, batch, seq, sp, row_bytes = case
    got = answer(*arguments)
    ends = [offset + math.prod(size for _, size in parse(spec))
            for spec, offset in ((src, src_offset), (dst, dst_offset))]
    expect([r["rank"] for r in got["ranks"]] == list(range(min(src_offset, dst_offset), max(ends))),
           arguments, "ranks")
    for rank in got["ranks"]:
        has = holding(src, rank["rank"] - src_offset, batch, seq, size_of(src, "cp") > 1, False)
        needs = holding(dst, rank["rank"] - dst_offset, batch, seq, True, sp)
        for side, held in (("src", has), ("dst", needs)):
            expect(rank[f"{side}_samples"] == (held and held[0]), arguments, (side, rank, held))
        some = needs and needs[0][0] < needs[0][1]
        expect(rank["tokens"] == (ranges(needs[1]) if some else []), arguments, (rank, needs))
        kept = len(rows_of(has) & rows_of(needs)) * row_bytes
        for way, to, held in (("forward", needs, has), ("backward", has, needs)):
            flow = rank[way]
            expect((flow["recv_bytes"], flow["local_bytes"]) ==
                   (len(rows_of(to) - rows_of(held)) * row_bytes, kept), arguments, (way, rank))


def general_pairs():
    source = random.Random(11)
    for _ in range(60):
        src = draw_grid(source, source.choice([["tp", "dp"], ["tp", "cp", "dp"], ["dp"]]), 3)
        dst = draw_grid(source, source.choice([["tp", "cp", "dp"], ["tp", "cp", "pp", "dp"]]), 3)
        sp, offsets = source.random() < 0.3, (source.randint(0, 3), source.randint(0, 3))
        seq = 2 * math.lcm(size_of(src, "cp"), size_of(dst, "cp") * (size_of(dst, "tp") if sp else 1))
        batch = source.randint(1, 9)
        arguments = arguments_of(src, dst, batch, seq, "--src-offset", str(offsets[0]),
                                 "--dst-offset", str(offsets[1]), *(["--sp"] if sp else []))
        check_general((src, dst, *offsets, batch, seq, sp, 32), arguments)


def without_collective():
    """What collective refuses is planned as routed moves it. A line says so."""
    for words, src, dst, *rest in (
            (["divides", "dp = 3", "dp = 2"], "tp=2,dp=3", "tp=3,dp=2", 6),
            (["placement", "rank 1"], "tp=2,dp=2", "dp=2,tp=2"),
            (["offset"], "tp=2,dp=2", "tp=2,dp=2", 8, 8, "--dst-offset", "1"),
            (["4 ranks", "8"], "tp=2,dp=2", "tp=2,dp=4"),
            (["'dp'"], "tp=4", "tp=2,dp=2"),
            (["'tp'"], "tp=2,dp=2", "dp=4"),
            (["cp = 2"], "tp=1,cp=2,dp=2", "tp=2,dp=2"),
            (["pp = 2"], "tp=1,pp=2,dp=2", "tp=2,dp=2"),
            (["pp = 2"], "tp=2,dp=2", "tp=1,pp=2,dp=2"),
            (["x = 2"], "tp=2,dp=2", "tp=1,x=2:copies,dp=2"),
            (["batch of 2 ", "does not divide", "dp = 4"], "tp=2,dp=2", "tp=1,dp=4", 2),
            (["batch of 7 ", "does not divide", "dp = 4"], "tp=1,dp=4", "tp=2,dp=2", 7)):
        arguments = arguments_of(src, dst, *rest)
        status, out, err = run(*arguments, "--gbps", "1", "--latency-us", "1")
        expect(status == 0 and err == "" and "routed alone" in out and
               "collective          -" in out, arguments, out + err)
        reason = out.partition("collective cannot be used: ")[2].partition("\n")[0]
        for word in words:
            expect(word in reason, arguments, f"no {word!r} in {reason!r}")
        got = answer(*arguments, "--gbps", "1", "--latency-us", "1")
        expect(got["fan"] is None and got["scale"] is None and
               got["gather_groups"] == [], arguments, got)
        expect(got["estimated_us"]["forward"]["collective"] is None and
               got["estimated_us"]["backward"]["p2p"] > 0, arguments, got)
    expect_error(["12", "6", "4"], *arguments_of("tp=4,dp=2", "tp=4,cp=2,dp=1", 8, 12, "--sp"))
    expect_error(["pd=4 has pd = 4", "none of tp, cp, pp and dp"],
                 *arguments_of("pd=4", "tp=1,dp=4", 8, 8))


def stand_ins():
    """Where grids pair the first rank stands for all. --each-rank plans every rank. Small grids,
    which are drawn, are planned rank by rank anyway."""
    source, compared = random.Random(5), 0
    while compared < 40:
        src, dst = draw_pair(source)
        times = source.randint(1, 5)
        src, dst = (",".join(f"{n}={s * times if n == 'dp' else s}" for n, s in parse(g))
                    for g in (src, dst))
        if math.prod(size for _, size in parse(src)) <= 16:
            continue
        seq = 2 * size_of(dst, "cp") * size_of(dst, "tp") * source.randint(1, 2)
        batch = math.lcm(size_of(src, "dp"), size_of(dst, "dp")) * source.randint(1, 3)
        arguments = arguments_of(src, dst, batch, seq, "--gbps", "10", "--latency-us", "5",
                                 "--order", source.choice(["sbh", "bsh"]), "--offset",
                                 source.choice(["0", "3"]),
                                 *(["--sp"] if source.random() < 0.4 else []))
        expect(answer(*arguments) == answer(*arguments, "--each-rank"), arguments, "not the same")
        compared += 1


# --------------------------------------- links and times ---------------------------------------

def drawn(out, way):
    """The drawing of one pass as {(sender, receiver): bytes}, without rows that a rank
    keeps."""
    lines = out.split(f"\n{way}: bytes from")[1].splitlines()
    receivers = [int(word) for word in lines[1].split()]
    table = {}
    for line in lines[2:2 + len(receivers)]:
        sender, *cells = line.split()
        table.update({(int(sender), to): int(cell) for to, cell in zip(receivers, cells)
                      if cell.isdigit()})
    return table, receivers


def check_links(arguments):
    got = answer(*arguments)
    _, out, _ = run(*arguments)
    for way in ("forward", "backward"):
        table, ranks = drawn(out, way)
        links = got["links"][way]
        total = sum(table.values())
        expect((links["bytes"], links["pairs"]) == (total, len(table)), arguments, (way, links))
        if not table:
            expect(links["busiest"]["imbalance"] == 1, arguments, links)
            continue
        busiest = links["busiest"]
        expect(table[busiest["from"], busiest["to"]] == busiest["bytes"] == max(table.values()),
               arguments, (way, links))
        expect(math.isclose(busiest["imbalance"], busiest["bytes"] * len(table) / total,
                            rel_tol=1e-5), arguments, (way, links))
        for name, end in (("out", 0), ("in", 1)):
            of = {r: sum(b for pair, b in table.items() if pair[end] == r) for r in ranks}
            most = links[name]
            expect(of[most["rank"]] == most["bytes"] == max(of.values()), arguments, (way, most))
            expect(math.isclose(most["imbalance"], most["bytes"] * len(ranks) / total,
                                rel_tol=1e-5), arguments, (way, most))


def links():
    for src, dst in (("tp=1,dp=4", "tp=1,cp=2,dp=2"), ("tp=2,dp=4", "tp=1,cp=4,dp=2"),
                     ("tp=4,dp=2", "tp=1,cp=2,dp=4"), ("tp=2,dp=2", "tp=2,dp=2"),
                     ("tp=4,dp=1", "tp=2,cp=2,dp=1")):
        check_links(arguments_of(src, dst, 8, 16))
    for src, dst in (("tp=1,dp=3", "tp=1,cp=2,pp=2,dp=2"), ("dp=3,tp=2", "tp=2,cp=2,dp=1")):
        check_links(arguments_of(src, dst, 7, 16, "--dst-offset", "1"))


def times():
    """Rows of 32 bytes. A byte takes 1 us over the link, and half of that in a copy. The LLM's tile
    has W = 512 bytes, a shard 256, the encoder's tile 256. Each rank receives and sends 128 bytes,
    of which rank 1 packs all. 128 bytes stay."""
    speed = ["--gbps", "0.001", "--latency-us", "10", "--copy-gbps", "0.002"]
    arguments = arguments_of("tp=1,dp=4", "tp=1,cp=2,dp=2", 4, 8, *speed)
    moved = {"p2p": 10 + 128 + (256 + 128) / 2, "zero_copy": 7.5 + 128}
    got = answer(*arguments)
    expect(got["estimated_us"] ==
           {"forward": {"collective": 10 + 256 + 256 / 2, **moved},
            "backward": {"collective": 20 + 512 + (512 + 256) / 2, **moved}}, arguments, got)
    expect(answer(*arguments, "--rank", "3")["estimated_us"] == got["estimated_us"], arguments,
           "the times of one rank are others")
    _, out, _ = run(*arguments)
    for line in ("estimated us a call, 0.001 GB/s and 10 us a link",
                 "   forward  collective      394.0  p2p      330.0  zero-copy      135.5"):
        expect(line + "\n" in out, arguments, f"no line {line!r} in\n{out}")
    slower = answer(*arguments_of("tp=1,dp=4", "tp=1,cp=2,dp=2", 4, 8, *speed[:4]))
    expect(math.isclose(slower["estimated_us"]["forward"]["p2p"], 10 + 128 + (256 + 128) / 5),
           arguments, slower)


def text():
    arguments = arguments_of("tp=1,dp=4", "tp=1,cp=2,dp=2", 4, 4, "--offset", "8")
    out = PLAN.output(*arguments)
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

def summary():
    """As many lines for 16,384 ranks as for 8, and the sums of the whole text."""
    small = arguments_of("tp=2,dp=4", "tp=2,cp=2,dp=2")
    large = arguments_of("tp=8,dp=2048", "tp=8,cp=4,dp=512", 2048)
    lines = [run(*arguments, "--summary")[1].splitlines() for arguments in (small, large)]
    expect(len(lines[0]) == len(lines[1]) < 20, large, f"{[len(part) for part in lines]} lines")
    whole = run(*small)[1].splitlines()
    left_out = [line for line in lines[0] if line not in whole]
    expect(len(left_out) == 1 and "receives" in left_out[0], small, f"not in the whole text: {left_out}")


def bad_usage():
    good = arguments_of("tp=2,dp=2", "tp=2,dp=2")
    for i in range(0, len(good), 2):
        expect_error([f"{good[i]} is missing"], *good[:i], *good[i + 2:])
    expect_error(["--dst, --batch, --seq, --hidden, --dtype are missing; see"], *good[:2])
    expect_error(['"more" is no flag: see --help'], *good, "more")
    expect_error(['unknown flag "--loud"'], *good, "--loud")
    expect_error(["--order must be one of sbh|bsh, not \"hsb\""], *good, "--order", "hsb")
    expect_error(["'f99'"], *good, "--dtype", "f99")
    for option in ("--batch", "--seq", "--hidden"):
        expect_error([option, "0"], *good, option, "0")
        expect_error([option, 'not "x"'], *good, option, "x")
    expect_error(["--latency-us is missing"], *good, "--gbps", "1")
    expect_error(["--gbps is missing"], *good, "--latency-us", "1")
    expect_error(["--gbps is missing"], *good, "--copy-gbps", "1", "--latency-us", "1")
    for option, text in (("--gbps", "0"), ("--gbps", "-1"), ("--latency-us", "-0.5"),
                         ("--copy-gbps", "0")):
        expect_error([option, "must be", text], *good, option, text)
    for text in ("x", "1x", "", "inf", "nan"):
        expect_error(["--gbps", "needs a number"], *good, "--gbps", text)
    expect_error(["'b16'", "f32 f16 bf16 f64 i32 i64 f8"], *good[:-1], "b16")
    expect("--src needs a value, GRID" in run("--src")[2], ["--src"], run("--src"))
    expect_error(["--offset", "-1"], *good, "--offset", "-1")
    expect_error(["rank 4", "0 to 3"], *good, "--rank", "4")
    expect_error(["rank 3", "4 to 7"], *good, "--rank", "3", "--offset", "4")
    expect_error(["'tp'"], *arguments_of("tp", "tp=2,dp=2"))
    expect_error([f"hidden {2**62} ", "does not fit 64 bits"], *good, "--hidden", str(2**62))
    expect_error(["does not fit 64 bits"], *good, "--hidden", str(2**56))


def bad_pairs():
    """Rules that no algorithm breaks."""
    for words, src, dst, *rest in (
            (["ep = 2"], "tp=2,dp=2", "tp=1,ep=2,dp=2"),
            (["10", "4"], "tp=2,dp=2", "tp=1,cp=2,dp=2", 8, 10),
            (["12", "6", "4"], "tp=4,dp=2", "tp=4,cp=2,dp=1", 8, 12, "--sp")):
        expect_error(words, *arguments_of(src, dst, *rest))


PLAN.end(worked_examples, random_pairs, large_numbers, large_grids, general_pairs, without_collective, stand_ins,
         links, times, text, summary, bad_usage, bad_pairs)
