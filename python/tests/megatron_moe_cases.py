"""Megatron-LM's MoE layer over our dispatch, against its own alltoall dispatcher and a plain loop."""
import torch

from megatron_moe import experts_on, run, tokens_of
from rank_runner import case, gather


def plain(layer, gathered, x):
    """y of a layer whose values all ranks' experts together have, token by token."""
    config = layer.config
    rows = []
    for token in x.flatten(0, 1):
        logits = layer.router.weight @ token
        best, ids = logits.topk(config.moe_router_topk)
        y = torch.zeros_like(token)
        for weight, e in zip(best.softmax(0, dtype=torch.float32).double(), ids.tolist()):
            up, down = gathered[e]
            y = y + weight * (down @ torch.nn.functional.gelu(up @ token, approximate="none"))
        rows.append(y)
    return torch.stack(rows).view_as(x) if rows else x


def whole_experts(layer):
    """{id: (up, down)} of all ranks' experts, whole."""
    mine = {e: (expert.linear_fc1.weight.detach(), expert.linear_fc2.weight.detach())
            for e, expert in zip(layer.local_expert_indices, layer.experts.local_experts)}
    found = {}
    for t, part in gather((layer.token_dispatcher.tp_rank, mine)):
        for e, (up, down) in part.items():
            found.setdefault(e, {})[t] = up, down
    return {e: (torch.cat([parts[t][0] for t in sorted(parts)]),
                torch.cat([parts[t][1] for t in sorted(parts)], 1)) for e, parts in found.items()}


TOPOLOGIES = {2: [(1, 2), (2, 1)], 4: [(1, 4), (2, 2), (1, 2)], 8: [(1, 8), (2, 4), (2, 2), (4, 2)]}


@case(2, 4, 8)
def the_bed(comm):
    """Megatron's own dispatcher on CPU ranks is right, also with a rank without tokens."""
    for etp, ep in TOPOLOGIES[comm.size]:
        with experts_on(comm, etp, ep) as make:
            layer = make()
            counts = [0 if rank == 1 else 3 + rank for rank in range(comm.size)]
            x = tokens_of(comm.rank, counts)
            off = run(layer, x)["y"] - plain(layer, whole_experts(layer), x)
            assert off.numel() == 0 or off.abs().max() < 1e-12, (etp, ep, off)
