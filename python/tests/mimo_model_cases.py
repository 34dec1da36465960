"""Megatron-LM's MimoModel with our import: steps of training against the same model in one piece.

Two encoders under grids of their own, and a language model whose loss of a token depends on that token
alone, so that cp and sp leave the sum as it is. f64; the encoders are trained, and the gradient of the
text's embedding is compared. Skipped where Megatron-LM is missing (megatron_import.py).
"""
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

import mimo_bridge as mb
from megatron_import import process_groups, whole
from rank_runner import case, gather, raises
from tile_model import dice, even

HIDDEN, PIXELS, BATCH, SEQ, VOCABULARY = 6, 5, 16, 24, 50
SPECIAL = {"vision": -200, "audio": 47}
F64 = torch.float64


class Encoder(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.nn.Parameter(torch.randn(PIXELS, HIDDEN, generator=generator, dtype=F64))
        self.bias = torch.nn.Parameter(torch.randn(HIDDEN, generator=generator, dtype=F64))

    def forward(self, images):
        return torch.tanh(images @ self.weight + self.bias)


class PatchEncoder(Encoder):
    """Of images that any rank has loaded."""

    def forward(self, patches, counts, cu_seqlens):
        assert cu_seqlens[-1] == sum(counts) == len(patches)
        return super().forward(patches)


class Language(torch.nn.Module):
    """What MimoModel asks of a language model. The loss of a token depends on its row alone."""

    def __init__(self, config, tp=(0, 1), **_more):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.config, self.tp = config, tp
        self.words = torch.nn.Parameter(torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=F64))
        self.register_buffer("out", torch.randn(HIDDEN, VOCABULARY, generator=generator, dtype=F64))

    def embedding(self, input_ids, position_ids):
        return self.words[input_ids].transpose(0, 1)

    def loss_of(self, rows, labels):
        losses = torch.nn.functional.cross_entropy((rows.sin() @ self.out).flatten(0, 1),
                                                   labels.flatten(), reduction="none")
        return losses.reshape(labels.shape)

    def forward(self, decoder_input, labels, **_more):
        self.seen = decoder_input.detach()
        rows = decoder_input.transpose(0, 1)
        return self.loss_of(rows, labels.chunk(self.tp[1], 1)[self.tp[0]] if self.tp[1] > 1 else labels)


class Data:
    """A global batch: ids with a number of images of its own for each sample, and labels."""

    def __init__(self, seed, none, batch=BATCH):
        roll = dice(seed)
        self.ids = torch.empty(batch, SEQ, dtype=torch.int64)
        self.images = {name: [] for name in SPECIAL}
        generator = torch.Generator().manual_seed(seed)
        for sample in range(batch):
            counts = {name: 0 if sample in none.get(name, ()) else roll.randint(0, 5) for name in SPECIAL}
            ids = [roll.randrange(40) for _ in range(SEQ - sum(counts.values()))]
            for name, count in counts.items():
                ids += [SPECIAL[name]] * count
                self.images[name].append(torch.randn(count, PIXELS, generator=generator, dtype=F64))
            roll.shuffle(ids)
            self.ids[sample] = torch.tensor(ids)
        self.labels = torch.tensor([[roll.randrange(VOCABULARY) for _ in range(SEQ)] for _ in range(batch)])

    def images_of(self, name, samples):
        return torch.cat([self.images[name][sample] for sample in samples])


def in_one_piece(data, encoders, language):
    """The sum of losses of the whole batch, without ranks."""
    rows = torch.zeros(BATCH, SEQ, HIDDEN, dtype=F64)
    text = torch.ones_like(data.ids, dtype=torch.bool)
    for name, special in SPECIAL.items():
        mask = data.ids == special
        rows = rows.masked_scatter(mask[..., None], encoders[name](data.images_of(name, range(BATCH))))
        text &= ~mask
    rows = rows.masked_scatter(text[..., None], language.words[data.ids[text]])
    return language.loss_of(rows, data.labels).sum()


