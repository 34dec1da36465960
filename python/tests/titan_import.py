"""torchtitan for the cases. MIMO_TORCHTITAN names a folder that has it and spmd_types: with_torch.sh names
the one that scripts/torch_venv.sh made, where the caller names none. Nothing is written there.
"""
from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import pathlib
import sys
import types
from unittest import mock

import torch

from rank_runner import Skip, gather

ABSENT = ("tyro", "torchtitan.distributed.minimal_async_ep")  # the command line; kernels of Triton: never called here


def folder():
    """The folder that has `torchtitan` and `spmd_types`, or None."""
    path = pathlib.Path(os.environ.get("MIMO_TORCHTITAN", "."))
    return path if (path / "torchtitan/config/override.py").is_file() and (path / "spmd_types").is_dir() else None


def import_ours(path):
    """Import mimo_bridge.torchtitan over the torchtitan of a folder."""
    sys.dont_write_bytecode = sys.pycache_prefix is None
    if str(path) not in sys.path:
        sys.path.append(str(path))
    for name in ABSENT:
        sys.modules.setdefault(name, mock.MagicMock(__spec__=None))
    # As for Megatron-LM: no case calls what it compiles.
    with mock.patch.object(torch, "compile", lambda f=None, **_more: f or (lambda g: g)):
        importlib.import_module("torchtitan.models.common.moe")
        return importlib.import_module("mimo_bridge.torchtitan")


def whole():
    """mimo_bridge.torchtitan and what the cases need of torchtitan."""
    if not all(gather(folder() is not None)):
        raise Skip("no torchtitan: scripts/torch_venv.sh fetches it, and MIMO_TORCHTITAN can name its folder")
    ours = import_ours(folder())
    dispatchers = importlib.import_module("torchtitan.models.common.token_dispatcher")
    moe = importlib.import_module("torchtitan.models.common.moe")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torchtitan", "spmd_types"))
    return types.SimpleNamespace(ours=ours, theirs=dispatchers, moe=moe,
                                 checkpoints=importlib.import_module("torchtitan.distributed.activation_checkpoint"),
                                 config=importlib.import_module("torchtitan.config"),
                                 versions=f"{versions}, torch {torch.__version__}")


@contextlib.contextmanager
def beside_torch_2_11():
    """What torchtitan's own dispatcher asks of a later torch, and of its trainer."""
    utils = importlib.import_module("torchtitan.distributed.utils")
    kept = utils.get_spmd_backend()
    utils.set_spmd_backend("default")
    with mock.patch.object(torch.compiler, "_is_non_strict_tracing", lambda: False, create=True):
        yield
    utils.set_spmd_backend(kept)
