"""Balanced encoders: rows and every gradient as without balance, on any grids."""
import copy

import torch
from torch.utils.checkpoint import checkpoint

import mimo_bridge as mb
from mimo_bridge import balanced_encoder as module
from rank_runner import case, gather, raises, same
from tile_model import Side, dice

F64 = torch.float64
IMAGE, SOUND, C, H, MERGE = 7, 8, 5, 3, 2


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


def whole_tile(encoder, patches, ids, special=IMAGE):
    """[S, B, H] on one process: each image by itself."""
    rows = [encoder(p, [len(p)], torch.tensor([0, len(p)], dtype=torch.int32)) for sample in patches for p in sample]
    tile = torch.zeros(*ids.shape, H, dtype=F64)
    if rows:
        tile = tile.masked_scatter((ids == special).unsqueeze(-1).expand_as(tile), torch.cat(rows))
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


def same_gradients(comm, src, encoder, plain, what="a gradient"):
    for got, p in zip(summed_gradients(comm, src, encoder), plain.parameters()):
        close(got, p.grad, what)


def halves(comm):
    """The number of ranks; an encoder on all, and an LLM that cuts sequences in two; their sides."""
    n = comm.size
    src, dst = f"dp={n}", f"cp=2,dp={n // 2}"
    return n, src, dst, *sides(src, dst, "dst", False)


def balance(comm, encoder, src, dst, **more):
    """An encoder of images between two grids, with a partition, unless `more` says otherwise."""
    usual = dict(special=IMAGE, comm=comm, merge=MERGE, partition=mb.Partition())
    return mb.Balanced(encoder, mb.Grid(src), mb.Grid(dst), **{**usual, **more})


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


def pack_batch(seed, packs, cp, seq):
    """Packs of `seq` tokens, of documents that 2 cp divides: ids, cumulative lengths and images of each."""
    roll = dice(seed)
    torch.manual_seed(seed)
    images, ids, cus = [], [], []
    for _ in range(packs):
        cu = [0]
        while cu[-1] < seq:
            cu.append(min(seq, cu[-1] + 2 * cp * roll.choice((0, 1, 1, 2, 3))))
        line, counts = [1] * seq, []
        at = roll.choice((0, 1))
        while at < seq:
            rows = min(roll.choice((1, 2, 5)), seq - at, next(end for end in cu if end > at) - at)
            line[at:at + rows] = [IMAGE] * rows
            counts.append(MERGE * rows)
            at += rows + roll.choice((0, 1, 7))
        line = [token if token == IMAGE else 2 + roll.choice(range(4)) for token in line]
        images.append([torch.randn(p, C, dtype=F64) for p in counts])
        ids.append(line)
        cus.append(cu)
    return images, torch.tensor(ids), cus


