"""mimo-plan schedule --nodes as a user runs it: lists, budgets, JSON, picture, trace, and bad input.
Usage: test_mimo_plan_nodes.py MIMO_PLAN DOCS"""

import json
import sys
import xml.etree.ElementTree as xml

from planner import SVG, Planner

PLAN, DOCS = Planner(sys.argv[1], "schedule"), sys.argv[2]
expect, output, expect_error = PLAN.expect, PLAN.output, PLAN.expect_error

STEP = ["--nodes", "1,1"]
PIPE = ["--pp", "2", "--micro-batches", "4", "--overlap", "--encoder-group", "0"]


def one_step():
    out = output(*STEP)
    expected = ("step: f.pre_process b.post_process.bwd b.combine0 f.pre0 b.mlp0.bwd f.dispatch0 b.mlp0.dw "
                "b.dispatch0 f.mlp0 f.combine0 b.pre0.bwd f.send_recv b.send_recv b.pre0.dw f.post_process "
                "b.pre_process.bwd\n\n"
                " exchange blocks       time     serial      local  hidden %  ceiling %\n"
                "              32         21         29         21     100.0       27.5\n\n"
                "lanes that wait: 64 multiprocessors; hash ")
    expect(out.startswith(expected), STEP, f"printed\n{out}instead of\n{expected}")
    for layers, nodes in (("1,1", 16), ("1,2", 22), ("2,1", 20), ("2,2", 26), ("3,2", 30), ("4,4", 46),
                          ("0,2", 15), ("2,0", 11)):
        words = output("--nodes", layers).splitlines()[0].split()
        expect(len(words) == nodes + 1, [layers], f"{len(words) - 1} nodes")


def whole_schedule():
    """As many lines as steps, and the same nodes for a number of layers as for the pattern of them."""
    lines = output(*PIPE, "--nodes", "2").splitlines()
    expect([line.split(":")[0] for line in lines[:6]] ==
           ["stage 0, F0", "stage 0, F1", "stage 0, FB2/0", "stage 0, FB3/1", "stage 0, B2", "stage 0, B3"],
           PIPE, lines)
    same = output(*PIPE, "--nodes", "[*E][*E]|[*E][*E]").splitlines()
    expect(same == lines, PIPE, "a pattern of the same layers gives other nodes")
    lines = output(*PIPE, "--nodes", "*[*-]|E[M*-]/*E").splitlines()
    expect(lines[0] == "stage 0, F0: f.pre_process f.pre0 f.pre1 f.mlp1 f.send_recv f.post_process", PIPE, lines[0])
    expect(lines[6] == "stage 1, F0: f.pre_process f.pre0 f.dispatch0 f.mlp0 f.combine0 f.pre1 f.mlp1 f.pre2 "
           "f.dispatch2 f.mlp2 f.combine2 f.post2 f.send_recv f.post_process", PIPE, lines[6])
    again = output(*PIPE, "--nodes", "[*E]|[*E]", "--recompute", "send", "--shared-expert")
    for word in ("b.dispatch0.replay", "b.shared0.dw", "f.behind0"):
        expect(word in again, PIPE, f"no {word}:\n{again}")
    for cost, sent in (("1", True), ("40", False)):
        again = output("--nodes", "4,4", "--recompute", "costs", "--route-ahead", "--node-cost", f"dispatch.replay={cost}")
        expect("f.route3" in again and ("b.dispatch3.replay" in again) == sent, PIPE, again)


def encoder_in_pieces():
    """Pieces take less time than whole steps, and every one of them stands in the list once."""
    arguments = ["--pp", "1", "--micro-batches", "3", "--overlap", "--encoder-group", "1", "--alive", "2", "--nodes", "1",
                 "--node-cost", "dispatch=5,combine=5,encoder=4,encoder.bwd=8"]
    whole, cut = (PLAN.document(*arguments, *more) for more in ([], ["--encoder-pieces", "2"]))
    times = [plan["budgets"][0]["time"] for plan in (whole, cut)]
    expect(times == [119, 111], arguments, f"times {times}")
    pieces = sorted((n["micro_batch"], n["name"]) for n in cut["stages"][0] if "encoder" in n["name"])
    expect(pieces == [(group, name) for group in range(3) for name in
                      ("b.encoder1.bwd", "b.encoder2.bwd", "f.encoder1", "f.encoder2")], arguments, pieces)


def budgets():
    """Each number of blocks is planned, and the fastest is the one that is printed."""
    arguments = ["--nodes", "4,4", "--multiprocessors", "132", "--node-cost", "pre=300,mlp=400",
                 "--exchanges", "16=500,32=300,64=200"]
    document = PLAN.document(*arguments)
    times = [b["time"] for b in document["budgets"]]
    expect([b["blocks"] for b in document["budgets"]] == [16, 32, 64], arguments, document["budgets"])
    expect(times[document["best"]] == min(times), arguments, f"times {times}, best {document['best']}")
    last = max(node["end"] for node in document["stages"][0])
    expect(last == min(times), arguments, f"the list takes {last}")
    blocks = document["budgets"][document["best"]]["blocks"]
    for node in document["stages"][0]:
        if node["lane"] == "exchanges":
            expect(node["multiprocessors"] == blocks, arguments, node)
        for other in document["stages"][0]:
            together = (node["lane"] == "compute" and other["lane"] == "exchanges" and
                        max(node["begin"], other["begin"]) < min(node["end"], other["end"]))
            expect(not together or node["multiprocessors"] == 132 - blocks, arguments,
                   f"{node['name']} beside {other['name']} has {node['multiprocessors']}")
    text = output(*arguments)
    expect("<- this list" in text and "multiprocessors    begin" in text, arguments, text)


