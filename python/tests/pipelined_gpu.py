#!/usr/bin/env python3
"""forward_backward with large hops: do they hang, are gradients those of one piece, how long is a step. A line each.

    python pipelined_gpu.py [--stages 2] [--steps N] [--mib N]      a GPU for each stage, by torchrun. Exit status 77
                                                                    where there are fewer
    python pipelined_gpu.py --cpu MPIRUN [--stages 2] ...           on ranks of the CPU, over gloo, which can't hang

MIMO_MEGATRON: as for the cases (megatron_import.py). A launch for each CUDA_DEVICE_MAX_CONNECTIONS of 1, unset and 32
has 60 s for the steps of each limit; where they end, it says where every rank stood.
"""
import argparse
import contextlib
import faulthandler
import json
import os
import shutil
import subprocess
import sys
import time
from unittest import mock

MICRO_BATCHES, DEADLINE, SPECIAL = 8, 60, {"vision": 7}


def launches(asked):
    """Start the ranks for each number of hardware queues. The worst exit status."""
    worst = 0
    for queues in ("1", None, "32") if not asked.cpu else (None,):
        env = {name: value for name, value in os.environ.items() if name != "CUDA_DEVICE_MAX_CONNECTIONS"}
        env |= {"CUDA_DEVICE_MAX_CONNECTIONS": queues} if queues else {}
        ranks = ([asked.cpu, "--oversubscribe", "-n", str(asked.stages), sys.executable] if asked.cpu else
                 [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                  str(asked.stages)])
        command = [*ranks, __file__, "--rank", "--steps", str(asked.steps), "--mib", str(asked.mib),
                   "--hidden", str(asked.hidden)]
        try:
            status = subprocess.run(command, env=env, check=False, timeout=20 * DEADLINE).returncode
        except subprocess.TimeoutExpired:
            status = 124
        print(f"CUDA_DEVICE_MAX_CONNECTIONS={queues}: {'ok' if status == 0 else f'exit status {status}'}", flush=True)
        worst = worst or status
    return worst


def start(torch, dist, mb):
    """The communicator and what the CPU needs in place of CUDA."""
    from megatron_import import CudaIsCpu, process_groups
    if "LOCAL_RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        torch.set_default_device(device)
        dist.init_process_group("nccl")
        import rank_runner
        rank_runner.JUDGES.append(dist.new_group(backend="gloo"))
    comm, life = mb.default_communicator(), contextlib.ExitStack()
    life.enter_context(process_groups(comm))
    if comm.device.type == "cpu":
        life.enter_context(CudaIsCpu())
    return comm, life


def parts_of(torch):
    class Encoder(torch.nn.Module):
        def __init__(self, hidden, dtype):
            super().__init__()
            torch.manual_seed(1)
            self.up = torch.nn.Linear(64, hidden, dtype=dtype)
            self.down = torch.nn.Linear(hidden, hidden, dtype=dtype)

        def forward(self, images):
            return self.down(torch.tanh(self.up(images)))

    class Stage(torch.nn.Module):
        def __init__(self, config, stage, stages):
            super().__init__()
            torch.manual_seed(10 + stage)
            self.config, self.first, self.last = config, stage == 0, stage == stages - 1
            if self.first:
                self.words = torch.nn.Embedding(100, config.hidden_size, dtype=config.params_dtype)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(
                config.hidden_size, config.hidden_size, dtype=config.params_dtype) for _ in range(2))

        def embedding(self, input_ids, position_ids):
            return self.words(input_ids).transpose(0, 1)

        def set_input_tensor(self, given):
            self.given = given[0] if isinstance(given, list) else given

        def forward(self, decoder_input=None, labels=None, **_more):
            x = decoder_input if self.first else self.given
            for layer in self.layers:
                x = x + torch.tanh(layer(x))
            return (x.float().mean(-1).transpose(0, 1) - labels).square() if self.last else x

    return Encoder, Stage


