"""DDP and FSDP2 around an encoder that is balanced: outputs and gradients of one process, also with lanes that have no
image, or that encode none at all."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import mimo_bridge as mb
from balance_cases import C, F64, IMAGE, MERGE, Encoder, close, draw_batch, loaded, sides, whole_tile
from megatron_import import process_groups
from rank_runner import case


class AllAtOnce(Encoder):
    """Each layer is called once, for all images: FSDP gathers at every call, and ranks have other numbers of images."""

    def forward(self, patches, counts, cu_seqlens):
        images = [(torch.softmax(mixed @ image.T, -1) @ image).reshape(-1, MERGE * C)
                  for mixed, image in zip(self.mix(patches).split(counts), patches.split(counts))]
        return self.out(torch.cat(images))


def batches(n):
    """Unequal images, images of one sample alone, of which most move, one image, and none."""
    ids = torch.zeros(n, 8, dtype=torch.int64)
    ids[0, 2:4] = IMAGE
    yield draw_batch(21, 2 * n)
    many = torch.zeros(n, 8, dtype=torch.int64)
    many[0] = IMAGE
    torch.manual_seed(23)
    yield [[torch.randn(8 // n * MERGE, C, dtype=F64) for _ in range(n)]] + [[] for _ in range(n - 1)], many
    yield [[torch.ones(2 * MERGE, C, dtype=F64)]] + [[] for _ in range(n - 1)], ids
    yield [[] for _ in range(n)], torch.zeros(n, 8, dtype=torch.int64)
    yield draw_batch(22, n)


def compare_steps(comm, wrapped, scale):
    """Steps of the wrapped encoder beside one process. `scale`: what makes sums of its gradients."""
    n = comm.size
    src, dst = f"dp={n}", f"cp=2,dp={n // 2}"
    loader, side = sides(src, dst, "dst", False)
    plain = Encoder()
    balanced = mb.Balanced(wrapped, mb.Grid(src), mb.Grid(dst), special=IMAGE, comm=comm, merge=MERGE,
                           partition=mb.Partition(), cost=4)
    for step, (patches, ids) in enumerate(batches(n)):
        wrapped.zero_grad()
        plain.zero_grad()
        mine, counts, own_ids = loaded(loader, comm.rank, patches, ids)
        y = balanced(mine, counts, ids=own_ids)
        wanted = whole_tile(plain, patches, ids)
        close(y.detach(), side.tile(comm.rank, wanted.detach().transpose(0, 1)), f"rows of step {step}")
        y.square().sum().backward()
        if wanted.requires_grad:
            wanted.square().sum().backward()
        for got, p in zip(wrapped.parameters(), plain.parameters()):
            gradient = got.grad.full_tensor() if isinstance(got.grad, DTensor) else got.grad
            close(gradient * scale, torch.zeros_like(p) if p.grad is None else p.grad, f"a gradient of step {step}")
    balanced.close()


@case(2, 4)
def balanced_data_parallel(comm):
    with process_groups(comm):
        compare_steps(comm, DistributedDataParallel(Encoder()), dist.get_world_size())


@case(2, 4)
def balanced_fully_sharded(comm):
    with process_groups(comm):
        encoder = AllAtOnce()
        for layer in (encoder.mix, encoder.out, encoder):
            fully_shard(layer, mesh=init_device_mesh(comm.device.type, (comm.size,)))
            layer.set_gradient_divide_factor(1.0)
        compare_steps(comm, encoder, 1)
