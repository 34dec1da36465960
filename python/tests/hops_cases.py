"""Whether hops can hang where a send waits for its receiver, as NCCL's large ones do. gloo buffers, so no call over
it can tell: this simulates devices, with streams in hardware queues, and a host that never waits."""
import importlib
import inspect
import itertools
from collections import deque
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist

import mimo_bridge as mb
from megatron_import import whole
from rank_runner import case


class Op:
    """What a stream runs. It starts when the one before it in its stream and what it waits for have ended, and ends
    when all of `meets` have started: itself, a send and its receive, a call of a bridge on all stages."""

    def __init__(self, stream, waits=()):
        self.stream, self.waits, self.meets = stream, list(waits), [self]
        self.started = self.ended = False

    def end(self):
        self.ended = self.ended or all(op.started for op in self.meets)
        return self.ended


def programs(lists, group_of):
    """The ops of each stage in the order in which its host enqueues them. Stream 0 computes; that of a group runs its
    sends or receives, which begin behind what has been enqueued before, as torch's do."""
    met = {}

    def meet(key, op):
        met.setdefault(key, []).append(op)
        op.meets = met[key]
        return op

    def of_stage(p, steps):
        made, last, waits = [], [], []

        def compute(op):
            nonlocal last, waits
            made.append(op)
            last, waits = [op], []

        def hop(kind, index, sender, receiver):
            made.append(meet((kind, index, sender), Op(group_of(sender, receiver), last + waits)))
            return made[-1]

        for step in steps:
            way = {"F": 1, "B": -1}.get(step.kind, 0)
            if way and 0 <= p - way < len(lists):
                waits.append(hop(step.kind, step.index, p - way, p))
            op = Op(0, waits)
            compute(meet((step.kind, step.index), op) if step.kind in ("BF", "BB") else op)
            if way and 0 <= p + way < len(lists):
                hop(step.kind, step.index, p, p + way)
        return made

    return [of_stage(p, steps) for p, steps in enumerate(lists)]


def hangs(lists, group_of, queues):
    """Streams share hardware queues in turn. A queue starts ops in their order: one that can't start yet stands in
    front of all behind it, also of other streams."""
    waiting = []
    for ops in programs(lists, group_of):
        before, mine = {}, [[] for _ in range(queues)]
        for op in ops:
            op.waits += [before[op.stream]] if op.stream in before else []
            before[op.stream] = op
            mine[op.stream % queues].append(op)
        waiting += [queue[::-1] for queue in mine if queue]
    moved = True
    while moved:
        moved = False
        for queue in waiting:
            while queue and all(op.end() for op in queue[-1].waits):
                queue.pop().started = moved = True
    return any(waiting)


def lists_of(counts):
    for stages, count in itertools.product((2, 3, 4, 8), counts):
        least = mb.Schedule(stages=stages, micro_batches=count).report().least_alive
        for alive in sorted({0, least, least + 1, 2 * stages}):
            if alive == 0 or alive >= least:
                made = mb.Schedule(stages=stages, micro_batches=count, encoder_alive=alive)
                yield [made.steps(p) for p in range(stages)]


def expect_no_hang(comm, queues, *counts):
    """With the groups of hops_of no list hangs, whatever the number of hardware queues. With a group for both
    directions, or one of all stages, each does."""
    whole()
    hops_of = importlib.import_module("mimo_bridge._hops").hops_of
    lists = list(lists_of(*counts))[comm.rank::comm.size]
    for one in lists:
        pairs = hops_of([range(len(one))])
        assert len(set(pairs)) == len(pairs) == 2 * (len(one) - 1), pairs
        what = f"{len(one)} stages, {len(one[0])} steps"
        for many in queues:
            assert not hangs(one, lambda *pair: 1 + pairs.index(pair), many), f"{what}, {many} queues"
        for wrong in (lambda a, b: 1 + min(a, b), lambda *_: 1):
            assert hangs(one, wrong, 32), f"{what} do not hang"
    assert len(lists) >= 8


@case(4, on="cpu")
def hops_never_hang(comm):
    expect_no_hang(comm, (1, 3, 32), (2, 4, 8))


@case(4, on="cpu", long=True)
def hops_never_hang_in_any_list(comm):
    expect_no_hang(comm, (1, 2, 3, 4, 8, 32), (2, 3, 4, 5, 7, 8, 16, 31))


@case(4, on="cpu")
def hops_in_one_order(comm):
    """Used once each in their order, no rank waits for one that waits for it: a rank's first pair is its peer's too."""
    whole()
    hops_of = importlib.import_module("mimo_bridge._hops").hops_of
    for chains in ([[0, 1]], [[0, 2, 4], [1, 3, 5]], [[0, 4, 8, 12, 16], [1, 5, 9, 13, 17]], [[3], [4]]):
        todo = hops_of(chains)
        rounds = 0
        while todo:
            firsts = {}
            for pair in todo:
                for rank in pair:
                    firsts.setdefault(rank, pair)
            done = {pair for pair in todo if firsts[pair[0]] == firsts[pair[1]] == pair}
            assert done, todo
            todo = [pair for pair in todo if pair not in done]
            rounds += 1
        assert rounds <= 4, rounds  # whatever the number of stages


@case(4, on="cpu")
def hops_as_megatron_calls_them(comm):
    """Hops has all that Megatron's loop calls, with the parameters of Megatron's own communicator."""
    whole()
    hops = importlib.import_module("mimo_bridge._hops").Hops
    loop = inspect.getsource(importlib.import_module(
        "megatron.core.pipeline_parallel.schedules").forward_backward_pipelining_without_interleaving)
    called = {name for name in dir(hops.__mro__[1]) if f"p2p_communicator.{name}(" in loop}
    assert len(called) == 6, called
    for name in called:
        mine, theirs = (list(inspect.signature(vars(kind)[name]).parameters) for kind in hops.__mro__[:2])
        assert mine == theirs, (name, mine, theirs)


@case(4, on="cpu")
def sends_keep_their_rows(comm):
    """Megatron takes the memory of an output away behind its send, which may not be done then."""
    whole()
    kind, rows = importlib.import_module("mimo_bridge._hops").Hops, torch.arange(12.0).reshape(4, 3)
    hops, output = kind.__new__(kind), rows * 1
    hops._sent, hops._groups = deque(), SimpleNamespace(of={(comm.rank, 9): None})
    with mock.patch.object(dist, "isend") as isend, mock.patch.object(dist, "get_rank", lambda: comm.rank):
        hops._send(output, 9, False)
        importlib.import_module("megatron.core.pipeline_parallel.schedules").deallocate_output_tensor(output, True)
    assert output.numel() == 1 and torch.equal(isend.call_args.args[0], rows)
