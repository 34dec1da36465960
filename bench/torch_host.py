#!/usr/bin/env python3
"""How long an eager call of a bridge keeps the host, forward and backward, beside what torch takes by itself
for an autograd function: one that does nothing, and one with a call of C through ctypes.

    mpirun -n 1 python torch_host.py [--repeats 40] [--json FILE]       tensors of the CPU
    torchrun --nproc-per-node 2 torch_host.py [...]                     tensors of GPUs, over NCCL

The tile is small (S 8, 2 samples, H 8), so on one rank of the CPU almost nothing is copied. Ways take turns
in each repeat; printed is the fastest repeat in us, which other programs on the machine disturb least. On GPUs nothing waits inside of a repeat. The
result of a call and its gradient go before the next call, so 2 slots are enough.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import time

import torch
import torch.distributed as dist

import mimo_bridge as mb
from mimo_bridge import _c

CALLS = 50  # of a repeat


class Nothing(torch.autograd.Function):
    """What torch takes for any function of ours: with an anchor and three constants, as a bridge has."""

    @staticmethod
    def forward(ctx, x, _anchor, _movement, _shape, _call):
        ctx.shape = x.shape
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        return torch.empty_like(grad), None, None, None, None


class OneCall(Nothing):
    """The floor: a call of C that returns at once, with views kept."""

    views = (_c.mimo_tensor(), _c.mimo_tensor())
    arguments = tuple(map(ctypes.byref, views))
    function = ctypes.CDLL(_c.lib._name).mimo_bridge_forward
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]

    @classmethod
    def call(cls, x):
        y = torch.empty_like(x)
        to, source = cls.views
        to.data, source.data = y.data_ptr(), x.data_ptr()
        cls.function(None, *cls.arguments, 1, None)  # refused at once: no bridge
        return y

    @staticmethod
    def forward(ctx, x, _anchor, _movement, _shape, _call):
        ctx.shape = x.shape
        return OneCall.call(x)

    @staticmethod
    def backward(ctx, grad):
        return OneCall.call(grad), None, None, None, None


def communicator():
    if "LOCAL_RANK" in os.environ:
        device = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    return mb.default_communicator()


def bridges(comm):
    """(name, a function of x) of the ways."""
    size = f"dp={comm.size}"
    grids = mb.Grid(size), mb.Grid(size)
    slots = [mb.Buffer(1 << 20, 2, comm=comm) for _ in range(2)]
    anchor = torch.empty(0, device=comm.device, requires_grad=True)
    make = dict(comm=comm, batch=2 * comm.size, layout="sbh")
    yield "torch: nothing", lambda x: Nothing.apply(x, anchor, None, None, 0)
    yield "torch: one call", lambda x: OneCall.apply(x, anchor, None, None, 0)
    yield "bridge", mb.Bridge(*grids, **make)
    yield "slots", mb.Bridge(*grids, buffer=slots[0], grad_buffer=slots[1], **make)


def wait(comm):
    if comm.device.type == "cuda":
        torch.cuda.synchronize()


def repeat(comm, way, x):
    """us a call: (forward, backward)."""
    forward = backward = 0.0
    grad = torch.ones_like(x)
    wait(comm)
    for _ in range(CALLS):
        x.grad = None
        begin = time.perf_counter()
        y = way(x)
        middle = time.perf_counter()
        y.backward(grad)
        end = time.perf_counter()
        forward, backward = forward + middle - begin, backward + end - middle
        del y
    wait(comm)
    x.grad = None  # which lies in a slot
    return 1e6 * forward / CALLS, 1e6 * backward / CALLS


def measure(comm, repeats):
    """name -> [us forward, us backward], of the fastest repeat. Collective."""
    ways = list(bridges(comm))
    x = torch.ones(8, 2, 8, device=comm.device, requires_grad=True)
    times = {name: [] for name, _ in ways}
    for index in range(repeats + 3):
        for name, way in ways:
            found = repeat(comm, way, x)
            if index >= 3:  # the first ones warm up
                times[name].append(found)
    return {name: [round(min(part), 1) for part in zip(*found)] for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", help="also write them there")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with communicator() as comm:
        fastest = measure(comm, asked.repeats)
    if comm.rank == 0:
        for name, (forward, backward) in fastest.items():
            print(f"{name:16} forward {forward:7.1f}   backward {backward:7.1f} us")
        if asked.json:
            with open(asked.json, "w", encoding="utf-8") as file:
                json.dump(fastest, file)


if __name__ == "__main__":
    main()
