"""Overlap: losses and gradients beside a plain loop over the same parts, bit for bit; what streams would do, by
streams that record; refusals."""
import functools
import importlib
import pathlib
import random
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

import mimo_bridge as mb
from mimo_bridge import _lanes
from mimo_bridge._cut import Cut
from megatron_import import process_groups
from noise_samples import write_samples
from rank_runner import case, gather, raises, same
from stream_model import Streams

HIDDEN, INNER, CHOICES = 8, 16, 2


class Block(nn.Module):
    """A layer of some kind, cut into parts. Its experts are those of this rank."""

    def __init__(self, kind, dispatch, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.kind, self.dispatch = kind, dispatch
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.mix, self.dense = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.router, self.common = nn.Linear(HIDDEN, dispatch.experts, bias=False), nn.Linear(HIDDEN, HIDDEN)
        shape = dispatch.experts_here, HIDDEN, INNER
        self.up, self.down = (nn.Parameter(torch.randn(s) / 2) for s in (shape, (shape[0], INNER, HIDDEN)))

    def mixed(self, batch, x):
        return x + batch["scale"] * torch.tanh(self.mix(self.norms[0](x)))

    def pre(self, batch, x):
        x = self.mixed(batch, x)
        if self.kind == "pre":
            return x
        rows = self.norms[1](x)
        if self.kind == "dense":
            return x, rows
        return x, rows, *mb.top_k(self.router(rows), CHOICES, weights="softmax")

    def to_experts(self, _batch, x, rows, weights, ids):
        route = self.dispatch.route(ids)
        return x, *self.dispatch(rows, weights, route), route

    def mlp(self, _batch, x, rows, weights=None, route=None):
        if self.kind == "dense":
            return x + self.dense(F.gelu(rows))
        h = F.gelu(F.grouped_mm(rows, self.up, offs=route.ends)) * weights[:, None].to(rows.dtype)
        return x, F.grouped_mm(h, self.down, offs=route.ends), route

    def combine(self, _batch, x, out, route):
        return x, self.dispatch.combine(out, route)

    def shared(self, _batch, _x, rows, _weights, _ids):
        return torch.sigmoid(self.common(rows))

    def behind(self, _batch, x, y, shared=0):
        return x + y + shared

    def alone(self, _batch, x):
        return x + self.dense(x)

    def parts(self):
        if self.kind == "mlp":
            return {"mlp": self.alone}
        made = {"pre": self.pre}
        if self.kind == "dense":
            made["mlp"] = self.mlp
        if self.kind in ("mixture", "shared"):
            made |= {"dispatch": self.to_experts, "mlp": self.mlp, "combine": self.combine, "behind": self.behind}
        if self.kind == "shared":
            made["shared"] = self.shared
        return made


class Model(nn.Module):
    """Layers between an embedding and a loss. The last one may have a head of its own (post)."""

    def __init__(self, kinds, dispatch, post=False):
        super().__init__()
        torch.manual_seed(7)
        self.words, self.head = nn.Embedding(16, HIDDEN), nn.Linear(HIDDEN, 16)
        self.extra = nn.Linear(HIDDEN, HIDDEN)
        self.blocks = nn.ModuleList(Block(kind, dispatch, 1 + i) for i, kind in enumerate(kinds))
        self.layers = [block.parts() for block in self.blocks]
        if post:
            self.layers[-1]["post"] = lambda _batch, x: x + torch.tanh(self.extra(x))

    def embed(self, batch):
        return self.words(batch["ids"])

    def lose(self, batch, x):
        return F.cross_entropy(self.head(x), batch["labels"], reduction="sum"), x.detach().sum()

    def plain(self, batch):
        """The same parts one after the other, in one graph."""
        x = self.embed(batch)
        for layer in self.layers:
            values = x if isinstance(x, tuple) else (x,)
            beside = ()
            for name in ("pre", "dispatch", "mlp", "combine", "behind", "post"):
                if name not in layer:
                    continue
                given = layer[name](batch, *values, *(beside if name == "behind" else ()))
                values = given if isinstance(given, tuple) else (given,)
                if name == "dispatch" and "shared" in layer:
                    beside = layer["shared"](batch, *shared_input),
                shared_input = values
            x = values
        return self.lose(batch, *x)

    def overlap(self, dispatch, micro_batches, **more):
        return mb.Overlap(self.embed, self.layers, self.lose, dispatch=dispatch, micro_batches=micro_batches, **more)


def batches_of(seed, rank, count, most=5):
    """Micro-batches of some tokens, or of none, other ones on each rank."""
    roll = random.Random(f"{seed} {rank}")
    generator = torch.Generator().manual_seed(roll.randint(0, 2**31))
    made = []
    for _ in range(count):
        n = roll.choice([0, 1, most, most])
        ids = torch.randint(0, 16, (2, n), generator=generator)
        made.append({"ids": ids[0], "labels": ids[1], "scale": torch.randn(n, 1, generator=generator)})
    return made


def dispatch_of(comm, **more):
    return mb.Dispatch(comm=comm, **{**dict(experts=4, top_k=CHOICES, hidden=HIDDEN, max_tokens=8), **more})


def gradients(model):
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def compare(model, overlap, batches, what):
    """Losses and gradients of both ways. The second run adds to what is there."""
    gradients(model)
    wanted = []
    for _ in range(2):
        for batch in batches:
            loss, total = model.plain(batch)
            loss.backward()
            wanted.append((loss.detach(), total))
    plain = gradients(model)
    found = [pair for _ in range(2) for pair in overlap(batches)]
    ours = gradients(model)
    assert len(found) == len(wanted)
    for i, (pair, other) in enumerate(zip(found, wanted)):
        for a, b in zip(pair, other):
            assert not a.requires_grad
            same(a, b, f"{what}: results of {i}")
    assert ours.keys() == plain.keys(), (what, ours.keys() ^ plain.keys())
    for name, grad in plain.items():
        same(ours[name], grad, f"{what}: {name}")


@case(2, 4, on="cpu")
def bits(comm):
    """Every kind of layer, several micro-batches, ranks without tokens; and steps of AdamW."""
    dispatch = dispatch_of(comm)
    kinds = [(["mixture"], 1), (["shared", "dense", "mixture"], 3), (["pre", "mlp", "shared"], 4),
             (["dense", "mixture", "mlp", "pre"], 2)]
    for number, (layers, count) in enumerate(kinds):
        model = Model(layers, dispatch, post=number % 2 == 1)
        overlap = model.overlap(dispatch, count, early=number > 1)
        compare(model, overlap, batches_of(number, comm.rank, count), f"{layers} x {count}")
    models = [Model(["mixture", "shared"], dispatch) for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=.1) for model in models]
    overlap = models[1].overlap(dispatch, 3)
    for step in range(3):
        batches = batches_of(step, comm.rank, 3)
        for batch in batches:
            models[0].plain(batch)[0].backward()
        overlap(batches)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for (name, a), b in zip(models[0].named_parameters(), models[1].parameters()):
        same(b.detach(), a.detach(), f"after 3 steps: {name}")


