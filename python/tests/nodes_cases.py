"""Nodes: what the C tests say of orders is not repeated here. Lists reach Python whole, with their names, waits and
times; the goldens of the specification stand once more, as Python makes them."""
import json
import xml.etree.ElementTree as xml

import mimo_bridge as mb
from rank_runner import case, raises

# layers forward, layers backward -> nodes of the step
COUNTS = {(1, 1): 16, (1, 2): 22, (2, 1): 20, (2, 2): 26, (3, 2): 30, (4, 4): 46, (0, 2): 15, (2, 0): 11}
ONE_BESIDE_ONE = ("f.pre_process b.post_process.bwd b.combine0 f.pre0 b.mlp0.bwd f.dispatch0 b.mlp0.dw b.dispatch0 "
                  "f.mlp0 f.combine0 b.pre0.bwd f.send_recv b.send_recv b.pre0.dw f.post_process b.pre_process.bwd")


def step(forward, backward, kind="mixture", **more):
    """One step of equal layers; 0: no such half."""
    return mb.Nodes.of_step(*([kind] * n if n else None for n in (forward, backward)), **more)


@case(1)
def orders(comm):
    for (forward, backward), count in COUNTS.items():
        assert len(step(forward, backward).of()) == count, (forward, backward)
    assert len(step(4, 4, "shared").of()) == 62 and len(step(0, 2, "dense").of()) == 11
    nodes = step(1, 1)
    assert " ".join(map(str, nodes.of())) == ONE_BESIDE_ONE and str(nodes) == f"step: {ONE_BESIDE_ONE}\n"
    moves = [str(node) for node in nodes.of() if node.lane in ("exchanges", "hops")]
    assert moves == ["b.combine0", "f.dispatch0", "b.dispatch0", "f.combine0", "f.send_recv", "b.send_recv"], moves
    early = str(step(1, 1, early=True, grad_sync=True))
    assert early.index("b.pre0.bwd") < early.index("f.mlp0") and early.endswith("b.grad_sync\n")
    nodes.check()


@case(1)
def orders_of_schedules(comm):
    """Every stage of a pipeline: names are those of the text, and each node stands behind what it waits for."""
    schedule = mb.Schedule("interleaved", stages=2, micro_batches=4, chunks=2, overlap=True)
    kinds = [["mixture", mb.NodeLayer("shared", "send_rows")], ["dense", ("pre",)], [], [("mlp",), (
        "pre", "dispatch", "mlp", "combine", "post")]]
    nodes = mb.Nodes(schedule, kinds, grad_sync=True)
    lines = iter(str(nodes).splitlines())
    for stage in range(2):
        found, steps = nodes.of(stage), schedule.steps(stage)
        for number in range(len(steps)):
            prefix, _, names = next(lines).partition(": ")
            assert prefix.startswith(f"stage {stage}, {steps[number].kind}"), prefix
            assert names == " ".join(str(node) for node in found if node.step == number)
        for i, places in enumerate(nodes.waits(stage)):
            assert all(p < i and found[p].lane != found[i].lane for p in places), (stage, i, places)
        assert all(begin <= end for begin, end, _ in nodes.times(stage)) and len(nodes.times(stage)) == len(found)
        assert {node.lane for node in found} == {"compute", "exchanges", "hops", "bridge", "sync"}
    assert any(str(node) == "b.dispatch1.replay" for node in nodes.of(0))
    assert any(str(node) == "b.post1.bwd" for node in nodes.of(1))


