"""forward_backward: Megatron-LM's own 1F1B of a language model in stages beside encoders on all ranks, against the
same model in one piece. f64.

Skipped where Megatron-LM is missing (megatron_import.py). It prints the versions that it ran with.
"""
import contextlib
import importlib
import importlib.metadata
import sys
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist

import mimo_bridge as mb
from megatron_import import CudaIsCpu, folder, process_groups, whole
from megatron_moe import Stream
from mimo_model_cases import HIDDEN, SEQ, SPECIAL, VOCABULARY, Data, Encoder, relative
from rank_runner import case, gather, raises
from tile_model import even

F64, BATCH = torch.float64, 4  # samples of a micro-batch, of all lanes


class Stage(torch.nn.Module):
    """A stage of a language model. Where a rank has whole sequences a token sees those before it."""

    def __init__(self, config, stage, stages, pg=None):
        super().__init__()
        generator = torch.Generator().manual_seed(10 + stage)

        def values(*shape):
            return torch.nn.Parameter(torch.randn(*shape, generator=generator, dtype=F64) / 2)

        self.config, self.first, self.last = config, stage == 0, stage == stages - 1
        self.part = (pg.tp.rank(), pg.tp.size()) if pg is not None and config.sequence_parallel else (0, 1)
        self.mix, self.inner = values(HIDDEN, HIDDEN), values(HIDDEN, HIDDEN)
        if self.first:
            self.words = values(VOCABULARY, HIDDEN)
        if self.last:
            self.head = values(HIDDEN, VOCABULARY)

    def embedding(self, input_ids, position_ids):
        return self.words[input_ids].transpose(0, 1)

    def set_input_tensor(self, given):
        self.given = given[0] if isinstance(given, list) else given

    def forward(self, decoder_input=None, labels=None, **_more):
        x = decoder_input if self.first else self.given
        if self.config.context_parallel_size == 1 and not self.config.sequence_parallel:
            means = torch.tril(torch.ones(SEQ, SEQ, dtype=F64))
            x = x + torch.einsum("st,tbh->sbh", means / means.sum(1, keepdim=True), x @ self.mix)
        x = x + torch.tanh(x @ self.inner)
        if not self.last:
            return x
        labels = labels.chunk(self.part[1], 1)[self.part[0]]
        losses = torch.nn.functional.cross_entropy((x @ self.head).transpose(0, 1).flatten(0, 1), labels.flatten(),
                                                   reduction="none")
        return losses.reshape(labels.shape)


def loss_func(losses):
    return losses.sum(), torch.tensor(losses.numel(), dtype=torch.int), losses.detach().sum()


def forward_step(iterator, model):
    """A user's."""
    batch = next(iterator)
    assert model.stages == 1 or batch["modality_inputs"] is None, "an encoder has run, and its inputs are kept"
    losses, _ = model(**batch)
    return losses, loss_func


def modules_of():
    """The versions of Megatron-LM and torch, and modules of Megatron's that whole() does not name."""
    whole()
    find = importlib.import_module
    found = next(importlib.metadata.distributions(path=[str(folder())], name="megatron-core"), None)
    return SimpleNamespace(
        versions=f"megatron-core {found.version if found else 'of a folder'}, torch {torch.__version__}",
        groups=find("megatron.core.process_groups_config").ProcessGroupCollection,
        P2P=find("megatron.core.pipeline_parallel.p2p_communication").P2PCommunicator,
        ddp=find("megatron.core.distributed"))