class Words(torch.nn.Module):
    """What stands in for a language model: tokens, learned positions, positions in three dimensions (mrope), a head. A
    token's loss depends on its own row, its places in its document and the document's next token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.words, self.places = (torch.nn.Parameter(torch.randn(n, H, dtype=F64)) for n in (10, 64))
        self.head = torch.nn.Linear(H, 10, dtype=F64)

    def loss(self, rows, positions, mrope, labels):
        turned = rows * torch.cos(0.1 * mrope[1])[..., None] + torch.sin(0.3 * mrope[0] + 0.2 * mrope[2])[..., None]
        logits = self.head(torch.tanh(turned + self.places[positions]))
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 10), labels.reshape(-1), reduction="sum")


def mrope_of(length):
    """[3, length] of a document."""
    at = torch.arange(length)
    return torch.stack([at, at // 3, at % 3])


def loss_of_documents(words, encoder, images, ids, cus):
    """Each document by itself, with its own images."""
    loss, targets = 0, 0
    for sample, line, cu in zip(images, ids, cus):
        sample = list(sample)
        for begin, end in zip(cu[:-1], cu[1:]):
            document = line[begin:end]
            if not len(document):
                continue
            mine = []
            while sum(len(p) for p in mine) < MERGE * int((document == IMAGE).sum()):
                mine.append(sample.pop(0))
            image = whole_tile(encoder, [mine], document[None])[:, 0]
            rows = torch.where((document == IMAGE)[:, None], image, words.words[document])
            labels = torch.cat([document[1:], document.new_tensor([-100])])
            labels = torch.where(labels == IMAGE, -100, labels)
            loss = loss + words.loss(rows, torch.arange(len(document)), mrope_of(len(document)), labels)
            targets += int((labels != -100).sum())
    return loss / targets, targets


@case(1, 2, 4)
def packed_documents(comm):
    """Packs whose documents differ from sample to sample: the loss, and every gradient, of the documents apart."""
    grid_texts = {1: ("dp=1", "dp=1", False), 2: ("dp=2", "cp=2", False), 4: ("dp=4", "cp=2,dp=2", False)}
    choices = [grid_texts[comm.size]] + ([("dp=4", "tp=2,cp=2", True)] if comm.size == 4 else [])
    for trial, (src, dst, sp) in enumerate(choices):
        llm, cp = mb.Grid(dst), mb.Grid(dst).dim("cp")
        loader = Side(dst, 0, "sbh")
        images, ids, cus = pack_batch(40 + trial, 3, cp * (2 if sp else 1), 32)
        samples = loader.samples(comm.rank, 3)
        mine, counts, own_ids = loaded(loader, comm.rank, images, ids)
        encoder, words, plain, plain_words = Encoder(), Words(), Encoder(), Words()
        balanced = mb.Balanced(encoder, mb.Grid(src), llm, special=IMAGE, comm=comm, merge=MERGE,
                               partition=mb.Partition(sp=sp), dst_layout="bsh")
        alone = mb.Balanced(encoder, mb.Grid(src), llm, special=IMAGE, comm=comm, merge=MERGE,
                            partition=mb.Partition(sp=sp), dst_layout="th")
        rules = [mb.Partition(sp=sp, cu=cus[b]) for b in samples]
        parts = [rule.at(llm, comm.rank) for rule in rules]
        index = torch.stack([part.index(32) for part in parts]).to(own_ids.device)
        positions = torch.stack([part.positions(32) for part in parts]).to(own_ids.device)
        labels = torch.stack([rule.shift_labels(ids[b]) for rule, b in zip(rules, samples)])
        labels = torch.where(labels == IMAGE, -100, labels).gather(1, index)
        mrope = torch.stack([torch.cat([mrope_of(b - a) for a, b in zip(cus[s][:-1], cus[s][1:])], 1)[:, rows]
                             for s, rows in zip(samples, index)], 1)
        text = words.words[own_ids.gather(1, index)]
        y = balanced(mine, counts, ids=own_ids, packs=[cus[b] for b in samples], into=text)
        wanted, targets = loss_of_documents(plain_words, plain, images, ids, cus)
        (words.loss(y, positions, mrope, labels) / targets).backward()
        wanted.backward()
        copies = 1 if sp else llm.dim("tp")
        for got, of in zip([*words.parameters()], [*plain_words.parameters()]):
            close(sum(gather(got.grad)) / copies, of.grad, f"words of {dst}")
        for got, of in zip(summed_gradients(comm, src, encoder), plain.parameters()):
            close(got, of.grad, f"encoder of {dst}")
        rows = alone(mine, counts, ids=own_ids, packs=[cus[b] for b in samples])
        same(rows.detach(), y.detach()[own_ids.gather(1, index) == IMAGE])
        bridge = mb.Bridge(mb.Grid(src), llm, comm=comm, partition=mb.Partition(sp=sp), layout="th", dst_layout="bsh")
        first, many = bridge.samples("src", 3)
        given = [encoder(p, [len(p)], torch.tensor([0, len(p)], dtype=torch.int32)) for sample in
                 images[first:first + many] for p in sample]
        bridge.update(mb.Batch(batch=3, spans=mb.spans_of(ids, IMAGE, packs=cus, cp=cp)))
        placed = bridge.place(text.detach(), torch.cat(given).detach() if given else torch.zeros(0, H, dtype=F64))
        close(placed, y.detach(), f"rows that a bridge placed, {dst}")
        for module in (balanced, alone, bridge):
            module.close()


@case(2)
def packs_that_do_not_fit(comm):
    balanced = balance(comm, Encoder(), "dp=2", "cp=2")
    images, ids, cus = pack_batch(7, 2, 2, 16)
    flat, counts = torch.cat([p for sample in images for p in sample]), [len(p) for sample in images for p in sample]
    for packs, words in ((cus[:1], "1 packs, for 2 samples"), ([cus[0], [0, 12]], "the pack of sample 1"),
                         ([cus[0], [1, 16]], "lengths 1 to 16"), ([cus[0], [0, 6, 16]], "sample 1: sequence 0"),
                         ([[], cus[1]], "the pack of sample 0")):
        raises(mb.ShapeError, words, balanced, flat, counts, ids=ids, packs=packs)
    other = [[0, 4, 16], [0, 16]] if comm.rank else [[0, 8, 16], [0, 16]]
    raises(mb.MismatchError, "other images", balanced, flat, counts, ids=ids, packs=other)
    balanced(flat, counts, ids=ids, packs=cus)
    raises(mb.UnsupportedError, "packs=", mb.Balanced, Encoder(), mb.Grid("dp=2"), mb.Grid("cp=2"), special=IMAGE,
           comm=comm, partition=mb.Partition(cu=[0, 8]))
    balanced.close()


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
            balanced = balance(comm, encoder, src, dst, partition=mb.Partition(sp=sp), cost=4, home=home)
            for step in range(3):  # another batch each; one without images
                patches, ids = draw_batch(100 * trial + step, 3 + comm.size, most=0 if step == 1 else 3)
                if step == 1:
                    patches, ids = [[] for _ in patches], torch.zeros_like(ids)
                setup = src, loader, side, patches, ids
                encoder.zero_grad()
                plain.zero_grad()
                backward(comm, setup, check(comm, balanced, encoder, plain, setup, step))
                if any(map(len, patches)):
                    same_gradients(comm, src, encoder, plain, f"{src} -> {dst}, {home}: a gradient of step {step}")
                else:
                    assert all(p.grad is not None and not p.grad.any() for p in encoder.parameters())
            balanced.close()


@case(2, 4, 8)
def rows_alone(comm):
    """dst_layout th: the rows of this rank's shard, in the order of its ids, and every gradient."""
    for trial, (src, dst, sp) in enumerate(grids(comm.size)):
        for cuts in (True, False):
            loader, side = sides(src, dst, "dst", sp)
            side = side if cuts else Side(dst, 0, "sbh")
            encoder, plain = Encoder(), Encoder()
            balanced = balance(comm, encoder, src, dst, partition=mb.Partition(sp=sp) if cuts else None, cost=4,
                               dst_layout="th")
            for step, most in enumerate((3, 0, 5)):  # the second batch has no image
                patches, ids = draw_batch(100 * trial + step, 3 + comm.size, most=max(most, 1))
                if most == 0:
                    patches, ids = [[] for _ in patches], torch.zeros_like(ids)
                mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
                y = balanced(mine, counts, ids=own_ids)
                wanted = whole_tile(plain, patches, ids)
                torch.manual_seed(step)
                weights = torch.randn(wanted.shape, dtype=F64)
                marks = (ids == IMAGE).unsqueeze(-1)
                here = side.tile(comm.rank, marks)[..., 0].T
                rows = [side.tile(comm.rank, one.detach().transpose(0, 1)).transpose(0, 1)[here]
                        for one in (wanted, weights)]
                close(y.detach(), rows[0], f"rows of {src} -> {dst}, {sp}, step {step}")
                encoder.zero_grad()
                plain.zero_grad()
                (y * rows[1]).sum().backward()
                if wanted.requires_grad:
                    (wanted * weights).sum().backward()
                # Without a partition every rank along cp has all rows, and its part of their gradient.
                copies = 1 if cuts else mb.Grid(dst).dim("cp")
                for got, p in zip(summed_gradients(comm, src, encoder), plain.parameters()):
                    close(got, torch.zeros_like(p) if p.grad is None else copies * p.grad, f"{src} -> {dst}: a gradient")
            balanced.close()
    if comm.size == 8:
        raises(mb.GridError, "tp=2 lies between", mb.Balanced, Encoder(), mb.Grid("dp=8"), mb.Grid("cp=2,tp=2,dp=2"),
               special=IMAGE, comm=comm, partition=mb.Partition(), dst_layout="th")


