"""Megatron-LM for the cases: where it is, its classes, and process groups.

MIMO_MEGATRON names a folder that has `megatron`: with_torch.sh names the one that scripts/torch_venv.sh
made, where the caller names none. Nothing is written there.
"""
from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import types
import warnings
from unittest import mock

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from rank_runner import Skip, gather


def folder():
    """The folder that has `megatron`, or None."""
    path = pathlib.Path(os.environ.get("MIMO_MEGATRON", "."))
    return path if (path / "megatron/core/hyper_comm_grid.py").is_file() else None


def require():
    if not all(gather(folder() is not None)):
        raise Skip("no Megatron-LM: scripts/torch_venv.sh fetches it, and MIMO_MEGATRON can name its "
                   "folder")
    sys.dont_write_bytecode = sys.pycache_prefix is None
    warnings.simplefilter("ignore")
    return folder()


def tests_of_megatron(name):
    """(pytest, a file of Megatron's unit tests), where both are there."""
    file = require() / "tests/unit_tests" / name
    if not all(gather(file.is_file())):
        raise Skip(f"the Megatron-LM of MIMO_MEGATRON has no tests/unit_tests/{name}")
    if not all(gather(importlib.util.find_spec("pytest") is not None)):
        raise Skip("no pytest")
    return importlib.import_module("pytest"), file


def two_classes():
    """(ColocatedBridgeCommunicator, HyperCommGrid) of Megatron, without the packages around them."""
    path = require()
    if "mimo_bridge.megatron" in sys.modules:
        return whole().Theirs, whole().HyperCommGrid
    for name in ("megatron", "megatron.core"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.__path__ = [str(path.joinpath(*name.split(".")))]
    file = path / "megatron/core/models/mimo/comm/colocated_communicator.py"
    spec = importlib.util.spec_from_file_location("colocated", file)
    colocated = importlib.util.module_from_spec(spec)
    sys.modules["colocated"] = colocated
    spec.loader.exec_module(colocated)
    return (colocated.ColocatedBridgeCommunicator,
            importlib.import_module("megatron.core.hyper_comm_grid").HyperCommGrid)


def import_ours(path):
    """Import mimo_bridge.megatron over the Megatron-LM of a folder."""
    if str(path) not in sys.path:
        sys.path.append(str(path))
    try:
        importlib.import_module("triton")
    except ImportError:  # Megatron imports one file of kernels without asking
        name = "megatron.core.transformer.moe.ops.paged_stash"
        sys.modules[name] = mock.MagicMock(__spec__=None)
    # No case calls what it compiles. Importing the compiler would take half of the time.
    with mock.patch.object(torch, "compile", lambda f=None, **_more: f or (lambda g: g)):
        importlib.import_module("mimo_bridge.megatron")
        importlib.import_module("megatron.core.models.gpt")  # which a TransformerConfig imports


def whole():
    """mimo_bridge.megatron and what the cases need of Megatron, which takes seconds to import."""
    path = require()
    if "mimo_bridge.megatron" not in sys.modules:
        for name in [name for name in sys.modules if name.split(".")[0] == "megatron"]:
            del sys.modules[name]
        import_ours(path)
    import mimo_bridge.megatron as ours
    from megatron.core.hyper_comm_grid import HyperCommGrid
    from megatron.core.models.mimo import MimoModelConfig
    from megatron.core.models.mimo.submodules.audio import AudioModalitySubmodules
    from megatron.core.models.mimo.submodules.vision import VisionModalitySubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_config import TransformerConfig
    return types.SimpleNamespace(
        ours=ours, Theirs=ours._upstream.ColocatedBridgeCommunicator, HyperCommGrid=HyperCommGrid,
        MimoModelConfig=MimoModelConfig, ModuleSpec=ModuleSpec, TransformerConfig=TransformerConfig,
        encoders={"vision": VisionModalitySubmodules, "audio": AudioModalitySubmodules})


@contextlib.contextmanager
def process_groups(comm):
    """torch.distributed over the ranks of comm: on GPUs it is there, on CPUs it is gloo, which groups that
    ask for NCCL get."""
    if comm.device.type == "cuda":
        yield
        return
    store = gather(tempfile.mktemp(prefix="mimo-store-"))[0]
    os.environ["WORLD_SIZE"] = str(comm.size)  # HyperCommGrid reads it
    dist.init_process_group("gloo", store=dist.FileStore(store, comm.size), rank=comm.rank,
                            world_size=comm.size)
    make = dist.new_subgroups_by_enumeration

    def make_gloo(ranks, backend=None, **more):
        made = make(ranks, backend="gloo", **more)
        dist.barrier()  # a rank that ends a group closes what a slower one connects to
        return made

    with mock.patch.object(dist, "new_subgroups_by_enumeration", make_gloo), \
            mock.patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")):
        try:
            yield
            dist.barrier()
        finally:
            dist.destroy_process_group()
            os.environ.pop("WORLD_SIZE")


class CudaIsCpu(TorchFunctionMode):
    """Tensors that ask for CUDA lie on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        more = dict(kwargs or {})
        if str(more.get("device", "")).startswith("cuda"):
            more["device"] = "cpu"
        return func(*args, **more)
