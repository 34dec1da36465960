"""What bridges move: golden rows, random grids against the model, batches of every kind."""
import torch

import mimo_bridge as mb
from mimo_bridge import _c, _views
from rank_runner import case, gather, raises, same
from tile_model import Side, dice, even, global_rows, gradient_of, random_grid, size_of


@case(8)
def readme_rows(comm):
    """The rows that the project's README prints."""
    bridge = mb.Bridge(mb.Grid("tp=2,dp=4"), mb.Grid("tp=2,cp=2,dp=2"), comm=comm,
                       partition=mb.Partition())
    first, count = bridge.samples("src", 8)
    x = torch.tensor([[[10.0 * (first + i) + s] for i in range(count)] for s in range(8)])
    y = bridge(x)
    wanted = [[0, 1, 6, 7], [2, 3, 4, 5], [40, 41, 46, 47], [42, 43, 44, 45]][comm.rank // 2]
    same(y[:, 0, 0], torch.tensor(wanted, dtype=torch.float32))
    assert y.requires_grad and y.is_contiguous() and y.shape == (4, 4, 1)


def random_bridge(roll, comm):
    """A bridge of random grids, its two sides in the model, and sizes that suit them."""
    src_spec, src_offset = random_grid(roll, comm.size)
    dst_spec, dst_offset = random_grid(roll, comm.size)
    cuts, sp, stages = roll.random() < 0.6, roll.random() < 0.5, roll.random() < 0.3
    layouts = roll.choice(["sbh", "bsh"]), roll.choice(["sbh", "bsh", "th"])
    src = Side(src_spec, src_offset, layouts[0])
    dst = Side(dst_spec, dst_offset, layouts[1], cuts, cuts and sp, stages)
    cut = 2 * size_of(dst_spec, "cp") * size_of(dst_spec, "tp") if cuts else 1
    shape = roll.choice([1, 3, 8]), cut * roll.choice([1, 2]), roll.choice([1, 4, 5])
    bridge = mb.Bridge(mb.Grid(src_spec, src_offset), mb.Grid(dst_spec, dst_offset), comm=comm,
                       partition=mb.Partition(sp=sp) if cuts else None, layout=layouts[0],
                       dst_layout=layouts[1], all_stages=stages, batch=shape[0])
    return bridge, src, dst, shape


@case(1, 2, 4, 8)
def random_pairs(comm):
    """Forward and backward have the model's bits, and shape() is what the library says."""
    roll, ran = dice(20260 + comm.size), 0
    for trial in range(30):
        bridge, src, dst, shape = random_bridge(roll, comm)
        dtype = roll.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
        whole = global_rows(*shape, dtype, trial)
        x = src.tile(comm.rank, whole).requires_grad_(roll.random() < 0.8)
        y = bridge(x)
        what = f"{trial}: {bridge.extra_repr()} {shape} {dtype}"
        same(y.detach(), dst.tile(comm.rank, whole), what)
        assert tuple(y.shape) == bridge.shape(x.shape)
        same_as_library(bridge, y, shape, dtype)
        mine, total = gradient_of(dst, comm.size, comm.rank, shape, dtype)
        y.backward(torch.zeros_like(y) if mine is None else mine)
        if x.requires_grad:
            same(x.grad, src.tile(comm.rank, total), what + " backward")
        bridge.close()
        ran += 1
    assert ran == 30


def same_as_library(bridge, y, shape, dtype):
    """mimo_bridge_tile says the shape that Python's arithmetic gave."""
    sizes = _c.sized(_c.mimo_bridge_sizes, batch=shape[0], seq=shape[1], hidden=shape[2],
                     dtype=_views.DTYPES[dtype], src_letters=bridge.layout.encode(),
                     dst_letters=bridge.dst_layout.encode())
    tile = _c.mimo_tensor()
    _c.lib.mimo_bridge_tile(_c.ctypes.byref(tile), bridge._movement.open(), _c.DST,
                            _c.ctypes.byref(sizes))
    assert tuple(tile.shape[:y.dim()]) == tuple(y.shape), (tuple(tile.shape), y.shape)


@case(4)
def every_dtype(comm):
    """Whole numbers and bytes move without gradient, floats with it."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("tp=2,dp=2"), comm=comm, layout="bsh")
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool, torch.float32,
                  torch.float8_e4m3fn):
        whole = torch.arange(4 * 3).reshape(4, 3, 1).to(dtype)
        y = bridge(whole[comm.rank:comm.rank + 1])
        assert torch.equal(y.view(torch.uint8), whole[comm.rank // 2 * 2:][:2].view(torch.uint8)), dtype
        assert y.requires_grad == dtype.is_floating_point, dtype


@case(4)
def not_contiguous(comm):
    """Views with any strides, and gradients of any strides."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, partition=mb.Partition())
    whole = global_rows(4, 8, 6, torch.float64)
    x = whole[comm.rank:comm.rank + 1].transpose(0, 1)[:, :, ::2].requires_grad_()
    assert not x.is_contiguous()
    y = bridge(x)
    same(y.detach(), Side("cp=2,dp=2", 0, "sbh", True).tile(comm.rank, whole[:, :, ::2]))
    signed = torch.view_as_complex(torch.zeros(1, 8, 3, 2, dtype=torch.float64) - 1).conj().imag
    assert signed.is_neg() and (bridge(signed.transpose(0, 1)) == 1).all()
    y.sum().backward()  # the gradient of a sum is one number with strides 0
    same(x.grad, torch.ones_like(x))
    x.grad = None
    bridge(x).backward(torch.ones(3, y.shape[1], y.shape[0], dtype=x.dtype).permute(2, 1, 0) * 2)
    same(x.grad, torch.full_like(x, 2))


@case(4)
def uneven_batches(comm):
    """A batch that the call gives: 7 and 3 samples on two encoders; no samples on some ranks."""
    bridge = mb.Bridge(mb.Grid("tp=2,dp=2"), mb.Grid("tp=1,dp=4"), comm=comm, layout="bsh")
    for counts in ((7, 3), (0, 6), (4, 4)):
        first = 0 if comm.rank < 2 else counts[0]
        whole = global_rows(sum(counts), 2, 3, torch.float32)
        x = whole[first:first + counts[comm.rank // 2]].clone().requires_grad_()
        y = bridge(x, batch=sum(counts))
        same(y.detach(), whole[list(even(sum(counts), 4, comm.rank))])
        (y * 3).sum().backward()
        same(x.grad, torch.full_like(x, 3))


@case(4)
def flat_rows(comm):
    """Both tiles flat: an even split, rows that an update tells, and ranks without rows."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="bh")
    whole = torch.arange(8.0 * 2).reshape(8, 2)
    same(bridge(whole[2 * comm.rank:][:2]).detach(), whole[comm.rank // 2 * 4:][:4])
    whole = torch.arange(10.0 * 2, dtype=torch.float64).reshape(10, 2)
    for src, dst in (((3, 0, 5, 2), (3, 7)), ((3, 0, 5, 2), (4, 6)), ((0, 0, 0, 10), (10, 0))):
        bridge.update(mb.Batch(rows=(src[comm.rank], dst[comm.rank // 2])))
        x = whole[sum(src[:comm.rank]):][:src[comm.rank]].clone().requires_grad_()
        y = bridge(x)
        same(y.detach(), whole[sum(dst[:comm.rank // 2]):][:dst[comm.rank // 2]])
        y.backward(torch.full_like(y, 1.0 + comm.rank % 2))  # two cp ranks: 1 + 2
        same(x.grad, torch.full_like(x, 3))
    bridge.update()
    same(bridge(whole[:8][2 * comm.rank:][:2]).detach(), whole[comm.rank // 2 * 4:][:4])
    same(bridge(whole[:8][2 * comm.rank:][:2], rows=4).detach(), whole[comm.rank // 2 * 4:][:4])


@case(4)
def flat_to_shaped(comm):
    """A flat tile does not say S, so the call does."""
    whole = global_rows(4, 8, 2, torch.float32)
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, partition=mb.Partition(),
                       layout="th", dst_layout="sbh")
    y = bridge(whole[comm.rank].requires_grad_(), seq=8)
    same(y.detach(), Side("cp=2,dp=2", 0, "sbh", True).tile(comm.rank, whole))
    y.sum().backward()


@case(4)
def packed_sequences(comm):
    """thd: two sequences of 8 in a pack, cut each by itself."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, layout="bsh",
                       partition=mb.Partition(cu=[0, 8, 16]))
    whole = global_rows(4, 16, 2, torch.float64)
    x = whole[comm.rank:comm.rank + 1].clone().requires_grad_()
    y = bridge(x)
    kept = [[0, 1, 6, 7, 8, 9, 14, 15], [2, 3, 4, 5, 10, 11, 12, 13]][comm.rank % 2]
    same(y.detach(), whole[comm.rank // 2 * 2:][:2][:, kept])
    y.sum().backward()
    same(x.grad, torch.ones_like(x))


RAGGED_IDS = torch.tensor([[5, 9, 9, 1], [1, 2, 3, 4], [9, 1, 9, 2], [9, 9, 9, 9]])  # 9: image row


@case(4)
def ragged_place(comm):
    """Image rows at the positions of their ids, between text; gradients of both."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, partition=mb.Partition(),
                       layout="th", dst_layout="sbh")
    ids = RAGGED_IDS
    bridge.update(mb.Batch(batch=4, spans=mb.spans_of(ids[comm.rank:comm.rank + 1], 9, comm.rank)))
    rows = (ids == 9).sum(1).tolist()
    images = [torch.arange(n, dtype=torch.float64)[:, None] + 100 * i + 1 for i, n in enumerate(rows)]
    whole = -global_rows(4, 4, 1, torch.float64).abs()
    dst = Side("cp=2,dp=2", 0, "sbh", True)
    tile = dst.tile(comm.rank, whole).requires_grad_()
    x = images[comm.rank].clone().requires_grad_()
    wanted = whole.clone()
    wanted[(ids == 9)] = torch.cat(images)
    y = bridge.place(tile, x)
    same(y.detach(), dst.tile(comm.rank, wanted))
    weights = global_rows(4, 4, 1, torch.float64, 3)
    y.backward(dst.tile(comm.rank, weights))
    same(x.grad, weights[comm.rank][ids[comm.rank] == 9])
    text = weights.clone()
    text[ids == 9] = 0
    same(tile.grad, dst.tile(comm.rank, text))
    # without a tile: zeros where no row goes
    wanted[ids != 9] = 0
    same(bridge(x, seq=4).detach(), dst.tile(comm.rank, wanted))
    one, other = place_twice(bridge, tile, x)
    same(one, other)


@case(2)
def places_are_local(comm):
    """A rank finds by itself where rows stand in its tile, those of spans that another rank gave as well."""
    ids = RAGGED_IDS[:2]
    for letters, rule, mine in (("sbh", mb.Partition(), [1, 2]), ("bsh", None, [0, 1, 2, 3])):
        bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("cp=2"), comm=comm, partition=rule, layout="th",
                           dst_layout=letters)
        given = ids[:0] if comm.rank else ids
        bridge.update(mb.Batch(batch=2, spans=mb.spans_of(given, 9)))
        if comm.rank == 1:  # the other rank makes no call
            wanted = (ids == 9)[:, mine].to(comm.device)
            wanted = (wanted.t() if letters == "sbh" else wanted)[..., None]
            tile = torch.empty(*wanted.shape[:2], 3)
            same(bridge._movement._mask(tile, bridge._movement.call), wanted, letters)


def place_twice(bridge, tile, x):
    """place is linear, so the gradient of its gradient is place again."""
    g = torch.ones_like(tile).requires_grad_()
    grads = torch.autograd.grad(bridge.place(tile, x), (tile, x), g, create_graph=True)
    twice = torch.autograd.grad(grads, g, (tile.detach(), x.detach()))[0]
    return twice, bridge.place(tile, x).detach()


@case(4)
def micro_batches(comm):
    """Two micro-batches given at once; backward belongs to its forward, whatever is selected."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=2,tp=2"), comm=comm, layout="th")
    src, dst = [[1, 2, 0, 3], [4, 1, 1, 2]], [[2, 4], [5, 3]]  # rows of each dp, of each micro-batch
    rows = [[(src[m][r], dst[m][r % 2]) for r in range(4)] for m in range(2)]
    bridge.update(*(mb.Batch(rows=rows[m][comm.rank]) for m in range(2)))
    outputs = []
    for m in (1, 0):
        bridge.select(m)
        whole = torch.arange(sum(src[m]), dtype=torch.float64)[:, None] + 10 * m
        x = whole[sum(src[m][:comm.rank]):][:src[m][comm.rank]].clone().requires_grad_()
        start = dst[m][0] * (comm.rank % 2)
        y = bridge(x)
        same(y.detach(), whole[start:start + rows[m][comm.rank][1]])
        outputs.append((x, y, m))
    for x, y, m in reversed(outputs):
        bridge.select(1 - m)
        y.backward(torch.full_like(y, 2.0 + m))
        same(x.grad, torch.full_like(x, 2.0 + m))
    bridge.select(0)
    late = bridge(outputs[1][0])
    bridge.update()
    raises(mb.StateError, "updated", late.sum().backward)


@case(4)
def chunks(comm):
    """Parts of a tile, in order, with the bits of one call; an iteration that is given up."""
    bridge = mb.Bridge(mb.Grid("dp=4"), mb.Grid("cp=2,dp=2"), comm=comm, partition=mb.Partition(),
                       layout="bsh")
    whole = global_rows(12, 8, 2, torch.float32)
    x = whole[3 * comm.rank:][:3]
    y = bridge(x)
    for n in (1, 2, 4, 7):
        parts = [part.clone() for part in bridge.chunks(x, n)]
        assert len(parts) == n
        same(torch.cat(parts), y.detach())
    for part in bridge.chunks(x, 3):
        assert torch.is_grad_enabled()
        break
    same(bridge(x).detach(), y.detach())
    flat = mb.Bridge(mb.Grid("dp=4"), mb.Grid("dp=2,tp=2"), comm=comm, layout="th")
    x = x.reshape(-1, 2)
    same(torch.cat([part.clone() for part in flat.chunks(x, 5)]), flat(x).detach())
    raises(mb.ArgumentError, "chunks", lambda: list(bridge.chunks(whole[3 * comm.rank:][:3], 0)))


@case(2)
def closing_amid_chunks(comm):
    """Not while chunks have not ended, on any rank; the sentence is everyone's."""
    bridge = mb.Bridge(mb.Grid("dp=2"), mb.Grid("tp=2"), comm=comm, layout="bsh")
    whole = global_rows(4, 4, 2, torch.float32)
    parts = bridge.chunks(whole[2 * comm.rank:][:2], 2)
    first = next(parts)
    if comm.rank == 0:
        same(torch.cat([first, *parts]), whole)
    raises(mb.StateError, "chunks have not ended (1)", bridge.close)
    raises(mb.StateError, "chunks have not ended (1)", comm.close)
    assert not comm.closed
    if comm.rank == 1:
        parts.close()
    bridge.close()


@case(2, 4)
def prepared(comm):
    """prepare() neither reads nor writes, and calls after it move the same bits."""
    bridge = mb.Bridge(mb.Grid(f"dp={comm.size}"), mb.Grid(f"cp={comm.size}"), comm=comm,
                       partition=mb.Partition(), layout="bsh")
    whole = global_rows(comm.size, 4 * comm.size, 3, torch.float32)
    x = whole[comm.rank:comm.rank + 1].clone().requires_grad_()
    kept = x.detach().clone()
    bridge.prepare(x)
    bridge.prepare(x, chunks=2, backward=False)
    same(x.detach(), kept)
    y = bridge(x)
    same(y.detach(), Side(f"cp={comm.size}", 0, "bsh", True).tile(comm.rank, whole))
    y.sum().backward()
    same(x.grad, torch.ones_like(x))


@case(4)
def executors(comm):
    """All executors give the same bits, and say who they are."""
    whole = global_rows(4, 8, 4, torch.float32)
    x = whole[comm.rank:comm.rank + 1].transpose(0, 1).clone()
    results = {}
    for name in ("auto", "routed", "p2p", "staged", "collective"):
        bridge = mb.Bridge(mb.Grid("tp=1,dp=4"), mb.Grid("tp=1,cp=2,dp=2"), comm=comm, executor=name,
                           partition=mb.Partition(), backward_executor="p2p")
        results[name] = bridge(x).detach()
        assert bridge.executor() == ("routed" if name == "auto" else name), bridge.executor()
        assert bridge.executor(True) == "p2p"
    for name in results:
        same(results[name], results["auto"], name)
    assert bridge.staging(4, 8, 4, torch.float32) >= 0


@case(1, 4, 8)
def self_tests(comm):
    bridge = mb.Bridge(mb.Grid(f"dp={comm.size}"), mb.Grid(f"tp={comm.size}"), comm=comm)
    bridge.self_test()
    bridge.self_test(7)
    if comm.size > 1:
        raises(mb.MismatchError, "seed", bridge.self_test, comm.rank)


@case(4)
def explained(comm):
    text = mb.explain(mb.Grid("tp=2,dp=2"), mb.Grid("tp=2,cp=2"), [
        mb.Bucket("encoder.weight", "src", shard="tp"),
        mb.Bucket("llm.norm", "dst", partial="tp")], comm=comm)
    assert "encoder.weight" in text and "llm.norm" in text and "cp" in text, text
    assert "tp ranks hold copies, so all of these add the same loss and tokens (under sp: sums over tp)" in text, text
    tied = mb.explain(mb.Grid("dp=4"), mb.Grid("tp=1,pp=4"), [mb.Bucket("tied", "dst", partial="pp")], comm=comm)
    assert "only the last pipeline stage adds its own" in tied, tied
    assert "tied (LLM tp=1,pp=4, 0 elements here, f32): SUM over 4 ranks" in tied, tied
    raises(mb.GridError, "ep", mb.explain, mb.Grid("dp=4"), mb.Grid("dp=4"),
           [mb.Bucket("w", "src", shard="ep")], comm=comm)


@case(4)
def explained_on_further_grids(comm):
    grid, experts = mb.Grid("dp=4"), mb.GradientGrid("experts", mb.Grid("ep=2,edp=2"), "edp", "ep")
    audio = mb.GradientGrid("audio", mb.Grid("tp=2,dp=2"), data="dp")
    fc1, conv = mb.Bucket("fc1", "dst", shard="ep", grid="experts"), mb.Bucket("conv", "src", grid="audio")
    text = mb.explain(grid, grid, [fc1, conv], grids=[experts, audio], comm=comm)
    for line in ["fc1 (experts ep=2,edp=2, 0 elements here, f32): SUM over 2 ranks, then * 1/max(N, 1).",
                 "  SUM over edp=2: ranks hold other tokens for the same experts.",
                 "  not over ep=2: sharded, ranks hold other elements.",
                 "conv (audio tp=2,dp=2, 0 elements here, f32): SUM over 2 ranks, then * 1/max(N, 1)."]:
        assert line in text.splitlines(), text

    def fails(error, words, buckets, grids):
        raises(error, words, mb.explain, grid, grid, buckets, grids=grids, comm=comm)

    fails(mb.NotFoundError, "no grid 'experts'", [fc1], [audio])
    fails(mb.GridError, "does not name 'ep'", [mb.Bucket("fc1", "dst", grid="experts")], [experts])
    fails(mb.ExistsError, "'audio' already", [], [audio, audio])
    fails(mb.GridError, "names 'dq'", [], [mb.GradientGrid("audio", audio.grid, "dq")])
    fails(mb.MismatchError, "add grid 'audio'", [], [audio if comm.rank == 3 else experts])
    fails(mb.ArgumentError, "no GradientGrid", [], [grid])
    fails(mb.ArgumentError, "no Grid", [], [mb.GradientGrid("audio", "dp=4")])


@case(4)
def grid_questions_on_ranks(comm):
    bridge = mb.Bridge(mb.Grid("tp=2,dp=2"), mb.Grid("dp=4"), comm=comm, name="images")
    assert gather(bridge.samples("src", 6)) == [(0, 3), (0, 3), (3, 3), (3, 3)]
    assert gather(bridge.samples("dst", 6)) == [(0, 2), (2, 2), (4, 1), (5, 1)]
    raises(mb.ArgumentError, "side", bridge.samples, "left", 6)
    assert "tp=2,dp=2 -> dp=4" in repr(bridge)