@case(2, 4)
def rows_of_other_lengths(comm):
    """dst_layout th without a partition: lanes may pad to other lengths. A tile of text has no place there."""
    n = comm.size
    encoder, plain = Encoder(), Encoder()
    lanes = mb.Grid(f"dp={n}")
    balanced = mb.Balanced(encoder, lanes, lanes, special=IMAGE, comm=comm, merge=MERGE, dst_layout="th",
                           empty_extras=[0])
    ids = torch.zeros(1, 5 + 3 * comm.rank, dtype=torch.int64)
    ids[0, 2:2 + comm.rank] = IMAGE
    patches = global_patches(comm.rank)
    images = [len(patches)] if comm.rank else []
    extras = torch.zeros(len(images), 1, dtype=torch.int64)  # of a rank without images: [0, 1]
    encoder.forward, take = (lambda p, counts, ends, numbers: take(p, counts, ends)), encoder.forward
    y = balanced(patches, images, ids=ids, extras=extras)
    wanted = plain(patches, images, torch.tensor([0, *images], dtype=torch.int32)) if images else torch.zeros(0, H)
    close(y.detach(), wanted.detach().to(F64), "rows")
    error = raises(mb.ArgumentError, "rows alone", balanced, patches, images, ids=ids, extras=extras,
                   into=torch.zeros(ids.shape[1], 1, H, dtype=F64))
    assert "into=" in str(error)
    balanced.close()


