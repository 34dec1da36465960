"""A Dispatch on the mesh of experts that a framework made, shared by its layers: for hf_experts.py and
torchtitan.py."""
from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .communicator import Communicator, communicator_of
from .dispatch import Dispatch
from .errors import UnsupportedError
from .grid import Grid

_ON_DEVICES: dict[dist.ProcessGroup, Communicator] = {}
_MADE: dict[tuple[Communicator, Sizes], Dispatch] = {}


class Sizes(NamedTuple):
    """What layers that share a Dispatch have in common."""

    experts: int  # of all ranks of the group
    top_k: int
    hidden: int
    max_tokens: int


def group_of(what: str, mesh: DeviceMesh, comm: Communicator | None = None) -> Communicator:
    """The ranks of a one-dimensional mesh, whose rank i has the i-th part of the experts.

    comm  of all ranks; None: the default one. With a mesh of the CPU the call is collective over it. With CUDA it is
          collective over the mesh alone: pipeline stages without experts never call it

    UnsupportedError, on every rank: the ranks of a mesh are not consecutive.
    """
    if mesh.device_type == "cpu":
        world = communicator_of(what, comm)
        return world.group(world._together(what, lambda: grid_around(what, mesh.mesh.tolist(), world)), "ep")
    group = mesh.get_group()
    made = _ON_DEVICES.get(group)
    if made is None or made.closed:
        made = _ON_DEVICES[group] = Communicator(group)
    return made


def grid_around(what: str, ranks: list[int], world: Communicator) -> Grid:
    """{ep, edp} over all ranks, from the ep ranks of this one, in the order of the mesh."""
    ep = len(ranks)
    first = world.rank // ep * ep
    if ranks != list(range(first, first + ep)):
        raise UnsupportedError(f"{what}: ep ranks {ranks} are not consecutive: a dispatch takes ranks ep * i to "
                               f"ep * i + ep - 1, here {first} to {first + ep - 1}")
    return Grid({"ep": ep, "edp": world.size // ep})


def dispatch_of(group: Communicator, sizes: Sizes) -> Dispatch:
    """The Dispatch of a group for layers of these sizes. Collective over the group where it is the first call."""
    for key in [key for key in _MADE if key[0].closed]:
        del _MADE[key]
    if (group, sizes) not in _MADE:
        _MADE[group, sizes] = Dispatch(**sizes._asdict(), comm=group)
    return _MADE[group, sizes]


def weights_of(scores: torch.Tensor) -> torch.Tensor:
    """Scores in a dtype that a Dispatch moves."""
    return scores if scores.dtype == torch.float64 else scores.float()


def weighted(out: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Rows times their weights, in the dtype of the rows. A combine adds and does not weight."""
    return (out.to(weights.dtype) * weights[:, None]).to(out.dtype)
