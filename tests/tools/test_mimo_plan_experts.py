"""mimo-plan experts as a user runs it. Usage: test_mimo_plan_experts.py MIMO_PLAN"""

import sys

from planner import Planner

PLAN = Planner(sys.argv[1], "experts")
plan, expect = PLAN.document, PLAN.expect


def arguments_of(llm, grid, /, *more, **changed):
    """The arguments of a layer; a keyword replaces an option, None leaves it out."""
    layer = {"experts": 8, "top-k": 2, "tokens": 5, "hidden": 4, "dtype": "bf16", "llm": llm,
             "expert-grid": grid}
    layer.update({name.replace("_", "-"): value for name, value in changed.items()})
    flat = [str(word) for name, value in layer.items() if value is not None
            for word in (f"--{name}", value)]
    return flat + list(more)


def expect_error(words, *arguments):
    PLAN.expect_error([words], *arguments)


def groups():
    """Which tp, cp and dp the ranks have plays no part. edp is the rest, also where ep is 1."""
    arguments = arguments_of("tp=2,cp=2,dp=2", "etp=2,ep=2,edp=2")
    wanted = {"etp,ep": [[0, 1, 2, 3], [4, 5, 6, 7]], "etp": [[0, 1], [2, 3], [4, 5], [6, 7]],
              "ep": [[0, 2], [1, 3], [4, 6], [5, 7]], "edp": [[0, 4], [1, 5], [2, 6], [3, 7]]}
    got = plan(*arguments)
    expect(got["groups"] == wanted, arguments, f"groups {got['groups']}")
    for llm, grid, sizes in [("tp=2,cp=2,dp=2", "etp=2,ep=4", (2, 4, 1)), ("tp=2", "ep=1", (1, 1, 2)),
                             ("tp=4,dp=2", "etp=2", (2, 1, 4)), ("tp=2,dp=2,pp=3", "ep=2", (1, 2, 2))]:
        arguments = arguments_of(llm, grid)
        got = plan(*arguments)
        expect((got["etp"], got["ep"], got["edp"]) == sizes, arguments,
               f"etp {got['etp']}, ep {got['ep']}, edp {got['edp']}")


def text():
    """Every token has both experts, so that chance decides nothing."""
    PLAN.expect_output("""\
tp=2,dp=2 with experts etp=1,ep=2,edp=2 on 4 ranks
2 experts, top 2, 5 tokens a rank, bf16 rows of 16 bytes, partial sums of 32

groups along etp,ep  {0 1} {2 3}
groups along etp     {0} {1} {2} {3}
groups along ep      {0 1} {2 3}
groups along edp     {0 2} {1 3}

the first group along etp,ep, experts by chance, seed 1; rows

  rank    t    x  experts            tile        in       out    copied
     0    0    0  [0,1)                10         5         5         0
     1    0    1  [1,2)                10         5         5         0

tile: at most 10 rows, 0.0 MiB, 1.00 times the mean
capacity 9: 2 of 2 tiles are too small, 2 rows are lost

of the busiest rank
rows, over the link                       0.0 MiB        0.1 us
combine, over the link                    0.0 MiB        0.2 us
copies in the tile                        0.0 MiB        0.0 us
in place of rows: one for each pair       0.0 MiB        0.1 us
in place of rows: an all-gather           0.0 MiB        0.1 us
""", *arguments_of("tp=2,dp=2", "etp=1,ep=2", "--capacity", "9", experts=2, hidden=8, gbps=1))


def all_experts():
    """With two experts a rank, and all experts for each token, a row is copied once in each tile."""
    arguments = arguments_of("dp=4", "etp=2,ep=2", experts=4, top_k=4, tokens=3)
    got = plan(*arguments)
    wanted = [{"rank": r, "t": r % 2, "x": r // 2, "experts": [r // 2 * 2, r // 2 * 2 + 2],
               "tile_rows": 24, "in_rows": 9, "out_rows": 9, "copied_rows": 12, "lost_rows": 0}
              for r in range(4)]
    expect(got["ranks"] == wanted, arguments, f"ranks {got['ranks']}")
    busiest = {name: item["bytes"] for name, item in got["busiest"].items()}
    expect(busiest == {"rows": 72, "combine": 144, "copies": 192, "per_pair": 144, "all_gather": 72},
           arguments, f"{busiest}")
    narrow = plan(*arguments, "--narrow-sums")
    expect(narrow["busiest"]["combine"]["bytes"] == 72, arguments, "narrow sums are as wide as others")


