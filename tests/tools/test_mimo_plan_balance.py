"""mimo-plan balance as a user runs it: table and bars, JSON, picture, and bad input.
Usage: test_mimo_plan_balance.py MIMO_PLAN DOCS"""

import os
import sys
import tempfile
import xml.etree.ElementTree as xml

from planner import SVG, Planner

PLAN, DOCS = Planner(sys.argv[1], "balance"), sys.argv[2]
expect, output, expect_error = PLAN.expect, PLAN.output, PLAN.expect_error


# Lane 0 has loaded 100 rows, lane 1 none.
ALL_ON_ONE = "40 0\n30 0  # a comment\n\n20 0\n10 0\n"


def table_and_bars():
    PLAN.expect_output(
        "4 items of 100 rows on 2 lanes\n"
        "\n"
        "                            at home         balanced\n"
        "longest lane                    100               50\n"
        "mean of a lane                   50               50\n"
        "longest / bound               2.000            1.000\n"
        "rows that move                    0               50  50.0 %\n"
        "lanes without                                      0\n"
        "\n"
        " lane          at home                                       balanced\n"
        "    0              100  ############################               50  ##############\n"
        "    1                0                                             50  ##############\n",
        "--lanes", "2", "-", text=ALL_ON_ONE)


def without_homes():
    out = output("--lanes", "2", "--max-rows", "30", "-", text="10\n20\n30\n")
    lines = out.splitlines()
    expect("at home" not in lines[-3] and lines[-1].split() == ["1", "30", "#" * 28], [], out)
    expect("rows too many                                      0" in lines, [], out)


def numbers():
    out = PLAN.document("--lanes", "2", "-", text=ALL_ON_ONE)
    expect(out["lane"] == [0, 1, 1, 0], ["--json"], out)
    expect(out["at_home"] == [100, 0] and out["balanced"] == [50, 50], ["--json"], out)
    expect(out["report"] == {"cost": 100, "mean": 50, "bound": 50, "longest_home": 100, "longest": 50,
                             "rows": 100, "rows_moved": 50, "rows_over": 0, "empty_lanes": 0}, ["--json"], out)


def costs():
    """Of a block of hidden size 2, unless the file says another one."""
    out = PLAN.document("--lanes", "1", "--hidden", "2", "-", text="3 0\n3 0 5\n3 -1\n")
    expect(out["report"]["cost"] == 3 * (3 + 12) + 5 + 3 * (3 + 12), ["--hidden"], out)
    expect(out["at_home"] == [50] and out["report"]["rows"] == 9, ["--hidden"], out)


def options():
    out = PLAN.document("--lanes", "2", "--in-order", "-", text="1\n5\n1\n1\n")
    expect(out["lane"] == [0, 0, 1, 1], ["--in-order"], out)
    near = "50 0\n50 0\n5 0\n45 1\n45 1\n5 1\n"
    moved = [PLAN.document("--lanes", "2", "--slack", slack, "-", text=near)["report"]["rows_moved"]
             for slack in ("0", "50")]
    expect(moved == [5, 0], ["--slack"], moved)


def picture():
    """A box for each item in both halves; as wide as its cost."""
    root = xml.fromstring(output("--lanes", "2", "--svg", "-", text=ALL_ON_ONE))
    boxes = [box for box in root.iter(SVG + "rect") if box.find(SVG + "title") is not None]
    expect(len(boxes) == 8, ["--svg"], f"{len(boxes)} boxes")
    widths = {box.find(SVG + "title").text: int(box.get("width")) for box in boxes}
    expect(abs(widths["item 0: 40 rows, cost 40, home 0"] - 0.4 * 4600) < 2, ["--svg"], widths)
    lanes = [box.get("y") for box in boxes[4:]]
    expect(lanes.count("820") == 2 and lanes.count("1040") == 2, ["--svg"], lanes)


def a_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "items")
        with open(path, "w") as file:
            file.write(ALL_ON_ONE)
        expect(output("--lanes", "2", path) == output("--lanes", "2", "-", text=ALL_ON_ONE), [path], "differs")
        missing = os.path.join(folder, "missing")
        expect_error(f"{missing}: No such file or directory", "--lanes", "2", missing)


def documented():
    """docs/concepts.md shows what its command draws."""
    PLAN.documented(DOCS, "balance.svg", "--lanes 8 --hidden 1152 --svg docs/balance.txt", "--lanes", "8", "--hidden",
                    "1152", "--svg", os.path.join(DOCS, "balance.txt"))


def bad_input():
    expect_error("--lanes is missing; see 'mimo-plan balance --help'", "-")
    expect_error("FILE is missing; see 'mimo-plan balance --help'", "--lanes", "2")
    expect_error("--lanes must be from 1 to 1048576, not 2147483648", "--lanes", "2147483648", "-")
    expect_error("argument 'b' is one too many: the file is a", "--lanes", "2", "a", "b")
    expect_error("--json and --svg: one output at a time", "--lanes", "2", "--json", "--svg", "-")
    for line in ("x", "1 2 3 4", "1.5", "3 0 5x", "99999999999999999999"):
        expect_error(f"-, line 2 is no item (rows, home, cost): {line}", "--lanes", "2", "-", text=f"1\n{line}\n")
    expect_error(r"-, line 2 is no item (rows, home, cost): \x1b[2J\r\xc2\x9b", "--lanes", "2", "-",
                 text="1\n\x1b[2J\r\x9b\n")
    expect_error("balance: home 2 of item 1 on 2 lanes", "--lanes", "2", "-", text="1 0\n1 2\n")
    expect_error("balance: item 0 has -4 rows", "--lanes", "2", "-", text="-4 0 1\n")
    expect_error("balance: item 0 of 412 rows fits no lane of at most 256", "--lanes", "2", "--max-rows", "256",
                 "-", text="412\n")
    expect_error("item 0 of 4000000000 rows: its cost with --hidden 1 does not fit 64 bits", "--lanes", "2",
                 "--hidden", "1", "-", text="4000000000\n")


PLAN.end(table_and_bars, without_homes, numbers, costs, options, picture, a_file, documented, bad_input)
