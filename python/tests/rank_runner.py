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
wait; then the ranks agree on the verdict and go on. The exit status is 1 where a case failed, 2 where none has
these words and runs on this number of ranks.
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
MODULES = ("bridge_cases", "several_cases", "autograd_cases", "compile_cases", "error_cases", "buffer_cases",
           "local_cases", "group_cases", "top_k_cases", "dispatch_cases", "schedule_cases", "nodes_cases",
           "cut_cases", "overlap_cases", "balance_cases", "balance_wrapper_cases", "wrapper_cases", "bench_cases",
           "megatron_cases", "mimo_model_cases", "fused_cases", "megatron_moe_cases", "hops_cases", "pipelined_cases",
           "hf_cases", "experts_cases", "survivors_cases")
ON_GPUS = ("bridge_cases", "several_cases", "autograd_cases", "compile_cases", "buffer_cases", "local_cases",
           "top_k_cases", "dispatch_cases", "balance_cases", "balance_wrapper_cases", "wrapper_cases",
           "mimo_model_cases", "gpu_cases", "dispatch_gpu_cases", "overlap_gpu_cases")
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


def plan_mutations(judge, words):
    """[(what, its patch, the cases that must notice it)]. A case that runs on several numbers of ranks
    notices bugs on one of these."""
    from mutation_list import MUTATIONS
    cases = {name: function for name, function, ranks, _ in CASES
             if judge.size == (4 if 4 in ranks else max(ranks))}
    chosen = [(what, patch, {n: cases[n] for n in names if n in cases and (
        not words or any(w in what + n for w in words))}) for what, (patch, names) in MUTATIONS.items()]
    return [mutation for mutation in chosen if mutation[2]]


def run_with(patch, function, judge):
    """How a case ends while a bug is planted: passed, failed or skipped."""
    owner, name, planted = patch
    original = vars(owner)[name]
    setattr(owner, name, staticmethod(planted) if isinstance(original, staticmethod) else planted)
    try:
        skip = run_one(function, judge, seconds=1 if judge.size < 8 else 5, quiet=True)
        return "skipped" if skip else "passed"
    except AssertionError:
        return "failed"
    finally:
        setattr(owner, name, original)


def run_mutation(report, judge, what, patch, cases):
    """Cases that this machine can't run notice nothing: the others must."""
    ends = {name: run_with(patch, function, judge) for name, function in cases.items()}
    missed = [name for name, end in ends.items() if end == "passed"]
    if missed:
        report.add("failed", what, f"passed: {', '.join(missed)}")
    elif "failed" in ends.values():
        report.add("passed", what)
    else:
        report.add("skipped", what, "so are its cases")


def run_case(report, judge, name, function):
    start = time.monotonic()
    try:
        skip = run_one(function, judge)
        report.add(*("skipped", name, skip) if skip else (
            "passed", name, f"{time.monotonic() - start:.2f} s"))
    except AssertionError as error:
        report.add("failed", name, str(error))


class Report:
    """What ended how: rank 0 prints a line of TAP for each, and at the end how many there were."""

    def __init__(self, judge):
        self.speaks, self.counts = judge.rank == 0, {"passed": 0, "failed": 0, "skipped": 0}

    def end(self, ranks):
        self.say(f"1..{sum(self.counts.values())}")
        self.say(f"# on {ranks} ranks: " + ", ".join(f"{n} {kind}" for kind, n in self.counts.items()))

    def say(self, line):
        if self.speaks:
            print(line, flush=True)

    def add(self, kind, name, note=""):
        self.counts[kind] += 1
        number = sum(self.counts.values())
        note = " ".join(["SKIP"] * (kind == "skipped") + note.split())
        self.say(f"{'not ok' if kind == 'failed' else 'ok'} {number} - {name}" + f" # {note}" * bool(note))


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
    long = "--long" in arguments
    words = [a for a in arguments if not a.startswith("--")]
    for name in ON_GPUS if JUDGES else MODULES:
        importlib.import_module(name)
    judge = mb.Communicator(timeout=datetime.timedelta(seconds=180))
    cases = [(name, function) for name, function, ranks, only_long in CASES
             if judge.size in ranks and only_long == long and (
                 not words or any(word in name for word in words))]
    report = Report(judge)
    for name, function in cases:
        run_case(report, judge, name, function)
    # Planned behind the cases: bugs of what these import are there then.
    for what, patch, noticing in plan_mutations(judge, words) if "--mutations" in arguments else []:
        run_mutation(report, judge, f"mutation: {what}", patch, noticing)
    report.end(judge.size)
    judge.close()
    if JUDGES:
        dist.destroy_process_group()
    return 1 if report.counts["failed"] else 0 if cases else 2


if __name__ == "__main__":
    sys.modules.setdefault("rank_runner", sys.modules["__main__"])
    sys.exit(main(sys.argv[1:]))