def global_patches(rank):
    """One image of `rank` rows."""
    torch.manual_seed(rank)
    return torch.randn(rank * MERGE, C, dtype=F64)


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
    balanced = balance(comm, encoder, src, dst)
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


@case(4)
def two_modalities(comm):
    """Images and sounds of one batch in one text, each by an encoder of its own grid: rows, and every gradient."""
    dst = "cp=2,dp=2"
    (patches, ids), (waves, sounds) = draw_batch(3, 6), draw_batch(4, 6)
    ids = torch.cat([ids, torch.where(sounds == IMAGE, SOUND, sounds)], 1)
    side = sides(dst, dst, "dst", False)[1]
    numbers = torch.Generator().manual_seed(1)
    text, weights = (torch.randn(*ids.shape, H, dtype=F64, generator=numbers) for _ in range(2))
    own_text = side.tile(comm.rank, text).requires_grad_()
    y, wanted, encoders = own_text, torch.zeros(*ids.shape[::-1], H, dtype=F64), []
    for special, src, inputs in ((IMAGE, "dp=4", patches), (SOUND, "tp=2,dp=2", waves)):
        encoder, plain = Encoder(), Encoder()
        for p in (*encoder.parameters(), *plain.parameters()):
            p.data *= special
        loader = sides(src, dst, "dst", False)[0]
        balanced = balance(comm, encoder, src, dst, special=special)
        mine, counts, own_ids = loaded(loader, comm.rank, inputs, ids)
        y = balanced(mine, counts, ids=own_ids, into=y)
        wanted = wanted + whole_tile(plain, inputs, ids, special)
        encoders.append((src, encoder, plain, balanced))
    taken = ((ids == IMAGE) | (ids == SOUND)).unsqueeze(-1).expand_as(text)
    rows = torch.where(taken, wanted.detach().transpose(0, 1), text)
    close(y.detach(), side.tile(comm.rank, rows), "rows of both")
    (y * side.tile(comm.rank, weights)).sum().backward()
    (wanted * weights.transpose(0, 1)).sum().backward()
    same(own_text.grad, side.tile(comm.rank, weights.masked_fill(taken, 0)), "the gradient of the text")
    for src, encoder, plain, balanced in encoders:
        for got, p in zip(summed_gradients(comm, src, encoder), plain.parameters()):
            close(got, p.grad, f"a gradient of the encoder on {src}")
        balanced.close()