@case(2, 4, on="cpu")
def example(comm):
    """examples/torch/train.py with --overlap has the losses and parameters of it without, bit for bit."""
    folder = str(pathlib.Path(__file__).resolve().parents[2] / "examples/torch")
    sys.path.insert(0, folder)
    with tempfile.NamedTemporaryFile() as file, process_groups(comm):
        program = importlib.import_module("train")
        sys.path.remove(folder)
        write_samples(file.name)
        ends = []
        for more in ([], ["--overlap"]):
            words = [file.name, "--experts", "6", "--steps", "3", "--batch", "9", "--micro-batches", "3", *more]
            losses = []
            for model, loss in program.train(program.read_options(words), comm):
                losses.append(loss.clone())
            ends.append((torch.stack(losses), [p.detach() for p in model.parameters()]))
    (plain, before), (beside, after) = ends
    same(beside, plain, "losses")
    assert plain[0] != plain[-1] and len(before) == len(after) > 20
    for i, (a, b) in enumerate(zip(after, before)):
        same(a, b, f"parameter {i}")


class Recorded(_lanes.HostLanes):
    """Nodes in the order in which they ran, and which gradients were there behind each."""

    def __init__(self, model):
        self.model, self.ran, self.there = model, [], []

    def node(self, i):
        self.ran.append(i)
        return super().node(i)

    def hold(self, i, things):
        self.there.append({name for name, p in self.model.named_parameters() if p.grad is not None})


