"""colocate() of transformers' Qwen-VL models: loss and every gradient as those of the model alone on one process."""
import copy
import importlib.util

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import mimo_bridge as mb
from hf_models import SAMPLES, SEQ, Packed, Samples, exact, make, reference, require, versions, whole_precision
from megatron_import import process_groups
from rank_runner import Skip, case, gather, raises

HALF, NONE = (0, 1, 2, 3), tuple(range(SAMPLES))
REFERENCES = {}  # what one process gives


def samples_of(what, kind):
    """Two batches."""
    stamps = kind.startswith("qwen3")
    make_one = {"images": lambda s: Samples(s), "half": lambda s: Samples(s, HALF), "none": lambda s: Samples(s, NONE),
                "right": lambda s: Samples(s, pads="right"), "left": lambda s: Samples(s, HALF, pads="left"),
                "videos": lambda s: Samples(s, HALF[1:], videos=True, timestamps=stamps),
                "packed": lambda s: Packed(s)}[what]
    return [make_one(seed) for seed in (1, 2)]


def expected(kind, what):
    if (kind, what) not in REFERENCES:
        REFERENCES[kind, what] = reference(kind, samples_of(what, kind))
    return REFERENCES[kind, what]


def apply_tp(model):
    """The plan that transformers has for the class."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    plan = {name.replace("layers.*.", ""): styles[style]()
            for name, style in model.config.text_config.base_model_tp_plan.items() if style in styles}
    for layer in model.model.language_model.layers:
        parallelize_module(layer, mesh["tp"], plan)


def whole(gradient, p):
    if gradient is None:
        return torch.zeros(p.shape, dtype=p.dtype)
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def compare(model, total, wanted, what):
    """Worst relative differences of the loss and of any gradient. AssertionError where one is too large."""
    loss, gradients = wanted
    limit = exact()[1]
    errors = {"loss": abs(total - loss) / abs(loss)}
    for name, p in model.named_parameters():
        name = name.removeprefix("module.")
        norm = gradients[name].norm().item()
        error = (whole(p.grad, p) - gradients[name]).norm().item()
        errors[name] = error / norm if norm else error
    worst = max(errors, key=errors.get)
    assert errors[worst] <= limit, f"{what}: {worst} differs by {errors[worst]:.1e}"
    return f"loss {errors['loss']:.1e}, worst {errors[worst]:.1e}"


def one(comm, kind, grid, options=(), what="images"):
    """A model under a grid beside transformers alone: two micro-batches, then sums."""
    import mimo_bridge.hf as mh
    with process_groups(comm), whole_precision():
        wanted, model = expected(kind, what), make(kind)
        if "checkpoint" in options:
            new_name = getattr(model, "activation_checkpointing_enable", None)
            (new_name or model.gradient_checkpointing_enable)({"use_reentrant": False})
        if "tp" in grid:
            apply_tp(model)
        if "sharded before" in options:
            for part in (*model.model.visual.blocks, *model.model.language_model.layers, model):
                mh.sums(fully_shard(part, mesh=init_device_mesh("cpu", (comm.size,))))
        vlm = mh.colocate(model, grid, comm=comm, average=comm.size if "ddp" in options else 1)
        if "fsdp" in options:
            vlm.shard(init_device_mesh("cpu", (comm.size,)))
        called = DistributedDataParallel(model) if "ddp" in options else model
        if "ddp" not in options:  # nothing is gathered yet: the next call works
            raises(mb.ArgumentError, "keyword arguments", model, None)
        each = SAMPLES // vlm.lanes
        mine = slice(vlm.lane * each, (vlm.lane + 1) * each)
        total = 0.0
        for batch in samples_of(what, kind):
            loss = called(**batch.arguments(mine)).loss
            loss.backward()
            total += vlm.total(loss).item()
        if not {"fsdp", "ddp", "sharded before"} & set(options):
            vlm.sum_gradients()
        found = compare(model, total, wanted, f"{kind} {grid} {options} {what}")
        report = vlm.balanced.report()
        if comm.rank == 0:
            lanes = [longest / max(report.mean, 1) for longest in (report.longest, report.longest_home)]
            print(f"# {versions()}: {kind}, {grid}, {' '.join((*options, what))}: {found}; longest lane "
                  f"{lanes[0]:.2f} of the mean, {lanes[1]:.2f} as loaded", flush=True)
        vlm.close()


@case(4, on="cpu")
def deep_features_under_cp(comm):
    """Levels of DeepStack, shards of half a sequence, lanes without images, FSDP2, checkpoints."""
    require()
    one(comm, "qwen3", "cp=2,dp=2", ("fsdp", "checkpoint"), "half")


@case(4, on="cpu")
def own_plan_of_tp(comm):
    """The class's own plan for tp; sums over other ranks for the tower and for the language model."""
    require()
    one(comm, "qwen2.5", "tp=2,dp=2")


