"""Balanced encoders: rows and every gradient as without balance, on any grids."""
import copy

import torch

import mimo_bridge as mb
from mimo_bridge import balanced_encoder as module
from rank_runner import case, gather, raises, same
from tile_model import Side, dice

F64 = torch.float64
IMAGE, C, H, MERGE = 7, 5, 3, 2


class Encoder(torch.nn.Module):
    """Attention inside an image, then rows of MERGE patches."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.mix = torch.nn.Linear(C, C, dtype=F64)
        self.out = torch.nn.Linear(MERGE * C, H, dtype=F64)
        self.calls = []  # the counts of each call

    def forward(self, patches, counts, cu_seqlens):
        self.calls.append(counts)
        assert cu_seqlens.dtype == torch.int32 and cu_seqlens.tolist() == [sum(counts[:i]) for i in
                                                                         range(len(counts) + 1)]
        images = []
        for image in patches.split(counts):
            scores = torch.softmax(self.mix(image) @ image.T, -1)
            images.append((scores @ image).reshape(-1, MERGE * C))
        return self.out(torch.cat(images))


def draw_batch(seed, batch, most=3):
    """Images of unequal samples: some have none, some have large ones; some images are adjacent."""
    roll = dice(seed)
    images, ids = [], []
    for b in range(batch):
        counts = [MERGE * roll.choice((1, 1, 2, 9)) for _ in range(roll.choice((0, 1, most)))]
        line = [1]
        for p in counts:
            line += [IMAGE] * (p // MERGE) + [2] * roll.choice((0, 2))
        images.append(counts)
        ids.append(line)
    seq = -(-max(map(len, ids)) // 8) * 8
    ids = torch.tensor([line + [0] * (seq - len(line)) for line in ids])
    torch.manual_seed(seed)
    patches = [[torch.randn(p, C, dtype=F64) for p in counts] for counts in images]
    return patches, ids


def whole_tile(encoder, patches, ids):
    """[S, B, H] on one process: each image by itself."""
    rows = [encoder(p, [len(p)], torch.tensor([0, len(p)], dtype=torch.int32)) for sample in patches for p in sample]
    tile = torch.zeros(*ids.shape, H, dtype=F64)
    if rows:
        tile = tile.masked_scatter((ids == IMAGE).unsqueeze(-1).expand_as(tile), torch.cat(rows))
    return tile.transpose(0, 1)


def loaded(side, rank, patches, ids):
    """What a rank loads: the images of its samples, and their ids."""
    samples = side.samples(rank, len(ids))
    mine = [p for b in samples for p in patches[b]]
    flat = torch.cat(mine) if mine else torch.zeros(0, C, dtype=F64)
    return flat, [len(p) for p in mine], ids[samples] if samples else None


def summed_gradients(comm, src, encoder):
    """Over the encoder's lanes: ranks along tp have equal ones."""
    mine = [p.grad for p in encoder.parameters()]
    all_of = gather((mb.Grid(src).coords(comm.rank).get("tp", 0), mine))
    return [sum(grads[i] for tp, grads in all_of if tp == 0) for i in range(len(mine))]


def close(got, wanted, what):
    assert got.shape == wanted.shape, f"{what}: {got.shape}, {wanted.shape}"
    error = (got - wanted).abs().max().item() if got.numel() else 0
    assert error <= 1e-12 * max(1, wanted.abs().max().item() if wanted.numel() else 0), f"{what}: {error}"


def grids(n):
    """src, dst, whether sp cuts as well."""
    if n == 1:
        return [("dp=1", "dp=1", False)]
    if n == 2:
        return [("dp=2", "cp=2", False), ("dp=2", "tp=2", True), ("tp=2", "dp=2", False)]
    return [(f"dp={n}", f"cp=2,dp={n // 2}", False), (f"tp=2,dp={n // 2}", f"tp=2,cp=2,dp={n // 4}", True),
            (f"dp={n}", f"pp=2,dp={n // 2}", False), (f"dp={n // 2},tp=2", f"dp={n}", False)]


