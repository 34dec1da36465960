"""Experts of transformers and torchtitan over our dispatch, against their own all-to-all. The versions are printed.

Skipped where transformers is missing or has no registry of its own, and where torchtitan is (titan_import.py).
"""
import importlib
import importlib.util
import os
import tempfile
from unittest import mock

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from mimo_bridge import communicator
from megatron_import import process_groups
from mimo_model_cases import relative
from rank_runner import Skip, case, gather, raises
from titan_import import beside_torch_2_11, whole

E, K, H, INNER = 8, 2, 16, 12
COUNTS = [(5, 0, 40, 7), (0, 0, 0, 3), (0, 0, 0, 0)]  # tokens of ranks


def batch_of(seed, tokens):
    """Rows [n, H] and probabilities [n, E], which get gradients."""
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, H, generator=numbers).requires_grad_()
    logits = torch.randn(tokens, E, generator=numbers)
    return x, (logits.softmax(-1) if tokens else logits).requires_grad_()


def backward_of(y):
    """Of a loss that tells columns apart."""
    (y * torch.arange(y.shape[1], dtype=y.dtype)).sum().backward()


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def worst_of(got, wanted):
    """The largest relative difference on any rank. All ranks have it, and fail together."""
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(got, wanted))
    return max(gather(max(relative(a, b) for a, b in zip(got, wanted))))


def say(comm, line):
    if comm.rank == 0:
        print(f"# {line}", flush=True)


# transformers.


def registry():
    """(mimo_bridge.hf_experts, transformers' expert_parallel)."""
    if not all(gather(importlib.util.find_spec("transformers") is not None)):
        raise Skip("no transformers: scripts/torch_venv.sh installs it")
    ours = importlib.import_module("mimo_bridge.hf_experts")
    if not all(gather(ours.EPImplementationInterface is not None)):
        raise Skip("transformers before 5.23 has no EPImplementationInterface")
    return ours, importlib.import_module("transformers.distributed.expert_parallel")


def experts_under(theirs, name, ep_mesh, tp_mesh):
    """Experts of a Qwen3-VL-MoE with the values of one layer, on a mesh."""
    modeling = importlib.import_module("transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe")
    config = modeling.Qwen3VLMoeTextConfig(hidden_size=H, moe_intermediate_size=INNER, num_experts=E,
                                           num_experts_per_tok=K)
    config._experts_implementation = "eager"
    torch.manual_seed(3)
    model = torch.nn.ModuleDict({"experts": modeling.Qwen3VLMoeTextExperts(config)})
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    plan = {"experts.gate_up_proj": "grouped_gemm", "experts.down_proj": "grouped_gemm",
            "experts": "ep_dispatch_experts"}
    theirs.apply_expert_parallelism(model, ep_mesh, tp_mesh, plan, name)
    return model


def run_experts(model, seed, tokens):
    """y, and gradients of rows, probabilities and weights."""
    x, scores = batch_of(seed, tokens)
    model.zero_grad()
    weights, ids = scores.topk(K, -1)
    y = model["experts"](x, ids, weights)
    backward_of(y)
    return [y.detach(), x.grad, scores.grad, *(local(p.grad) for p in model.parameters())]