ROWS = [(kind, grid, options, what)
        for kind in ("qwen3", "qwen2.5")
        for grid, options in (("dp=4", ()), ("cp=2,dp=2", ()), ("cp=2,dp=2", ("fsdp",)), ("cp=2,dp=2", ("checkpoint",)),
                              ("cp=2,dp=2", ("fsdp", "checkpoint")), ("cp=4,dp=1", ()), ("dp=4", ("ddp",)))
        for what in ("images", "half", "none")]
ROWS += [("qwen2.5", "tp=2,dp=2", (), what) for what in ("half", "none")]
ROWS += [("qwen3", "cp=2,dp=2", ("sharded before",), "half")]
ROWS += [(kind, grid, ("fsdp",), what) for kind in ("qwen3", "qwen2.5") for grid in ("dp=4", "cp=2,dp=2")
         for what in ("right", "left", "packed", "videos")]
ROWS += [(kind, "cp=2,dp=2", ("fsdp",), what) for kind in ("qwen2", "qwen3_moe") for what in ("half", "videos")]


@case(4, long=True, on="cpu")
def all_rows(comm):
    require()
    for row in ROWS:
        one(comm, *row)


def worst_gradient(model, wanted):
    return max((got.grad - one.grad).norm().item() / one.grad.norm().item()
               for got, one in zip(model.parameters(), wanted.parameters()) if one.grad is not None)


@case(4, long=True, on="cpu")
def two_forwards(comm):
    """Two forwards before both backwards, of batches of other sizes, with layers that are computed again. A third is
    refused."""
    require()
    import mimo_bridge.hf as mh
    with process_groups(comm), whole_precision():
        batches, wanted = [Samples(1, HALF), Samples(2)], make("qwen3")
        chosen = [slice(None), slice(2, 8)]
        for batch, some in zip(batches, chosen):
            wanted(**batch.arguments(some), num_items_in_batch=1, use_cache=False).loss.backward()
        model = make("qwen3")
        model.gradient_checkpointing_enable({"use_reentrant": False})
        vlm = mh.colocate(model, "cp=2,dp=2", comm=comm)
        mine = [slice(some.start or 0, some.stop) for some in chosen]
        mine = [slice(a + d * (b - a) // 2, a + (d + 1) * (b - a) // 2)
                for a, b, d in ((some.start, some.stop or SAMPLES, vlm.lane) for some in mine)]
        sum(model(**batch.arguments(some), num_items_in_batch=1).loss for batch, some in zip(batches, mine)).backward()
        vlm.sum_gradients()
        assert worst_gradient(model, wanted) <= exact()[1], worst_gradient(model, wanted)
        three = sum(model(**batches[0].arguments(mine[0])).loss for _ in range(3))
        raises(mb.StateError, "the bridge was updated between this call and its forward", three.backward)
        vlm.close()


@case(4, long=True, on="cpu")
def lanes_of_other_lengths(comm):
    """Without cp each lane's sequences have a length of their own."""
    require()
    import mimo_bridge.hf as mh

    def of_lane(lane):
        given = Samples(2).arguments(slice(2 * lane, 2 * lane + 2))
        used = int((given["mm_token_type_ids"].any(0) * torch.arange(SEQ)).max()) + 2
        length = max(used, 40 + 5 * lane)
        return {name: x[:, :length] if x.shape[-1] == SEQ else x for name, x in given.items()}

    with process_groups(comm), whole_precision():
        wanted, model = make("qwen3"), make("qwen3")
        for lane in range(4):
            wanted(**of_lane(lane), num_items_in_batch=1, use_cache=False).loss.backward()
        vlm = mh.colocate(model, "dp=4", comm=comm)
        model(**of_lane(vlm.lane), num_items_in_batch=1).loss.backward()
        vlm.sum_gradients()
        assert worst_gradient(model, wanted) <= exact()[1], worst_gradient(model, wanted)
        vlm.close()


@case(4, long=True, on="cpu")
def adapters_of_peft(comm):
    """LoRA around a colocated model."""
    require()
    if not all(gather(importlib.util.find_spec("peft") is not None)):
        raise Skip("no peft")
    import mimo_bridge.hf as mh
    import peft

    def adapted(model):
        torch.manual_seed(3)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "linear_fc1"])
        made = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
        for name, p in made.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(p, std=0.1)
        return made

    with process_groups(comm), whole_precision():
        batch, wanted, model = Samples(1, HALF), adapted(make("qwen3")), make("qwen3")
        wanted(**batch.arguments(), num_items_in_batch=batch.targets(), use_cache=False).loss.backward()
        vlm = mh.colocate(model, "cp=2,dp=2", comm=comm)
        called = adapted(model)
        called(**batch.arguments(slice(vlm.lane * 4, vlm.lane * 4 + 4))).loss.backward()
        vlm.sum_gradients()
        assert worst_gradient(called, wanted) <= exact()[1], worst_gradient(called, wanted)
        vlm.close()