def model_of(upstream, grids, sp, special=SPECIAL, cp=None, tp=None, **more):
    """Megatron's MimoModel with our bridges, over HyperCommGrids from texts. cp, tp: others in the
    config."""
    made = {}
    for name, text in grids.items():
        dims = [part.split("=") for part in text.split(",")]
        made[name] = upstream.HyperCommGrid([int(size) for _, size in dims], [d for d, _ in dims],
                                            backend=dist.get_backend())
    language = mb.Grid(grids["language"])
    groups = [made["language"].create_pg([name]) for name in ("cp", "tp")]
    config = upstream.TransformerConfig(
        num_layers=1, hidden_size=HIDDEN, num_attention_heads=2, params_dtype=F64,
        tensor_model_parallel_size=tp or language.dim("tp"), context_parallel_size=cp or language.dim("cp"),
        sequence_parallel=sp)
    part = (groups[1].rank(), language.dim("tp")) if sp else (0, 1)
    spec = upstream.ModuleSpec
    return upstream.ours.MimoModel(upstream.MimoModelConfig(
        language_model_spec=spec(module=Language, params={"config": config, "tp": part}),
        modality_submodules_spec={
            name: spec(module=upstream.encoders[name], submodules={"encoders": {
                "tiny": spec(module=PatchEncoder if name in more.get("balance", ()) else Encoder,
                             params={"seed": seed})}})
            for seed, name in enumerate(SPECIAL)},
        special_token_ids=special, module_to_grid_map=made), cp_group=groups[0], tp_group=groups[1],
        **more)


def samples_of(text, rank):
    grid = mb.Grid(text)
    return list(even(BATCH, grid.dim("dp"), grid.coords(rank)["dp"]))


def balanced_inputs(rows):
    """Of a modality that is balanced: the rows of each sample are one image, or two."""
    counts = [n for sample in rows for n in ((2, len(sample) - 2) if len(sample) > 3 else (len(sample),)) if n]
    return {"patches": torch.cat([*rows, torch.zeros(0, PIXELS, dtype=F64)]), "counts": counts}


def inputs_of(grids, data, rank, balance=()):
    """A model's arguments on this rank. Modalities without images here are left out, unless they are balanced."""
    mine = samples_of(grids["language"], rank)
    images = {name: data.images_of(name, samples_of(grids[name], rank)) for name in SPECIAL}
    inputs = {name: {"tiny": {"images": rows}} for name, rows in images.items() if len(rows)}
    inputs |= {name: {"tiny": balanced_inputs([data.images[name][b] for b in mine])} for name in balance}
    return {"input_ids": data.ids[mine], "labels": data.labels[mine], "modality_inputs": inputs or None}


def run_step(model, grids, data, rank, **more):
    """This rank's sum of losses, and backward."""
    device = next(model.parameters()).device
    inputs = tree_map_only(torch.Tensor, lambda x: x.to(device), inputs_of(
        grids, data, rank, getattr(model, "_balance", ())))
    loss, _ = model(**inputs, **more)
    loss.sum().backward()
    return loss.sum().item()


def relative(got, wanted):
    got = got.to(wanted.device)
    return ((got - wanted).norm() / wanted.norm().clamp(min=1e-30)).item()


