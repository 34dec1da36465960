"""Grids: named dimensions over ranks. Pure values, no process groups."""
from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import _c
from .errors import ArgumentError, GridError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["Grid", "Pairing", "pairing_of"]


class Grid:
    """Named dimensions over the ranks [offset, offset + size), the first fastest: "tp=2,cp=2,dp=2".

    `spec` is such a text, or a mapping of names to sizes in that order. A value: equal grids compare
    equal, and can be pickled. Everything here is local and can be called by any thread.

    tp, cp, pp and dp have a meaning. Bridges and gradients refuse a grid in which another dimension is
    larger than 1 (GridError), unless the grid says that ranks along it hold copies of each other:
    `copies="x"`, or "x=2:copies" in the text.

    Errors: GridError (a name or a size that a grid can't have, copies along no dimension of the grid
    or along tp, cp, pp or dp), ArgumentError (a text that does not parse).
    """

    def __init__(self, spec: str | Mapping[str, int], offset: int = 0,
                 copies: str | None = None) -> None:
        if not isinstance(spec, str):
            spec = ",".join(f"{name}={size}" for name, size in spec.items())
        handle, offset = ctypes.c_void_p(), _c.whole("Grid: offset", offset)
        _c.lib.mimo_grid_create_text(ctypes.byref(handle), _c.text("Grid", spec), offset)
        self._handle = handle
        weakref.finalize(self, _c.lib.mimo_grid_destroy, handle)
        if copies is not None:
            _c.lib.mimo_grid_set_copies(handle, _c.text("Grid: copies", copies))
        dims = [_c.lib.mimo_grid_dim(handle, i) for i in range(_c.lib.mimo_grid_ndims(handle))]
        self._dims = {dim.name.decode(): int(dim.size) for dim in dims}
        room = ctypes.create_string_buffer(sum(len(dim.name) + 32 for dim in dims))
        _c.lib.mimo_grid_text(room, len(room), handle)
        self._text = room.value.decode()
        self._offset = offset

    @classmethod
    def from_mesh(cls, mesh: DeviceMesh, names: Mapping[str, str] | None = None,
                  copies: str | None = None) -> Grid:
        """The grid of a DeviceMesh with names. Torch's last dimension is the fastest one.

        `names` gives dimensions of the mesh their names in the grid; the others keep theirs. Dimensions
        that get one name are joined: {"dp_replicate": "dp", "dp_shard": "dp"} makes one dp of the
        product of their sizes. They must be neighbours: none that is larger than 1 lies between.
        `copies` is the grid's, in its names.

        GridError where the mesh has no names or none of those in `names`, its ranks are not consecutive
        in that order, or dimensions that get one name are not neighbours.
        """
        if not mesh.mesh_dim_names:
            raise GridError("from_mesh: the mesh has no mesh_dim_names")
        ranks = mesh.mesh.flatten().tolist()
        if ranks != list(range(ranks[0], ranks[0] + len(ranks))):
            raise GridError(f"from_mesh: a grid has consecutive ranks, the mesh has {ranks}")
        sizes = zip(reversed(mesh.mesh_dim_names), reversed(tuple(mesh.mesh.shape)))
        return cls(_joined(list(sizes), names or {}), ranks[0], copies)

    @property
    def dims(self) -> dict[str, int]:
        """The sizes by name, fastest first."""
        return dict(self._dims)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(_c.lib.mimo_grid_size(self._handle))

    @property
    def offset(self) -> int:
        """The first rank."""
        return self._offset

    def dim(self, name: str) -> int:
        """The size of a dimension, 1 where the grid has none of that name."""
        return self._dims.get(name, 1)

    def __contains__(self, rank: int) -> bool:
        return bool(_c.lib.mimo_grid_contains(self._handle, _c.whole("a rank", rank)))

    def coords(self, rank: int) -> dict[str, int]:
        """The coordinates of a rank by name. GridError where the rank is outside of the grid."""
        coords = (ctypes.c_int64 * len(self._dims))()
        _c.lib.mimo_grid_coords(coords, self._handle, _c.whole("coords: a rank", rank))
        return dict(zip(self._dims, coords))

    def rank(self, **coords: int) -> int:
        """The rank at coordinates; those that are not given are 0. GridError."""
        unknown = set(coords) - set(self._dims)
        if unknown:
            raise GridError(f"{self} has no dimension {', '.join(sorted(unknown))}")
        values = _c.numbers(ctypes.c_int64, "rank: a coordinate",
                            (coords.get(name, 0) for name in self._dims))
        found = ctypes.c_int64()
        _c.lib.mimo_grid_rank(ctypes.byref(found), self._handle, values)
        return found.value

    def groups(self, *dims: str) -> list[list[int]]:
        """The groups of ranks along some dimensions, by ascending first rank. They are what
        torch.distributed.new_subgroups_by_enumeration takes. GridError (an unknown dimension),
        ArgumentError (no text)."""
        names = b",".join(_c.text("groups: a dimension", name) for name in dims)
        groups, length = ctypes.c_int64(), ctypes.c_int64()
        _c.lib.mimo_grid_group_count(ctypes.byref(groups), ctypes.byref(length), self._handle, names)
        ranks = (ctypes.c_int64 * length.value)()
        found = []
        for i in range(groups.value):
            _c.lib.mimo_grid_group_at(ranks, self._handle, names, i)
            found.append(list(ranks))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and (self._text, self._offset) == (
            other._text, other._offset)

    def __hash__(self) -> int:
        return hash((self._text, self._offset))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Grid({str(self)!r}" + (f", offset={self._offset})" if self._offset else ")")

    def __reduce__(self) -> tuple[type[Grid], tuple[str, int]]:
        return Grid, (str(self), self._offset)


