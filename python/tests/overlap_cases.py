"""Overlap: losses and gradients beside a plain loop over the same parts, bit for bit; what streams would do, by
streams that record; refusals."""
import functools
import importlib
import pathlib
import sys
import tempfile
import types
from unittest import mock

import torch
import torch.nn.functional as F

import mimo_bridge as mb
from mimo_bridge import _lanes
from mimo_bridge.overlap import _budget
from megatron_import import process_groups
from noise_samples import write_samples
from overlap_bed import Model, batches_of, compare, dispatch_of
from rank_runner import case, gather, raises, same
from stream_model import Streams


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


def failing(_batch, _x, _y, _shared=None):
    raise ArithmeticError("no sum today")


@case(2, on="cpu")
def streams(comm):
    """What a device would do: nothing reads what another stream has not written yet, no memory is given away while
    another stream uses it, each edge has its event. Streams that record stand in for CUDA's."""
    dispatch = dispatch_of(comm, rows=64)
    model = Model(["shared", "mixture"], dispatch)
    overlap, batches = model.overlap(dispatch, 3), batches_of(1, comm.rank, 3)
    plain = overlap(batches)
    overlap._lanes = _lanes.DeviceLanes(torch.device("cpu"))
    parts = overlap._model.parts
    with Streams(_lanes) as seen:
        seen.known(model.parameters())
        for _ in range(2):
            found = overlap(batches)
        waits, last = seen.waits, parts[1, "behind"]
        parts[1, "behind"] = failing  # in the midst of exchanges
        raises(ArithmeticError, "no sum today", overlap, batches)
        parts[1, "behind"] = last
        overlap(batches)
    assert not seen.faults, seen.faults[:3]
    edges = sum(map(len, overlap._waits))
    assert waits == 2 * edges > 0 and seen.streams == 2, (waits, edges)
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
    fsdp = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group")
    raises(mb.UnsupportedError, "micro-batch 0, pre of layer 0 has modules that FSDP2 shards", run, pre=lambda batch, x:
           layer["pre"](batch, *fsdp.RegisterPostBackwardFunction.apply(None, x)))
    compare(model, overlap, tokens, "behind errors")


@case(1, 2, on="cpu")
def budgets(comm):
    """What a dispatch on a GPU must have, and that its lanes fit."""
    gpu = types.SimpleNamespace(device=torch.device("cuda"))

    def nodes(ctas, rows, **lanes):
        with mock.patch.object(torch.cuda, "get_device_properties", lambda _: types.SimpleNamespace(
                multi_processor_count=132)):
            more = _budget(types.SimpleNamespace(comm=gpu, ctas=ctas, rows=rows), lanes)
        return mb.Nodes(mb.Schedule(stages=1, micro_batches=2, encoder_group=0, overlap=True), [["mixture"]], **more)

    raises(mb.ArgumentError, "has no number of thread blocks (ctas)", nodes, 0, 8)
    raises(mb.ArgumentError, 'has rows="exact"', nodes, 16, -1)
    raises(mb.ArgumentError, "lanes need 132 multiprocessors of 128", nodes, 32, 8, compute=100)
    assert nodes(64, 8).report().lanes == 64 and nodes(16, 8, compute=16).report().lanes == 32


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