@case(2, on="cpu")
def walks_the_list(comm):
    """Nodes run in the list's order, and gradients of weights in nodes of their own."""
    dispatch = dispatch_of(comm)
    model = Model(["shared"], dispatch)
    overlap = model.overlap(dispatch, 1)
    overlap._lanes = lanes = Recorded(model)
    hooked, calls = [], dispatch._dispatching.begun
    model.head.weight.register_post_accumulate_grad_hook(lambda p: hooked.append("head"))
    model.blocks[0].up.register_post_accumulate_grad_hook(lambda p: hooked.append("up"))
    overlap(batches_of(1, comm.rank, 1))
    assert lanes.ran == list(range(len(overlap._list)))
    assert dispatch._dispatching.begun == calls + 5, "a route and four moves"
    names = [str(node) for node in overlap._list]
    new = {name: there - before for name, there, before in zip(names, lanes.there, [set(), *lanes.there])}
    new = {name: {p.removeprefix("blocks.0.") for p in added} for name, added in new.items() if added}
    vectors = {f"norms.{i}.{name}" for i in range(2) for name in ("weight", "bias")} | {"mix.bias"}
    wanted = {"b.post_process.bwd": {"head.weight", "head.bias"}, "b.mlp0.dw": {"up", "down"},
              "b.shared0.bwd": {"common.bias"}, "b.shared0.dw": {"common.weight"}, "b.pre0.bwd": vectors,
              "b.pre0.dw": {"mix.weight", "router.weight"}, "b.pre_process.bwd": {"words.weight"}}
    assert new == wanted, new
    assert hooked == ["head", "up"], hooked


class Twice(torch.autograd.Function):
    """Written in Python: it must run once."""

    runs = 0

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        Twice.runs += 1
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


@case(1, 2, on="cpu")
def graphs_of_parts(comm):
    """Weights that two operations share, outputs that are inputs or do not depend on them, Functions in Python."""
    torch.manual_seed(3)
    w, v, b = (nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(3, 4)))
    u = nn.Parameter(torch.randn(4, 4))

    def part(x, r, mask):
        h = F.linear(torch.tanh(F.linear(x, w)), w) + Twice.apply(r, v)
        return x, F.linear(h, u) * mask, r.sum(), b * 2, (mask, 1)

    values = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    mask = torch.rand(3, 4)
    given = [torch.randn(3, 4), torch.randn(3, 4), torch.randn(()), torch.randn(3, 4)]
    torch.autograd.backward(part(*values, mask)[:4], given)
    wanted = [p.grad for p in (*values, w, v, b, u)]
    for p in (*values, w, v, b, u):
        p.grad = None
    Twice.runs = 0
    cut = Cut("a part", part, [*values, mask], True)
    assert set(map(id, cut.variables)) == set(map(id, (w, v, b, u)))
    outputs = cut.take()
    assert outputs[4] == (mask, 1)
    found = cut.backward([*given, None])
    assert found[2] is None and u.grad is None and [p.grad is None for p in (w, v, b)] == [False] * 3
    cut.weights()
    assert Twice.runs == 1
    for got, grad in zip((*found[:2], w.grad, v.grad, b.grad, u.grad), wanted):
        same(got, grad)
    # nothing depends on anything, no gradient is given
    quiet = Cut("a part", lambda x: x * 2, [mask], True)
    assert quiet.take()[0].requires_grad is False and quiet.backward([None]) == [None]
    unused = Cut("a part", lambda x: x * 2, values[:1], True)
    assert unused.backward([None]) == [None]


@case(2, on="cpu")
def streams(comm):
    """What a device would do: nothing reads what another stream has not written yet, no memory is given away while
    another stream uses it, each edge has its event. Streams that record stand in for CUDA's."""
    dispatch = dispatch_of(comm, rows=64)
    model = Model(["shared", "mixture"], dispatch)
    overlap, batches = model.overlap(dispatch, 3), batches_of(1, comm.rank, 3)
    plain = overlap(batches)
    overlap._lanes = _lanes.DeviceLanes(torch.device("cpu"))
    with Streams(_lanes) as seen:
        seen.known(model.parameters())
        for _ in range(2):
            found = overlap(batches)
    assert not seen.faults, seen.faults[:3]
    edges = sum(map(len, overlap._waits))
    assert seen.waits == 2 * edges > 0 and seen.streams == 2, (seen.waits, edges)
    assert seen.crossed > 50 and seen.freed > 100, (seen.crossed, seen.freed)
    assert seen.events <= 8, seen.events  # made once, then used again
    for a, b in zip(found, plain):
        same(a[0], b[0])


