"""Trains a small model, and goes on in the same processes when a rank dies.

    mpirun --enable-recovery -n 4 --oversubscribe python survive.py --kill 2 --at 5
    python survive.py                                                                one process

The encoder is replicated over dp = all ranks, and a bridge carries its rows to a head that every rank has whole. Rank
2 kills itself in step 5. The others find out, agree who is left, make their communicator, process group and bridge
anew, and go on from the step that all of them have. The loss curve is the same for every number of ranks, and with a
death in it. (mpirun without --enable-recovery ends all ranks when one dies.)
"""
import argparse
import copy
import datetime
import os
import signal

import torch
import torch.distributed as dist
from torch import nn

import mimo_bridge as mb

HIDDEN, SEQ, BATCH = 16, 4, 24  # 24 samples a step, for 1, 2, 3, 4, 6 or 8 ranks
PATIENCE = datetime.timedelta(seconds=3)  # a rank that is silent for that long is missed


def join(comm):
    """torch's process group of the ranks of a communicator, for sums of gradients. The store lies on its first
    rank, so it may die with that: each generation has one of its own."""
    if comm.size > 1:
        port = int(os.environ.get("MASTER_PORT", "29517")) + comm.generation % 1000
        store = dist.TCPStore(os.environ.get("MASTER_ADDR", "127.0.0.1"), port, comm.size, comm.rank == 0, PATIENCE)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=PATIENCE)


def total(number, op=dist.ReduceOp.SUM):
    if dist.is_initialized():
        dist.all_reduce(number, op)
    return number


class Model(nn.Module):
    """What stays when ranks go: weights, and the step that they are of."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.encoder = nn.Sequential(nn.Linear(8, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN))
        self.head = nn.Linear(HIDDEN, 1)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))


class Run:
    """What is made anew: all that belongs to a number of ranks."""

    def __init__(self, comm, model):
        self.comm, self.model = comm, model
        self.kept = copy.deepcopy(model.state_dict())  # of the step before
        join(comm)
        self.bridge = mb.Bridge(mb.Grid(f"dp={comm.size}"), mb.Grid(f"tp={comm.size},dp=1"), comm=comm, layout="bsh",
                                batch=BATCH)

    def catch_up(self):
        """A rank may have ended the step that another one died in. It goes back to what all have."""
        if total(self.model.step.clone(), dist.ReduceOp.MIN) < self.model.step:
            self.model.load_state_dict(self.kept)

    def train_step(self):
        """One step over the global batch. It gives the loss."""
        draw = torch.Generator().manual_seed(int(self.model.step))
        x = torch.randn(BATCH, SEQ, 8, generator=draw)
        mine = x.chunk(self.comm.size)[self.comm.rank]
        rows = self.model.head(torch.tanh(self.bridge(self.model.encoder(mine))))
        loss = (rows - x.mean(-1, keepdim=True)).square().mean()
        loss.backward()
        for weight in self.model.encoder.parameters():  # each rank has the gradient of its samples
            total(weight.grad)
        self.kept = copy.deepcopy(self.model.state_dict())
        with torch.no_grad():
            for weight in self.model.parameters():
                weight -= 0.2 * weight.grad
                weight.grad = None
            self.model.step += 1
        return loss.item()

    def without_the_dead(self, why):
        """The run of the ranks that are left."""
        if self.comm.failure is None:  # torch has noticed it first; ranks that wait shall know
            self.comm.abort(str(why))
        if dist.is_initialized():
            dist.destroy_process_group()
        while True:
            try:
                left = self.comm.survivors()
                break
            except mb.DeadlineError as another:  # it died meanwhile
                print(f"rank {self.comm.rank}: {another}", flush=True)
        if left.rank == 0:
            print(f"generation {left.generation}: ranks {left.old_ranks} of {self.comm.size} go on after {why}",
                  flush=True)
        self.comm.close()
        self.model.zero_grad()
        run = Run(left, self.model)
        run.kept = self.kept
        run.catch_up()
        return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kill", type=int, default=-1, metavar="RANK")
    parser.add_argument("--at", type=int, default=5, metavar="STEP", help="of the end of that rank")
    options = parser.parse_args()
    torch.set_num_threads(1)
    comm = mb.Communicator(device="cpu", timeout=PATIENCE)
    victim = comm.rank == options.kill
    run = Run(comm, Model())
    while run.model.step < options.steps:
        if victim and run.model.step == options.at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            step, loss = int(run.model.step), run.train_step()
        except (mb.MimoError, RuntimeError) as error:  # gloo's are RuntimeErrors
            run = run.without_the_dead(error)
            continue
        if run.comm.rank == 0:
            print(f"step {step} loss {loss:.6f}", flush=True)
    run.comm.barrier()
    if run.comm.generation > 0:  # what is done at the end of a process could wait for a rank that died
        os._exit(0)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
