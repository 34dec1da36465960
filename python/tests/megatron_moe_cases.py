"""Megatron-LM's MoE layer over our dispatch, against its own alltoall dispatcher and a plain loop."""
import importlib
from types import SimpleNamespace
from unittest import mock

import torch
from torch.utils.checkpoint import checkpoint

import mimo_bridge as mb
from megatron_import import whole
from megatron_moe import experts_on, run, tokens_of
from mimo_model_cases import relative
from rank_runner import case, gather, raises


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


def expect_near(found):
    """Each of [(what, got, wanted)] on all ranks. They fail together: one that left would let the others wait in
    gloo."""
    offs = [(what, relative(got, wanted) if got.shape == wanted.shape else 1.0) for what, got, wanted in found]
    for rank, wrong in enumerate(gather([(what, off) for what, off in offs if not off < 1e-12])):
        assert not wrong, f"rank {rank}: relative L2 of {wrong[0]}"


def compare(comm, make, counts, steps=2, **more):
    """Outputs and all gradients of a layer, over its own dispatcher and over ours."""
    layer, ours = make(), make()
    dispatches = whole().ours.use_dispatch(ours, max(counts), comm=comm, **more)
    for step in range(steps):
        x = tokens_of(comm.rank, counts[comm.rank], seed=step)
        wanted, got = run(layer, x), run(ours, x)
        expect_near([(f"{name}, step {step}", got[name], one) for name, one in wanted.items()])
    dispatches[0].close()


@case(2, 4, 8)
def layers_over_ours(comm):
    """The outputs and gradients of Megatron's own dispatcher, whose outputs are those of the loop. One rank has no
    tokens."""
    for etp, ep in TOPOLOGIES[comm.size]:
        counts = [0 if rank == 1 else 3 + rank for rank in range(comm.size)]
        with experts_on(comm, etp, ep) as make:
            layer, x = make(), tokens_of(comm.rank, counts[comm.rank])
            expect_near([(f"etp={etp},ep={ep}", run(layer, x)["y"], plain(layer, whole_experts(layer), x))])
            compare(comm, make, counts)


@case(2)
def layers_of_kinds(comm):
    """Token drop, k = 1 and k of all, scores by sigmoid, shared experts, unused experts."""
    kinds = [dict(moe_expert_capacity_factor=0.5), dict(top_k=1, moe_router_pre_softmax=True),
             dict(moe_router_score_function="sigmoid"),
             dict(moe_shared_expert_intermediate_size=8), dict(experts=2, top_k=2), dict(experts=32)]
    with experts_on(comm, 1, 2) as make:
        for kind in kinds:
            compare(comm, lambda: make(**kind), [5, 4], steps=1)


@case(2)
def layers_of_fixed_tiles(comm):
    """Tiles with more rows than they need, whose rest has any values, in forward and in backward: the outputs and
    gradients of Megatron's own dispatcher."""
    empty = torch.Tensor.new_empty
    with experts_on(comm, 1, 2) as make, mock.patch.object(
            torch.Tensor, "new_empty", lambda x, *shape, **more: empty(x, *shape, **more).fill_(float("nan"))):
        compare(comm, make, [5, 4], steps=1, rows=32)


def forth_and_back(model, rank, order, recomputed):
    """Forward of two micro-batches, and then their backwards in this order: outputs and gradients."""
    xs = [tokens_of(rank, 4 + m, seed=m).requires_grad_() for m in range(2)]

    def forward(x):
        return model(x)[0]

    ys = [checkpoint(forward, x, use_reentrant=False) if recomputed else forward(x) for x in xs]
    model.zero_grad()
    for m in order:
        ys[m].square().sum().backward()
    return [*ys, *(x.grad for x in xs), *(p.grad for p in model.parameters())]


@case(2)
def micro_batches_of_layers(comm):
    """Two forwards before their backwards, in another order: each has its own route. With recomputation, too."""
    with experts_on(comm, 1, 2) as make:
        layer, ours = make(), make()
        whole().ours.use_dispatch(ours, 8, comm=comm)
        found = forth_and_back(layer, comm.rank, (0, 1), False)
        for order, recomputed in (((1, 0), False), ((0, 1), True)):
            again = forth_and_back(ours, comm.rank, order, recomputed)
            expect_near([(f"tensor {i}", *pair) for i, pair in enumerate(zip(again, found))])


