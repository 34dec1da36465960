"""Megatron-LM's MoE layer on ranks without GPUs, over gloo: what its own dispatcher takes of CUDA is replaced
here, and nowhere else.
"""
from __future__ import annotations

import contextlib
import importlib
import types
from unittest import mock

import torch
import torch.distributed as dist

from megatron_import import process_groups, whole
from rank_runner import gather

F64 = torch.float64


class Stream:
    """torch.cuda.Stream, on whose work nobody waits: that of the CPU is done when a call returns."""

    def __init__(self, *_arguments, **_more):
        pass

    def wait_stream(self, _other):
        pass

    def record_event(self):
        return self

    def synchronize(self):
        pass


@contextlib.contextmanager
def without_cuda():
    """What MoEAlltoAllTokenDispatcher asks of CUDA and of NCCL, on the CPU and over gloo. And a router that
    takes 0 tokens: Megatron's own can't tell the shape of its logits then."""
    dispatchers = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    routers = importlib.import_module("megatron.core.transformer.moe.router")
    all_to_all = dispatchers.all_to_all

    def by_lists(group, rows, output_splits=None, input_splits=None, **more):
        lists = [splits if splits is None else [int(n) for n in splits] for splits in (output_splits,
                                                                                    input_splits)]
        return all_to_all(group, rows, *lists, **more)

    stream = Stream()
    with mock.patch.object(torch.cuda, "Stream", Stream), \
            mock.patch.object(torch.cuda, "current_stream", lambda *_: stream), \
            mock.patch.object(torch.cuda, "stream", lambda _: contextlib.nullcontext()), \
            mock.patch.object(dispatchers, "all_to_all", by_lists), \
            mock.patch.object(routers, "router_gating_linear", gating), \
            mock.patch.object(dist, "all_gather", gather_unequal), \
            mock.patch.object(dist, "reduce_scatter", scatter_unequal):
        yield


def gating(x, weight, _bias, dtype):
    return torch.nn.functional.linear(x.to(dtype), weight.to(dtype))


def gather_unequal(parts, mine, group=None):
    """dist.all_gather of parts of unequal length, which NCCL takes and gloo does not."""
    for root in range(len(parts)):
        if root == group.rank():
            parts[root].copy_(mine)
        dist.broadcast(parts[root], group=group, group_src=root)


def scatter_unequal(mine, parts, group=None):
    """dist.reduce_scatter of parts of unequal length."""
    for root, part in enumerate(parts):
        total = part.clone()
        dist.all_reduce(total, group=group)
        if root == group.rank():
            mine.copy_(total)


@contextlib.contextmanager
def experts_on(comm, etp, ep):
    """A function that makes MoE layers whose experts lie on {etp, ep} groups of the ranks; edp is the rest."""
    upstream = whole()
    with process_groups(comm), without_cuda():
        edp = comm.size // (etp * ep)
        grid = upstream.HyperCommGrid([etp, ep, edp], ["etp", "ep", "edp"], backend="gloo")
        alone = upstream.HyperCommGrid([1, comm.size], ["one", "all"], backend="gloo").create_pg(["one"])
        groups = types.SimpleNamespace(
            ep=grid.create_pg(["ep"]), expt_tp=grid.create_pg(["etp"]), tp_ep=grid.create_pg(["etp", "ep"]),
            expt_dp=grid.create_pg(["edp"]), tp=alone, cp=alone, tp_cp=alone, tp_dp_cp=dist.group.WORLD)
        yield lambda **config: layer_of(upstream, groups, etp=etp, ep=ep, **config)


def layer_of(upstream, groups, etp, ep, experts=8, top_k=2, hidden=6, inner=8, **config):
    """MoELayer with the values of one layer, whatever the ranks: each has its experts, and its part of them."""
    layers = importlib.import_module("megatron.core.transformer.moe.moe_layer")
    specs = importlib.import_module("megatron.core.models.gpt.moe_module_specs")
    given = dict(
        num_layers=1, hidden_size=hidden, num_attention_heads=2, ffn_hidden_size=inner, num_moe_experts=experts,
        moe_router_topk=top_k, moe_router_load_balancing_type="none", moe_token_dispatcher_type="alltoall",
        expert_model_parallel_size=ep, expert_tensor_parallel_size=etp, params_dtype=F64, add_bias_linear=False,
        use_cpu_initialization=True, perform_initialization=False, gradient_accumulation_fusion=False)
    made = upstream.TransformerConfig(**{**given, **config})
    spec = specs.get_moe_module_spec(use_te=False, num_experts=experts, moe_grouped_gemm=False)
    layer = layers.MoELayer(made, spec.keywords["submodules"], layer_number=1, pg_collection=groups)
    fill(layer, groups)
    return layer


def fill(layer, groups):
    generator = torch.Generator().manual_seed(11)

    def values(*shape):
        return torch.randn(*shape, generator=generator, dtype=F64)

    config, etp = layer.config, groups.expt_tp
    inner, hidden = config.moe_ffn_hidden_size, config.hidden_size
    cut = slice(etp.rank() * inner // etp.size(), (etp.rank() + 1) * inner // etp.size())
    with torch.no_grad():
        layer.router.weight.copy_(values(config.num_moe_experts, hidden))
        for e in range(config.num_moe_experts):
            up, down = values(inner, hidden), values(hidden, inner)
            if e in layer.local_expert_indices:
                expert = layer.experts.local_experts[e - layer.local_expert_indices[0]]
                expert.linear_fc1.weight.copy_(up[cut])
                expert.linear_fc2.weight.copy_(down[:, cut])
        if layer.shared_experts is not None:
            for weight in layer.shared_experts.parameters():
                weight.copy_(values(*weight.shape))


def tokens_of(rank, tokens, seed=0, hidden=6):
    """This rank's rows [tokens, 1, hidden]."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(tokens, 1, hidden, generator=generator, dtype=F64)


def run(layer, x):
    """Output, and gradients of x and of all parameters, after a loss that tells rows apart."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y, _ = layer(x)
    (y * torch.linspace(1, 2, max(y.numel(), 1), dtype=F64)[:y.numel()].view_as(y)).sum().backward()
    grads = {name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
             for name, p in layer.named_parameters()}
    return {"y": y.detach(), "x": x.grad, **grads}
