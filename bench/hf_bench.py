#!/usr/bin/env python3
"""Steps of a Qwen3-VL of transformers on several GPUs beside one: losses, and how long a step takes, by mimo_bridge.hf
and by what is usual. Prints a line for each way, and fails where losses differ.

    torchrun --nproc-per-node 2 hf_bench.py
    mpirun -n 2 --oversubscribe python3 hf_bench.py --device cpu --hidden 32 --layers 2 --vision 32,2 --seq 64 --batch 2
        --largest 6 --steps 3 --dtypes f32

Weights are random, the same everywhere. A batch has --batch samples of --seq tokens, with images of 2 x 2 to
--largest x --largest patches that take up to half of the tokens. AdamW; weights are f32, and bf16 is torch's autocast.

alone      transformers on one rank, the whole batch. The other ranks wait
cp, dp     colocate() over all ranks, FSDP2
cp usual   as cp, except that each rank encodes an equal number of images, and all features are gathered on every rank
dp usual   as dp, except that each rank encodes the images of its own samples

ms is the median step of the slowest rank, without the first three. Losses of each step may be --limit apart from
"alone" (default: 1e-5 in f32, 2e-2 in bf16), relatively.
"""
import argparse
import contextlib
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed.device_mesh import init_device_mesh

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))
from peer_cases import median  # noqa: E402
from torch_bench import start_ranks  # noqa: E402

IMAGE, PATCH = 250, 14
LIMITS = {"f32": 1e-5, "bf16": 2e-2}


