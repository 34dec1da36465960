"""The gradient rules of a step, explained."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _c
from .communicator import Communicator, communicator_of
from .errors import ArgumentError
from .grid import Grid, check_grids

__all__ = ["Bucket", "GradientGrid", "explain"]


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients follow one rule.

    module   "src": of the encoder; "dst": of the LLM
    shard    dimensions along which ranks hold different elements: "tp", "tp,pp"
    partial  dimensions along which ranks hold equal elements, each a part of their gradient: "tp" for
             norm weights and row-parallel biases under sp, and for a head that each tp rank applies to its
             sp shard; "pp" for tied embeddings, of which stages between the first and the last bring zeros
    grid     the name of a GradientGrid, whose dimensions the two then are; `module` plays no part then
    """

    name: str
    module: Literal["src", "dst"]
    shard: str = ""
    partial: str = ""
    grid: str | None = None


@dataclass(frozen=True)
class GradientGrid:
    """A grid beside the two of the modules: another encoder's, or one for experts.

    data     dimensions along which ranks hold other samples or tokens: gradients are summed over them
    shard    dimensions along which ranks hold other elements of every bucket, which each bucket names
             as well

    GradientGrid("audio", Grid("tp=2,dp=2"), data="dp")
    GradientGrid("experts", Grid("etp=1,ep=2,edp=2"), data="edp", shard="ep")
    """

    name: str
    grid: Grid
    data: str = ""
    shard: str = ""


def _desc(bucket: Bucket) -> _c.mimo_gradient_bucket:
    return _c.sized(_c.mimo_gradient_bucket, name=_c.text("Bucket: name", bucket.name),
                    module=_c.side("Bucket: module", bucket.module),
                    shard=_c.text("Bucket: shard", bucket.shard),
                    partial=_c.text("Bucket: partial", bucket.partial),
                    grid=None if bucket.grid is None else _c.text("Bucket: grid", bucket.grid))


def _added(added: GradientGrid) -> tuple[Any, ...]:
    if not isinstance(added, GradientGrid):
        raise ArgumentError(f"explain: {added!r} is no GradientGrid")
    check_grids("GradientGrid", added.grid)
    return (_c.text("GradientGrid: name", added.name), added.grid._handle,
            _c.text("GradientGrid: data", added.data), _c.text("GradientGrid: shard", added.shard))


def explain(src: Grid, dst: Grid, buckets: Sequence[Bucket], *, grids: Sequence[GradientGrid] = (),
            comm: Communicator | None = None) -> str:
    """Every factor that gradients of these buckets get in a step, and why: which dimensions are summed
    over, which are not, and the scale. One line each, for a person to read. `grids` are those that
    buckets name. Collective, blocking.

    N, in the scale, counts each token once. Ranks along tp hold copies of their tokens, so one of them counts. Where
    each computes the loss of its sp shard alone, counts and losses are summed over tp first. With pp only
    the last stage counts.

    Errors, on every rank: GridError (an unknown dimension, one both sharded and partial, one of the
    grid's `shard` that a bucket does not name), NotFoundError (a bucket's grid), ExistsError (two grids
    of one name), ArgumentError, UnsupportedError, MismatchError (ranks bring other grids).
    """
    comm = communicator_of("explain", comm)

    def describe() -> tuple[Any, ...]:
        check_grids("explain", src, dst)
        array = (_c.mimo_gradient_bucket * max(len(buckets), 1))(*map(_desc, buckets))
        return array, src._handle, dst._handle, list(map(_added, grids))

    array, *modules, added = comm._together("explain", describe)
    gradient = ctypes.c_void_p()

    def text() -> str:
        length = ctypes.c_int64()
        _c.lib.mimo_gradient_text(ctypes.byref(length), None, 0, gradient, array, len(buckets))
        found = ctypes.create_string_buffer(length.value + 1)
        _c.lib.mimo_gradient_text(None, found, length.value + 1, gradient, array, len(buckets))
        return found.value.decode()

    with comm._turn() as handle:
        _c.lib.mimo_gradient_create(ctypes.byref(gradient), handle, *modules)
        try:
            for grid in added:
                _c.lib.mimo_gradient_add_grid(gradient, *grid)
            return comm._together("explain", text)
        finally:
            _c.lib.mimo_gradient_destroy(gradient)
