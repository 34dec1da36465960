"""Trains an image encoder and a small language model on samples with any number of emoji of any size. Any rank
encodes any image, so no rank waits for the one whose samples have the largest. FSDP2 shards the encoder.

    python balanced.py emoji.samples                                  one process
    mpirun -n 4 --oversubscribe python balanced.py emoji.samples      CPU
    torchrun --nproc-per-node 2 balanced.py emoji.samples             GPUs

    build/examples/captioner/captioner --image-size 32 --prepare emoji.samples

The loss curve is the same for every number of ranks, and with --as-loaded, where each rank encodes what it has
loaded. Both print how long their longest lane was, as a multiple of the mean.
"""
import argparse
import time

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, interpolate, scaled_dot_product_attention

import mimo_bridge as mb
from emoji import END, Emoji
from train import Language, add_up, end, mlp, start

HIDDEN, PATCH, MERGE, IMAGE = 64, 8, 4, 255  # IMAGE is no byte of a name
MOST = 6  # images of a sample
NAME = 8  # bytes of each image's name
SEQ = 256  # an image of 160 pixels takes 100 positions


class Encoder(nn.Module):
    """Attention inside each image, then a row for each MERGE patches."""

    def __init__(self):
        super().__init__()
        self.read, self.place = nn.Linear(PATCH * PATCH * 3, HIDDEN), nn.Linear(2, HIDDEN)
        self.norm, self.mix = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN)
        self.merge = nn.Linear(MERGE * HIDDEN, HIDDEN)

    def forward(self, patches, counts, cu_seqlens):
        patches, places = patches.split([PATCH * PATCH * 3, 2], -1)
        x = self.read(patches) + self.place(places)
        rows = [scaled_dot_product_attention(*image.unflatten(-1, (3, 1, -1)).permute(1, 2, 0, 3))[0]
                for image in self.mix(self.norm(x)).split(counts)]
        return self.merge((x + torch.cat(rows)).reshape(-1, MERGE * HIDDEN))


def patches_of(image, size):
    """[p, C] of an image [3, side, side] at another size: MERGE neighbours follow each other, and each has its
    place in the image."""
    image = interpolate(image[None], (size, size), mode="bilinear", align_corners=False)[0]
    side, two = size // PATCH, int(MERGE ** 0.5)
    place = torch.stack(torch.meshgrid(*[torch.arange(side) / side] * 2, indexing="ij"))
    cut = image.reshape(3, side, PATCH, side, PATCH).permute(1, 3, 0, 2, 4).flatten(2)
    both = torch.cat([cut, place.permute(1, 2, 0)], -1)
    return both.reshape(side // two, two, side // two, two, -1).transpose(1, 2).reshape(side * side, -1)


class Samples:
    """Batches of text with images: of no image, of one, of MOST; from 32 to 160 pixels a side."""

    def __init__(self, emoji, batch, seed=0):
        side = emoji.side
        self.images = emoji.pixels.reshape(-1, side, side, 3).permute(0, 3, 1, 2) / 127.5 - 1
        self.names = emoji.captions[:, :NAME]
        self.batch, self.generator = batch, torch.Generator().manual_seed(seed)

    def draw(self, most):
        return int(torch.randint(most, (), generator=self.generator))

    def next(self):
        """(images of each sample as (number, size), ids [B, S], labels [B, S]): the same on every rank."""
        images, ids = [], torch.full((self.batch, SEQ), END)
        labels = torch.full((self.batch, SEQ), -100)
        for b in range(self.batch):
            mine, at = [], 0
            for _ in range((0, 1, 2, MOST)[self.draw(4)]):
                number, size = self.draw(len(self.images)), 16 * (2 + self.draw(9))
                rows, name = (size // PATCH) ** 2 // MERGE, self.names[number]
                if at + rows + NAME > SEQ:
                    break
                ids[b, at:at + rows] = IMAGE
                ids[b, at + rows:at + rows + NAME] = name
                labels[b, at + rows - 1:at + rows + NAME - 1] = name
                mine.append((number, size))
                at += rows + NAME
            images.append(mine)
        return images, ids, labels


def shard(module, comm):
    """FSDP2: each rank keeps a part of the weights. Gradients are added, never averaged."""
    if comm.size > 1:
        fully_shard(module, mesh=init_device_mesh(comm.device.type, (comm.size,)))
        module.set_gradient_divide_factor(1.0)
        if comm.device.type == "cpu":  # gloo has no other sums
            module.set_force_sum_reduction_for_comms(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", help="file made by captioner --prepare")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8, help="samples of a step, over all ranks")
    parser.add_argument("--as-loaded", action="store_true", help="each rank encodes what it has loaded")
    options = parser.parse_args()
    comm = start()
    cp = 2 if comm.size % 2 == 0 else 1
    src, dst = mb.Grid(f"dp={comm.size}"), mb.Grid(f"cp={cp},dp={comm.size // cp}")
    samples, cut, device = Samples(Emoji(options.samples), options.batch), mb.Partition(), comm.device
    torch.manual_seed(1)
    encoder, language = Encoder().to(device), Language(SEQ, mlp).to(device)
    shard(encoder, comm)
    keep = (lambda cost, lanes, rows, home: home) if options.as_loaded else None
    balanced = mb.Balanced(encoder, src, dst, special=IMAGE, comm=comm, partition=cut, merge=MERGE,
                           cost=HIDDEN, assign=keep, dst_layout="bsh")
    gather = mb.Bridge(dst, dst, src_partition=cut, layout="bsh", batch=options.batch)
    first, count = gather.samples("src", options.batch)
    index = cut.at(dst, comm.rank).index(SEQ)
    optimizer = torch.optim.AdamW([{"params": [*part.parameters()]} for part in (encoder, language)], lr=2e-3)
    begin, longest, at_home = time.perf_counter(), 0.0, 0.0
    for step in range(options.steps):
        images, ids, labels = samples.next()
        mine = [patches_of(samples.images[number], size) for b in range(first, first + count)
                for number, size in images[b]]
        patches = torch.cat(mine) if mine else torch.zeros(0, PATCH * PATCH * 3 + 2)
        ids, own = ids[first:first + count], labels[first:first + count]
        place = lambda text: balanced(patches.to(device), [len(p) for p in mine], ids=ids, into=text)  # noqa: E731
        logits = language(ids[:, index].to(device), place, gather, index.to(device))
        loss = cross_entropy(logits.flatten(0, 1), own[:, index].flatten().to(device), reduction="sum")
        loss = loss / max(int((labels != -100).sum()), 1)
        optimizer.zero_grad()
        loss.backward()
        if comm.size > 1:
            loss = add_up(loss, [*language.parameters()])
        optimizer.step()
        report = balanced.report()
        longest += report.longest / max(report.mean, 1) / options.steps
        at_home += report.longest_home / max(report.mean, 1) / options.steps
        if comm.rank == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
    if comm.rank == 0:
        print(f"longest lane {longest:.2f} of the mean, {at_home:.2f} as loaded; "
              f"{(time.perf_counter() - begin) / options.steps * 1000:.0f} ms a step")
    end(comm)


if __name__ == "__main__":
    main()
