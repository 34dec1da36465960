"""What needs no other rank: grids, partitions, alignments, spans. Where gradients are gathered, ranks."""
import math
import pickle

import torch
from torch.autograd import gradcheck

import mimo_bridge as mb
from rank_runner import case, gather, raises, same
from tile_model import Side, global_rows, zigzag


@case(1)
def grids(comm):
    grid = mb.Grid("tp=2,cp=2,dp=2")
    assert grid.coords(5) == {"tp": 1, "cp": 0, "dp": 1} and grid.rank(tp=1, dp=1) == 5
    assert grid.groups("tp", "cp") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert grid.groups("dp", "tp") == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert (grid.size, grid.offset, grid.dims) == (8, 0, {"tp": 2, "cp": 2, "dp": 2})
    assert 7 in grid and 8 not in grid and grid.dim("pp") == 1
    assert grid == mb.Grid({"tp": 2, "cp": 2, "dp": 2}) != mb.Grid("tp=2,cp=2,dp=2", 8)
    assert grid != mb.Grid("cp=2,tp=2,dp=2") and hash(grid) == hash(mb.Grid(str(grid)))
    again = pickle.loads(pickle.dumps(mb.Grid("dp=2", 3)))
    assert repr(again) == "Grid('dp=2', offset=3)"
    raises(mb.GridError, "9", grid.coords, 9)
    raises(mb.GridError, "ep", grid.groups, "ep")
    raises(mb.ArgumentError, "no text", grid.groups, "tp\0junk")
    raises(mb.ArgumentError, "no text", grid.groups, 5)
    raises(mb.GridError, "ep", grid.rank, ep=1)
    raises(mb.ArgumentError, "tp", mb.Grid, "tp")
    raises(ValueError, "0", mb.Grid, {"tp": 0})


@case(1)
def meshes(comm):
    class Mesh:  # as DeviceMesh, which needs a process group
        mesh_dim_names, mesh = ("dp", "tp"), torch.arange(4, 8).reshape(2, 2)

    assert mb.Grid.from_mesh(Mesh) == mb.Grid("tp=2,dp=2", 4)
    Mesh.mesh = Mesh.mesh.t()
    raises(mb.GridError, "[4, 6, 5, 7]", mb.Grid.from_mesh, Mesh)
    Mesh.mesh_dim_names = None
    raises(mb.GridError, "names", mb.Grid.from_mesh, Mesh)


@case(1)
def meshes_of_other_names(comm):
    def mesh(**dims):
        class Mesh:
            mesh_dim_names = tuple(dims)
            mesh = torch.arange(math.prod(dims.values())).reshape(*dims.values())
        return Mesh

    dp = {"dp_replicate": "dp", "dp_shard": "dp"}
    titan = mesh(pp=1, dp_replicate=2, dp_shard=3, cp=2, tp=2)
    assert mb.Grid.from_mesh(titan, names=dp) == mb.Grid("tp=2,cp=2,dp=6,pp=1")
    assert mb.Grid.from_mesh(titan).dims["dp_shard"] == 3
    assert mb.Grid.from_mesh(titan, copies="dp_shard,dp_replicate") == mb.Grid(
        "tp=2,cp=2,dp_shard=3:copies,dp_replicate=2:copies,pp=1")
    apart = mesh(dp_replicate=2, cp=2, dp_shard=2)
    raises(mb.GridError, "mesh dims dp_replicate and dp_shard are not neighbours (cp lies between)",
           mb.Grid.from_mesh, apart, names=dp)
    raises(mb.GridError, "dp_replicate and dp_shard are not neighbours (cp and tp lie between)",
           mb.Grid.from_mesh, mesh(dp_replicate=2, cp=2, tp=2, dp_shard=2), names=dp)
    raises(mb.GridError, "no dimension fsdp, only dp_replicate, cp, dp_shard", mb.Grid.from_mesh,
           apart, names={"fsdp": "dp"})
    # What is of size 1 lies nowhere.
    assert mb.Grid.from_mesh(mesh(dp_replicate=2, cp=1, dp_shard=2), names=dp) == mb.Grid("dp=4,cp=1")
    assert mb.Grid.from_mesh(mesh(dp_replicate=2, cp=2, dp_shard=1), names=dp) == mb.Grid("cp=2,dp=2")
    assert mb.Grid.from_mesh(mesh(dp_replicate=1, cp=2, dp_shard=1), names=dp) == mb.Grid("dp=1,cp=2")


