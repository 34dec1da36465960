"""The gradient rules of a step, explained."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import _c
from .communicator import Communicator, default_communicator
from .grid import Grid, check_grids

__all__ = ["Bucket", "explain"]


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients follow one rule.

    module   "src": of the encoder; "dst": of the LLM
    shard    dimensions along which ranks hold different elements: "tp", "tp,pp"
    partial  dimensions along which ranks hold equal elements, each a part of their gradient: "tp" for
             norm weights and row-parallel biases under sp
    """

    name: str
    module: Literal["src", "dst"]
    shard: str = ""
    partial: str = ""


def _desc(bucket: Bucket) -> _c.mimo_gradient_bucket:
    return _c.sized(_c.mimo_gradient_bucket, name=_c.text("Bucket: name", bucket.name),
                    module=_c.side("Bucket: module", bucket.module),
                    shard=_c.text("Bucket: shard", bucket.shard),
                    partial=_c.text("Bucket: partial", bucket.partial))


def explain(src: Grid, dst: Grid, buckets: Sequence[Bucket], *, comm: Communicator | None = None) -> str:
    """Every factor that gradients of these buckets get in a step, and why: which dimensions are summed
    over, which are not, and the scale. One line each, for a person to read. Collective, blocking.

    Errors, on every rank: GridError (an unknown dimension, one both sharded and partial), ArgumentError,
    UnsupportedError.
    """
    comm = comm or default_communicator()

    def describe() -> tuple[Any, ...]:
        check_grids("explain", src, dst)
        array = (_c.mimo_gradient_bucket * max(len(buckets), 1))(*map(_desc, buckets))
        return array, src._handle, dst._handle

    array, *grids = comm._together("explain", describe)
    gradient = ctypes.c_void_p()

    def text() -> str:
        length = ctypes.c_int64()
        _c.lib.mimo_gradient_text(ctypes.byref(length), None, 0, gradient, array, len(buckets))
        found = ctypes.create_string_buffer(length.value + 1)
        _c.lib.mimo_gradient_text(None, found, length.value + 1, gradient, array, len(buckets))
        return found.value.decode()

    with comm._turn() as handle:
        _c.lib.mimo_gradient_create(ctypes.byref(gradient), handle, *grids)
        try:
            return comm._together("explain", text)
        finally:
            _c.lib.mimo_gradient_destroy(gradient)
