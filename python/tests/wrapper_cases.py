"""DDP and FSDP2 around both modules, with a bridge between them: gradients of the model in one piece.

The loss of a rank is a sum over its tokens, and both modules are scaled by one 1/N at the end.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import mimo_bridge as mb
from megatron_import import process_groups
from rank_runner import case
from tile_model import Side, global_rows

WIDE, HIDDEN, SEQ, F64 = 5, 6, 8, torch.float64
GRIDS = {2: [("tp=1,dp=2", "tp=1,cp=2,dp=1"), ("tp=1,dp=2", "tp=1,cp=1,dp=2")],
         4: [("tp=1,dp=4", "tp=1,cp=2,dp=2"), ("tp=2,dp=2", "tp=1,cp=2,dp=2")]}


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(global_rows(1, WIDE, HIDDEN, F64, 1)[0] / 500)
        self.bias = torch.nn.Parameter(global_rows(1, 1, HIDDEN, F64, 2)[0, 0] / 500)

    def forward(self, x):
        return torch.tanh(x @ self.weight + self.bias)


class Language(torch.nn.Module):
    """The loss of a token depends on its row alone, so cp leaves the sum as it is."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(global_rows(1, HIDDEN, 4, F64, 3)[0] / 300)

    def forward(self, rows, labels):
        return ((rows.sin() @ self.weight).sum(-1) - labels).square().sum()


class Setting:
    """Both modules, the bridge, this rank's part of a batch, and the same model in one piece."""

    def __init__(self, comm, specs):
        self.comm, self.batch = comm, 2 * comm.size
        self.src, self.dst = Side(specs[0], 0, "bsh"), Side(specs[1], 0, "bsh", True)
        self.grids = [mb.Grid(spec) for spec in specs]
        self.bridge = mb.Bridge(*self.grids, comm=comm, layout="bsh", partition=mb.Partition(),
                                batch=self.batch)
        self.modules = [Encoder(), Language()]
        self.alone = [Encoder(), Language()]
        # ranks with other samples or tokens: all of the LLM's, and along dp those of the encoder
        self.groups = [dist.new_subgroups_by_enumeration(self.grids[0].groups("dp"))[0], None]

    def step(self, encoder, language, seed):
        """Backward of both models, and their losses."""
        pictures = global_rows(self.batch, SEQ, WIDE, F64, seed) / 100
        labels = global_rows(self.batch, SEQ, 1, F64, seed + 1) / 100
        y = self.bridge(encoder(self.src.tile(self.comm.rank, pictures)))
        loss = language(y, self.dst.tile(self.comm.rank, labels)[..., 0])
        loss.backward()
        whole = self.alone[1](self.alone[0](pictures), labels[..., 0])
        whole.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        assert torch.allclose(total, whole.detach(), rtol=1e-12), (total, whole)

    def compare(self, modules, scales):
        """Gradients of all parameters; then a step of the optimizer, with 1/N."""
        tokens = self.batch * SEQ
        for module, alone, scale in zip(modules, self.alone, scales):
            for got, wanted in zip(module.parameters(), alone.parameters()):
                gradient = got.grad.full_tensor() if isinstance(got.grad, DTensor) else got.grad
                assert torch.allclose(gradient * scale, wanted.grad, rtol=1e-11, atol=1e-12), (
                    self.src.spec, self.dst.spec, type(alone).__name__, gradient * scale, wanted.grad)
                with torch.no_grad():
                    got -= got.grad * (scale / tokens)
                    wanted -= wanted.grad / tokens
                got.grad = wanted.grad = None


@case(2, 4)
def data_parallel(comm):
    """DDP averages: what it gives, times the size of its group, is the sum."""
    with process_groups(comm):
        for specs in GRIDS[comm.size]:
            setting = Setting(comm, specs)
            on = [comm.device] if comm.device.type == "cuda" else None
            modules = [DistributedDataParallel(module, device_ids=on, process_group=group)
                       for module, group in zip(setting.modules, setting.groups)]
            sizes = [dist.get_world_size(group) for group in setting.groups]
            for step in range(3):
                setting.step(*modules, seed=10 * step)
                setting.compare(modules, sizes)
            setting.bridge.close()


@case(2, 4)
def fully_sharded(comm):
    """FSDP2 with set_gradient_divide_factor(1.0) gives the sum."""
    with process_groups(comm):
        for specs in GRIDS[comm.size]:
            setting = Setting(comm, specs)
            whole = init_device_mesh(comm.device.type, (comm.size,))
            grid = setting.grids[0]
            meshes = [init_device_mesh(comm.device.type, (grid.dim("dp"), grid.dim("tp")),
                                       mesh_dim_names=("dp", "tp"))["dp"], whole]
            for module, mesh in zip(setting.modules, meshes):
                fully_shard(module, mesh=mesh)
                module.set_gradient_divide_factor(1.0)
            for step in range(3):
                setting.step(*setting.modules, seed=10 * step)
                setting.compare(setting.modules, (1, 1))
            setting.bridge.close()
