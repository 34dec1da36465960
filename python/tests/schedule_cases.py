"""Schedules: what the C tests say of lists is not repeated here. Lists reach Python whole, and torch's own
functions take the tables and make some that are read."""
import json
import types
import xml.etree.ElementTree as xml

import mimo_bridge as mb
from rank_runner import Skip, case, raises

# kind -> what else its schedule of 4 stages and 8 micro-batches takes
KINDS = {"1f1b": {}, "zero_bubble": {}, "interleaved": {"chunks": 2},
         "1f1b with overlap": {"overlap": True}}


def made(kind, **more):
    return mb.Schedule(kind.split()[0], stages=4, micro_batches=8, **{**KINDS[kind], **more})


def torch_schedules():
    """Imported by the rank that asks: it takes a second."""
    from torch.distributed.pipelining import schedules
    return schedules


def actions_of(table):
    """A table as torch reads it."""
    return {rank: [torch_schedules()._Action.from_str(cell) for cell in line.split(",")]
            for rank, line in enumerate(table.splitlines())}


def table_of(actions):
    """What torch writes."""
    return "".join(",".join("" if a is None else str(a) for a in actions[rank]) + "\r\n"
                   for rank in sorted(actions))


@case(1)
def lists_of_steps(comm):
    schedule = mb.Schedule(stages=2, micro_batches=4, encoder_alive=3)
    text = str(schedule)
    assert text.splitlines()[0] == ("stage 0: E0 BF0 F0 E1 BF1 F1 E2 BF2 B0 BB0 EB0 F2 B1 BB1 E3 BF3 EB1 F3 "
                                    "B2 BB2 EB2 B3 BB3 EB3")
    for stage, line in enumerate(text.splitlines()):
        steps = schedule.steps(stage)
        assert f"stage {stage}: " + " ".join(f"{s.kind}{s.index}" for s in steps) == line
        times = schedule.times(stage)
        assert len(times) == len(steps) and all(begin <= end for begin, end in times)
    assert max(end for stage in (0, 1) for _, end in schedule.times(stage)) == schedule.report().time == 68
    assert mb.Schedule(stages=2, micro_batches=4, overlap=True, encoder_group=0).steps(0)[2] == mb.Step(
        "FB", 2, 0, 0, 0)
    assert mb.Schedule("interleaved", stages=2, micro_batches=4, chunks=2,
                       encoder_group=0).steps(1)[2:4] == [mb.Step("F", 0, 1), mb.Step("B", 0, 1)]
    schedule.check()


@case(1)
def numbers_of_a_schedule(comm):
    schedule = mb.Schedule("zero_bubble", stages=4, micro_batches=16, encoder_alive=5)
    report = schedule.report()
    assert (report.time, report.three_phases, report.llm_alone, report.lower_bound) == (248, 252, 204, 240)
    assert report.idle == 4 * report.time - 4 * 240 and report.least_alive == 4
    memory = [schedule.memory(stage) for stage in range(4)]
    assert [m.weights_waiting for m in memory] == [1, 2, 3, 4]
    assert report.weights_waiting == 4 and report.encoder_alive == 5
    assert report.chunks_alive == report.saved_states == memory[0].saved_states == 4
    # other costs say what the same lists would take
    alone = mb.Schedule(stages=2, micro_batches=4, encoder_group=0)
    assert alone.report({"B": 4}).time == 40 and alone.report().time == 60
    assert alone.times(0, {"F": 1, "B": 1})[0] == (0, 1)
    with_costs = mb.Schedule(stages=2, micro_batches=4, encoder_group=0, costs={"F": 1, "B": 1, "hop": 1})
    assert with_costs.report().time > 10 and with_costs.hash == alone.hash
    assert alone.hash != mb.Schedule(stages=2, micro_batches=5, encoder_group=0).hash


