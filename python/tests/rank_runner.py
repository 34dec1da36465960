#!/usr/bin/env python3
"""Runs the cases of this folder on the ranks of one launch, because importing torch costs seconds.

    mpirun -n 4 python rank_runner.py [--long] [--mutations] [WORD...]     tensors of the CPU, over MPI
    torchrun --nproc-per-node 2 rank_runner.py [--long] [WORD...]          tensors of GPUs, over NCCL

runs the cases with a word in their names, or all. --long: those instead that take too long for the suite
torch, as scripts/torch_long.sh does. --mutations: then those of mutation_list.py again, each with a bug
planted, which a case must notice.

On GPUs new tensors lie on the GPU of the rank, so the cases are the same. Where there are fewer GPUs than
ranks they share them, which NCCL must allow (torch_gpu.py).

A case is a function of a fresh communicator, marked with @case(numbers of ranks). All ranks run all
cases in one order. A rank that fails says so and aborts its communicator, so that the others do not
wait; then the ranks agree on the verdict and go on. The exit status is 1 where a case failed.
"""
from __future__ import annotations

import ctypes
import datetime
import faulthandler
import importlib
import logging
import os
import pickle
import sys
import time
import traceback

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

import mimo_bridge as mb
from mimo_bridge import _c, _mpi

CASES: list = []
MODULES = ("bridge_cases", "autograd_cases", "compile_cases", "error_cases", "buffer_cases",
           "local_cases", "wrapper_cases", "bench_cases", "megatron_cases", "mimo_model_cases",
           "fused_cases")
ON_GPUS = ("bridge_cases", "autograd_cases", "compile_cases", "buffer_cases", "local_cases",
           "wrapper_cases", "mimo_model_cases", "gpu_cases")
JUDGES: list = []  # on GPUs: the process group that cases are judged over
RUNNING: list = []  # on GPUs: the communicator of the case that runs


def case(*ranks, long=False, on="both"):
    """Mark a case, and say on how many ranks it runs. `long`: runs with --long. `on`: "cpu" where it holds
    for the CPU alone (there a mistake of one rank is an error of all), "cuda" for GPUs alone."""
    def mark(function):
        if on not in ("both", "cuda" if JUDGES else "cpu"):
            return function
        CASES.append((f"{function.__module__.removesuffix('_cases')}/{function.__name__}", function,
                      ranks, long))
        return function
    return mark


class Skip(Exception):
    """A case that this machine can't run. Every rank raises it."""


def gather(value):
    """The values of all ranks, in rank order, by MPI or torch and not by the library under test."""
    if JUDGES:
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, tree_map_only(torch.Tensor, torch.Tensor.cpu, value), JUDGES[0])
        return tree_map_only(torch.Tensor, torch.Tensor.cuda, values)
    mpi = _mpi.start()
    library, byte = mpi.library, ctypes.addressof(ctypes.c_char.in_dll(mpi.library, "ompi_mpi_byte"))
    size = ctypes.c_int()
    library.MPI_Comm_size(mpi.world, ctypes.byref(size))

    def exchange(mine):
        result = ctypes.create_string_buffer(len(mine) * size.value)
        status = library.MPI_Allgather(ctypes.c_char_p(mine), len(mine), ctypes.c_void_p(byte), result,
                                       len(mine), ctypes.c_void_p(byte), mpi.world)
        assert status == 0, status
        return [result.raw[i:i + len(mine)] for i in range(0, len(result), len(mine))]

    mine = pickle.dumps(value)
    lengths = [int.from_bytes(part, "little") for part in exchange(len(mine).to_bytes(8, "little"))]
    parts = exchange(mine.ljust(max(lengths), b"\0"))
    return [pickle.loads(part[:length]) for part, length in zip(parts, lengths)]


def same(got, wanted, what=""):
    """Equal bits, shape and dtype; otherwise the first place that differs, with both values."""
    if RUNNING:
        RUNNING[0].synchronize()  # with its deadline: torch would wait for ever for a rank that is gone
    assert got.shape == wanted.shape, f"{what}: shape {list(got.shape)}, wanted {list(wanted.shape)}"
    assert got.dtype == wanted.dtype, f"{what}: dtype {got.dtype}, wanted {wanted.dtype}"
    wrong = (got != wanted).nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise AssertionError(f"{what}: {len(wrong)} differ, first at {place}: {got[place].item()}, "
                             f"wanted {wanted[place].item()}")


