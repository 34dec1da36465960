"""mimo-plan schedule as a user runs it: lists, table, JSON, picture, trace and torch's tables, and bad
input. Usage: test_mimo_plan_schedule.py MIMO_PLAN DOCS"""

import json
import os
import sys
import tempfile
import xml.etree.ElementTree as xml

from planner import SVG, Planner

PLAN, DOCS = Planner(sys.argv[1], "schedule"), sys.argv[2]
expect, output, expect_error = PLAN.expect, PLAN.output, PLAN.expect_error

SMALL = ["--pp", "2", "--micro-batches", "4"]
LARGE = ["--pp", "8", "--micro-batches", "32"]
LEFT_OUT = "mimo-plan: the table has no steps of the encoder\n"


def lists_and_table():
    PLAN.expect_output(
        "stage 0: E0 BF0 F0 F1 E1 BF1 B0 F2 B1 BB0 EB0 F3 B2 B3 BB1 EB1\n"
        "stage 1: E0 BF0 E1 F0 BF1 B0 F1 B1 F2 BB0 B2 EB0 F3 B3 BB1 EB1\n"
        "\n"
        "                  time  idle %  encoder alive  chunks alive  weights waiting  saved states\n"
        "this schedule       70    14.3              4             2                0             2\n"
        "three phases        72    16.7              4             2                0             2\n"
        "LLM alone           60    20.0              0             2                0             2\n"
        "lower bound         60\n"
        "\n"
        "least --alive and its time, and the next ones: 2: 70\n",
        *SMALL, "--encoder-group", "2", "--alive", "2")
    out = output(*SMALL, "--encoder-group", "0")
    expect("three phases" not in out and "least" not in out and out.startswith("stage 0: F0 F1 B0"),
           SMALL, f"without encoder:\n{out}")


def default_limit():
    """One more than the least: the least one waits for each group."""
    document = PLAN.document(*SMALL)
    expect(document["limits"] == [{"alive": 2, "time": 85}, {"alive": 3, "time": 68},
                                  {"alive": 4, "time": 65}], SMALL, document["limits"])
    expect(document["this"]["time"] == 68 and document["least_alive"] == 2, SMALL, document["this"])
    document = PLAN.document(*SMALL, "--alive", "0")
    expect(document["this"]["time"] == 65, SMALL, document["this"])


def costs():
    out = PLAN.document(*SMALL, "--encoder-group", "0", "--cost", "f=10,B=10")
    expect(out["this"]["time"] == 100, SMALL, out["this"])
    out = PLAN.document(*SMALL, "--encoder-group", "0", "--cost", "f=10,b=10,head=1,hop=2")
    # stage 1 has all of its F and B in a row, except that its F2 comes 1 late
    expect(out["this"]["time"] == 10 + 2 + 4 * (11 + 12) + 1 + 2 + 10, SMALL, out["this"])


def json_of_steps():
    for more in (["--kind", "zero-bubble"], ["--overlap"], ["--kind", "interleaved", "--vpp", "2"],
                 ["--kind", "forward", "--frozen"]):
        arguments = [*SMALL, *more]
        stages = PLAN.document(*arguments)["stages"]
        expect(len(stages) == 2, arguments, f"{len(stages)} stages")
        words = output(*arguments).splitlines()
        for p, steps in enumerate(stages):
            names = []
            for step in steps:
                llm = step["kind"] in ("F", "B", "I", "W", "FB")
                name = step["kind"] + str(step["index"])
                name += f".{step['chunk']}" if llm and "--vpp" in more else ""
                name += f"/{step['back']}" if step["kind"] == "FB" else ""
                names.append(name)
            expect(words[p] == f"stage {p}: " + " ".join(names), arguments, words[p])
            own = [s for s in steps if s["kind"] not in ("BF", "BB")]
            expect(all(a["end"] <= b["begin"] for a, b in zip(own, own[1:])), arguments,
                   "steps of a stage overlap")


def picture():
    """Every step is a box at its time, every call an arrow."""
    for arguments in (LARGE, [*SMALL, "--kind", "zero-bubble"], ["--pp", "1", "--micro-batches", "1"],
                      [*SMALL, "--encoder-group", "0"]):
        stages = PLAN.document(*arguments)["stages"]
        root = xml.fromstring(output(*arguments, "--svg"))
        titles = {box.find(f"{SVG}title").text for box in root.iter(f"{SVG}rect")
                  if box.find(f"{SVG}title") is not None}
        wanted = {f"stage {p}: {s['kind']}{s['index']}, {s['begin']} to {s['end']}"
                  for p, steps in enumerate(stages) for s in steps if s["kind"] not in ("BF", "BB")}
        expect(titles == wanted, arguments, f"boxes {titles ^ wanted}")
        arrows = [p for p in root.iter(f"{SVG}path") if p.get("class") == "a"]
        calls = [s for s in stages[0] if s["kind"] in ("BF", "BB")]
        expect(len(arrows) == len(calls), arguments, f"{len(arrows)} arrows for {len(calls)} calls")


def documented():
    """docs/concepts.md shows what its command draws, and times that the tool prints."""
    command = "--pp 4 --micro-batches 8 --alive 6 --svg"
    page = PLAN.documented(DOCS, "schedule.svg", command, *command.split())
    for row, alive in (("L = 4", 4), ("L = 5", 5), ("L = 6", 6), ("no limit", 0)):
        own = PLAN.document("--pp", "4", "--micro-batches", "8", "--alive", str(alive))["this"]
        line = f"| {row} | {own['time']} | {own['encoder_alive']} |"
        expect(line in page, [row], f"concepts.md has no '{line}'")