@case(2, on="cpu")
def memory_of_moves(comm):
    """What experts gave, and the rows of the tokens, are not kept for backward."""
    dispatch = dispatch_of(comm)
    model = Model(["mixture"], dispatch)
    layer, refs = model.layers[0], []

    def noting(part):
        @functools.wraps(part)
        def noted(batch, *values):
            given = part(batch, *values)
            refs.append(torch.multiprocessing.reductions.StorageWeakRef(given[1].untyped_storage()))
            return given
        return noted

    layer["mlp"] = noting(layer["mlp"])
    model.lose, lose = lambda batch, x: (alive.append(refs[-1].expired()), lose(batch, x))[1], model.lose
    alive = []
    model.overlap(dispatch, 2)(batches_of(1, comm.rank, 2))
    assert alive == [True, True], alive


def mixed_up(comm, model, dispatch, **more):
    return mb.Overlap(model.embed, more.get("layers", model.layers), model.lose, dispatch=dispatch,
                      micro_batches=more.get("count", 2))


@case(2, on="cpu")
def refusals(comm):
    dispatch = dispatch_of(comm)
    model = Model(["mixture"], dispatch)
    layer, tokens = model.layers[0], batches_of(5, comm.rank, 2)
    make = functools.partial(mixed_up, comm, model, dispatch)
    without = {name: part for name, part in layer.items() if name != "combine"}
    raises(mb.ArgumentError, "layer 0 of chunk 0 has the parts", make, layers=[without])
    raises(mb.ArgumentError, "'experts' is no part of a layer", make, layers=[{**layer, "experts": print}])
    raises(mb.ArgumentError, "mlp of layer 0 is None, and must be callable", make, layers=[{**layer, "mlp": None}])
    raises(mb.ArgumentError, "layer 0 is Block, and must have its parts by their names", make, layers=[model.blocks[0]])
    raises(mb.ArgumentError, "no layer has an exchange to hide", make, layers=[{"pre": layer["pre"]}])
    raises(mb.ArgumentError, "0 micro-batches", make, count=0)
    raises(mb.ArgumentError, "dispatch is 3", mb.Overlap, model.embed, model.layers, model.lose, dispatch=3,
           micro_batches=2)
    overlap = make()
    raises(mb.ArgumentError, "3 batches, and its nodes are of 2 micro-batches", overlap, [tokens[0]] * 3)
    with torch.no_grad():
        raises(mb.StateError, "gradients are disabled", overlap, tokens)
    raises(TypeError, "can't be copied", overlap.__reduce__)

    def run(**parts):
        return make(layers=[{**layer, **parts}])(tokens)

    raises(mb.ArgumentError, "micro-batch 0, post_process gave a tensor of shape [2, 2]", mb.Overlap(
        model.embed, model.layers, lambda *_: torch.ones(2, 2), dispatch=dispatch, micro_batches=1), tokens[:1])
    raises(mb.ArgumentError, "micro-batch 0, post_process and micro-batch 0, pre_process share a parameter of shape "
           "[16, 8] (tied weights)", mb.Overlap(model.embed, model.layers, lambda batch, x: F.linear(
               x, model.words.weight).sum(), dispatch=dispatch, micro_batches=2), tokens)
    kept = []
    raises(mb.ArgumentError, "micro-batch 0, behind of layer 0 uses a tensor of an earlier part that was not handed",
           run, pre=lambda batch, x: (kept.append(torch.tanh(x)), layer["pre"](batch, x))[1],
           behind=lambda batch, x, y: x + y + kept[-1])
    compare(model, overlap, tokens, "behind errors")


@case(2, on="cpu")
def ranks_differ(comm):
    """Other layers, micro-batches or parts on one rank are an error of both, before anything moves."""
    dispatch = dispatch_of(comm)
    model = Model(["mixture", "dense"], dispatch)
    raises(mb.MismatchError, "2 layers, 2 micro-batches", mixed_up, comm, model, dispatch, count=2 + comm.rank)
    raises(mb.MismatchError, "on rank 1", mixed_up, comm, model, dispatch, layers=model.layers[::1 - 2 * comm.rank])
    words = "must be callable" if comm.rank else "rank 1"
    wrong = [{**model.layers[0], "mlp": 3}] if comm.rank else model.layers[:1]
    raises(mb.ArgumentError, words, mixed_up, comm, model, dispatch, layers=wrong)

    def late(batch, x):
        raise mb.ArgumentError("no attention today")

    broken = mixed_up(comm, model, dispatch, layers=[{**model.layers[0], "pre": late}, model.layers[1]])
    raises(mb.ArgumentError, "no attention today", broken, batches_of(1, comm.rank, 2))
    compare(model, model.overlap(dispatch, 2), batches_of(1, comm.rank, 2), "behind an error")
    assert gather(True) == [True, True]