def parts_of(layer):
    """A MoELayer with shared experts, cut by its own methods. docs/trainers.md shows this."""
    def pre(_batch, x):
        return x, *layer.route(x)

    def dispatch(_batch, x, probs, routing_map):
        return layer.dispatch(*layer.preprocess(x, probs, routing_map))

    return {"pre": pre, "dispatch": dispatch,
            "mlp": lambda _batch, rows, probs: layer.routed_experts_compute(rows, probs)[0],
            "combine": lambda _batch, out: layer.combine(out),
            "shared": lambda _batch, x, _probs, _map: layer.shared_experts_compute(x),
            "behind": lambda _batch, y, shared: layer.postprocess(y, shared)}


@case(2)
def layers_in_parts(comm):
    """Two layers under mb.Overlap: losses and gradients of a plain loop over them. Megatron-LM computes shared experts
    first, so that the gradient of x is a sum in another order."""
    with experts_on(comm, 1, 2) as make:
        layers = [make(moe_shared_expert_intermediate_size=8) for _ in range(2)]
        model = torch.nn.ModuleList(layers)
        dispatch, = whole().ours.use_dispatch(model, 8, ctas=16, comm=comm)
        assert dispatch.ctas == 16
        batches = [tokens_of(comm.rank, n, seed=n) for n in (5, 3 * comm.rank, 4)]

        def lose(batch, y):
            return (y * batch).sum()

        def ends():
            found = [p.grad.clone() for p in model.parameters()]
            model.zero_grad()
            return found

        overlap = mb.Overlap(lambda batch: batch * 1, [*map(parts_of, layers)], lose, dispatch=dispatch, micro_batches=3)
        losses = [lose(batch, layers[1](layers[0](batch)[0])[0]) for batch in batches]
        for loss in losses:
            loss.backward()
        wanted, found = ends(), overlap(batches)
        expect_near([("losses", torch.stack([loss for loss, in found]), torch.stack(losses).detach()),
                     *((f"parameter {i}", *pair) for i, pair in enumerate(zip(ends(), wanted)))])


def replayed(layer, forced, x):
    """A run of a layer whose router takes these experts, as a rollout recorded them."""
    replay = importlib.import_module("megatron.core.transformer.moe.router_replay")
    replay.RouterReplay.set_replay_data([forced])
    replay.RouterReplay.set_global_router_replay_action(replay.RouterReplayAction.REPLAY_FORWARD)
    return run(layer, x)


@case(4)
def replayed_routes(comm):
    """Megatron's router replay (R3) under our dispatch: bits of its own dispatcher. Tokens of which nothing was recorded
    have an id k times. Megatron's own dispatcher fails there; ours gives them to that one expert, once, with one of
    the k equal weights of the router's map."""
    whole()
    replay = importlib.import_module("megatron.core.transformer.moe.router_replay")
    for ep in (4, 2):
        with experts_on(comm, 1, ep) as make:
            made = []
            for mine in (False, True):
                replay.RouterReplay.clear_global_router_replay_instances()
                layer = make(moe_enable_routing_replay=True)
                if mine:
                    whole().ours.use_dispatch(layer, 8, comm=comm)
                generator = torch.Generator().manual_seed(comm.rank)
                forced = torch.stack([torch.randperm(8, generator=generator)[:2] for _ in range(6)])
                made.append(replayed(layer, forced, tokens_of(comm.rank, 6)))
            differ = [name for name, wanted in made[0].items() if not torch.equal(made[1][name], wanted)]
            assert not any(others := gather(differ)), f"ep={ep}: other bits on ranks: {others}"
            forced[-2:] = 0
            y = replayed(layer, forced, tokens_of(comm.rank, 6))["y"]
            up, down = whole_experts(layer)[0]
            alone = torch.nn.functional.gelu(tokens_of(comm.rank, 6)[4:] @ up.T, approximate="none") @ down.T
            expect_near([("tokens that were recorded", y[:4], made[1]["y"][:4]), ("those of zeros", y[4:], alone / 2)])
    replay.RouterReplay.clear_global_router_replay_instances()