@case(4, on="cpu")
def what_is_refused(comm):
    """By a sentence on every rank, also where one rank alone is wrong; the next call works."""
    require()
    import mimo_bridge.hf as mh
    with process_groups(comm):
        raises(mb.UnsupportedError, "Linear is none of Qwen2VLForConditionalGeneration, ", mh.colocate,
               torch.nn.Linear(1, 1), "dp=4", comm=comm)
        model = make("qwen3", torch.float32)
        for llm, kind, words in (("pp=2,dp=2", mb.UnsupportedError, "pipelines of transformers' models"),
                                 ("dp=2", mb.GridError, "has 2 ranks from 0 on, and the communicator 4")):
            raises(kind, words, mh.colocate, model, llm, comm=comm)
        text = model.config.text_config
        text.layer_types = ["sliding_attention"] * 3
        raises(mb.UnsupportedError, "sliding_attention layers", mh.colocate, model, "cp=2,dp=2", comm=comm)
        text.layer_types = None
        vlm = mh.colocate(model, "cp=2,dp=2", comm=comm)
        raises(mb.StateError, "is colocated already", mh.colocate, model, "cp=2,dp=2", comm=comm)
        raises(mb.StateError, "call the model itself", model.model.get_image_features, None)
        raises(TypeError, "can't be copied", copy.deepcopy, model)
        mine = slice(vlm.lane * 4, vlm.lane * 4 + 4)
        given = Samples(1, HALF).arguments(mine) | {"pixel_values": None, "image_grid_thw": None}
        given["input_ids"] = given["input_ids"].clamp(max=180)
        odd = {name: given[name][:, :63] for name in ("input_ids", "labels")}
        for more, kind, words in (
                ({"past_key_values": object()}, mb.UnsupportedError, "past_key_values is not taken: sequences are"),
                ({"inputs_embeds": torch.zeros(1)}, mb.UnsupportedError, "inputs_embeds is not taken"),
                ({"mm_encoder_outputs": {"image": 1}}, mb.UnsupportedError, "mm_encoder_outputs is not taken"),
                ({"output_attentions": True}, mb.UnsupportedError, "output_attentions is not taken"),
                ({"output_router_logits": True}, mb.UnsupportedError, "mean over the tokens of one rank"),
                ({"logits_to_keep": 1}, mb.UnsupportedError, "logits_to_keep is not taken"),
                ({"attention_mask": torch.ones(4, 1, 64, 64)}, mb.UnsupportedError, "an attention_mask is [samples"),
                ({"input_ids": None}, mb.ArgumentError, "keyword arguments"),
                ({"input_ids": torch.zeros(64, dtype=torch.int64)}, mb.ShapeError, "not [samples, positions]"),
                (odd, mb.ShapeError, "63"),
                ({"position_ids": torch.zeros(3, 4, 32)}, mb.ShapeError, "position_ids [3, 4, 32]"),
                ({"labels": torch.zeros(4, 32)}, mb.ShapeError, "labels [4, 32] of input_ids [4, 64]"),
                ({"cu_seq_lens_q": torch.tensor([0, 64])}, mb.ShapeError, "cu_seq_lens_q ends at 64"),
                ({"pixel_values": torch.zeros(4, 96)}, mb.ArgumentError, "come together"),
                ({"pixel_values": torch.zeros(4, 96), "image_grid_thw": torch.tensor([[1, 2, 4]])}, mb.ShapeError,
                 "has 4 patches, and image_grid_thw has 8"),
                ({"pixel_values": torch.zeros(4, 96), "image_grid_thw": torch.tensor([[1, 2, 2]])}, mb.ShapeError,
                 "1 images more than its special ids take")):
            for wrong in (range(4), (2, 3)):  # on all ranks, and on those of one lane
                raises(kind, words, model, **(given | more if comm.rank in wrong else given))
        raises(mb.ArgumentError, "keyword arguments", model, given["input_ids"])
        assert torch.isfinite(vlm.total(model(**given).loss)) and model(**(given | {"labels": None})).loss is None
        vlm.close()
        tp = mh.colocate(make("qwen2.5", torch.float32), "tp=2,dp=2", comm=comm)
        raises(mb.UnsupportedError, "has tp: shard the tower over all ranks", tp.shard, None)
        tp.close()