@case(2, 4)
def micro_batches(comm):
    """All told at once; forwards first, backwards then. And two calls without a plan, likewise."""
    n, src, dst, loader, side = halves(comm)
    encoder, plain = Encoder(), Encoder()
    balanced = balance(comm, encoder, src, dst)
    batches = [(src, loader, side, *draw_batch(40 + i, 2 + i)) for i in range(4)]
    balanced.plan([loaded(loader, comm.rank, *setup[3:])[1:] for setup in batches])
    calls = [check(comm, balanced, encoder, plain, setup, i, i) for i, setup in reversed(list(enumerate(batches)))]
    for setup, call in zip(reversed(batches), calls):
        backward(comm, setup, call)
    calls = [check(comm, balanced, encoder, plain, setup, i) for i, setup in enumerate(batches[:2])]
    for setup, call in zip(batches, calls):
        backward(comm, setup, call)
    same_gradients(comm, src, encoder, plain)
    balanced.close()


@case(2, 4)
def patches_with_gradients(comm):
    """They come home, on all ranks that have loaded the image."""
    n, src, dst, loader, side = halves(comm)
    balanced = balance(comm, Encoder(), src, dst)
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
    balanced = balance(comm, TwoDepths(), src, dst)
    patches, ids = draw_batch(8, comm.size)
    mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
    deep, flat = balanced(mine, counts, ids=own_ids)
    wanted = side.tile(comm.rank, whole_tile(Encoder(), patches, ids).detach().transpose(0, 1))
    close(deep.detach(), wanted, "deep")
    same(flat.detach(), wanted[..., :1].float(), "flat")
    balanced.close()


@case(2, 4)
def prefetches(comm):
    """Gathers of later calls, two in flight: rows as without, a batch larger than all before, and a call of other
    counts than were told."""
    n, src, dst, loader, side = halves(comm)
    encoder, plain = Encoder(), Encoder()
    balanced = balance(comm, encoder, src, dst)
    setups = [(src, loader, side, *draw_batch(60 + i, (3, 40, 5, 4)[i])) for i in range(4)]
    told = [loaded(loader, comm.rank, *setup[3:])[1:] for setup in setups]
    for step, setup in enumerate(setups):
        if step == 0:
            balanced.prefetch(*told[0])
            balanced.prefetch(*told[1])
        call = check(comm, balanced, encoder, plain, setup, step)
        backward(comm, setup, call)
        if step == 1:
            balanced.prefetch(*told[2])
    same_gradients(comm, src, encoder, plain)
    balanced.prefetch(*told[0])
    counts, ids = told[0]
    other = [] if comm.rank else [MERGE]
    raises(mb.ArgumentError, "other counts, ids, extras or packs than its prefetch had", balanced,
           torch.zeros(sum(other), C, dtype=F64), other, ids=None)
    balanced.prefetch([1.5] if comm.rank else counts, ids)
    raises(mb.ArgumentError, "a count is a whole number, not 1.5", balanced,
           torch.zeros(sum(counts), C, dtype=F64), counts, ids=ids)
    backward(comm, setups[3], check(comm, balanced, encoder, plain, setups[3], 3))
    balanced.prefetch(counts, ids)  # closed in flight
    balanced.close()


@case(2, 4)
def into_buffers(comm):
    """Patches, rows and gradients in slots, which are free again after backward."""
    n, src, dst, loader, side = halves(comm)
    encoder, plain = Encoder(), Encoder()
    buffer, grad_buffer = mb.Buffer(1 << 16, 2, comm=comm), mb.Buffer(1 << 16, 2, comm=comm)
    balanced = balance(comm, encoder, src, dst, buffer=buffer, grad_buffer=grad_buffer)
    for step in range(3):
        setup = src, loader, side, *draw_batch(30 + step, 2 * n)
        call = check(comm, balanced, encoder, plain, setup, step)
        assert buffer._address <= call[0].data_ptr() < buffer._address + 2 * (1 << 16), "rows lie elsewhere"
        backward(comm, setup, call)
        del call
    same_gradients(comm, src, encoder, plain)
    balanced.close()
    buffer.close()
    grad_buffer.close()