def json_of_nodes():
    """A node waits for nodes in front of it, and begins when they have ended."""
    for more in (["--nodes", "3"], ["--nodes", "2", "--kind", "interleaved", "--vpp", "2", "--shared-expert"],
                 ["--nodes", "1", "--early", "--grad-sync", "--node-cost", "send_recv=2,grad_sync=3"]):
        stages = PLAN.document(*PIPE, *more)["stages"]
        for stage in stages:
            for i, node in enumerate(stage):
                for k in node["waits"]:
                    expect(k < i and stage[k]["lane"] != node["lane"] and stage[k]["end"] <= node["begin"],
                           more, f"{node['name']} waits for {stage[k]['name']}")
            for lane in ("compute", "exchanges", "hops", "sync"):
                own = [node for node in stage if node["lane"] == lane]
                expect(all(a["end"] <= b["begin"] for a, b in zip(own, own[1:])), more, f"{lane}: two at once")


def picture():
    """Every node that takes time is a box in its lane, at its time."""
    for arguments in (STEP, [*PIPE, "--nodes", "2", "--node-cost", "send_recv=1", "--multiprocessors", "132"]):
        stages = PLAN.document(*arguments)["stages"]
        root = xml.fromstring(output(*arguments, "--svg"))
        titles = {box.find(f"{SVG}title").text for box in root.iter(f"{SVG}rect")
                  if box.find(f"{SVG}title") is not None}
        wanted = set()
        for p, nodes in enumerate(stages):
            for n in nodes:
                share = f", {n['multiprocessors']} multiprocessors" if n["multiprocessors"] else ""
                if n["begin"] < n["end"]:
                    wanted.add(f"stage {p}: {n['name']} of {n['micro_batch']}, {n['begin']} to {n['end']}{share}")
        expect(titles == wanted, arguments, f"boxes {titles ^ wanted}")
        labels = [t.text for t in root.iter(f"{SVG}text") if t.text.startswith("stage ")]
        lanes = ["compute", "exchanges", "hops"] if "send_recv=1" in arguments else ["compute", "exchanges"]
        expect(labels == [f"stage {p} {lane}" for p in range(len(stages)) for lane in lanes], arguments, labels)
        events = json.loads(output(*arguments, "--trace"))["traceEvents"]
        expect(len([e for e in events if e["ph"] == "X"]) == sum(map(len, stages)), arguments, "events")


def documented():
    """docs/concepts.md shows what its command draws."""
    command = "--nodes 2,2 --svg"
    PLAN.documented(DOCS, "nodes.svg", command, *command.split())


def bad_usage():
    expect_error("--node-cost, --multiprocessors, --exchanges, --shared-expert, --recompute, --route-ahead, --early, "
                 "--grad-sync and --encoder-pieces belong to --nodes", *PIPE, "--early")
    expect_error("--nodes and --print-csv: the table of steps has no nodes", *STEP, "--print-csv")
    expect_error("--pp, --micro-batches are missing; see 'mimo-plan schedule --help'", "--nodes", "2")
    expect_error("--nodes 0,0 has no layer, forward or backward", "--nodes", "0,0")
    expect_error("--nodes B must be from 0 to 1024, not 9999", "--nodes", "1,9999")
    expect_error("pattern, column 2: 'X' is no layer (M G * D C H + W - E)", *PIPE, "--nodes", "*X")
    expect_error("--nodes '[*E]|[*E]|[*E]|[*E]' has 2 chunks a stage over pp=2, and the schedule has 1", *PIPE,
                 "--nodes", "[*E]|[*E]|[*E]|[*E]")
    expect_error("--node-cost has 'mlq=3', and takes the parts of nodes as mlp=4 or mlp.dw=4 (.fwd, .replay, "
                 ".bwd, .dw)", *STEP, "--node-cost", "pre=1,mlq=3")
    expect_error("--node-cost has 'mlp.x=3', and takes the parts of nodes as mlp=4 or mlp.dw=4 (.fwd, .replay, "
                 ".bwd, .dw)", *STEP, "--node-cost", "mlp.x=3")
    expect_error("--node-cost mlp.dw must be at least 0, not -3", *STEP, "--node-cost", "mlp.dw=-3")
    expect_error("--exchanges has '16=x', and takes blocks and the cost of an exchange with them, as 16=5,32=3",
                 *STEP, "--exchanges", "16=x")
    expect_error("--exchanges has '0', and takes blocks and the cost of an exchange with them, as 16=5,32=3",
                 *STEP, "--exchanges", "0")
    expect_error("--exchanges has more than 8 budgets", *STEP, "--exchanges", "1,2,3,4,5,6,7,8,9")
    expect_error("--nodes: up to 344000000 nodes, and lists may have 8388608", "--pp", "2", "--micro-batches",
                 "10000", "--nodes", "716")


def bad_nodes():
    expect_error("schedule: lanes need 144 multiprocessors of 128 (stage 0; 4 of 132 stay free)", "--nodes", "1,1",
                 "--multiprocessors", "132", "--exchanges", "112")
    expect_error("schedule: a forward beside a backward, and no layer has an exchange to hide", *PIPE, "--nodes",
                 "[*-]|[*-]")
    expect_error("schedule: multi-token prediction of depth 2 (chunk 1): orders of nodes know depth 1", *PIPE,
                 "--nodes", "[*E]|[*E]/*-/*-")


PLAN.end(one_step, whole_schedule, encoder_in_pieces, budgets, json_of_nodes, picture, documented, bad_usage,
         bad_nodes)
