"""Small Qwen-VL models of transformers with random weights, batches for them, and the same model on one process."""
from __future__ import annotations

import contextlib
import importlib
import importlib.util
import random
from unittest import mock

import torch

from rank_runner import Skip, gather

IMAGE, VIDEO, PATCH, SAMPLES, SEQ = 190, 191, 4, 8, 64
CLASSES = {"qwen2": ("Qwen2VL", "qwen2_vl", "Qwen2VLRMSNorm"),
           "qwen2.5": ("Qwen2_5_VL", "qwen2_5_vl", "Qwen2_5_VLRMSNorm"),
           "qwen3": ("Qwen3VL", "qwen3_vl", "Qwen3VLTextRMSNorm"),
           "qwen3_moe": ("Qwen3VLMoe", "qwen3_vl_moe", "Qwen3VLMoeTextRMSNorm")}


def require():
    """Skips the case where transformers is missing. Every rank calls it."""
    if not all(gather(importlib.util.find_spec("transformers") is not None)):
        raise Skip("no transformers: scripts/torch_venv.sh installs it")


def library():
    import transformers
    transformers.logging.set_verbosity_error()
    return transformers


def versions():
    return f"transformers {library().__version__}, torch {torch.__version__}"


def exact():
    """The dtype to compare in, and how far results may be apart. Before 5.18 transformers computes angles in f32 in a
    way that the patches of whole_precision() do not reach."""
    older = tuple(map(int, library().__version__.split(".")[:2])) < (5, 18)
    return (torch.float32, 5e-6) if older else (torch.float64, 1e-12)


@contextlib.contextmanager
def whole_precision():
    """transformers computes norms, angles and the loss in f32 whatever the dtype is. Here all of it is f64."""
    dtype, _ = exact()
    if dtype != torch.float64:
        yield
        return
    as_float = torch.Tensor.float

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    with contextlib.ExitStack() as patches:
        for _, folder, name in CLASSES.values():
            module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
            patches.enter_context(mock.patch.object(getattr(module, name), "forward", norm))
        patches.enter_context(mock.patch.object(torch.Tensor, "float", lambda x, *a, **k: (
            x if x.dtype == torch.float64 else as_float(x, *a, **k))))
        yield


def make(kind, dtype=None):
    """The model, with the same weights each time."""
    transformers = library()
    torch.manual_seed(0)
    text = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 200, "max_position_embeddings": 256, "bos_token_id": 1,
            "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
    vision = {"depth": 3, "num_heads": 2, "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2}
    if kind == "qwen2":
        vision |= {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}
    else:
        vision |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64}
    if kind == "qwen2.5":
        vision |= {"window_size": 16, "fullatt_block_indexes": [2], "tokens_per_second": 1}
    if kind.startswith("qwen3"):
        text["head_dim"] = 16
        vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    if kind == "qwen3_moe":
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "decoder_sparse_step": 1}
    name = CLASSES[kind][0]
    config = getattr(transformers, f"{name}Config")(
        text_config=text, vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=192,
        vision_end_token_id=193, tie_word_embeddings=False)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    if kind == "qwen3_moe":
        model.set_experts_implementation("eager")  # torch's grouped_mm takes no f64
        for layer in model.model.language_model.layers:
            torch.nn.init.normal_(layer.mlp.gate.weight)
    return model.to(exact()[0] if dtype is None else dtype).train()


class Samples:
    """A batch of whole sequences: images (and videos) of unequal sizes, unequal labels.

    without   samples that have no image
    videos    some samples also have one
    pads      "", "right" or "left"
    """

    def __init__(self, seed, without=(), videos=False, pads="", timestamps=True):
        roll, numbers = random.Random(seed), torch.Generator().manual_seed(seed)
        self.dtype, self.pads = exact()[0], pads
        self.ids = torch.randint(3, 180, (SAMPLES, SEQ), generator=numbers)
        self.parts = [[] for _ in range(SAMPLES)]  # (kind, grid, pixels)
        for b in range(SAMPLES):
            at = 1
            for _ in range(0 if b in without else roll.randint(0, 3)):
                kind = 2 if videos and roll.random() < 0.5 else 1
                grid = ((2 if kind == 2 else 1), 2 * roll.randint(1, 4 - kind), 2 * roll.randint(1, 4))
                rows = grid[1] * grid[2] // 4
                if at + grid[0] * (rows + 1) + 2 > SEQ:
                    break
                gap = 1 if kind == 2 and timestamps else 0
                for _ in range(grid[0]):
                    self.ids[b, at:at + rows] = VIDEO if kind == 2 else IMAGE
                    at += rows + gap
                at += roll.randint(1, 3)
                width = 3 * 2 * PATCH * PATCH
                pixels = torch.randn(grid[0] * grid[1] * grid[2], width, generator=numbers, dtype=self.dtype)
                self.parts[b].append((kind, grid, pixels))
        self._pad()
        self.labels = self.ids.clone()
        self.labels[(self.ids == IMAGE) | (self.ids == VIDEO) | (self.ids == 0)] = -100
        self.labels[:, :roll.randint(1, 20)] = -100

    def _pad(self):
        self.mask = torch.ones_like(self.ids)
        for b in range(SAMPLES if self.pads else 0):
            special = ((self.ids[b] == IMAGE) | (self.ids[b] == VIDEO)).nonzero()
            kept = max(int(special[-1]) + 2 if len(special) else 8, SEQ - 3 * b - 1)
            self.ids[b, kept:] = self.mask[b, kept:] = 0
            if self.pads == "left":
                self.ids[b], self.mask[b] = self.ids[b].roll(SEQ - kept), self.mask[b].roll(SEQ - kept)

    def targets(self):
        return int((self.labels[:, 1:] != -100).sum())

    def arguments(self, chosen=slice(None)):
        """Those of a model, of some samples."""
        ids = self.ids[chosen]
        kinds = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
        given = {"input_ids": ids, "labels": self.labels[chosen], "mm_token_type_ids": kinds}
        if self.pads:
            given["attention_mask"] = self.mask[chosen]
        flat = [part for sample in self.parts[chosen] for part in sample]
        names = (1, "pixel_values", "image_grid_thw"), (2, "pixel_values_videos", "video_grid_thw")
        for kind, pixels, grids in names:
            own = [part for part in flat if part[0] == kind]
            if own:
                given[pixels] = torch.cat([p for _, _, p in own])
                given[grids] = torch.tensor([grid for _, grid, _ in own])
        return given


class Packed(Samples):
    """Each row is a pack of three sequences, which text positions tell."""

    def arguments(self, chosen=slice(None)):
        given = super().arguments(chosen)
        whole = given["input_ids"]
        ends = [0, 17, 40, SEQ]
        text = torch.cat([torch.arange(b - a) for a, b in zip(ends, ends[1:])]).expand(*whole.shape)
        return given | {"position_ids": torch.stack([text, text, text // 2, text // 3])}


def reference(kind, batches):
    """The loss and the gradients of transformers alone, on one process."""
    model, total = make(kind), 0.0
    for batch in batches:
        loss = model(**batch.arguments(), num_items_in_batch=batch.targets(), use_cache=False).loss
        loss.backward()
        total += loss.item()
    return total, {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