@case(1)
def waits_and_times(comm):
    nodes = step(1, 1)
    names = [str(node) for node in nodes.of()]
    edges = {names[i]: [names[p] for p in places] for i, places in enumerate(nodes.waits())}
    assert (edges["f.dispatch0"], edges["f.mlp0"], edges["f.send_recv"], edges["b.mlp0.dw"]) == (
        ["f.pre0"], ["f.dispatch0"], ["f.combine0"], []), edges
    for forward, backward, move, exposed, moves in ((1, 1, 2, 0, 8), (4, 4, 2, 0, 32), (2, 1, 2, 2, 12),
                                                    (16, 16, 4, 1, 256), (16, 16, 8, 176, 512)):
        report = step(forward, backward, costs={"dispatch": move, "combine": move}).report()
        wanted = 7 * forward + 14 * backward
        assert (report.local, report.time - exposed, report.serial - moves) == (wanted,) * 3, report
        assert report.hidden == 1000 * (moves - exposed) // moves
    assert nodes.report().time == 21 and nodes.report().serial == 29
    # of 132 multiprocessors a move takes 32, and what computes beside it is sized for the rest
    device = step(1, 1, multiprocessors=132, lanes={"exchanges": 32})
    times = dict(zip(names, device.times()))
    assert times["f.pre0"] == (0, 4, 100) and times["b.combine0"] == (0, 2, 32) and times["f.mlp0"][2] == 132
    assert device.report().lanes == 32 + 4 * 8 and device.hash != nodes.hash
    # a part's cost is that of all its passes; one of a pass goes before it, whatever the order
    costly = step(0, 1, costs={"b.mlp.dw": 50, "mlp": 1, "f.pre": 7, "b.combine": 0, "b.pre.bwd": 9, "b.mlp.replay": 2})
    assert costly.report().local == 1 + 50 + 9 + 3 and costly.hash == step(0, 1).hash
    own = mb.Nodes.of_step(["mixture", mb.NodeLayer(costs={"mlp": 100})], None)
    assert own.report().local == 3 + 4 + 3 + 100


@case(1)
def pictures(comm):
    schedule = mb.Schedule(stages=1, micro_batches=3, encoder_group=0, overlap=True)
    nodes = mb.Nodes(schedule, [["mixture"] * 2])
    assert xml.fromstring(nodes.svg()).tag.endswith("svg")
    events = json.loads(nodes.trace())["traceEvents"]
    assert len({event["tid"] for event in events if event["ph"] == "X"}) >= 2
    assert nodes.hash == mb.Nodes(schedule, [("mixture", ["pre", "mlp", "combine", "dispatch"])]).hash
    assert nodes.hash != mb.Nodes(schedule, [["mixture", "dense"]]).hash


@case(1)
def refusals(comm):
    schedule = mb.Schedule(stages=2, micro_batches=4, encoder_group=0, overlap=True)
    mixtures = [["mixture"]] * 2
    raises(mb.ArgumentError, "3 lists of layers, and 2 stages with 1 chunks have 2", mb.Nodes, schedule,
           [*mixtures, []])
    raises(mb.ArgumentError, "the schedule is 'F0'", mb.Nodes, "F0", mixtures)
    raises(mb.ArgumentError, "'mixture' is no list of layers", mb.Nodes, schedule, ["mixture"] * 2)
    raises(mb.ArgumentError, "'experts' is no part of a layer (pre, dispatch", mb.Nodes, schedule, [["experts"]] * 2)
    raises(mb.ArgumentError, "layer 0 of chunk 1 has the parts 0x3: a mixture has pre, dispatch, mlp and combine",
           mb.Nodes, schedule, [["mixture"], [("pre", "dispatch")]])
    raises(mb.ArgumentError, "no layer has an exchange to hide", mb.Nodes, schedule, [["dense"]] * 2)
    raises(mb.ArgumentError, "recompute is none, keep_rows, send_rows, not 'all'", step, 1, 1,
           mb.NodeLayer(recompute="all"))
    raises(mb.ArgumentError, "has the parts 0x41", mb.Nodes.of_step, [("pre", "post"), "dense"], None)
    raises(mb.ArgumentError, "lanes need 144 multiprocessors of 128", mb.Nodes, mb.Schedule(
        stages=3, micro_batches=4, overlap=True), [["mixture"]] * 3, multiprocessors=132, lanes={"exchanges": 96})
    raises(mb.ArgumentError, "'copies' is no lane", step, 1, 1, lanes={"copies": 1})
    for wrong in ("mlps", "f.mlp.bwd", "b.mlp.forward", "", "f.", "x.mlp"):
        raises(mb.ArgumentError, f"{wrong!r} is no node", step, 1, 1, costs={wrong: 1})
    raises(mb.ArgumentError, "the cost of f.mlp0 is -1", step, 1, 1, costs={"mlp": -1})
    raises(mb.SizeOverflowError, "the cost of mlp", step, 1, 1, costs={"mlp": 2**63})
    raises(mb.ArgumentError, "both chunks are", mb.Nodes.of_step, None, None)
    nodes = step(1, 1)
    for call in (nodes.of, nodes.waits, nodes.times):
        raises(mb.ArgumentError, "there is no stage 1 of 1", call, 1)
    raises(TypeError, "can't be copied", nodes.__reduce__)