def trace():
    """Each hop leaves where a step ends, and arrives on another stage before the next one begins."""
    for more in ([], ["--kind", "interleaved", "--vpp", "2"], ["--overlap"]):
        events = json.loads(output(*SMALL, *more, "--trace"))["traceEvents"]
        steps = [e for e in events if e["ph"] == "X"]
        stages = PLAN.document(*SMALL, *more)["stages"]
        expect(len(steps) == sum(map(len, stages)), SMALL, f"{len(steps)} events")
        left = {e["id"]: e for e in events if e["ph"] == "s"}
        here = {e["id"]: e for e in events if e["ph"] == "f"}
        hops = 2 * 4 * (2 * (2 if "--vpp" in more else 1) - 1)
        expect(left.keys() == here.keys() and len(left) == hops, SMALL, f"{len(left)} hops")
        expect(all(left[i]["ts"] <= here[i]["ts"] and left[i]["pid"] != here[i]["pid"] for i in left),
               SMALL, "a hop arrives before it leaves")


def tables():
    table = output(*SMALL, "--kind", "zero-bubble", "--print-csv", said=LEFT_OUT)
    expect(table == "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0F3,0I2,0W2,0I3,0W3\n"
                    "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1F3,1I3,1W2,1W3\n", SMALL, table)
    again = output(*SMALL, "--csv", "-", "--encoder-group", "0", "--print-csv", text=table)
    expect(again == table, SMALL, f"read again:\n{again}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.csv")
        with open(path, "w", encoding="ascii") as f:
            f.write(table)
        expect(output(*SMALL, "--csv", path) == output(*SMALL, "--kind", "zero-bubble"), SMALL,
               "the table gives another schedule")
    expect_error("--csv /nowhere/table.csv: No such file or directory", *SMALL, "--csv",
                 "/nowhere/table.csv")
    expect_error("--csv /: Is a directory", *SMALL, "--csv", "/")
    expect_error("--csv -: the file is empty", *SMALL, "--csv", "-")
    table = "0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\n"
    expect_error("schedule: B1 before B0 (stage 0, step 6): backwards of a chunk ascend by micro-batch, so that "
                 "gradients, which are sums, have the same bits under every schedule; any_order takes them as they "
                 "are", *SMALL, "--csv", "-", text=table)
    again = output(*SMALL, "--csv", "-", "--any-order", "--encoder-group", "0", "--print-csv", text=table)
    expect(again == table, SMALL, f"{again!r} of a table in descending order")
    expect_error("schedule: 1 rows over pp=2", *SMALL, "--csv", "-", text="0F0\n")
    expect_error(r"schedule: row 2, cell 2: '1\x1bX' is no step", *SMALL, "--csv", "-", text="0F0\n1F0,1\x1bX\n")
    expect_error("schedule: row 2, cell 2: '1X0' is no step", *SMALL, "--csv", "-", text="0F0\n1F0,1X0\n")


def bad_usage():
    expect_error("--pp, --micro-batches are missing; see 'mimo-plan schedule --help'")
    expect_error("--pp is missing; see 'mimo-plan schedule --help'", "--micro-batches", "4")
    expect_error("--micro-batches is missing; see 'mimo-plan schedule --help'", "--pp", "4")
    expect_error("--pp must be at least 1, not 0", "--pp", "0", "--micro-batches", "4")
    expect_error("4294967296 micro-batches over pp=2 with 1 chunks have 8589934592 forwards, and a list may have 4194304",
                 "--pp", "2", "--micro-batches", "4294967296")
    expect_error("--kind must be one of 1f1b|interleaved|zero-bubble|forward, not \"2f2b\"", *SMALL,
                 "--kind", "2f2b")
    expect_error("--svg and --json: one output at a time", *SMALL, "--svg", "--json")
    expect_error("--cost f must be at least 0, not -1", *SMALL, "--cost", "f=-1")
    expect_error('--cost f needs a whole number, not "1.5"', *SMALL, "--cost", "f=1.5")
    for cost in ("f", "x=1", "heads=1", "=1"):
        expect_error(f"--cost has '{cost}', and takes f, b, i, w, fb, e, bf, bb, eb, head and hop as f=4",
                     *SMALL, "--cost", f"b=1,{cost}")
    expect_error("\"more\" is no flag: see --help", *SMALL, "more")


def bad_schedules():
    expect_error("schedule: encoder_alive 1: stage 0 needs 2 groups before the first one is done", *SMALL,
                 "--alive", "1")
    expect_error("schedule: encoder_group 5 of 4 micro-batches", *SMALL, "--encoder-group", "5")
    expect_error("schedule: 1f1b has 1 chunk a stage, not 2", *SMALL, "--vpp", "2")
    expect_error("schedule: all costs are 0", *SMALL, "--encoder-group", "0", "--cost",
                 "f=0,b=0,i=0,w=0,e=0,eb=0")


def full_disk():
    for more in ([], ["--json"], ["--svg"], ["--trace"], ["--print-csv"]):
        PLAN.full_disk(*LARGE, *more)


PLAN.end(lists_and_table, default_limit, costs, json_of_steps, picture, documented, trace, tables, bad_usage,
         bad_schedules, full_disk)