def check(comm, balanced, encoder, plain, setup, seed, micro_batch=None):
    """A call of a batch, its rows, and the gradients of its own loss."""
    src, loader, side, patches, ids = setup
    mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
    if micro_batch is None:
        y = balanced(mine, counts, ids=own_ids)
    else:
        y = balanced(mine, micro_batch=micro_batch)
    wanted = whole_tile(plain, patches, ids)
    close(y.detach(), side.tile(comm.rank, wanted.detach().transpose(0, 1)), f"rows of {seed}")
    torch.manual_seed(seed)
    weights = torch.randn(wanted.shape, dtype=F64)
    return y, wanted, weights


def backward(comm, setup, call):
    y, wanted, weights = call
    (y * setup[2].tile(comm.rank, weights.transpose(0, 1))).sum().backward()
    if wanted.requires_grad:  # a batch without images has no gradients
        (wanted * weights).sum().backward()


def sides(src, dst, home, sp):
    side = Side(dst, 0, "sbh", cuts=True, sp=sp)
    return (Side(src, 0, "sbh") if home == "src" else Side(dst, 0, "sbh")), side


@case(1, 2, 4, 8)
def as_without_balance(comm):
    """Rows, and every gradient of the encoder's parameters, which lie on other ranks than without."""
    for trial, (src, dst, sp) in enumerate(grids(comm.size)):
        for home in ("dst", "src"):
            loader, side = sides(src, dst, home, sp)
            encoder, plain = Encoder(), Encoder()
            balanced = mb.Balanced(encoder, mb.Grid(src), mb.Grid(dst), special=IMAGE, comm=comm, merge=MERGE,
                                   partition=mb.Partition(sp=sp), cost=4, home=home)
            for step in range(3):  # another batch each; one without images
                patches, ids = draw_batch(100 * trial + step, 3 + comm.size, most=0 if step == 1 else 3)
                if step == 1:
                    patches, ids = [[] for _ in patches], torch.zeros_like(ids)
                setup = src, loader, side, patches, ids
                encoder.zero_grad()
                plain.zero_grad()
                backward(comm, setup, check(comm, balanced, encoder, plain, setup, step))
                if any(map(len, patches)):
                    for got, p in zip(summed_gradients(comm, src, encoder), plain.parameters()):
                        close(got, p.grad, f"{src} -> {dst}, {home}: a gradient of step {step}")
                else:
                    assert all(p.grad is not None and not p.grad.any() for p in encoder.parameters())
            balanced.close()


@case(4)
def lanes_are_even(comm):
    """All images are of lane 0's samples: the others encode three quarters of them."""
    encoder = Encoder()
    balanced = mb.Balanced(encoder, mb.Grid("dp=4"), mb.Grid("dp=4"), special=IMAGE, comm=comm, merge=MERGE)
    ids = torch.full((1, 16), IMAGE) if comm.rank == 0 else torch.zeros(1, 16, dtype=torch.int64)
    counts = [8, 2, 2, 2, 2, 2, 2, 8, 2, 2] if comm.rank == 0 else []
    balanced(torch.ones(sum(counts), C, dtype=F64), counts, ids=ids)
    assert sum(encoder.calls[0]) == 8, encoder.calls
    report = balanced.report()
    assert report.longest_home == 32 and report.longest == 8 and report.rows_moved == 24, report
    loaded_here = Encoder()
    as_loaded = mb.Balanced(loaded_here, mb.Grid("dp=4"), mb.Grid("dp=4"), special=IMAGE, comm=comm, merge=MERGE,
                            assign=lambda cost, lanes, rows, home: home)
    as_loaded(torch.ones(sum(counts), C, dtype=F64), counts, ids=ids)
    assert loaded_here.calls == [counts or [MERGE]] and as_loaded.report().rows_moved == 0
    as_loaded.close()
    counts = [4] if comm.rank == 0 else []
    ids = torch.tensor([[IMAGE, IMAGE] + [0] * 14]) if comm.rank == 0 else ids
    y = balanced(torch.ones(sum(counts), C, dtype=F64), counts, ids=ids)
    assert encoder.calls[1:] == [[4] if comm.rank == 0 else [MERGE]] and y.shape == (16, 1, H)
    balanced.close()