@case(4)
def prefetch_is_left(comm):
    """A communicator that ends before its gather was waited for."""
    grid = mb.Grid("dp=4")
    balanced = mb.Balanced(Encoder(), grid, grid, special=IMAGE, comm=comm, merge=MERGE)
    balanced.prefetch([], torch.zeros(1, 8, dtype=torch.int64))


@case(2, 4)
def lanes_without_a_call(comm):
    """empty="skip": an encoder is not called without images, from the first call on. Rows, a text around them, and
    gradients are as ever."""
    n, src, dst, loader, side = halves(comm)
    encoder, plain = Encoder(), Encoder()
    balanced = balance(comm, encoder, src, dst, empty="skip")
    few = [[torch.ones(2 * MERGE, C, dtype=F64)]] + [[] for _ in range(n - 1)]
    ids = torch.zeros(n, 8, dtype=torch.int64)
    ids[0, 2:4] = IMAGE
    none = [[] for _ in range(n)], torch.zeros(n, 8, dtype=torch.int64)
    for step, (patches, ids) in enumerate((none, (few, ids), none, draw_batch(9, 2 * n))):
        setup = src, loader, side, patches, ids
        before = len(encoder.calls)
        backward(comm, setup, check(comm, balanced, encoder, plain, setup, step))
        if step == 0:  # nobody knows what an encoder gives
            assert encoder.calls == [[MERGE]], encoder.calls
        elif step == 1:
            assert encoder.calls[before:] == ([[2 * MERGE]] if comm.rank == 0 else []), encoder.calls
        elif step == 2:
            assert len(encoder.calls) == before
    for p in encoder.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    same_gradients(comm, src, encoder, plain)
    balanced.close()


class Pair(torch.nn.Module):
    """Of two tensors and the numbers of each image."""

    def __init__(self):
        super().__init__()
        self.inner = Encoder()
        self.seen = []

    def forward(self, patches, counts, cu_seqlens, extras):
        pixels, places = patches
        assert places.dtype == torch.int64 and extras.dtype == torch.int64 and len(extras) == len(counts)
        self.seen += extras.tolist()
        scale = torch.cat([one.new_full((count, 1), int(extra.sum())) for one, count, extra in
                           zip(pixels.split(counts), counts, extras)])
        return self.inner(pixels * scale + places, counts, cu_seqlens)