@case(1)
def copies(comm):
    grid = mb.Grid("x=2,dp=2", copies="x")
    assert grid == mb.Grid("x=2:copies,dp=2") != mb.Grid("x=2,dp=2") and hash(grid) == hash(
        mb.Grid(str(grid)))
    assert pickle.loads(pickle.dumps(grid)) == grid and grid.dims == {"x": 2, "dp": 2}
    assert repr(grid) == "Grid('x=2:copies,dp=2')"
    assert mb.Grid("x=2:copies,dp=2", copies="") == mb.Grid("x=2,dp=2")
    raises(mb.GridError, "'y'", mb.Grid, "x=2,dp=2", copies="y")
    raises(mb.GridError, "'dp'", mb.Grid, "x=2,dp=2", copies="dp")
    raises(mb.ArgumentError, "no text", mb.Grid, "x=2,dp=2", copies=3)


@case(2)
def dimensions_without_a_meaning(comm):
    """A typo or a mesh of other names, and copies that are none."""
    raises(mb.GridError, "the src grid pd=2 has pd = 2", mb.Bridge, mb.Grid("pd=2"), mb.Grid("dp=2"),
           comm=comm)
    raises(mb.GridError, "the dst grid dp_shard=2 has dp_shard = 2", mb.Bridge, mb.Grid("dp=2"),
           mb.Grid("dp_shard=2"), comm=comm)
    bridge = mb.Bridge(mb.Grid("x=2", copies="x"), mb.Grid("dp=2"), comm=comm, layout="sbh")
    x = torch.arange(6.).reshape(1, 2, 3)
    same(bridge(x), x[:, comm.rank:comm.rank + 1], "the sample of this rank")


@case(1)
def pairings(comm):
    pairing = mb.pairing_of(mb.Grid("tp=2,dp=4"), mb.Grid("tp=2,cp=2,dp=2"))
    assert pairing == ("fan_in", 2, [[0, 2], [1, 3], [4, 6], [5, 7]]), pairing
    assert mb.pairing_of(mb.Grid("tp=1,dp=2"), mb.Grid("tp=1,dp=2")) == ("equal", 1, [])
    raises(mb.GridError, "dp", mb.pairing_of, mb.Grid("tp=2,dp=3"), mb.Grid("tp=3,dp=2"))


@case(1)
def partitions(comm):
    """The zigzag of every rank, its gradient, labels, packed sequences, and rules that are broken."""
    grid = mb.Grid("tp=2,cp=2,dp=2")
    whole = global_rows(3, 8, 2, torch.float64)
    for rank in range(8):
        side = Side("tp=2,cp=2,dp=2", 0, "bsh", True, True)
        part = mb.Partition(sp=True).at(grid, rank)
        assert part.index(8).tolist() == side.positions(rank, 8), rank
        same(part.shard(whole, "bsh"), whole[:, side.positions(rank, 8)])
        labels = zigzag(8, 2, grid.coords(rank)["cp"])
        same(part.shard(whole[:, :, 0].long(), "bs", "labels"), whole[:, labels, 0].long())
        assert (part.rows(8), part.rows(8, "labels")) == (2, 4)
        cp_only = mb.Partition().at(grid, rank)
        x = whole.transpose(0, 1).clone().requires_grad_()
        assert gradcheck(lambda x: cp_only.shard(x), x)
        raises(mb.ShapeError, "6", cp_only.shard, x[:6])
        raises(mb.StateError, "communicator", part.shard(x).sum().backward)
    pack = mb.Partition(cu=[0, 8, 16]).at(mb.Grid("cp=2,dp=1"), 0)
    assert pack.index(16).tolist() == [0, 1, 6, 7, 8, 9, 14, 15]
    same(pack.shard(torch.arange(16), "t"), torch.tensor([0, 1, 6, 7, 8, 9, 14, 15]))
    assert pack.positions(16).tolist() == [0, 1, 6, 7, 0, 1, 6, 7]
    assert cp_only.positions(8).tolist() == cp_only.index(8).tolist()
    assert mb.padded_lengths([3, 0, 5], 4) == [0, 4, 4, 12]
    assert mb.Partition(cu=[0, 3, 8], cu_padded=[0, 4, 12]).packed_length == 12
    raises(mb.ArgumentError, "3", mb.Partition, cu=[0, 1, 2], cu_padded=[0, 1])
    raises(mb.GridError, "8", mb.Partition().at, grid, 8)
    raises(mb.ShapeError, "sequence 0", mb.Partition(cu=[0, 3]).at, mb.Grid("cp=2"), 0)