@case(4)
def into_text(comm):
    """Rows in a text tile: its other positions stay, and have its gradients."""
    src, dst = "dp=4", "cp=2,dp=2"
    loader, side = sides(src, dst, "dst", False)
    encoder, plain = Encoder(), Encoder()
    balanced = mb.Balanced(encoder, mb.Grid(src), mb.Grid(dst), special=IMAGE, comm=comm, merge=MERGE,
                           partition=mb.Partition())
    patches, ids = draw_batch(3, 6)
    text = side.tile(comm.rank, torch.randn(*ids.shape, H, dtype=F64, generator=torch.Generator().manual_seed(1)))
    text.requires_grad_()
    mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
    y = balanced(mine, counts, ids=own_ids, into=text)
    rows = side.tile(comm.rank, whole_tile(plain, patches, ids).detach().transpose(0, 1))
    taken = side.tile(comm.rank, (ids == IMAGE).unsqueeze(-1).expand(*ids.shape, H))
    close(y.detach(), torch.where(taken, rows, text.detach()), "text with rows")
    y.sum().backward()
    same(text.grad, (~taken).to(F64), "the gradient of the text")
    balanced.close()


@case(2, 4)
def micro_batches(comm):
    """All told at once; forwards first, backwards then. And two calls without a plan, likewise."""
    n = comm.size
    src, dst = f"dp={n}", f"cp=2,dp={n // 2}"
    loader, side = sides(src, dst, "dst", False)
    encoder, plain = Encoder(), Encoder()
    balanced = mb.Balanced(encoder, mb.Grid(src), mb.Grid(dst), special=IMAGE, comm=comm, merge=MERGE,
                           partition=mb.Partition())
    batches = [(src, loader, side, *draw_batch(40 + i, 2 + i)) for i in range(4)]
    balanced.plan([loaded(loader, comm.rank, *setup[3:])[1:] for setup in batches])
    calls = [check(comm, balanced, encoder, plain, setup, i, i) for i, setup in reversed(list(enumerate(batches)))]
    for setup, call in zip(reversed(batches), calls):
        backward(comm, setup, call)
    calls = [check(comm, balanced, encoder, plain, setup, i) for i, setup in enumerate(batches[:2])]
    for setup, call in zip(batches, calls):
        backward(comm, setup, call)
    for got, p in zip(summed_gradients(comm, src, encoder), plain.parameters()):
        close(got, p.grad, "a gradient")
    balanced.close()


@case(2, 4)
def patches_with_gradients(comm):
    """They come home, on all ranks that have loaded the image."""
    n = comm.size
    src, dst = f"dp={n}", f"cp=2,dp={n // 2}"
    loader, side = sides(src, dst, "dst", False)
    balanced = mb.Balanced(Encoder(), mb.Grid(src), mb.Grid(dst), special=IMAGE, comm=comm, merge=MERGE,
                           partition=mb.Partition())
    patches, ids = draw_batch(12, 2 * n)
    leaves = [[p.clone().requires_grad_() for p in sample] for sample in patches]
    whole_tile(Encoder(), leaves, ids).square().sum().backward()
    mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
    mine.requires_grad_(comm.rank == 0)  # one bit of one rank is enough
    balanced(mine, counts, ids=own_ids).square().sum().backward()
    if comm.rank == 0:
        wanted = [p.grad for b in loader.samples(0, len(ids)) for p in leaves[b]]
        close(mine.grad, torch.cat(wanted) if wanted else mine.detach(), "the gradient of patches")
    balanced.close()


class TwoDepths(Encoder):
    def forward(self, patches, counts, cu_seqlens):
        rows = super().forward(patches, counts, cu_seqlens)
        return rows, rows[:, :1].float()


@case(2, 4)
def several_features(comm):
    """An encoder's features of two depths move in one call."""
    src, dst = f"dp={comm.size}", f"cp=2,dp={comm.size // 2}"
    loader, side = sides(src, dst, "dst", False)
    balanced = mb.Balanced(TwoDepths(), mb.Grid(src), mb.Grid(dst), special=IMAGE, comm=comm, merge=MERGE,
                           partition=mb.Partition())
    patches, ids = draw_batch(8, comm.size)
    mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
    deep, flat = balanced(mine, counts, ids=own_ids)
    wanted = side.tile(comm.rank, whole_tile(Encoder(), patches, ids).detach().transpose(0, 1))
    close(deep.detach(), wanted, "deep")
    same(flat.detach(), wanted[..., :1].float(), "flat")
    balanced.close()