@case(4)
def of_transformers(comm):
    """Outputs and gradients of transformers' own all_to_all, on ep 4 and 2, and where ranks along tp have one batch."""
    ours, theirs = registry()
    import transformers
    with process_groups(comm):
        ours.experts(max_tokens=40, comm=comm)
        for tp, ep in ((1, 4), (1, 2), (2, 4)):
            ep_mesh = init_device_mesh("cpu", (comm.size // ep, ep), mesh_dim_names=("edp", "ep"))["ep"]
            tp_mesh = init_device_mesh("cpu", (comm.size // tp, tp), mesh_dim_names=("dp", "tp"))["tp"]
            models = [experts_under(theirs, name, ep_mesh, tp_mesh) for name in ("all_to_all", "mimo")]
            worst = 0.0
            for counts in COUNTS:
                lane = comm.rank // tp
                wanted, got = (run_experts(model, lane, counts[tp * lane]) for model in models)
                worst = max(worst, worst_of(got, wanted))
            assert worst < 3e-7, f"tp={tp},ep={ep}: relative L2 of {worst}"
            say(comm, f"transformers {transformers.__version__}, torch {torch.__version__}: experts under "
                      f"tp={tp},ep={ep}: y, dx, dscores, dW {worst:.1e} from all_to_all")


def run_model(transformers, folder, rank, name):
    """The loss and all gradients of a model that is loaded onto ranks: two share a batch, each has two experts."""
    plan = transformers.distributed.DistributedConfig(tp_size=2, fsdp_size=2, ep_size=4, ep_implementation=name)
    model = transformers.Qwen3MoeForCausalLM.from_pretrained(
        folder, dtype=torch.float32, experts_implementation="eager", distributed_config=plan)
    ids = torch.randint(0, 200, (2, 16), generator=torch.Generator().manual_seed(rank // 2))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [loss.detach(), *(local(p.grad) for p in model.parameters())]


@case(4)
def loaded_by_transformers(comm):
    """from_pretrained with a DistributedConfig: tp 2, FSDP2 and ep 4."""
    ours, _ = registry()
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.Qwen3MoeConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, head_dim=16, num_experts=E,
        num_experts_per_tok=K, moe_intermediate_size=INNER, num_key_value_heads=2, vocab_size=200)
    with process_groups(comm), tempfile.TemporaryDirectory() as mine, \
            mock.patch.dict(os.environ, RANK=str(comm.rank), LOCAL_RANK=str(comm.rank)):
        if comm.rank == 0:
            transformers.Qwen3MoeForCausalLM(config).save_pretrained(mine)
        folder = gather(mine)[0]
        ours.experts(max_tokens=32, comm=comm)
        wanted, got = (run_model(transformers, folder, comm.rank, name) for name in ("all_to_all", "mimo"))
        worst = worst_of(got, wanted)
    assert worst < 3e-7, f"relative L2 of {worst}"


@case(4)
def refused_of_transformers(comm):
    ours, theirs = registry()
    with process_groups(comm):
        ours.experts(max_tokens=8, comm=comm)
        one = DeviceMesh("cpu", [[0], [1], [2], [3]], mesh_dim_names=("dp", "tp"))["tp"]
        for ranks, named, wanted in (([[0, 2], [1, 3]], [0, 2], "0 to 1"), ([[0, 1], [3, 2]], [3, 2], "2 to 3")):
            mesh = DeviceMesh("cpu", ranks, mesh_dim_names=("edp", "ep"))["ep"]
            raises(NotImplementedError, f"experts: ep ranks {named} are not consecutive: a dispatch takes ranks ep * i "
                   f"to ep * i + ep - 1, here {wanted}", experts_under, theirs, "mimo", mesh, one)
        mesh = init_device_mesh("cpu", (1, 4), mesh_dim_names=("edp", "ep"))["ep"]
        model = experts_under(theirs, "mimo", mesh, one)
        raises(ValueError, "9 tokens", run_experts, model, 0, 9 if comm.rank == 1 else 1)
        ours.experts(max_tokens=8, comm=3)
        raises(ValueError, "experts: comm is a int", experts_under, theirs, "mimo", mesh, one)
    with mock.patch.object(ours, "EPImplementationInterface", None):
        raises(NotImplementedError, "has no EPImplementationInterface: 5.23 has", ours.experts, 8)


# torchtitan.


class Dims:
    """What RoutedExperts.parallelize asks of torchtitan's ParallelDims."""

    def __init__(self, mesh):
        self.mesh = mesh

    def get_optional_mesh(self, name):
        return self.mesh if name == "ep" else None


def layer_of(titan, dispatcher, mesh, overrides=()):
    """RoutedExperts whose experts work in f32, with the values of one layer. Overrides are applied as by a trainer."""
    config = titan.moe.RoutedExperts.Config(
        inner_experts=titan.moe.GroupedExperts.Config(dim=H, hidden_dim=INNER, num_experts=E),
        token_dispatcher=dispatcher)
    titan.config.apply_overrides(titan.config.OverrideConfig(imports=list(overrides)), config)
    layer = config.build()
    layer.token_dispatcher.wire_meshes(ep_mesh=mesh)
    ep, place = (1, 0) if mesh is None else (mesh.size(), mesh.get_local_rank())
    numbers = torch.Generator().manual_seed(5)
    for name, p in list(layer.inner_experts.named_parameters()):
        values = torch.randn(p.shape, generator=numbers).chunk(ep)[place].clone()
        setattr(layer.inner_experts, name, torch.nn.Parameter(values))
    layer.inner_experts.forward = lambda rows, counts: experts_in_f32(layer.inner_experts, rows, counts)
    return layer


def experts_in_f32(experts, rows, counts):
    parts = zip(rows.split(counts.tolist()), experts.w1_EFD, experts.w2_EDF, experts.w3_EFD)
    return torch.cat([(torch.nn.functional.silu(x @ w1.T) * (x @ w3.T)) @ w2.T for x, w1, w2, w3 in parts])


def run_layer(layer, seed, tokens):
    x, scores = batch_of(seed, tokens)
    layer.zero_grad()
    best, ids = scores.topk(K, -1)
    y = layer(x[None], best[None], ids[None], torch.bincount(ids.flatten(), minlength=E))[0]
    backward_of(y)
    return [y.detach(), x.grad, scores.grad, *(p.grad for p in layer.parameters())]


NAME = "mimo_bridge.torchtitan.dispatch"


def configs_of(theirs):
    """(torchtitan's config, the entry of override.imports): with sizes of its own, as for "deepep", and without."""
    given = {"hidden_dim": H, "num_max_tokens_per_rank": 40}
    return [(theirs.DeepEPTokenDispatcher.Config(num_experts=E, top_k=K, **given), NAME),
            (theirs.AllToAllTokenDispatcher.Config(num_experts=E, top_k=K), (NAME, given))]


@case(4)
def of_torchtitan(comm):
    """Bits of torchtitan's AllToAllTokenDispatcher, outputs and gradients, and of its local one without an ep mesh."""
    titan = whole()
    with process_groups(comm), beside_torch_2_11(), mock.patch.object(communicator, "_default", comm):
        for ep in (4, 2, 1):
            mesh = None if ep == 1 else init_device_mesh("cpu", (4 // ep, ep), mesh_dim_names=("edp", "ep"))["ep"]
            own = layer_of(titan, titan.theirs.AllToAllTokenDispatcher.Config(num_experts=E, top_k=K), mesh)
            for config, entry in configs_of(titan.theirs):
                layer = layer_of(titan, config, mesh, [entry])
                assert type(layer.token_dispatcher) is titan.ours.TokenDispatcher
                worst = 0.0
                for counts in COUNTS:
                    wanted, got = (run_layer(one, comm.rank, counts[comm.rank]) for one in (own, layer))
                    worst = max(worst, worst_of(got, wanted))
                assert worst == 0, f"ep={ep}, {type(config).__qualname__}: relative L2 of {worst}"
            say(comm, f"{titan.versions}: routed experts under ep={ep}: y, dx, dscores, dW have the bits of "
                      "AllToAllTokenDispatcher")


@case(4)
def checkpoints_of_torchtitan(comm):
    """Bits as without them. Routes are made again, unless our SelectiveAC saves them."""
    titan = whole()
    with process_groups(comm), beside_torch_2_11(), mock.patch.object(communicator, "_default", comm):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("edp", "ep"))["ep"]
        layer = layer_of(titan, configs_of(titan.theirs)[0][0], mesh, [NAME])
        dispatcher = layer.token_dispatcher.dispatcher
        wanted = run_layer(layer, comm.rank, COUNTS[0][comm.rank])
        selective = titan.checkpoints.SelectiveAC.Config(force_recompute_mm_shapes_by_fqns=[])
        for config, routes in ((titan.checkpoints.FullAC.Config(), 2), (selective, 2),
                               (titan.ours.selective_ac(selective), 1)):
            wrapped = config.build()._wrap_block(layer)
            dispatcher.report()
            assert worst_of(run_layer(wrapped, comm.rank, COUNTS[0][comm.rank]), wanted) == 0, config
            made = dispatcher.report().routes
            assert made == routes, f"{type(config).__qualname__}: {made} routes"


@case(4)
def refused_of_torchtitan(comm):
    titan = whole()
    theirs, make = titan.theirs, titan.ours.dispatch
    sizes = {"num_experts": E, "top_k": K}
    full = {**sizes, "hidden_dim": H, "num_max_tokens_per_rank": 8}
    for config, kind, words in (
            (theirs.AllToAllTokenDispatcher.Config(**sizes), ValueError,
             "AllToAllTokenDispatcher.Config has no hidden_dim and no num_max_tokens_per_rank: take"),
            (theirs.DeepEPTokenDispatcher.Config(**sizes, hidden_dim=H), ValueError,
             "has no num_max_tokens_per_rank: take"),
            (theirs.TorchAOTokenDispatcher.Config(**sizes, pad_multiple=16), NotImplementedError, "pads rows for fp8"),
            (theirs.HybridEPTokenDispatcher.Config(**full, pad_multiple=32), NotImplementedError, "pads rows for fp8"),
            (theirs.DeepEPTokenDispatcher.Config(**full, cudagraphable=True), NotImplementedError, "for CUDA graphs"),
            (theirs.HybridEPTokenDispatcher.Config(**full, non_blocking_capacity_factor=1.0), NotImplementedError,
             "for CUDA graphs")):
        raises(kind, words, make, config)
    with process_groups(comm), mock.patch.object(communicator, "_default", comm):
        mesh = DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("edp", "ep"))["ep"]
        raises(NotImplementedError, "torchtitan.dispatch: ep ranks [0, 2] are not consecutive",
               make(theirs.DeepEPTokenDispatcher.Config(**full)).build().wire_meshes, ep_mesh=mesh)
