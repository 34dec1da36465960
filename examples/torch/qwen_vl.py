"""Trains a Qwen3-VL of transformers, with random weights, on samples with any number of images of any size: the vision
tower on all ranks, the language model under a grid. FSDP2 shards it, and layers are checkpointed.

    python qwen_vl.py                                               one process, transformers alone
    mpirun -n 4 --oversubscribe python qwen_vl.py --llm cp=2,dp=2   CPU
    torchrun --nproc-per-node 2 qwen_vl.py --llm cp=2               GPUs

The loss curve is the same for every number of ranks and every grid.
"""
import argparse

import torch
from torch.distributed.device_mesh import init_device_mesh
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

import mimo_bridge.hf as mh
from train import end, start

IMAGE, START, END, PATCH, SEQ = 250, 251, 252, 8, 128
TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 256,
        "num_key_value_heads": 2, "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
VISION = {"depth": 3, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 64,
          "patch_size": PATCH, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}


class Samples:
    """Each image has one colour, and the token behind it is that colour's."""

    def __init__(self, batch):
        self.batch, self.generator = batch, torch.Generator().manual_seed(0)

    def draw(self, least, most):
        return int(torch.randint(least, most, (), generator=self.generator))

    def next(self):
        """[(ids, labels, images)] of all samples, the same on every rank; an image: (t, h, w), pixels."""
        found = []
        for _ in range(self.batch):
            ids, labels, images, at = torch.zeros(SEQ, dtype=torch.int64), torch.full((SEQ,), -100), [], 0
            for _ in range(self.draw(0, 5)):
                height, width, colour = 2 * self.draw(1, 5), 2 * self.draw(1, 5), self.draw(0, 8)
                rows = height * width // 4
                if at + rows + 3 > SEQ:
                    break
                ids[at:at + rows + 3] = torch.tensor([START, *[IMAGE] * rows, END, 1 + colour])
                labels[at + rows + 2] = 1 + colour
                at += rows + 3
                bits = torch.tensor([colour >> i & 1 for i in range(3)]) * 2.0 - 1  # of red, green and blue
                images.append(((1, height, width), bits.repeat_interleave(2 * PATCH ** 2).expand(height * width, -1)))
            found.append((ids, labels, images))
        return found


def arguments(samples):
    """Those of the model, of some samples."""
    ids, labels, images = zip(*samples)
    flat = [image for of_sample in images for image in of_sample]
    given = {"input_ids": torch.stack(ids), "labels": torch.stack(labels)}
    given["mm_token_type_ids"] = (given["input_ids"] == IMAGE).int()
    if flat:
        given["pixel_values"] = torch.cat([pixels for _, pixels in flat])
        given["image_grid_thw"] = torch.tensor([grid for grid, _ in flat])
    return given


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8, help="samples of a step, over all ranks")
    parser.add_argument("--llm", help="grid of the language model (default: dp alone)")
    options = parser.parse_args()
    comm = start()
    torch.manual_seed(1)
    config = Qwen3VLConfig(text_config=TEXT, vision_config=VISION, image_token_id=IMAGE, video_token_id=253,
                           vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=False)
    model = Qwen3VLForConditionalGeneration(config).to(comm.device)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    vlm, mine = None, slice(None)
    if comm.size > 1:
        vlm = mh.colocate(model, options.llm or f"dp={comm.size}", comm=comm)
        vlm.shard(init_device_mesh(comm.device.type, (comm.size,)))
        each = options.batch // vlm.lanes
        mine = slice(vlm.lane * each, vlm.lane * each + each)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    samples = Samples(options.batch)
    for step in range(options.steps):
        given = arguments(samples.next()[mine])
        if vlm is None:  # a colocated model takes tensors of the CPU, whose ids and grids the host reads
            given = {name: tensor.to(comm.device) for name, tensor in given.items()}
        loss = model(**given).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss = loss if vlm is None else vlm.total(loss)
        if comm.rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    end(comm)


if __name__ == "__main__":
    main()