@case(1)
def pictures_of_a_schedule(comm):
    schedule = mb.Schedule(stages=2, micro_batches=4)
    assert xml.fromstring(schedule.svg()).tag.endswith("svg")
    events = json.loads(schedule.trace())["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == sum(len(schedule.steps(p)) for p in (0, 1))


@case(1)
def tables_that_torch_takes(comm):
    for kind in KINDS:
        schedule = made(kind, encoder_alive=0)
        chunks = KINDS[kind].get("chunks", 1)
        actions = actions_of(schedule.csv())
        ranks = torch_schedules()._validate_schedule(actions, 4, 4 * chunks, 8)
        assert ranks == {number: number % 4 for number in range(4 * chunks)}
        if "overlap" not in kind:  # torch's simulator knows no pairs
            torch_schedules()._simulate_comms_compute(
                torch_schedules()._add_send_recv(actions_of(schedule.csv()), lambda s: s % 4, 4 * chunks),
                lambda s: s % 4, 4 * chunks)
        again = mb.Schedule.from_csv(table_of(actions), stages=4, micro_batches=8, chunks=chunks)
        assert again.hash == schedule.hash and again.csv() == schedule.csv()


def torch_made(name, stages, chunks, micro_batches):
    """The table of one of torch's schedules, without its process group and modules."""
    kind = getattr(torch_schedules(), name, None)
    if kind is None:
        raise Skip(f"torch has no {name}")
    own = types.SimpleNamespace(
        pp_group_size=stages, n_local_stages=chunks, num_stages=stages * chunks,
        _num_stages=stages * chunks, _n_microbatches=micro_batches, microbatches_per_round=stages,
        number_of_rounds=micro_batches // stages, _stages=[None] * chunks)
    if chunks == 1:
        return kind._get_pipeline_order(own)
    return {rank: kind._calculate_single_rank_operations(own, rank) for rank in range(stages)}


@case(1)
def tables_that_torch_makes(comm):
    for name, chunks in (("ScheduleInterleaved1F1B", 2), ("ScheduleInterleavedZeroBubble", 2),
                         ("ScheduleInterleaved1F1B", 3), ("ScheduleLoopedBFS", 2),
                         ("ScheduleZBVZeroBubble", 2), ("ScheduleDualPipeV", 2), ("ScheduleGPipe", 1)):
        actions = torch_made(name, 4, chunks, 16)
        more = {"stages": 4, "micro_batches": 16, "chunks": chunks}
        if name == "ScheduleLoopedBFS":  # micro-batches go back in the other order
            raises(mb.ArgumentError, "B1.0 before B0.0 (stage 0, step 62): backwards of a chunk ascend by "
                   "micro-batch, so that gradients, which are sums, have the same bits under every schedule; "
                   "any_order takes them", mb.Schedule.from_csv, table_of(actions), **more)
            more["any_order"] = True
        schedule = mb.Schedule.from_csv(table_of(actions), encoder_group=0, **more)
        kept = {rank: [a for a in row if a is not None and "REDUCE_GRAD" not in str(a)]
                for rank, row in actions.items()}
        assert actions_of(schedule.csv()) == kept, name
        beside = mb.Schedule.from_csv(table_of(actions), **more)
        report = beside.report()
        assert schedule.report().time == report.llm_alone < report.time <= report.three_phases, name


@case(1)
def schedules_that_are_refused(comm):
    small = {"stages": 2, "micro_batches": 4}
    raises(mb.ArgumentError, "encoder_alive 1: stage 0 needs 2 groups", mb.Schedule, encoder_alive=1, **small)
    raises(mb.ArgumentError, "0 micro-batches over pp=2", mb.Schedule, stages=2, micro_batches=0)
    raises(mb.ArgumentError, "kind is 1f1b, interleaved, zero_bubble, forward, not '2f2b'", mb.Schedule, "2f2b",
           **small)
    raises(mb.ArgumentError, "'X' is no step", mb.Schedule, costs={"X": 1}, **small)
    raises(mb.ArgumentError, "the cost of F is -1", mb.Schedule, costs={"F": -1}, **small)
    raises(mb.SizeOverflowError, "the cost of F", mb.Schedule, costs={"F": 2**63}, **small)
    raises(mb.ArgumentError, "8388609 micro-batches over pp=2 with 1 chunks: a schedule has at most 16777216 "
           "forwards", mb.Schedule, stages=2, micro_batches=2**23 + 1)
    raises(mb.ArgumentError, "stages is a whole number", mb.Schedule, stages="2", micro_batches=4)
    raises(mb.ArgumentError, "row 1, cell 2: 'junk' is no step", mb.Schedule.from_csv, "0F0,junk", stages=1,
           micro_batches=1)
    raises(mb.ArgumentError, "stuck: stage 0 at B0 waits for B0 of stage 1", mb.Schedule.from_csv,
           "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", stages=2, micro_batches=2)
    raises(mb.ArgumentError, "is no text", mb.Schedule.from_csv, b"0F0", stages=1, micro_batches=1)
    schedule = mb.Schedule(**small)
    raises(mb.ArgumentError, "Schedule.steps: there is no stage -1 of 2", schedule.steps, -1)
    raises(mb.ArgumentError, "Schedule.memory: there is no stage 2 of 2", schedule.memory, 2)
    raises(mb.ArgumentError, "Schedule.times: there is no stage 2 of 2", schedule.times, 2)
    raises(TypeError, "can't be copied", schedule.__reduce__)
