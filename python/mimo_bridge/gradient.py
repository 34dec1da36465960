"""The gradient rules of a step, explained."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import _c
from .communicator import Communicator, default_communicator
from .grid import Grid

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


def explain(src: Grid, dst: Grid, buckets: Sequence[Bucket], *, comm: Communicator | None = None) -> str:
    """Every factor that gradients of these buckets get in a step, and why: which dimensions are summed
    over, which are not, and the scale. One line each, for a person to read. Collective, blocking.

    Errors: GridError (an unknown dimension, one both sharded and partial), UnsupportedError.
    """
    comm = comm or default_communicator()
    array = (_c.mimo_gradient_bucket * max(len(buckets), 1))(*(
        _c.sized(_c.mimo_gradient_bucket, name=one.name.encode(), shard=one.shard.encode(),
                 module=_c.SRC if one.module == "src" else _c.DST, partial=one.partial.encode())
        for one in buckets))
    gradient, length = ctypes.c_void_p(), ctypes.c_int64()
    with comm._turn() as handle:
        _c.lib.mimo_gradient_create(ctypes.byref(gradient), handle, src._handle, dst._handle)
        try:
            _c.lib.mimo_gradient_text(ctypes.byref(length), None, 0, gradient, array, len(buckets))
            text = ctypes.create_string_buffer(length.value + 1)
            _c.lib.mimo_gradient_text(None, text, length.value + 1, gradient, array, len(buckets))
        finally:
            _c.lib.mimo_gradient_destroy(gradient)
    return text.value.decode()