@case(1)
def packed_rows_and_labels(comm):
    """Padding goes behind each sequence, and no label is another sequence's token."""
    rule = mb.Partition(cu=[0, 3, 3, 5], cu_padded=[0, 4, 4, 8])
    tokens = torch.tensor([11, 12, 13, 21, 22], device=comm.device)
    labels = rule.pad_rows(tokens, -100)
    assert labels.tolist() == [11, 12, 13, -100, 21, 22, -100, -100]
    assert rule.shift_labels(labels).tolist() == [12, 13, -100, -100, 22, -100, -100, -100]
    rows = torch.arange(10.0, device=comm.device).view(5, 2).requires_grad_()
    padded = rule.pad_rows(rows)
    assert padded.tolist()[4] == [6, 7] and padded.tolist()[3] == [0, 0]
    padded.cumsum(0).sum().backward()
    assert rows.grad[:, 0].tolist() == [8, 7, 6, 4, 3], rows.grad
    whole = torch.tensor([[1, 2, 3], [4, 5, 6]], device=comm.device)
    assert mb.Partition().shift_labels(whole, 0).tolist() == [[2, 3, 0], [5, 6, 0]]
    assert mb.Partition(cu=[0, 2, 3]).shift_labels(whole[0]).tolist() == [2, -100, -100]
    raises(mb.ArgumentError, "no cu", mb.Partition().pad_rows, tokens)
    raises(mb.ShapeError, "[4], and cu ends with 5", rule.pad_rows, tokens[:4])
    raises(mb.ShapeError, "[5], and a pack has [8]", rule.shift_labels, tokens)


@case(1)
def wrong_words_and_shapes(comm):
    part, alignment = mb.Partition().at(mb.Grid("cp=2"), 0), mb.Alignment([7], device=comm.device)
    raises(mb.ArgumentError, "'label'", part.rows, 8, "label")
    raises(mb.ArgumentError, "'label'", part.shard, torch.zeros(8, 1, 1), "sbh", "label")
    raises(mb.ArgumentError, "a list", part.shard, [1.0])
    for x, layout in ((torch.zeros(8, 1, 1, 1), "sbhx"), (torch.zeros(8, 1, 1, 1, 1), "sbhxy")):
        raises(mb.ShapeError, "3 dimensions", part.shard, x, layout)
    for layout in ("s\0h", None, 5, ["s", "b", "h"], "sb\N{SNOWMAN}", "sss", "xyz"):
        raises((mb.ArgumentError, mb.ShapeError), "", part.shard, torch.zeros(8, 1, 1), layout)
    raises(mb.ShapeError, "[4]", mb.spans_of, torch.zeros(4), 7)
    raises(mb.ArgumentError, "a list", mb.spans_of, [[7]], 7)
    raises(mb.ArgumentError, "special", mb.spans_of, IDS, None)
    raises(mb.ArgumentError, "a list", alignment.update, [[7]])
    alignment.update(torch.tensor([[7]]))
    row = torch.ones(1, 2)
    raises(mb.ArgumentError, "'xyz'", alignment.merge, [row], row[:0], layout="xyz")
    for layout in ("t\0", "th,th", "xyz", 5):
        raises(mb.ArgumentError, "rows are", alignment.merge, [row], row[:0], row_layouts=[layout])
    raises(mb.ArgumentError, "N_text", alignment.merge, [row], torch.tensor(1.0))
    raises(mb.ArgumentError, "NoneType", alignment.merge, [None], row)
    # the dispatcher would take the fake kernel, whose result is not initialised
    raises(mb.ArgumentError, "meta", alignment.merge, [row.to("meta")], row[:0])
    raises(mb.ArgumentError, "meta", alignment.merge, [row], row[:0].to("meta"))
    assert alignment.merge([row.to("meta")], row[:0].to("meta")).is_meta  # asks for shapes