def make(asked, device):
    """The model: the same weights on every rank and in every run."""
    import transformers
    transformers.logging.set_verbosity_error()
    heads, (width, depth) = max(asked.hidden // 64, 2), asked.vision
    head = asked.hidden // heads
    text = {"hidden_size": asked.hidden, "intermediate_size": 3 * asked.hidden, "num_hidden_layers": asked.layers,
            "num_attention_heads": heads, "num_key_value_heads": max(heads // 4, 1), "head_dim": head,
            "vocab_size": 1024, "max_position_embeddings": asked.seq,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
                                "mrope_section": [head // 2 - 2 * (head // 6), head // 6, head // 6]}}
    vision = {"depth": depth, "hidden_size": width, "intermediate_size": 4 * width, "num_heads": max(width // 64, 2),
              "out_hidden_size": asked.hidden, "patch_size": PATCH, "num_position_embeddings": asked.largest ** 2,
              "deepstack_visual_indexes": [0, depth // 2]}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, image_token_id=IMAGE,
                                        video_token_id=251, vision_start_token_id=252, vision_end_token_id=253,
                                        tie_word_embeddings=False)
    torch.manual_seed(0)
    model = transformers.Qwen3VLForConditionalGeneration(config).to(device)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def draw(asked, step):
    """[(ids [S], pixels, grids)] of the samples of a step."""
    numbers, found = torch.Generator().manual_seed(step), []
    for _ in range(asked.batch):
        ids, grids, at = torch.randint(0, IMAGE, (asked.seq,), generator=numbers), [], 1
        while True:
            height, width = (2 * int(torch.randint(1, asked.largest // 2 + 1, (), generator=numbers)) for _ in "hw")
            if at + height * width // 4 > asked.seq // 2:
                break
            ids[at:at + height * width // 4] = IMAGE
            at += height * width // 4 + 1
            grids.append((1, height, width))
        patches = sum(h * w for _, h, w in grids)
        found.append((ids, torch.randn(patches, 6 * PATCH ** 2, generator=numbers), grids))
    return found


def arguments(samples):
    ids = torch.stack([ids for ids, _, _ in samples])
    images = ids == IMAGE
    given = {"input_ids": ids, "labels": ids.masked_fill(images, -100), "mm_token_type_ids": images.int()}
    grids = [grid for _, _, of_sample in samples for grid in of_sample]
    if grids:
        given["pixel_values"] = torch.cat([pixels for _, pixels, _ in samples])
        given["image_grid_thw"] = torch.tensor(grids)
    return given


class Gathered:
    """In place of colocate's features, for one lane: an equal number of images each, all features on every rank."""

    def __init__(self, vlm):
        self.vlm = vlm
        vlm.model.model.get_image_features = self

    def __call__(self, *_args, **_kwargs):
        vlm, ranks, rank = self.vlm, self.vlm.comm.size, self.vlm.comm.rank
        batch, vlm._batch = vlm._batch, None
        counts, _, grids = batch.step
        first = [len(counts) * r // ranks for r in range(ranks + 1)]
        mine = slice(first[rank], first[rank + 1])
        pixels = batch.pixels[sum(counts[:mine.start]):sum(counts[:mine.stop])].to(vlm.comm.device)
        grid = grids[mine].to(vlm.comm.device)
        if mine.start == mine.stop:  # FSDP waits for every rank
            pixels, grid = pixels.new_zeros(4, pixels.shape[1]), grid.new_tensor([[1, 2, 2]])
        levels = vlm._encode(pixels, None, None, grid)
        own = torch.cat(levels, -1)
        rows = [sum(counts[a:b]) // 4 for a, b in zip(first, first[1:])]
        own = torch.cat([own[:rows[rank]], own.new_zeros(max(rows) - rows[rank], own.shape[1])])
        every = all_gather_tensor_autograd(own, 0, dist.group.WORLD)
        every = torch.cat([part[:n] for part, n in zip(every.split(max(rows)), rows)])
        number = (batch._kinds.flatten() > 0).cumsum(0).view(batch._kinds.shape) - 1  # of each token's row
        here = batch.cut(number)[batch.cut(batch._kinds) > 0].to(vlm.comm.device)
        return vlm._features(every[here].split([level.shape[1] for level in levels], -1))


def run(asked, comm, dtype, way):
    """(losses, ms) of steps; None on ranks that wait."""
    import mimo_bridge.hf as mh  # not for --help, nor where transformers is missing
    kind, _, usual = way.partition(" ")
    if kind == "alone" and comm.rank:
        return None
    device, vlm, mine = comm.device, None, slice(None)
    model = make(asked, device)
    if kind != "alone":
        keep = {"assign": lambda cost, lanes, rows, home: home} if way == "dp usual" else {}
        vlm = mh.colocate(model, f"{kind}={comm.size}", comm=comm, **keep)
        vlm.shard(init_device_mesh(device.type, (comm.size,)))
        each = asked.batch // vlm.lanes
        mine = slice(vlm.lane * each, vlm.lane * each + each)
        if way == "cp usual":
            Gathered(vlm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    cast = torch.autocast(device.type, torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext()
    losses, times = [], []
    for step in range(asked.steps):
        given = arguments(draw(asked, step)[mine])
        if vlm is None:
            given = {name: tensor.to(device) for name, tensor in given.items()}
        comm.synchronize() if vlm is None else comm.barrier()
        begin = time.perf_counter()
        with cast:
            loss = model(**given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.detach() if vlm is None else vlm.total(loss)).item())
        comm.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    if vlm is not None:
        vlm.close()
    return losses, median(times[min(3, len(times) - 1):])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vision", type=lambda text: [int(n) for n in text.split(",")], default=[1024, 12],
                        help="hidden size and layers of the tower (default: 1024,12)")
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4, help="samples, over all ranks")
    parser.add_argument("--largest", type=int, default=48, help="patches of an image's longest side")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--limit", type=float, help="relative difference of losses")
    asked = parser.parse_args()
    comm = start_ranks(asked.device)
    failed = False
    for dtype in asked.dtypes.split(","):
        alone = None
        for way in ("alone", "cp", "cp usual", "dp", "dp usual"):
            found = run(asked, comm, dtype, way)
            told = [None] * comm.size
            dist.all_gather_object(told, found)
            if alone is None:
                alone = told[0][0]
            far = max(abs(a - b) / abs(b) for a, b in zip(told[0][0], alone))
            limit = LIMITS[dtype] if asked.limit is None else asked.limit
            failed |= not far <= limit
            if comm.rank == 0:
                slowest, losses = max(one[1] for one in told if one), told[0][0]
                print(f"{dtype:5}{way:10}{slowest:10.1f} ms   loss {losses[0]:.5f} to {losses[-1]:.5f}, at most "
                      f"{far:.1e} apart{' FAILED' if not far <= limit else ''}", flush=True)
    comm.close()
    dist.destroy_process_group()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