def raises(kind, words, function, *args, **more):
    """The exception of a call, of this class, with these words in its sentence."""
    try:
        function(*args, **more)
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error}"
        return error
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} in place of {kind.__name__}: {error}") from error
    raise AssertionError(f"no {kind.__name__} ({words})")


def run_one(function, judge, seconds=180, quiet=False):
    """'' where the case passed, a reason where it was skipped; AssertionError where it failed."""
    seconds = 30 if JUDGES else seconds
    comm, skip, failure = mb.Communicator(timeout=datetime.timedelta(seconds=seconds)), "", None
    if JUDGES:
        RUNNING[:] = [comm]
        faulthandler.dump_traceback_later(5 * seconds, exit=True)  # a hang says where
    try:
        function(comm)
        comm.close()
    except Skip as reason:
        skip = str(reason)
        comm.close()
    except BaseException as error:
        failure = error
        if not quiet:
            print(f"rank {judge.rank}: {''.join(traceback.format_exception(error))}", file=sys.stderr)
        if not comm.closed:
            comm.abort(f"rank {judge.rank} failed")
            comm.forget()
    faulthandler.cancel_dump_traceback_later()
    RUNNING.clear()
    verdicts = gather(None if failure is None else f"{type(failure).__name__}: {failure}")
    torch._dynamo.reset() if "torch._dynamo" in sys.modules else None
    failed = [f"rank {i}: {v}" for i, v in enumerate(verdicts) if v is not None]
    assert not failed, failed[0]
    return skip


def run_mutations(judge, words):
    """How many planted bugs no case noticed. A case that runs on several numbers of ranks notices them
    on one of these."""
    from mutation_list import MUTATIONS
    cases = {name: function for name, function, ranks, _ in CASES
             if judge.size == (4 if 4 in ranks else max(ranks))}
    missed = 0
    for what, ((owner, name, planted), names) in MUTATIONS.items():
        chosen = [n for n in names if n in cases and (not words or any(w in what + n for w in words))]
        original, noticed = vars(owner)[name], []
        for one in chosen:
            setattr(owner, name, staticmethod(planted) if isinstance(original, staticmethod) else planted)
            try:
                run_one(cases[one], judge, seconds=1 if judge.size < 8 else 5, quiet=True)
            except AssertionError:
                noticed.append(one)
            finally:
                setattr(owner, name, original)
        missed += len(chosen) - len(noticed)
        if judge.rank == 0 and chosen:
            left = [n for n in chosen if n not in noticed]
            print(f"{'MISS' if left else 'ok  '} mutation: {what}" + (f": {left} passed" if left else ""),
                  flush=True)
    return missed


def start_on_gpus():
    """Process groups, and this rank's GPU. False where torch finds none."""
    if not torch.cuda.is_available():
        return False
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.set_default_device(device)
    dist.init_process_group("nccl")
    JUDGES.append(dist.new_group(backend="gloo"))
    return True


def main(arguments):
    torch.set_num_threads(1)
    if "LOCAL_RANK" in os.environ and not start_on_gpus():
        print("skipped: torch finds no GPU")
        return 0
    logging.getLogger("mimo_bridge").setLevel(logging.ERROR)  # cases end communicators on purpose
    long, mutations = "--long" in arguments, "--mutations" in arguments
    words = [a for a in arguments if not a.startswith("--")]
    for name in ON_GPUS if JUDGES else MODULES:
        importlib.import_module(name)
    judge = mb.Communicator(timeout=datetime.timedelta(seconds=180))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function, ranks, only_long in CASES:
        if judge.size not in ranks or only_long != long or (
                words and not any(word in name for word in words)):
            continue
        start = time.monotonic()
        try:
            skip = run_one(function, judge)
            kind, line = ("skipped", f"skip {name}: {skip}") if skip else ("passed", f"ok   {name}")
        except AssertionError as error:
            kind, line = "failed", f"FAIL {name}: {error}"
        counts[kind] += 1
        if judge.rank == 0:
            print(f"{line} ({time.monotonic() - start:.2f} s)", flush=True)
    if judge.rank == 0:
        print(f"on {judge.size} ranks: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    if mutations:
        counts["failed"] += run_mutations(judge, words)
    judge.close()
    if JUDGES:
        dist.destroy_process_group()
    return 1 if counts["failed"] or not sum(counts.values()) else 0


if __name__ == "__main__":
    sys.modules.setdefault("rank_runner", sys.modules["__main__"])
    sys.exit(main(sys.argv[1:]))