@case(2)
def shards_of_another_rank(comm):
    """at() with a communicator: its ranks are those of the grid, and `rank` is this one."""
    rule = mb.Partition(sp=True)
    raises(mb.ArgumentError, "rank 0", rule.at, mb.Grid("tp=2"), 0, comm)
    raises(mb.MimoError, "", rule.at, mb.Grid("tp=2"), 1 if comm.rank else 7, comm)
    raises(mb.ArgumentError, "tp=1", rule.at, mb.Grid("tp=1"), comm.rank, comm)
    rule.at(mb.Grid("tp=2"), comm.rank, comm)


@case(2)
def shards_under_sp(comm):
    """Under sp the gradient of a shard is gathered over tp."""
    grid, side = mb.Grid("tp=2"), Side("tp=2", 0, "sbh", True, True)
    part = mb.Partition(sp=True).at(grid, comm.rank, comm)
    whole = global_rows(2, 8, 3, torch.float64)
    x = whole.transpose(0, 1).contiguous().requires_grad_()
    y = part.shard(x)
    same(y.detach(), side.tile(comm.rank, whole))
    y.backward(torch.full_like(y, 1.0 + comm.rank))
    wanted = torch.zeros_like(x)
    for rank in range(2):
        wanted[side.positions(rank, 8)] = 1.0 + rank
    same(x.grad, wanted)
    children = len(comm._children)
    for length in (8, 16):  # packed sequences have a partition for each batch
        mb.Partition(sp=True, cu=(0, length)).at(grid, comm.rank, comm)
    assert len(comm._children) == children  # a communicator of tp each: MPI has some 65,000


IDS = torch.tensor([[7, 1, 7, 2], [3, 8, 8, 7]])  # 7: images, 8: audio


@case(1, 2)
def alignments(comm):
    alignment = mb.Alignment([7, 8], vocabulary=10, device=comm.device)
    raises(mb.StateError, "no ids", alignment.rows, 0)
    alignment.update(IDS)
    assert [alignment.rows(m) for m in (0, 1, -1)] == [3, 2, 3]
    images = torch.tensor([[10.0, 11], [12, 13], [14, 15]], dtype=torch.float64).requires_grad_()
    audio = torch.tensor([[20.0, 21], [22, 23]], dtype=torch.float64).requires_grad_()
    text = torch.tensor([[1.0, 2], [3, 4], [5, 6]], dtype=torch.float64).requires_grad_()
    tile = alignment.merge([images, audio], text, layout="bsh")
    assert tile[:, :, 0].tolist() == [[10, 1, 12, 3], [5, 20, 22, 14]]
    same(alignment.merge([images, audio], text).detach(), tile.detach().transpose(0, 1).contiguous())
    assert gradcheck(lambda *parts: alignment.merge(parts[:2], parts[2]), (images, audio, text))
    # rows of a shaped tile are taken by their letters
    shaped = images.detach().reshape(3, 1, 2)
    same(alignment.merge([shaped, audio], text, layout="bsh", row_layouts=["sbh", "th"]).detach(),
         tile.detach())
    torch.library.opcheck(mb._ops.merge, ([images, audio, text], alignment._number, "th,th,th,bsh",
                                          [2, 4, 2], 1))
    raises(mb.ShapeError, "3", alignment.merge, [images[:2], audio], text)
    raises(mb.ArgumentError, "modalities", alignment.merge, [images], text)
    raises(mb.ArgumentError, "12", alignment.update, torch.tensor([[12]]))
    raises(mb.ShapeError, "dimensions", alignment.update, torch.tensor([1]))
    late = alignment.merge([images, audio], text)
    alignment.update(IDS.int())
    raises(mb.StateError, "updated", late.sum().backward)
    raises(mb.ArgumentError, "7", mb.Alignment, [7, 7])
    ids = torch.tensor([[7] * 5 + [1] + [7] * 3 + [8]])
    alignment.update(ids, images=[[2, 3, 3], None])
    alignment.update(ids, images=[[5, 3], [1]])
    raises(mb.ShapeError, "update: modality 0: image 1 of lane 0 has 5 rows, and the run of special ids at position 0 "
           "of sample 0 has 2 left", alignment.update, ids, images=[[3, 5], None])
    raises(mb.ShapeError, "update: modality 1: sample 0 of lane 0: 1 special ids, its images have 0 rows",
           alignment.update, ids, images=[None, []])
    raises(mb.ArgumentError, "images of 1 modalities, and there are 2", alignment.update, ids, images=[[5, 3]])