def train(comm, upstream, grids, sp, none, **more):
    """Two steps of both encoders: gradients, and losses after them, against the model in one piece."""
    with torch.device("cpu"):
        model = model_of(upstream, grids, sp, **more).to(comm.device)
        alone = {name: Encoder(seed) for seed, name in enumerate(SPECIAL)}
        words, tp = Language(None), mb.Grid(grids["language"]).dim("tp")
    for step in range(2):
        with torch.device("cpu"):
            data = Data(step, none)
            whole_loss = in_one_piece(data, alone, words)
            whole_loss.backward()
        loss = run_step(model, grids, data, comm.rank)
        total = sum(gather(loss)) / (1 if sp else tp)
        assert abs(total / whole_loss.item() - 1) < 1e-12, (grids, step, total, whole_loss.item())
        off = relative(sum(gather(model.language_model.words.grad)) / tp, words.words.grad)
        assert off < 1e-12, f"{grids} words step {step}: relative L2 {off}"
        for name, submodule in model.modality_submodules.items():
            copies = comm.size // mb.Grid(grids[name]).dim("dp")
            for part in ("weight", "bias"):
                mine = getattr(submodule.encoders["tiny"], part)
                gradients, wanted = gather(mine.grad), getattr(alone[name], part)
                without = [rank for rank, gradient in enumerate(gradients) if gradient is None]
                assert not without, f"no gradient of {name} on {without}, not even of 0"
                summed = sum(gradients) / copies
                off = relative(summed, wanted.grad)
                assert off < 1e-12, f"{grids} {name} {part} step {step}: relative L2 {off}"
                with torch.no_grad():
                    for one, gradient in ((mine, summed), (wanted, wanted.grad)):
                        one -= 0.01 * gradient
                        one.grad = None
    model.destroy()
    assert not model.colocated_comms


LANGUAGES = [("tp=2,cp=2,dp=2", False), ("tp=2,cp=2,dp=2", True), ("tp=2,cp=1,dp=4", False),
             ("tp=1,cp=4,dp=2", False), ("tp=2,cp=1,dp=4", True), ("dp=4,cp=2,tp=1", False)]


@case(8)
def mimo_model_steps(comm):
    """MimoModel with our import: dst cp = 2 and 4 give the encoder gradient of cp = 1."""
    upstream = whole()
    mb.communicator._default = comm
    with process_groups(comm):
        for language, sp in LANGUAGES:
            grids = {"vision": "tp=1,dp=8", "audio": "tp=2,dp=4", "language": language}
            train(comm, upstream, grids, sp, {})


@case(2, on="cuda")
def mimo_model_on_gpus(comm):
    """Steps on GPUs, where process groups are NCCL's, against the model in one piece on the CPU."""
    upstream = whole()
    mb.communicator._default = comm
    with process_groups(comm):
        for language, sp in (("tp=1,cp=2,dp=1", False), ("tp=2,cp=1,dp=1", True)):
            for more in ({}, {"fused": True}):
                grids = {"vision": "tp=1,dp=2", "audio": "tp=2,dp=1", "language": language}
                train(comm, upstream, grids, sp, {"vision": (6, 7)}, **more)


@case(8)
def mimo_model_without_images(comm):
    """One rank, or all, without images of one encoder or of both: gradients of 0, and nobody hangs."""
    upstream = whole()
    mb.communicator._default = comm
    grids = {"vision": "tp=1,dp=8", "audio": "tp=2,dp=4", "language": "tp=2,cp=2,dp=2"}
    with process_groups(comm):
        for none in ({"vision": (6, 7)}, {"vision": (0, 1), "audio": (0, 1, 2, 3)},
                     {"audio": range(8)}):
            train(comm, upstream, grids, False, none)
        grids["vision"], grids["language"] = "tp=2,dp=4", "tp=2,cp=1,dp=4"  # nothing moves
        train(comm, upstream, grids, False, {"vision": (4, 5, 6, 7)})


@case(8)
def mimo_model_mistakes(comm):
    upstream = whole()
    mb.communicator._default = comm
    grids = {"vision": "tp=1,dp=8", "audio": "tp=2,dp=4", "language": "tp=2,cp=1,pp=2,dp=2"}
    with process_groups(comm):
        raises(NotImplementedError, "pp=2, and fused=True", model_of, upstream, grids, False, fused=True)
        grids["language"] = "tp=2,cp=2,dp=2"
        with torch.device("cpu"):
            model = model_of(upstream, grids, False).to(comm.device)
            data, right = Data(0, {}), Data(0, {})
        # an image more than its tokens, on one rank: an error of all, and then a step that works
        few = data.images["vision"][4]
        data.images["vision"][4] = torch.cat([few, few.new_ones(1, PIXELS)])
        raises(ValueError, "", run_step, model, grids, data, comm.rank)
        run_step(model, grids, right, comm.rank)
        model.destroy()