@case(2)
def weights_of_zero(comm):
    """The map chooses, not the weight: an expert of weight 0 keeps its token."""
    with experts_on(comm, 1, 2) as make:
        layer = make(experts=4)
        whole().ours.use_dispatch(layer, 8, comm=comm)
        ours, chosen = layer.token_dispatcher, torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
        probs = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
        rows = ours.token_dispatch(*ours.dispatch_preprocess(torch.ones(3, 1, 6), chosen, probs))
        rows, counts, weights = ours.dispatch_postprocess(*rows)
        assert counts.tolist() == [[2, 2], [0, 2]][comm.rank] and len(rows) == counts.sum()
        assert weights.tolist() == [[0, 0, 0, 0], [1, 1]][comm.rank] and weights.dtype == probs.dtype
        y = ours.combine_postprocess(ours.token_combine(ours.combine_preprocess(rows)))
        assert y.shape == (3, 1, 6) and y[:, 0, 0].tolist() == [2, 1, 0]


@case(2)
def steps_that_do_not_fit(comm):
    """Megatron's PagedStashRunner runs a step again, with as many rows as it needs, where one rank's tile was too small.
    The next step has the number of rows again."""
    whole()
    stash = importlib.import_module("megatron.core.transformer.moe.paged_stash")
    with experts_on(comm, 1, 2) as make:
        layer, wanted = make(), run(make(), tokens_of(comm.rank, 4))
        layer.config.moe_expert_rank_capacity_factor = 4.0
        layer.config.moe_paged_stash = False
        dispatch, = whole().ours.use_dispatch(layer, 8, comm=comm, rows=32)
        rows, found, over = [], [], [comm.rank == 1, False, False]

        def step(**_more):
            with mock.patch.object(type(dispatch), "route", lambda *given, route=type(dispatch).route:
                                   rows.append((made := route(*given)).rows) or made):
                found.append(run(layer, tokens_of(comm.rank, 4)))
            if over.pop(0):  # on the CPU a tile that is too small is an error
                layer.token_dispatcher.check_over_budget().fill_(True)

        chunk = SimpleNamespace(config=layer.config, mtp_process=False, zero_grad_buffer=layer.zero_grad,
                                decoder=SimpleNamespace(layers=[SimpleNamespace(mlp=layer)]))
        no = torch.zeros(1, dtype=torch.bool)
        with mock.patch.object(stash, "check_paged_stash_overflow", lambda: no), \
                mock.patch.object(stash, "check_paged_stash_host_spill", lambda: no):
            runner = stash.PagedStashRunner(layer.config, False, [chunk], None, step)
            for _ in range(2):
                runner(model=chunk, data_iterator=iter([0]), num_microbatches=1, seq_length=4, forward_only=False)
        assert rows[0] == rows[2] == 32 > rows[1] and len(rows) == 3, rows
        expect_near([(f"{name} of run {i}", one[name], value) for i, one in enumerate(found)
                     for name, value in wanted.items()])


@case(2)
def layers_that_are_refused(comm):
    with experts_on(comm, 1, 2) as make:
        use = whole().ours.use_dispatch
        for config, kind, words in (
                (dict(moe_pad_expert_input_to_capacity=True, moe_expert_capacity_factor=1.0), NotImplementedError,
                 "moe_pad_expert_input_to_capacity=True"),
                (dict(moe_token_dispatcher_type="allgather"), ValueError, "MoEAllGatherTokenDispatcher")):
            layer = make(**config)
            raises(kind, words, use, layer, 8, comm=comm)
        layer = make()
        layer.config.fp8 = "e4m3"
        raises(NotImplementedError, "fp8=e4m3", use, layer, 8, comm=comm)
        layer.config.fp8, layer.config.moe_shared_expert_overlap = None, comm.rank == 1
        raises(NotImplementedError, "moe_shared_expert_overlap=True", use, layer, 8, comm=comm)
        raises(ValueError, "rank 1 has no MoELayer", use, layer if comm.rank == 0 else torch.nn.Linear(1, 1), 8,
               comm=comm)