@case(4)
def what_does_not_fit(comm):
    """The same sentence on every rank, and the module goes on."""
    grid = mb.Grid("dp=4")
    balanced = mb.Balanced(Encoder(), grid, mb.Grid("cp=2,dp=2"), special=IMAGE, comm=comm, merge=MERGE,
                           partition=mb.Partition())
    lane = comm.rank // 2
    ids = torch.tensor([[IMAGE, IMAGE, 0, 0, 0, 0, 0, 0]])

    def call(counts, ids, **more):
        return balanced(torch.zeros(sum(counts), C, dtype=F64), counts, ids=ids, **more)

    raises(mb.ShapeError, "sample 1 of lane 1: 2 special ids, its images have 3 rows", call,
           [4 + 2 * lane], ids)
    raises(mb.ShapeError, "sample 0 of lane 0: 2 special ids, its images have 0 rows", call, [4] * lane, ids)
    raises(mb.ShapeError, "lane 1 has 1 images more than its special ids take", call, [4] * (1 + lane), ids)
    raises(mb.ShapeError, "image 0 of this rank has 3 patches, no multiple of merge=2", call, [3], ids)
    raises(mb.MismatchError, "ranks 0 and 1 of lane 0 have loaded other images: 1 of 4 patches with 2 special", call,
           [2, 2] if comm.rank == 1 else [4], ids)
    raises(mb.ShapeError, "lane 0 has ids of 1 samples and 8 positions, and of 3 samples it takes 2", call,
           [4] * (1 + lane), ids.repeat(1 + lane, 1))
    raises(mb.MismatchError, "ranks tell [1, 2] micro-batches", balanced.plan,
           [([4], ids)] * (1 + comm.rank % 2))
    raises(mb.ArgumentError, "no micro-batch", balanced.plan, [])
    balanced.plan([([4], ids)])
    raises(mb.ArgumentError, "patches need gradients: plan(..., patch_gradients=True)", balanced,
           torch.zeros(4, C, dtype=F64, requires_grad=True), micro_batch=0)
    raises(mb.ShapeError, "have 4 rows", balanced, torch.zeros(6, C, dtype=F64), micro_batch=0)
    assert call([4], ids).shape == (4, 1, H)
    raises(mb.UnsupportedError, "every rank encodes", mb.Balanced, Encoder(), mb.Grid("dp=2"), grid,
           special=IMAGE, comm=comm)
    balanced.close()


@case(1)
def assignments(comm):
    """mb.balance is the planner of the library."""
    assert mb.balance([3, 8, 5, 5, 1], 2) == [0, 0, 1, 1, 1]
    assert mb.balance(torch.tensor([4, 3, 2, 1]), 2, home=[0] * 4) == [0, 1, 1, 0]
    assert mb.balance([1, 5, 1, 1], 2, in_order=True) == [0, 0, 1, 1]
    assert mb.balance([], 3) == []
    report = mb.balance_report([0, 1, 1, 0], [4, 3, 2, 1], 2, rows=[40, 30, 20, 10], home=[0] * 4)
    assert (report.longest_home, report.longest, report.rows_moved, report.empty_lanes) == (10, 5, 50, 0)
    assert mb.image_cost([1, 2], 10) == [61, 124]
    raises(mb.ArgumentError, "item 1 costs -1", mb.balance, [1, -1], 2)
    raises(mb.ShapeError, "item 0 of 9 rows fits no lane of at most 4", mb.balance, [9], 2, max_rows=4)
    raises(mb.ShapeError, "1 numbers of home for 2 items", mb.balance, [1, 2], 2, home=[0])
    raises(mb.ArgumentError, "cost", mb.balance, [1.5], 2)


@case(4)
def many_images(comm):
    """More numbers than fit the first gather."""
    grid = mb.Grid("dp=4")
    balanced = mb.Balanced(Encoder(), grid, grid, special=IMAGE, comm=comm, merge=MERGE)
    ids = torch.full((1, 2 * module.ROOM), IMAGE)
    y = balanced(torch.zeros(4 * module.ROOM, C, dtype=F64), [MERGE] * (2 * module.ROOM), ids=ids)
    assert y.shape == (2 * module.ROOM, 1, H)
    balanced.close()