class Bed:
    """A model with a stage on each rank, beside an encoder on all, and batches: one sample a micro-batch, half of it image."""

    def __init__(self, comm, seq, hidden, dtype, alone=False):
        import torch
        import torch.distributed as dist
        from megatron_import import whole
        from pipelined_cases import modules_of
        upstream, theirs = whole(), modules_of()
        (encoder, stage), stages = parts_of(torch), comm.size
        grids = {"vision": ([1, stages], ["tp", "dp"]), "language": ([1, 1, 1, stages], ["tp", "cp", "dp", "pp"])}
        grids = {name: upstream.HyperCommGrid(*one, backend=dist.get_backend()) for name, one in grids.items()}
        self.pg = theirs.groups()
        self.pg.tp, self.pg.cp, self.pg.dp, self.pg.pp = (grids["language"].create_pg([name])
                                                          for name in ("tp", "cp", "dp", "pp"))
        config = self.config = upstream.TransformerConfig(
            num_layers=stages, hidden_size=hidden, num_attention_heads=2, params_dtype=dtype, pipeline_dtype=dtype,
            pipeline_model_parallel_size=stages, calculate_per_token_loss=True)
        spec = upstream.ModuleSpec
        self.model = upstream.ours.MimoModel(upstream.MimoModelConfig(
            language_model_spec=spec(module=stage, params={"config": config, "stage": comm.rank, "stages": stages}),
            modality_submodules_spec={"vision": spec(module=upstream.encoders["vision"], submodules={"encoders": {
                "tiny": spec(module=encoder, params={"hidden": hidden, "dtype": dtype})}})},
            special_token_ids=SPECIAL, module_to_grid_map=grids), cp_group=self.pg.cp, tp_group=self.pg.tp)
        self.alone = [encoder(hidden, dtype), *(stage(config, i, stages) for i in range(stages))] if alone else []
        self.p2p, self.ours, self.rank = theirs.P2P(self.pg.pp, config), upstream.ours, comm.rank
        generator = torch.Generator(device=comm.device).manual_seed(0)
        ids = torch.full((1, seq), 1, device=comm.device)
        ids[0, ::2] = SPECIAL["vision"]
        # B is 1, so the sample is the first lane's of the encoder. The other lanes have none.
        self.data = [{"input_ids": ids, "labels": torch.randn(1, seq, generator=generator, device=comm.device),
                      "images": torch.randn(seq // 2, 64, generator=generator, device=comm.device).to(dtype)}
                     for _ in range(MICRO_BATCHES)]

    def batch(self, iterator):
        one = dict(next(iterator))
        images = one.pop("images")
        return {**one, "modality_inputs": {"vision": {"tiny": {"images": images}}} if self.rank == 0 else None}

    def step(self, alive, count=MICRO_BATCHES):
        def loss(losses):
            return losses.sum(), losses.new_tensor(losses.numel()).int(), losses.detach().sum()

        def forward(iterator, model):
            return model(**next(iterator))[0], loss

        seq = self.data[0]["input_ids"].shape[1]
        return self.ours.forward_backward(
            forward_step_func=forward, data_iterator=iter(self.data), model=[self.model], num_microbatches=count,
            seq_length=seq, micro_batch_size=1, p2p_communicator=self.p2p, pg_collection=self.pg,
            encoder_alive=alive, get_batch=self.batch)

    def off(self):
        """The worst relative error of a gradient, against the model in one piece on this rank. Rank 0's encoder has all
        images."""
        import torch
        encoder, *stages = self.alone
        for one in self.data:
            ids = one["input_ids"]
            x = stages[0].embedding(ids, None).transpose(0, 1)
            x = x.masked_scatter((ids == SPECIAL["vision"])[..., None], encoder(one["images"])).transpose(0, 1)
            x = stages[0](decoder_input=x)
            for stage in stages[1:]:
                stage.given = x
                x = stage(labels=one["labels"])
            x.sum().backward()
        pairs = list(zip(self.model.language_model.parameters(), stages[self.rank].parameters()))
        if self.rank == 0:
            pairs += zip(self.model.modality_submodules["vision"].parameters(), encoder.parameters())
        return max(torch.norm(a.grad - b.grad).item() / torch.norm(b.grad).item() for a, b in pairs)


def three_phases(_kind, stages, count, _alive, _frozen, stage):
    """The list of a stage that encodes everything first, and goes back through the encoder at the end."""
    import mimo_bridge as mb
    made = mb.Schedule(stages=stages, micro_batches=count, encoder_group=1).steps(stage)
    return tuple([s for s in made if s.kind in ("E", "BF")] + [s for s in made if s.kind in ("F", "B")] +
                 [s for s in made if s.kind in ("BB", "EB")])


def work(asked):
    """What a rank does."""
    import torch
    import torch.distributed as dist

    import mimo_bridge as mb
    from megatron_import import whole
    from rank_runner import gather
    torch.set_num_threads(1)
    comm, life = start(torch, dist, mb)
    on_gpu = comm.device.type == "cuda"

    def say(**found):
        if comm.rank == 0:
            print(json.dumps({"connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"), **found}), flush=True)

    whole()
    from mimo_bridge import _hops, _pipelined
    made = _hops.HopGroups.__init__

    def measured(self, *arguments):
        free = torch.cuda.mem_get_info()[0] if on_gpu else 0
        made(self, *arguments)
        say(hop_groups=len(self.of), mib_of_both=(free - torch.cuda.mem_get_info()[0]) / 2**20 if on_gpu else 0)

    with life, mock.patch.object(_hops.HopGroups, "__init__", measured):
        small = Bed(comm, 256, 64, torch.float32, alone=True)
        small.step(0)
        worst = max(gather(small.off()))
        say(gradients_off=worst, goal=1e-5)
        assert worst < 1e-5, worst
        bed = Bed(comm, asked.mib * 2**20 // (2 * asked.hidden), asked.hidden, torch.bfloat16)
        bed.step(0, 1)  # kernels are loaded, while nothing overlaps
        for alive in (0, comm.size, comm.size + 1):  # no limit, the least, one more
            say(encoder_alive=alive, **timed(bed, alive, asked.steps, comm, torch if on_gpu else None), steps=asked.steps)
        with mock.patch.object(_pipelined, "steps_of", three_phases):
            say(three_phases=True, **timed(bed, 0, asked.steps, comm, torch if on_gpu else None), steps=asked.steps)
        bed.model.destroy()
        small.model.destroy()
    comm.close()
    if on_gpu:
        dist.destroy_process_group()


def timed(bed, alive, steps, comm, torch):
    """Milliseconds of a step: the mean over all behind the first. A hang ends the process, and says where it was."""
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    for step in range(steps + 1):
        if step == 1:
            torch.cuda.synchronize() if torch else comm.barrier()
            begun = time.monotonic()
        bed.step(alive)
    torch.cuda.synchronize() if torch else comm.barrier()
    faulthandler.cancel_dump_traceback_later()
    return {"ms": round((time.monotonic() - begun) * 1e3 / steps, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", metavar="MPIRUN", help="ranks of the CPU")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--mib", type=int, default=64, help="size of a hop")
    parser.add_argument("--hidden", type=int, default=8192, help="channels of a row: of bf16")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        return work(asked)
    if not asked.cpu:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout \
            if shutil.which("nvidia-smi") else ""
        if sum(line.startswith("GPU ") for line in listed.splitlines()) < asked.stages:
            print(f"skipped: there are no {asked.stages} GPUs")
            return 77
    return launches(asked)


if __name__ == "__main__":
    sys.exit(main())
