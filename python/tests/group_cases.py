"""Groups of ranks as communicators of their own."""
import torch

import mimo_bridge as mb
from rank_runner import case, gather, raises, same


@case(4, 8)
def groups_of_ranks(comm):
    """Ranks, order and rows are those of the group; one is made for equal grids and dimensions."""
    grid = mb.Grid(f"etp=2,ep=2,edp={comm.size // 4}")
    group = comm.group(grid, "ep", "etp")
    ranks = next(ranks for ranks in grid.groups("etp", "ep") if comm.rank in ranks)
    assert (group.rank, group.size) == (ranks.index(comm.rank), 4)
    assert gather((comm.rank // 4, group.rank)) == [divmod(rank, 4) for rank in range(comm.size)]
    assert comm.group(mb.Grid(str(grid)), "etp", "ep") is group
    other = comm.group(grid, "ep")
    assert other is not group and (other.rank, other.size) == (comm.rank // 2 % 2, 2)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("tp=4,dp=1"), comm=group, layout="bsh", batch=4)
    x = torch.full((1, 1, 1), float(comm.rank), requires_grad=True)
    y = bridge(x)
    same(y[:, 0, 0].detach(), torch.tensor(ranks, dtype=torch.float32))
    y.sum().backward()
    same(x.grad, torch.ones(1, 1, 1))
    other.barrier()
    children = len(comm._children)
    other.close()
    assert other.closed and len(comm._children) == children - 1
    raises(mb.StateError, "closed", other.barrier)
    assert comm.group(grid, "ep") is not other


@case(4)
def groups_that_end(comm):
    """What was made from a group keeps it open; it closes with the whole."""
    whole = mb.Communicator()
    group = whole.group(mb.Grid("tp=2,dp=2"), "tp")
    buffer = mb.Buffer(256, comm=group)
    held = buffer.tensor(0, torch.float32, (2,))[0] if comm.rank == 2 else None
    raises(mb.StateError, "slot 0 of 2", group.close)
    raises(mb.StateError, "slot 0 of 2", whole.close)
    assert not group.closed
    del held
    whole.close()
    assert group.closed and buffer.in_use() is None
    group.close()


@case(4)
def wrong_groups(comm):
    grid = mb.Grid("tp=2,dp=2")
    raises(mb.GridError, "has 2 ranks from 0 on, and the communicator has 4", comm.group, mb.Grid("tp=2"), "tp")
    raises(mb.GridError, "ep", comm.group, grid, "ep" if comm.rank == 3 else "tp")
    raises(mb.ArgumentError, "no Grid", comm.group, "tp=2" if comm.rank == 1 else grid, "tp")
    raises(mb.MismatchError, "tp of Grid", comm.group, grid, "tp" if comm.rank else "dp")
    assert comm.group(grid, "tp").size == 2
