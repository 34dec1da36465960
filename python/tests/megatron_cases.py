"""The same bits as Megatron-LM's ColocatedBridgeCommunicator, where its rules hold; and beyond them.

Skipped where Megatron-LM is missing (megatron_import.py).
"""
import contextlib
import functools
import io
import logging
import types
from unittest import mock

import torch
import torch.distributed as dist

import mimo_bridge as mb
from megatron_import import CudaIsCpu, process_groups, tests_of_megatron, two_classes, whole
from rank_runner import case, raises, same
from tile_model import Side, dice, global_rows, gradient_of

DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def divisors(n):
    return [k for k in (1, 2, 4, 8) if n % k == 0]


def hyper(kind, spec, offset=0):
    dims = [part.split("=") for part in spec.split(",")]
    return kind([int(size) for _, size in dims], [name for name, _ in dims], offset, backend="gloo")


def both_ways(move, tile, seed):
    x = tile.clone().requires_grad_()
    y = move(x)
    y.backward(torch.full_like(y, seed))
    return y.detach(), x.grad


@case(4)
def megatrons_bits(comm):
    """All pairs of (tp, dp), forward and gradient, in three dtypes."""
    Communicator, HyperCommGrid = two_classes()
    roll, ran, n = dice(11), 0, comm.size
    with process_groups(comm):
        for src_tp in divisors(n):
            for dst_tp in divisors(n):
                layout, dtype = roll.choice(["bsh", "sbh"]), roll.choice(DTYPES)
                specs = [f"tp={tp},cp=1,pp=1,dp={n // tp}" for tp in (src_tp, dst_tp)]
                mapping = {letter: layout.index(letter) for letter in "bsh"}
                theirs = Communicator(*(hyper(HyperCommGrid, spec) for spec in specs), dim_mapping=mapping)
                bridge = mb.Bridge(*(mb.Grid(spec) for spec in specs), comm=comm, layout=layout)
                rows = global_rows(2 * n, 4, 3, dtype, ran)
                tile = Side(specs[0], 0, layout).tile(comm.rank, rows)
                results = [both_ways(move, tile, 1 + comm.rank // dst_tp)
                           for move in (theirs.communicate, bridge)]
                for name, one, other in zip(("forward", "gradient"), *results):
                    same(other, one, f"{bridge.extra_repr()} {name}")
                theirs.destroy()
                bridge.close()
                ran += 1
    assert ran == len(divisors(n)) ** 2


@case(4)
def groups_as_torch_wants_them(comm):
    """Grid.groups and a process group for Communicator: the same ranks, or an error everywhere."""
    _, HyperCommGrid = two_classes()
    with process_groups(comm):
        theirs = hyper(HyperCommGrid, "tp=2,dp=2")
        grid = mb.Grid("tp=2,dp=2")
        for dims in (["tp"], ["dp"], ["tp", "dp"]):
            assert theirs.get_rank_enum(dims) == grid.groups(*dims)
        with mb.Communicator(dist.group.WORLD) as same_ranks:
            assert (same_ranks.rank, same_ranks.size) == (comm.rank, comm.size)
            assert same_ranks.timeout == dist.distributed_c10d.default_pg_timeout, same_ranks.timeout
        pairs, _ = dist.new_subgroups_by_enumeration(grid.groups("tp"), backend="gloo")
        raises(mb.ArgumentError, "of 2 in the group", mb.Communicator, pairs)


@case(8)
def colocated_bits(comm):
    """50 random pairs of (tp, dp) through both classes: bits and attributes, under either rules."""
    upstream = whole()
    roll, ran = dice(12), 0
    with process_groups(comm):
        for _ in range(50):
            specs = [f"tp={tp},cp=1,pp=1,dp={8 // tp}" for tp in (roll.choice(divisors(8)) for _ in "12")]
            layout, dtype = roll.choice(["bsh", "sbh", "bh"]), roll.choice(DTYPES)
            mapping = {letter: layout.index(letter) for letter in layout}
            grids = [hyper(upstream.HyperCommGrid, spec) for spec in specs]
            theirs = upstream.Theirs(*grids, dim_mapping=mapping)
            rules = roll.choice(["bridge", "upstream"])
            ours = upstream.ours.ColocatedBridgeCommunicator(*grids, dim_mapping=mapping, comm=comm,
                                                             rules=rules)
            assert (ours.gather_pg is None) == (rules == "bridge" or theirs.gather_pg is None), specs
            tile = Side(specs[0], 0, layout).tile(comm.rank, global_rows(16, 4, 3, dtype, ran))
            seed = 1 + mb.Grid(specs[1]).coords(comm.rank)["dp"]
            results = [both_ways(one.communicate, tile, seed) for one in (theirs, ours)]
            for name, one, other in zip(("forward", "gradient"), *results):
                same(other, one, f"{specs} {layout} {name}")
            for name in ("direction", "scale", "gather_group_ranks", "rank_to_src_pos",
                         "rank_to_dest_pos", "src_tp_size", "src_dp_size", "dest_tp_size",
                         "dest_dp_size", "dim_mapping", "current_rank"):
                assert getattr(ours, name) == getattr(theirs, name), (specs, name, getattr(ours, name))
            for batch in (8, 16):
                assert ours.get_slice_info(batch) == theirs.get_slice_info(batch)
            assert (ours.is_fan_in(), ours.is_fan_out()) == (theirs.is_fan_in(), theirs.is_fan_out())
            theirs.destroy()
            ours.destroy()
            ours.destroy()
            ran += 1
    assert ran == 50


@case(8)
def colocated_refusals(comm):
    """rules="upstream" refuses what Megatron refuses, with its sentences. Other mistakes: ours."""
    upstream = whole()
    kind = upstream.ours.ColocatedBridgeCommunicator
    refused = [
        (("dp=8", 0), ("tp=4,dp=2", 0)), (("tp=2,dp=4", 0), ("tp=8", 0)),
        (("tp=2,dp=4", 0), ("tp=2,dp=2", 4)), (("tp=2,dp=2", 0), ("tp=2,dp=2", 4)),
        (("tp=2,pp=2,dp=2", 0), ("tp=4,dp=2", 0)), (("tp=4,dp=2", 0), ("tp=2,pp=2,dp=2", 0)),
        (("tp=2,cp=2,dp=2", 0), ("tp=4,dp=2", 0)), (("tp=4,dp=2", 0), ("tp=2,cp=2,dp=2", 0)),
        (("tp=2,dp=3", 0), ("tp=3,dp=2", 0)),
    ]
    with process_groups(comm):
        for pair in refused:
            grids = [hyper(upstream.HyperCommGrid, *one) for one in pair]
            theirs = raises(ValueError, "", upstream.Theirs, *grids)
            ours = raises(ValueError, "", kind, *grids, comm=comm, rules="upstream")
            assert str(ours) == str(theirs), (pair, ours, theirs)
        grids = [hyper(upstream.HyperCommGrid, spec) for spec in ("tp=4,dp=2", "tp=2,dp=4")]
        theirs = upstream.Theirs(*grids, dim_mapping={"b": 0, "h": 1})
        for rules in ("bridge", "upstream"):
            ours = kind(*grids, dim_mapping={"b": 0, "h": 1}, comm=comm, rules=rules)
            x = torch.zeros(3, 8)
            words = str(raises(ValueError, "", theirs.communicate, x))
            assert str(raises(ValueError, "", ours.communicate, x)) == words
            assert str(raises(ValueError, "", ours.get_slice_info, 3)) == words
            # on one rank alone it is an error of all
            raises(ValueError, "", ours.communicate, torch.zeros(3 if comm.rank == 5 else 4, 8))
            same(ours.communicate(torch.ones(4, 8)), torch.ones(2, 8))
            ours.destroy()
            raises(mb.StateError, "closed", ours.communicate, torch.ones(4, 8))
        theirs.destroy()
        raises(ValueError, "rules are", kind, *grids, comm=comm, rules="none")
        # Mistakes of one rank are errors of all.
        raises(ValueError, "rules are", kind, *grids, comm=comm, rules="none" if comm.rank == 3 else "bridge")
        raises(mb.MismatchError, "rules=bridge", kind, *grids, comm=comm,
               rules="bridge" if comm.rank == 3 else "upstream")
        for mapping in ({"h": 0, "b": 1}, {"b": 0, "s": 2, "h": 3}, {"b": 0, "h": 0}):
            raises(ValueError, "dim_mapping", kind, *grids, dim_mapping=mapping, comm=comm)
        twice = types.SimpleNamespace(dim_names=["dp", "dp"], shape=[1, 8], rank_offset=0)
        raises(ValueError, "each dimension has one", kind, twice, twice, comm=comm)
        expert = hyper(upstream.HyperCommGrid, "tp=2,ep=2,dp=2")
        raises(ValueError, "ep=2", kind, grids[0], expert, comm=comm)
        raises(ValueError, "do not split", kind(hyper(upstream.HyperCommGrid, "tp=2,dp=3"), hyper(
            upstream.HyperCommGrid, "tp=3,dp=2"), dim_mapping={"b": 0, "h": 1}, comm=comm).communicate,
            torch.zeros(1, 2))


@case(8)
def colocated_beyond_megatron(comm):
    """Grids that Megatron refuses: forward and gradient against slices of the global tensor."""
    upstream = whole()
    pairs = [
        ("tp=1,dp=8", "tp=2,cp=2,dp=2"), ("tp=2,cp=2,dp=2", "tp=1,cp=1,dp=8"), ("dp=8", "dp=4,cp=2"),
        ("tp=2,dp=4", "tp=2,pp=2,dp=2"), ("tp=2,dp=4", "tp=1,cp=2,pp=2,dp=2"), ("tp=2,dp=3", "tp=3,dp=2"),
        ("tp=2,dp=4", "cp=2,dp=4"), ("dp=4,tp=2", "tp=2,dp=4"), ("tp=1,pp=1,dp=8", "tp=1,pp=1,dp=8"),
    ]
    with process_groups(comm):
        for number, (src, dst) in enumerate(pairs):
            for layout in ("bsh", "sbh", "bh"):
                ours = upstream.ours.ColocatedBridgeCommunicator(
                    hyper(upstream.HyperCommGrid, src), hyper(upstream.HyperCommGrid, dst), comm=comm,
                    dim_mapping={letter: layout.index(letter) for letter in layout})
                rows = global_rows(24, 2, 3, torch.float32, number)
                sides = Side(src, 0, layout), Side(dst, 0, layout)
                wanted = sides[1].tile(comm.rank, rows)
                mine, summed = gradient_of(sides[1], comm.size, comm.rank, rows.shape, rows.dtype)
                x = sides[0].tile(comm.rank, rows).requires_grad_()
                y = ours.communicate(x)
                same(y.detach(), wanted, f"{src} {dst} {layout}")
                y.backward(torch.zeros_like(y) if mine is None else mine)
                same(x.grad, sides[0].tile(comm.rank, summed), f"{src} {dst} {layout} gradient")
                ours.destroy()
        # rows that differ from rank to rank, none on some
        ours = upstream.ours.ColocatedBridgeCommunicator(
            hyper(upstream.HyperCommGrid, "tp=1,dp=8"), hyper(upstream.HyperCommGrid, "tp=2,cp=2,dp=2"),
            dim_mapping={"b": 0, "h": 1}, comm=comm)
        counts, dp = [3, 0, 5, 1, 0, 2, 4, 0], comm.rank // 4
        rows = global_rows(1, 15, 4, torch.float32)[0]
        for taken in ((6, 9), (0, 15), (15, 0)):
            x = rows[sum(counts[:comm.rank]):][:counts[comm.rank]].clone().requires_grad_()
            y = ours.communicate(x, rows=taken[dp])
            same(y.detach(), rows[taken[0] * dp:][:taken[dp]])
            y.backward(y.detach() * (1 + comm.rank // 2 % 2))  # of the two cp ranks: 1 and 2
            same(x.grad, x.detach() * 3)
        raises(ValueError, "", ours.communicate, x, rows=8)  # 16 of 15


@case(8)
def megatrons_own_tests(comm):
    """Megatron's tests of its communicator, unedited, of this package's with rules="upstream"."""
    pytest, file = tests_of_megatron("models/mimo/test_mimo_colocated_communicator.py")
    upstream, report, root = whole(), io.StringIO(), logging.getLogger()
    state = root.level, root.handlers[:]  # the tests change them
    kind = functools.partial(upstream.ours.ColocatedBridgeCommunicator, comm=comm, rules="upstream")
    counts = {}

    class Counter:
        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.failed:
                counts[report.outcome] = counts.get(report.outcome, 0) + 1

    try:
        with process_groups(comm), CudaIsCpu(), contextlib.redirect_stdout(report), mock.patch.object(
                upstream.ours._upstream, "ColocatedBridgeCommunicator", kind):
            pytest.main(["-q", "--noconftest", "--capture=no", "-p", "no:cacheprovider", "-p", "no:logging",
                         "-W", "ignore", "--rootdir", str(file.parent), str(file)], plugins=[Counter()])
    finally:
        root.setLevel(state[0])
        root.handlers[:] = state[1]
    assert set(counts) == {"passed"} and counts["passed"] >= 24, report.getvalue()