class Pipelined:
    """A model in stages on these ranks, and what a user calls forward_backward with."""

    def __init__(self, comm, upstream, language, encoders, kind=Stage, config=None):
        theirs = modules_of()
        self.comm, self.ours, self.language, self.theirs = comm, upstream.ours, mb.Grid(language), theirs
        self.encoders = {name: mb.Grid(text) for name, text in encoders.items()}
        grids = {name: self._hyper(upstream, text) for name, text in ({**encoders, "language": language}).items()}
        self.pg = self._groups(grids["language"])
        self.stages, stage = self.language.dim("pp"), self.language.coords(comm.rank).get("pp", 0)
        self.config = upstream.TransformerConfig(**{**dict(
            num_layers=self.stages, hidden_size=HIDDEN, num_attention_heads=2, params_dtype=F64, pipeline_dtype=F64,
            pipeline_model_parallel_size=self.stages, context_parallel_size=self.language.dim("cp"),
            tensor_model_parallel_size=self.language.dim("tp"), calculate_per_token_loss=True), **(config or {})})
        self.copies = 1 if self.config.sequence_parallel else self.language.dim("tp")  # of a token
        self.config.deallocate_pipeline_outputs = True
        spec = upstream.ModuleSpec
        self.model = upstream.ours.MimoModel(upstream.MimoModelConfig(
            language_model_spec=spec(module=kind, params={"config": self.config, "stage": stage,
                                                          "stages": self.stages, "pg": self.pg}),
            modality_submodules_spec={
                name: spec(module=upstream.encoders[name], submodules={"encoders": {
                    "tiny": spec(module=Encoder, params={"seed": seed})}}) for seed, name in enumerate(SPECIAL)},
            special_token_ids=SPECIAL, module_to_grid_map=grids), cp_group=self.pg.cp, tp_group=self.pg.tp)
        self.model.model_type = None  # as Megatron's get_model sets it; with pp=1 its loop asks for it
        self.alone = {name: Encoder(seed) for seed, name in enumerate(SPECIAL)}
        self.pieces = [kind(self.config, i, self.stages) for i in range(self.stages)]

    @staticmethod
    def _hyper(upstream, text):
        dims = [part.split("=") for part in text.split(",")]
        return upstream.HyperCommGrid([int(n) for _, n in dims], [name for name, _ in dims],
                                      backend=dist.get_backend())

    def _groups(self, grid):
        pg = self.theirs.groups()
        pg.tp, pg.cp, pg.pp, pg.dp = (grid.create_pg([name]) for name in ("tp", "cp", "pp", "dp"))
        pg.dp_cp, pg.embd, pg.pos_embd = grid.create_pg(["cp", "dp"]), None, None
        return pg

    def samples(self, grid):
        return list(even(BATCH, grid.dim("dp"), grid.coords(self.comm.rank)["dp"]))

    def batches(self, data):
        """Of this rank."""
        for one in data:
            mine = self.samples(self.language)
            images = {name: one.images_of(name, self.samples(grid)) for name, grid in self.encoders.items()}
            inputs = {name: {"tiny": {"images": rows}} for name, rows in images.items() if len(rows)}
            yield {"input_ids": one.ids[mine], "labels": one.labels[mine], "modality_inputs": inputs or None}

    def call(self, data, alive=0, **more):
        """forward_backward as a user calls it."""
        count = more.pop("count", len(data))
        given = dict(forward_step_func=forward_step, data_iterator=self.batches(data), model=[self.model],
                     num_microbatches=count, seq_length=SEQ, micro_batch_size=BATCH // self.language.dim("dp"),
                     p2p_communicator=self.theirs.P2P(self.pg.pp, self.config), pg_collection=self.pg,
                     encoder_alive=alive)
        return self.ours.forward_backward(**{**given, **more})

    def in_one_piece(self, data):
        """The sum of losses without ranks, and backward."""
        total = 0.0
        for one in data:
            x = self.pieces[0].embedding(input_ids=one.ids.clamp(min=0), position_ids=None).transpose(0, 1)
            for name, special in SPECIAL.items():
                rows = self.alone[name](one.images_of(name, range(BATCH)))
                x = x.masked_scatter((one.ids == special)[..., None], rows)
            x = x.transpose(0, 1).contiguous()
            for i, piece in enumerate(self.pieces):
                if i:
                    piece.set_input_tensor(x)
                x = piece(input_ids=None, position_ids=None, attention_mask=None, labels=one.labels,
                          decoder_input=None if i else x)
            x.sum().backward()
            total += x.sum().item()
        return total

    def off(self, losses, wanted, reduced=False):
        """The worst relative error of the loss and of all gradients, on all ranks. `reduced`: by a DDP."""
        total = sum(gather(sum(one.item() for one in losses))) / self.copies
        found = [("loss", abs(total / wanted - 1))]
        rank, gradient = self.comm.rank, (lambda p: p.main_grad) if reduced else (lambda p: p.grad)
        stage = self.language.coords(rank).get("pp", 0)
        mine = {"language": (self.model.language_model, self.pieces[stage])}
        mine |= {name: (module, self.alone[name]) for name, module in self.model.modality_submodules.items()}
        for name, (module, alone) in mine.items():
            pairs = list(zip(module.parameters(), alone.parameters()))
            got = [gradient(p) for p, _ in pairs]
            if not reduced:
                got = self._summed(name, stage, got, dict(alone.named_parameters()))
            found += [(f"{name} {i}", relative(g, zeros_or(p.grad, p)))
                      for i, (g, (_, p)) in enumerate(zip(got, pairs))]
        return max((max(each, key=lambda one: one[1]) for each in gather(found)), key=lambda one: one[1])

    def _summed(self, name, stage, mine, alone):
        """The sums of gradients over the ranks that have other tokens."""
        every, grid = gather((stage, mine)), self.encoders.get(name)
        if grid is None:
            columns = zip(*(theirs for s, theirs in every if s == stage))
            copies = {"words": self.language.dim("tp")}  # also under sp: its rows are cut behind the embedding
            return [sum(zeros_or(g, p) for g in column) / copies.get(part, self.copies)
                    for column, (part, p) in zip(columns, alone.items())]
        assert all(g is not None for _, theirs in every for g in theirs), f"no gradient of {name}, not even of 0"
        return [sum(column) / (self.comm.size // grid.dim("dp")) for column in zip(*(theirs for _, theirs in every))]


def zeros_or(gradient, like):
    return torch.zeros_like(like) if gradient is None else gradient


@contextlib.contextmanager
def ranks_for(comm):
    """Process groups and Megatron's CUDA calls on the CPU."""
    upstream = whole()
    mb.communicator._default = comm
    stream = Stream()
    with process_groups(comm), CudaIsCpu(), mock.patch.object(torch.cuda, "current_stream", lambda *_: stream):
        yield upstream


def train(comm, upstream, language, encoders, count, alive, none=None, **more):
    """One call against the model in one piece; what was found is printed."""
    made = Pipelined(comm, upstream, language, dict(zip(SPECIAL, encoders)), **more)
    data = [Data(seed, none or {}, BATCH) for seed in range(count)]
    what, off = made.off(made.call(data, alive), made.in_one_piece(data))
    groups = list(made.model._hops.of.values()) if made.stages > 1 else []
    assert len(set(groups)) == len(groups) and all(group.size() == 2 for group in groups)
    made.model.destroy()
    if comm.rank == 0:
        print(f"# {made.theirs.versions}: language {language}, encoders {' '.join(encoders)}, {count} micro-batches, "
              f"encoder_alive {alive}: {what} {off:.1e}")
    return what, off


def expect_near(comm, upstream, *case, near=1e-14, **more):
    what, off = train(comm, upstream, *case, **more)
    assert off < near, f"{case}: {what} is off by {off}"


LANES = "tp=1,dp=4", "tp=2,dp=2"


@case(4, on="cpu")
def stages(comm):
    """Losses and all gradients of the model in one piece, whatever grids, micro-batches and limit."""
    everywhere = {name: range(BATCH) for name in SPECIAL}
    with ranks_for(comm) as upstream:
        expect_near(comm, upstream, "tp=1,cp=1,dp=2,pp=2", LANES, 8, 3)
        expect_near(comm, upstream, "tp=1,cp=2,dp=1,pp=2", LANES, 4, 0)
        expect_near(comm, upstream, "tp=1,cp=1,dp=1,pp=4", LANES, 8, 5, none={"vision": (0, 3)})
        expect_near(comm, upstream, "tp=2,cp=1,dp=1,pp=2", LANES, 3, 2, none=everywhere)


@case(4, on="cpu", long=True)
def stages_of_all_kinds(comm):
    """The table of docs/torch.md."""
    even, few = ("tp=1,dp=4", "tp=1,dp=4"), {"vision": (0, 1, 2), "audio": range(BATCH)}
    with ranks_for(comm) as upstream:
        for language, encoders, count, alive in (
                ("tp=1,cp=1,dp=2,pp=2", even, 4, 0), ("tp=1,cp=1,dp=2,pp=2", even, 8, 3),
                ("tp=1,cp=1,dp=2,pp=2", LANES[::-1], 6, 2), ("tp=1,cp=2,dp=1,pp=2", even, 4, 3),
                ("tp=2,cp=1,dp=1,pp=2", LANES, 4, 3), ("pp=2,tp=1,cp=1,dp=2", LANES, 5, 0),
                ("tp=1,cp=1,dp=1,pp=4", even, 8, 5), ("tp=1,cp=1,dp=1,pp=4", LANES, 8, 0),
                ("tp=1,cp=1,dp=1,pp=4", LANES, 1, 0), ("tp=1,cp=1,dp=1,pp=4", LANES, 2, 0),
                ("tp=1,cp=1,dp=1,pp=4", LANES, 16, 5), ("tp=1,cp=1,dp=4,pp=1", LANES, 3, 0)):
            expect_near(comm, upstream, language, encoders, count, alive, none=few if count == 5 else None)
        expect_near(comm, upstream, "tp=2,cp=1,dp=1,pp=2", LANES, 5, 3, config={"sequence_parallel": True})


def gpt_stage():
    """Megatron's GPTModel as a stage, in f64."""
    gpt = importlib.import_module("megatron.core.models.gpt.gpt_model").GPTModel
    layers = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs").get_gpt_layer_local_spec
    groups, alone = modules_of().groups, [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    names = ("tp", "cp", "pp", "dp", "dp_cp", "embd", "pos_embd", "ep", "expt_tp", "expt_dp", "tp_cp")

    class GptStage(gpt):
        def __init__(self, config, stage, stages, pg=None):
            torch.manual_seed(10 + stage)
            mine = groups()
            for name in names:
                setattr(mine, name, alone if pg is None or name not in vars(pg) else getattr(pg, name))
            super().__init__(config, layers(), vocab_size=VOCABULARY, max_sequence_length=SEQ, pre_process=stage == 0,
                             post_process=stage == stages - 1, position_embedding_type="rope", pg_collection=mine,
                             parallel_output=True, scatter_embedding_sequence_parallel=False)
            self.double()

    return GptStage


@contextlib.contextmanager
def without_dropout():
    """Megatron's random states and buffers of CUDA, which nothing here needs."""
    quiet = SimpleNamespace(fork=lambda *_: contextlib.nullcontext())
    importlib.import_module("megatron.core.parallel_state")._set_global_memory_buffer()
    with contextlib.ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if name.startswith("megatron.") and "get_cuda_rng_tracker" in vars(module):
                patches.enter_context(mock.patch.object(module, "get_cuda_rng_tracker", lambda *_, **__: quiet))
        yield
    importlib.import_module("megatron.core.parallel_state").destroy_global_memory_buffer()


GPT = dict(num_attention_heads=3, use_cpu_initialization=True, attention_dropout=0.0, hidden_dropout=0.0, gradient_accumulation_fusion=False,
           bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, persist_layer_norm=False)


@case(4, on="cpu")
def stages_of_megatron(comm):
    """Megatron's own GPTModel as stages. With more than one lane its f32 softmax and loss see other batches."""
    with ranks_for(comm) as upstream:
        kind = gpt_stage()
        with without_dropout():
            expect_near(comm, upstream, "tp=1,cp=1,dp=1,pp=4", LANES, 8, 0, kind=kind, config=GPT)
            expect_near(comm, upstream, "tp=1,cp=1,dp=2,pp=2", LANES, 4, 3, kind=kind, config=GPT, near=1e-6)


@case(4, on="cpu")
def forward_alone(comm):
    """forward_only: the losses, no gradients, and no hook is called. With batches that a loop makes its own way, in
    stages and with pp=1."""
    with ranks_for(comm) as upstream:
        for language in ("tp=1,cp=1,dp=2,pp=2", "tp=1,cp=1,dp=4,pp=1"):
            made = Pipelined(comm, upstream, language, dict(zip(SPECIAL, LANES)))
            made.config.finalize_model_grads_func = mock.Mock(side_effect=AssertionError("gradients are finalised"))
            data = [Data(seed, {}, BATCH) for seed in range(3)]
            losses = made.call(data, 2, forward_only=True, get_batch=lambda iterator: next(iterator)["mine"],
                               data_iterator=[({"mine": one} for one in made.batches(data))])
            total = sum(gather(sum(one.item() for one in losses)))
            assert abs(total / made.in_one_piece(data) - 1) < 1e-14, language
            assert all(p.grad is None for p in made.model.parameters())
            made.model.destroy()


@case(4, on="cpu")
def frozen_encoders(comm):
    """A frozen encoder has no backward, beside one that is trained, and where both are frozen."""
    with ranks_for(comm) as upstream:
        for frozen in (["audio"], list(SPECIAL)):
            made = Pipelined(comm, upstream, "tp=1,cp=1,dp=2,pp=2", dict(zip(SPECIAL, LANES)))
            for name in frozen:
                made.model.modality_submodules[name].requires_grad_(False)
            data = [Data(seed, {}, BATCH) for seed in range(3)]
            losses, wanted = made.call(data, 2), made.in_one_piece(data)
            for name in frozen:
                assert all(p.grad is None for p in made.model.modality_submodules[name].parameters())
                del made.model.modality_submodules[name]
            what, off = made.off(losses, wanted)
            assert off < 1e-14, f"{frozen} frozen: {what} is off by {off}"
            made.model.destroy()


class Reduced:
    """Every module in Megatron's DDP, which reduces while backward runs, and the hooks of a user."""

    def __init__(self, made, upstream):
        ddp, self.made, model = made.theirs.ddp, made, made.model
        config = ddp.DistributedDataParallelConfig(overlap_grad_reduce=True)
        made.pg.expt_dp = made.pg.ep = made.pg.dp_cp  # no parameter is an expert's
        model.language_model = ddp.DistributedDataParallel(made.config, config, model.language_model,
                                                           pg_collection=made.pg)
        for name, grid in model.mimo_config.module_to_grid_map.items():
            if name != "language":
                pg = made.theirs.groups()
                pg.tp, pg.dp = grid.create_pg(["tp"]), grid.create_pg(["dp"])
                pg.dp_cp = pg.expt_dp = pg.ep = pg.dp
                pg.pp = made.theirs.alone
                model.modality_submodules[name] = ddp.DistributedDataParallel(
                    made.config, config, model.modality_submodules[name], pg_collection=pg)
        self.calls, self.begun = [], []
        made.config.finalize_model_grads_func = self.finalize
        made.config.no_sync_func, made.config.grad_sync_func = model.no_sync, model.start_grad_sync

    def finalize(self, models, num_tokens, pg_collection=None, force_all_reduce=False):
        self.calls.append(int(num_tokens))
        self.begun.append([group.grad_reduce_handle is not None for module in models[0].modality_submodules.values()
                           for group in module.bucket_groups])
        for module in models[0]._active_ddp_modules():
            module.finish_grad_sync(force_all_reduce=force_all_reduce)


@case(4, on="cpu")
def reduced_in_backward(comm):
    """Megatron's DDP around every module with overlap_grad_reduce, and MimoModel's hooks in the config. Two steps: only
    in the second one a DDP knows when it may begin."""
    with ranks_for(comm) as upstream:
        made = Pipelined(comm, upstream, "tp=1,cp=1,dp=2,pp=2", dict(zip(SPECIAL, LANES)))
        made.theirs.alone = [dist.new_group([rank]) for rank in range(comm.size)][comm.rank]
        user, kept = Reduced(made, upstream), []
        hooks = ("finalize_model_grads_func", "no_sync_func", "grad_sync_func")
        for step in range(2):
            kept = [getattr(made.config, name) for name in hooks]
            made.model.zero_grad_buffer()
            for p in (p for one in (*made.pieces, *made.alone.values()) for p in one.parameters()):
                p.grad = None
            data = [Data(10 * step + seed, {}, BATCH) for seed in range(4)]
            what, off = made.off(made.call(data, 3), made.in_one_piece(data), reduced=True)
            assert off < 1e-14, f"step {step}: {what} is off by {off}"
            assert [getattr(made.config, name) for name in hooks] == kept
        assert user.begun == [[False] * 2, [True] * 2], f"encoders began to reduce in backward: {user.begun}"
        last = made.model.stage == made.stages - 1
        assert user.calls == [4 * BATCH // 2 * SEQ * last] * 2, user.calls
        made.config.calculate_per_token_loss = False
        raises(ValueError, "averages the encoder over dp=4 and the language model over dp=2: set it to True",
               made.call, data)
        made.model.destroy()


@case(4, on="cpu")
def mistakes_in_stages(comm):
    """Mistakes of one rank are errors of all, and the next call works."""
    with ranks_for(comm) as upstream:
        made = Pipelined(comm, upstream, "tp=1,cp=1,dp=2,pp=2", dict(zip(SPECIAL, LANES)))
        data, model, config = [Data(seed, {}, BATCH) for seed in range(3)], made.model, made.config
        one = next(made.batches(data))
        raises(mb.UnsupportedError, "MimoModel: the language model has pp=2: call it through "
               "mimo_bridge.megatron.forward_backward", model, **one)
        raises(NotImplementedError, "the model has 2 chunks a stage: Megatron's interleaved loop sends a forward and a "
               "backward in one call, and the encoder's steps stand between them", made.call, data, model=[model] * 2)
        for name in ("variable_seq_lengths", "use_ring_exchange_p2p", "overlap_moe_expert_parallel_comm"):
            with mock.patch.object(config, name, comm.rank == 1):
                raises(NotImplementedError, f"forward_backward: {name}", made.call, data)
        raises(ValueError, "the data iterator of rank 2 ended after 3 of 8 micro-batches", made.call,
               data if comm.rank == 2 else data * 3, count=8)
        raises(ValueError, "rank 1 has no data iterator", made.call, data, **(
            {"data_iterator": None} if comm.rank == 1 else {}))
        raises(ValueError, "encoder_alive 1: stage 0 needs 2 groups", made.call, data, 1)
        raises(ValueError, "pg_collection a NoneType", made.call, data, pg_collection=None)
        raises(mb.MismatchError, "encoder_alive", made.call, data, 2 + (comm.rank == 3))
        raises(ValueError, "and micro_batch_size is 3", made.call, data, micro_batch_size=3)
        raises(ValueError, "must be a MimoModel", made.call, data, model=torch.nn.Linear(1, 1))
        raises(ValueError, "the stages of p2p_communicator are ranks", made.call, data,
               p2p_communicator=made.theirs.P2P(made.pg.dp, config))
        several = importlib.import_module("megatron.core.process_groups_config").MultiModuleProcessGroupCollection
        raises(ValueError, "MultiModuleProcessGroupCollection", made.call, data, pg_collection=several(
            module_pgs={"language": made.pg}, language_model_module_name="language"))
        for owner, name, value, kind, words in (
                (config, "pipeline_dtype", None, ValueError, "config.pipeline_dtype is None"),
                (config, "pipeline_model_parallel_size", 4, ValueError, "is 4, and the language grid has pp=2"),
                (config, "virtual_pipeline_model_parallel_size", 2, NotImplementedError, "2 chunks a stage"),
                (model, "special_token_ids", {"vision": -200}, ValueError, "audio has no special token id"),
                (model, "colocated_comms", {}, ValueError, "modules that share all ranks")):
            with mock.patch.object(owner, name, value if comm.rank == 2 else getattr(owner, name)):
                raises(kind, words, made.call, data)
        wrapped = mock.MagicMock(spec=made.theirs.ddp.DistributedDataParallel, module=model)
        raises(ValueError, "wrap language_model and modality_submodules", made.call, data, model=wrapped)
        others = [Data(seed + 9 * (comm.rank == 3), {}, BATCH) for seed in range(3)]
        raises(mb.MismatchError, "of the same lane", made.call, others)
        # an image more than its tokens in the second micro-batch
        wrong = [Data(seed, {}, BATCH) for seed in range(3)]
        wrong[1].images["vision"][2] = torch.cat([wrong[1].images["vision"][2], torch.ones(1, 5, dtype=F64)])
        raises(ValueError, "", made.call, wrong, 2)
        fails = {"side_effect": RuntimeError("no memory")} if comm.rank == 2 else {"wraps": model._encode}
        with mock.patch.object(model, "_encode", **fails):
            raises(RuntimeError if comm.rank == 2 else ValueError, "no memory", made.call, data, 2)
        run = importlib.import_module("mimo_bridge._pipelined").Run(model, data, [mb.Step("F", 3)], True)
        raises(mb.InternalError, "Megatron's loop is at B, the schedule at F3 (checked with 0.19.2)", run.until, "B")
        raises(mb.InternalError, "Megatron's loop is at F, the schedule at its end", run.until, "F")
        for p in model.parameters():
            p.grad = None
        what, off = made.off(made.call(data, 2), made.in_one_piece(data))
        assert off < 1e-14, f"{what} is off by {off}"
        model.destroy()
        made = Pipelined(comm, upstream, "tp=1,cp=1,dp=2,pp=2", {"vision": "tp=1,pp=2,dp=2", "audio": LANES[1]})
        raises(NotImplementedError, "the encoder vision has pp=2, and its forward is one step", made.call, data)
        made.model.destroy()