def _joined(dims: list[tuple[str, int]], names: Mapping[str, str]) -> dict[str, int]:
    """The dimensions of a mesh under their new names, fastest first. GridError."""
    unknown = set(names) - {name for name, _ in dims}
    if unknown:
        raise GridError(f"from_mesh: the mesh has no dimension {', '.join(sorted(unknown))}, only "
                        f"{', '.join(name for name, _ in reversed(dims))}")
    members: dict[str, list[int]] = {}
    for i, (name, _) in enumerate(dims):
        members.setdefault(names.get(name, name), []).append(i)
    found = []
    for name, own in members.items():
        own = [i for i in own if dims[i][1] > 1] or own[:1]
        for fast, slow in zip(own, own[1:]):
            between = [dims[i][0] for i in range(slow - 1, fast, -1) if dims[i][1] > 1]
            if between:
                raise GridError(f"from_mesh: mesh dims {dims[slow][0]} and {dims[fast][0]} are not "
                                f"neighbours ({' and '.join(between)} "
                                f"{'lie' if len(between) > 1 else 'lies'} between)")
        found.append((own[0], name, math.prod(dims[i][1] for i in own)))
    return {name: size for _, name, size in sorted(found)}


def check_grids(what: str, *grids: object) -> None:
    """ArgumentError where one of these is no Grid."""
    for grid in grids:
        if not isinstance(grid, Grid):
            raise ArgumentError(f"{what}: {grid!r} is no Grid")


class Pairing(NamedTuple):
    """How two grids stand to each other under the gather-narrow-sum method."""

    fan: str  # "equal", "fan_in" or "fan_out"
    scale: int  # k; 1 where equal
    groups: Sequence[Sequence[int]]  # the gather groups, each in slot order; none where equal


def pairing_of(src: Grid, dst: Grid) -> Pairing:
    """The fan, the scale and the gather groups of two grids. Local. GridError where a rule of the
    `collective` executor is broken."""
    pairing = _c.sized(_c.mimo_pairing)
    handles = src._handle, dst._handle
    _c.lib.mimo_pairing_of(ctypes.byref(pairing), *handles)
    ranks = (ctypes.c_int64 * max(pairing.group_size, 1))()
    groups = []
    for i in range(pairing.groups):
        _c.lib.mimo_pairing_group(ranks, *handles, i)
        groups.append(list(ranks))
    return Pairing(("equal", "fan_in", "fan_out")[pairing.fan], pairing.scale, groups)
