"""The same bits as Megatron-LM's ColocatedBridgeCommunicator, where its rules hold.

MIMO_MEGATRON names a folder that has `megatron`; without it these cases are skipped. Two of its files
are loaded, without the packages around them, and its groups are gloo's.
"""
import importlib
import os
import pathlib
import sys
import tempfile
import types

import torch
import torch.distributed as dist

import mimo_bridge as mb
from rank_runner import Skip, case, gather, same
from tile_model import dice, global_rows


def upstream(comm):
    """Megatron's communicator and grid. Starts torch.distributed with gloo."""
    folder = os.environ.get("MIMO_MEGATRON", "")
    found = gather((pathlib.Path(folder) / "megatron/core/hyper_comm_grid.py").is_file())
    if not all(found):
        raise Skip("MIMO_MEGATRON names no folder with Megatron-LM")
    sys.dont_write_bytecode = True
    for name in ("megatron", "megatron.core"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.__path__ = [str(pathlib.Path(folder, *name.split(".")))]
    path = "megatron/core/models/mimo/comm/colocated_communicator.py"
    spec = importlib.util.spec_from_file_location("colocated", pathlib.Path(folder) / path)
    colocated = importlib.util.module_from_spec(spec)
    sys.modules["colocated"] = colocated
    spec.loader.exec_module(colocated)
    if not dist.is_initialized():
        store = gather(tempfile.mktemp(prefix="mimo-store-"))[0]
        os.environ["WORLD_SIZE"] = str(comm.size)  # HyperCommGrid reads it
        dist.init_process_group("gloo", store=dist.FileStore(store, comm.size), rank=comm.rank,
                                world_size=comm.size)
    return colocated.ColocatedBridgeCommunicator, sys.modules["megatron.core.hyper_comm_grid"].HyperCommGrid


def with_gloo(function, *arguments):
    """A call in which groups that ask for NCCL get gloo."""
    make = dist.new_subgroups_by_enumeration

    def make_gloo(ranks, backend=None, **more):
        made = make(ranks, backend="gloo", **more)
        dist.barrier()
        return made

    dist.new_subgroups_by_enumeration = make_gloo
    try:
        return function(*arguments)
    finally:
        dist.new_subgroups_by_enumeration = make


def divisors(n):
    return [k for k in (1, 2, 4, 8) if n % k == 0]


@case(4, 8)
def megatrons_bits(comm):
    """All pairs of (tp, dp), forward and gradient, in three dtypes."""
    Communicator, HyperCommGrid = upstream(comm)
    roll, ran, n = dice(11), 0, comm.size
    for src_tp in divisors(n):
        for dst_tp in divisors(n):
            layout = roll.choice(["bsh", "sbh"])
            dtype = roll.choice([torch.float32, torch.float64, torch.bfloat16])
            grids = [HyperCommGrid([tp, 1, 1, n // tp], ["tp", "cp", "pp", "dp"], backend="gloo")
                     for tp in (src_tp, dst_tp)]
            mapping = {letter: layout.index(letter) for letter in "bsh"}
            theirs = with_gloo(lambda: Communicator(*grids, dim_mapping=mapping))
            bridge = mb.Bridge(mb.Grid(f"tp={src_tp},cp=1,pp=1,dp={n // src_tp}"),
                               mb.Grid(f"tp={dst_tp},cp=1,pp=1,dp={n // dst_tp}"), comm=comm, layout=layout)
            whole = global_rows(2 * n, 4, 3, dtype, ran)
            first, count = bridge.samples("src", 2 * n)
            tile = whole[first:first + count]
            tile = tile.transpose(0, 1).contiguous() if layout == "sbh" else tile.clone()
            results = []
            for move in (theirs.communicate, bridge):
                x = tile.clone().requires_grad_()
                y = move(x)
                y.backward(torch.full_like(y, 1 + comm.rank // dst_tp))
                results.append((y.detach(), x.grad))
            for name, one, other in zip(("forward", "gradient"), *results):
                same(other, one, f"{bridge.extra_repr()} {name}")
            theirs.destroy()
            bridge.close()
            ran += 1
    assert ran == len(divisors(n)) ** 2
    dist.barrier()
    dist.destroy_process_group()
    os.environ.pop("WORLD_SIZE")


@case(4)
def groups_as_torch_wants_them(comm):
    """Grid.groups and a process group for Communicator: the same ranks, or an error everywhere."""
    Communicator, HyperCommGrid = upstream(comm)
    theirs = HyperCommGrid([2, 2], ["tp", "dp"], backend="gloo")
    grid = mb.Grid("tp=2,dp=2")
    for dims in (["tp"], ["dp"], ["tp", "dp"]):
        assert theirs.get_rank_enum(dims) == grid.groups(*dims)
    with mb.Communicator(dist.group.WORLD) as same_ranks:
        assert (same_ranks.rank, same_ranks.size) == (comm.rank, comm.size)
        assert same_ranks.timeout == dist.distributed_c10d.default_pg_timeout, same_ranks.timeout
    pairs, _ = dist.new_subgroups_by_enumeration(grid.groups("tp"), backend="gloo")
    try:
        mb.Communicator(pairs)
    except mb.ArgumentError as error:
        assert "of 2 in the group" in str(error), error
    else:
        raise AssertionError("a group of two of four ranks was taken")
    dist.barrier()
    dist.destroy_process_group()
    os.environ.pop("WORLD_SIZE")