def sums_of_ranks():
    """Rows that leave arrive, every pair has a row, and what is lost lies behind the capacity."""
    for grid, align in [("etp=1,ep=8", 1), ("etp=2,ep=4", 1), ("etp=4,ep=2", 16)]:
        arguments = arguments_of("dp=8", grid, "--capacity", "700", experts=64, top_k=6, tokens=100,
                                 alignment=align, zipf=1, seed=3)
        got = plan(*arguments)
        ranks, etp = got["ranks"], got["etp"]
        rows = sum(r["tile_rows"] for r in ranks)
        expect(sum(r["in_rows"] for r in ranks) == sum(r["out_rows"] for r in ranks), arguments,
               "rows that leave do not arrive")
        expect(rows == etp * 8 * 100 * 6 if align == 1 else rows % 16 == 0, arguments, f"{rows} rows")
        lost = [max(0, r["tile_rows"] - 700) for r in ranks]
        expect(align > 1 or [r["lost_rows"] for r in ranks] == lost, arguments, f"lost {lost}")
        expect(got["tile"]["overflows"] == sum(r["tile_rows"] > 700 for r in ranks) > 0, arguments,
               f"overflows {got['tile']}")
        expect(got["tile"]["lost_rows"] == sum(r["lost_rows"] for r in ranks), arguments, "sum of lost rows")


def known_numbers():
    """E 256, k 8, n 4096, rows of 14 KiB: MiB over the link, and microseconds at 360 GB/s of rows, of a
    row for each pair and of an all-gather, of copies at 4.3 TB/s."""
    for ranks, wanted in [(2, (55.8, 163, 652, 163, 108)), (4, (151.8, 442, 979, 489, 95)),
                          (8, (259.4, 756, 1142, 1142, 66))]:
        arguments = arguments_of(f"dp={ranks}", f"ep={ranks}", experts=256, top_k=8, tokens=4096, hidden=7168,
                                 gbps=360, copy_gbps=4300)
        busiest = plan(*arguments)["busiest"]
        got = [busiest["rows"]["bytes"] / 2**20] + [busiest[name]["us"] for name in
                                                    ("rows", "per_pair", "all_gather", "copies")]
        near = all(abs(a - b) <= 0.02 * b for a, b in zip(got, wanted))
        expect(near, arguments, f"{got}, not about {wanted}")


def likely_experts():
    """By Zipf's law the busiest of 8 tiles has 4.9 times the mean; about 1.9 where experts are shuffled."""
    arguments = arguments_of("dp=8", "ep=8", experts=256, top_k=8, tokens=1024, zipf=1)
    first = plan(*arguments)["tile"]["imbalance"]
    expect(4.4 < first < 5.4, arguments, f"{first} times the mean")
    shuffled = [plan(*arguments, "--shuffled", "--seed", str(seed))["tile"]["imbalance"] for seed in range(5)]
    expect(1.3 < min(shuffled) and max(shuffled) < 2.9, arguments, f"{shuffled} times the mean, shuffled")


def mistakes():
    grid = ("tp=2,cp=2,dp=2", "etp=2,ep=4")
    expect_error("experts etp=3,ep=2 do not divide 8 ranks", *arguments_of(grid[0], "etp=3,ep=2"))
    expect_error("--expert-grid has dimension 'tp', and can have etp, ep and edp",
                 *arguments_of(grid[0], "tp=2,ep=4"))
    expect_error("experts: 6 experts over ep=4", *arguments_of(*grid, experts=6))
    expect_error("experts: top_k 9 of 8 experts", *arguments_of(*grid, top_k=9))
    expect_error("--tokens must be at least 1, not 0", *arguments_of(*grid, tokens=0))
    expect_error("--capacity must be at least 0, not -1", *arguments_of(*grid, "--capacity", "-1"))
    expect_error("--zipf must be at least 0, not -1", *arguments_of(*grid, "--zipf", "-1"))
    expect_error("'q8'", *arguments_of(*grid, dtype="q8"))
    expect_error("does not fit 64 bits", *arguments_of(*grid, hidden=2**62))
    expect_error("can fill a tile of", *arguments_of("dp=64", "ep=64", experts=64, top_k=64, tokens=2**20))
    expect_error("--gbps is missing", *arguments_of(*grid, "--copy-gbps", "5"))
    expect_error("\"more\" is no flag: see --help", *arguments_of(*grid, "more"))
    for name in ("llm", "expert-grid", "experts", "top-k", "tokens", "hidden", "dtype"):
        expect_error(f"--{name} is missing", *arguments_of(*grid, **{name.replace("-", "_"): None}))
    expect_error("experts", *arguments_of(grid[0], "etp=2,ep=2,edp=4"))


PLAN.end(groups, text, all_experts, sums_of_ranks, known_numbers, likely_experts, mistakes)