@case(1)
def alignments_that_are_gone(comm):
    """A graph keeps what its backward needs, though the program has let go of it."""
    text = torch.ones(3, 2, requires_grad=True)
    rows = torch.ones(5, 2, requires_grad=True)

    def merged():
        alignment = mb.Alignment([7])
        alignment.update(torch.tensor([[7, 1, 7, 2], [7, 7, 7, 0]]))
        return alignment.merge([rows], text)

    merged().sum().backward()
    same(rows.grad, torch.ones_like(rows))
    x = torch.ones(4, 1, 1, requires_grad=True)
    mb.Partition().at(mb.Grid("cp=2"), 0).shard(x).sum().backward()
    assert x.grad.flatten().tolist() == [1, 0, 0, 1]


@case(1)
def spans(comm):
    got = mb.spans_of(IDS, 7, first=4)
    assert got == [(4, 0, 0, 1), (4, 1, 2, 1), (5, 0, 3, 1)], got
    assert mb.spans_of(IDS, 8) == [(1, 0, 1, 2)] and mb.spans_of(IDS, 9) == []
    assert mb.spans_of(torch.full((1, 3), 9), 9) == [mb.Span(0, 0, 0, 3)]


@case(1)
def exceptions(comm):
    """Each status has its class, which is the builtin one that a caller expects."""
    builtins = {"ARGUMENT": ValueError, "SHAPE": ValueError, "GRID": ValueError, "STATE": RuntimeError,
                "NOT_FOUND": KeyError, "EXISTS": KeyError, "OVERFLOW": OverflowError,
                "MEMORY": MemoryError, "UNSUPPORTED": NotImplementedError, "MISMATCH": RuntimeError,
                "COMM": RuntimeError, "TIMEOUT": TimeoutError, "ABORTED": RuntimeError, "IO": OSError,
                "INTERNAL": RuntimeError, "DEVICE": RuntimeError}
    assert {s.name for s in mb.Status} - {"OK"} == set(builtins)
    for status in list(mb.Status)[1:]:
        error = mb.errors.error_of(status, "two words")
        assert isinstance(error, builtins[status.name]) and isinstance(error, mb.MimoError)
        assert str(error) == "two words" and error.status is status
        assert isinstance(pickle.loads(pickle.dumps(error)), type(error))


@case(2)
def gathers(comm):
    """The test's own gather."""
    assert gather("x" * (comm.rank * 500)) == ["", "x" * 500]


@case(2, on="cpu")
def another_default_device(comm):
    """torch.set_default_device says where a program's new tensors lie, not where ours do."""
    with torch.device("meta"):
        bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, partition=mb.Partition())
        part = mb.Partition().at(mb.Grid("cp=2"), comm.rank)
        alignment, index = mb.Alignment([7]), part.index(8)
    assert index.tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]][comm.rank]
    ids, x = torch.tensor([[7, 1, 7, 2]]), torch.arange(8.0).reshape(8, 1, 1).requires_grad_()
    with torch.device("meta"):
        bridge.update(mb.Batch(batch=2))
        y = bridge(x)
        alignment.update(ids)
        tile = alignment.merge([torch.ones(2, 1, device="cpu")], torch.zeros(2, 1, device="cpu"))
        assert mb.spans_of(ids, 7) == [(0, 0, 0, 1), (0, 1, 2, 1)]
    same(y[:, 0, 0].detach(), index.float())
    assert tile.flatten().tolist() == [1, 0, 1, 0]
    y.sum().backward()
    same(x.grad, torch.ones_like(x))