@case(2, 4)
def extras_of_images_and_patches(comm):
    """A grid of each image rides in the gather, positions ride with pixels: both come to the lane that encodes."""
    n, src, dst, loader, side = halves(comm)
    pair, plain = Pair(), Encoder()
    nothing = torch.zeros(MERGE, C, dtype=F64), torch.zeros(MERGE, 1, dtype=torch.int64)
    balanced = balance(comm, pair, src, dst, cost=4, empty=nothing, empty_extras=(0, 0))
    for step in range(3):
        patches, ids = draw_batch(70 + step, (2 * n, 1, n)[step])
        number = {id(p): i for i, p in enumerate(p for sample in patches for p in sample)}
        places = {key: torch.arange(i, i + len(p))[:, None] for sample in patches for p in sample
                  for key, i in [(id(p), number[id(p)])]}
        mine = [p for b in loader.samples(comm.rank, len(ids)) for p in patches[b]]
        pixels, counts, own_ids = loaded(loader, comm.rank, patches, ids)
        positions = torch.cat([places[id(p)] for p in mine]) if mine else torch.zeros(0, 1, dtype=torch.int64)
        extras = torch.tensor([[number[id(p)], 1] for p in mine]) if mine and step else [
            (number[id(p)], 1) for p in mine]
        pair.seen.clear()
        y = balanced((pixels, positions), counts, ids=own_ids, extras=extras)
        y.sum().backward()
        seen = sorted(one for listed in gather(pair.seen) for one in listed if one != [0, 0])
        assert seen == [[i, 1] for i in range(len(number))], seen
        shifted = [[p * (number[id(p)] + 1) + places[id(p)] for p in sample] for sample in patches]
        wanted = whole_tile(plain, shifted, ids)
        close(y.detach(), side.tile(comm.rank, wanted.detach().transpose(0, 1)), "rows")
        if any(map(len, patches)):
            wanted.sum().backward()
    same_gradients(comm, src, pair, plain)
    line = torch.zeros(1, 8, dtype=torch.int64)
    raises(mb.ShapeError, "extras of 1 images, for 0", balanced, (pixels, positions), [], ids=line,
           extras=[[1, 2]])
    line[0, 0] = IMAGE
    raises(mb.ArgumentError, "images have 3 extras, and empty_extras= says 2", balanced, (pixels, positions), [MERGE],
           ids=line, extras=[[1] * 3])
    if n > 2:
        raises(mb.MismatchError, "some lanes have 1 and some 2 extras of an image", balanced, (pixels, positions),
               [MERGE], ids=line,
               extras=[[1] * (1 + comm.rank // 2)])
    balanced.close()


@case(2, 4)
def modules_on_some_ranks(comm):
    """An encoder on some ranks, an LLM on some, shared ones or none."""
    n = comm.size
    half = n // 2
    for src, dst in ((("dp=" + str(half), 0), (f"dp={n}", 0)), ((f"dp={n}", 0), (f"dp={half}", half)),
                     ((f"dp={half}", half), (f"dp={half}", 0)), ((f"tp={half}", 0), (f"dp={half}", half))):
        src_side, loader = Side(src[0], src[1], "sbh"), Side(dst[0], dst[1], "sbh")
        grids = mb.Grid(*src), mb.Grid(*dst)
        encoder, plain = Encoder() if comm.rank in grids[0] else None, Encoder()
        balanced = mb.Balanced(encoder, *grids, special=IMAGE, comm=comm, merge=MERGE)
        for step in range(2):
            patches, ids = draw_batch(80 + step, n)
            mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
            y = balanced(mine, counts, ids=own_ids)
            wanted = whole_tile(plain, patches, ids)
            if loader.holds(comm.rank):
                close(y.detach(), loader.tile(comm.rank, wanted.detach().transpose(0, 1)), f"{src} {dst}")
            else:
                assert y.shape[1] == 0, y.shape
            y.square().sum().backward()
            if wanted.requires_grad:
                wanted.square().sum().backward()
        parts = gather([p.grad for p in encoder.parameters()] if encoder else None)
        first = [grads for rank, grads in enumerate(parts) if grads is not None
                 and grids[0].coords(rank).get("tp", 0) == 0]
        for got, p in zip(zip(*first), plain.parameters()):
            close(sum(got), p.grad, f"{src} {dst}: a gradient")
        balanced.close()


@case(2)
def checkpoints(comm):
    """Around the encoder inside. Around the module it is refused in backward, by all ranks."""
    grid = mb.Grid("dp=2")
    encoder = Encoder()
    inside = lambda *args: checkpoint(encoder, *args, use_reentrant=False)  # noqa: E731
    for use, refused in ((inside, False), (encoder, True)):
        balanced = mb.Balanced(use, grid, grid, special=IMAGE, comm=comm, merge=MERGE)
        ids = torch.tensor([[IMAGE, IMAGE, 0, 0]])
        patches = torch.ones(2 * MERGE, C, dtype=F64)
        if not refused:
            balanced(patches, [2 * MERGE], ids=ids).sum().backward()
            assert len(encoder.calls) == 2, encoder.calls
            balanced.close()
            continue
        for reentrant in (False, True):
            x = patches.clone().requires_grad_()
            y = checkpoint(lambda x: balanced(x, [2 * MERGE], ids=ids).square(), x, use_reentrant=reentrant)
            raises(mb.UnsupportedError, "checkpoint the encoder inside", y.sum().backward)
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
    raises(mb.ShapeError, "image 0 of lane 0 has 3 patches, no multiple of merge=2", call, [3], ids)
    raises(mb.MismatchError, "ranks 0 and 1 of lane 0 have loaded other images: 1 of 4 patches with 2 special", call,
           [2, 2] if comm.rank == 1 else [4], ids)
    raises(mb.ShapeError, "lane 0 has 1 samples of 8 positions, and of 3 samples it takes 2 of 8", call,
           [4] * (1 + lane), ids.repeat(1 + lane, 1))
    raises(mb.ShapeError, "ids have shape []", call, [], torch.tensor(IMAGE) if comm.rank == 3 else ids)
    runs = torch.tensor([[IMAGE, IMAGE, 0, IMAGE, 0, 0, 0, 0]])  # of 2 and 1, and images of 1 and 2 rows
    raises(mb.ShapeError, "image 1 of lane 1 has 2 rows, and the run of special ids at position 0 of sample 1 has 1 left",
           call, [2, 4] if lane else [4, 2], runs)
    raises(mb.StateError, "micro_batch=0, and no plan() is in force", *(
        [balanced, torch.zeros(4, C, dtype=F64)] if comm.rank == 2 else [call, [4], ids]),
        **({"micro_batch": 0} if comm.rank == 2 else {}))
    assert call([4], ids).shape == (4, 1, H)
    raises(mb.StateError, "no plan() is in force", balanced, torch.zeros(4, C, dtype=F64), micro_batch=0)
    raises(mb.MismatchError, "ranks tell [1, 2] micro-batches", balanced.plan,
           [([4], ids)] * (1 + comm.rank % 2))
    raises(mb.ArgumentError, "no micro-batch", balanced.plan, [])
    balanced.plan([([4], ids)])
    raises(mb.ArgumentError, "patches need gradients: plan(..., patch_gradients=True)", balanced,
           torch.zeros(4, C, dtype=F64, requires_grad=True), micro_batch=0)
    raises(mb.ShapeError, "have 4 rows", balanced, torch.zeros(6, C, dtype=F64), micro_batch=0)
    raises(mb.ArgumentError, "micro-batch", balanced, torch.zeros(4, C, dtype=F64), micro_batch=comm.rank % 2)
    assert call([4], ids).shape == (4, 1, H)
    text = torch.zeros(8 if comm.rank == 1 else 4, 1, H, dtype=F64)
    raises(mb.ShapeError, "into is sbh[8, 1, 3], and of the 8 positions of ids, cut into 2, a tile has 4", call, [4], ids,
           into=text)
    assert call([4], ids, into=text[:4]).shape == (4, 1, H)
    if comm.rank == 1:
        raises(mb.MismatchError, "Balanced 'balanced' host_allgather of", comm.barrier)
    else:
        raises(mb.MismatchError, "rank 1 called barrier, rank 0 called Balanced 'balanced' host_allgather of", call, [4],
               ids)
    assert call([4], ids).shape == (4, 1, H)
    balanced.close()


@case(2)
def wrong_modules(comm):
    """Refused when they are made, on every rank."""
    grid, wrong = mb.Grid("dp=2"), comm.rank == 1

    def make(encoder=Encoder(), **more):
        return mb.Balanced(encoder, grid, grid, **{**dict(special=IMAGE, comm=comm, merge=MERGE), **more})

    raises(mb.ArgumentError, "is in the encoder's grid dp=2, and has none", make, None)
    raises(mb.ArgumentError, "dst_layout is sbh, bsh or th, not 'hsb'", make, dst_layout="hsb" if wrong else "sbh")
    raises(mb.UnsupportedError, "packs 8 tokens (thd)", make,
           partition=mb.Partition(cu=[0, 4, 8]) if wrong else mb.Partition())
    raises(mb.ArgumentError, "runs are whole or any, not 'exact'", make, runs="exact" if wrong else "whole")
    raises(mb.ArgumentError, "comm is a int, and must be a Communicator", make, comm=7)
    balanced = make(runs="any")
    ids = torch.tensor([[IMAGE, 0, IMAGE, IMAGE]])
    rows = balanced(torch.ones(6, C, dtype=F64), [4, 2], ids=ids).detach()
    wanted = whole_tile(Encoder(), [[torch.ones(4, C, dtype=F64), torch.ones(2, C, dtype=F64)]], ids).detach()
    close(rows, wanted, "an image in two runs")
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
