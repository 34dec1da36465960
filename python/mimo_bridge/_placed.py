"""Where the rows of a ragged batch stand in this rank's tile of the LLM."""
from __future__ import annotations

import ctypes

import torch

from . import _c
from .errors import StateError
from .grid import Grid
from .partition import Partition


class Placed:
    """The positions that a bridge's forward writes. `letters` are those of the tile. Local."""

    def __init__(self, letters: str, partition: Partition | None, dst: Grid, rank: int) -> None:
        self._letters, self._partition, self._dst, self._rank = letters, partition, dst, rank

    def mask(self, bridge: ctypes.c_void_p, batch: int, tile: torch.Tensor) -> torch.Tensor:
        """bool [.., .., 1], True where rows of the chosen micro-batch of `batch` samples are placed in a
        tile like this one."""
        if tile.is_cuda and torch.cuda.is_current_stream_capturing():
            raise StateError("place: where rows stand is not on the device yet: let backward run once after "
                             "an update, before it is captured")
        samples, length = (tile.shape[self._letters.index(letter)] for letter in "bs")
        positions = length * (1 if self._partition is None else self._partition.cut(self._dst))
        marks = bytearray(samples * positions + 1)  # torch takes no empty buffer
        first, count = ctypes.c_int64(), ctypes.c_int64()
        _c.lib.mimo_bridge_samples(ctypes.byref(first), ctypes.byref(count), bridge, _c.DST, batch)
        for span in _spans_of(bridge):
            at = (span.sample - first.value) * positions + span.position
            marks[at:at + span.length] = b"\1" * span.length
        mask = torch.frombuffer(marks, dtype=torch.bool)[:-1].view(samples, positions)
        if self._partition is not None and samples > 0:
            mask = mask.index_select(1, self._partition.at(self._dst, self._rank).index(positions))
        mask = (mask.t() if self._letters == "sbh" else mask).unsqueeze(-1).contiguous()
        # a copy from pinned memory does not make the host wait for the stream
        return mask.pin_memory().to(tile.device, non_blocking=True) if tile.is_cuda else mask


def _spans_of(bridge: ctypes.c_void_p) -> list[_c.mimo_span]:
    count = ctypes.c_int64()
    _c.lib.mimo_bridge_spans(ctypes.byref(count), None, 0, bridge)
    spans = (_c.mimo_span * count.value)()
    _c.lib.mimo_bridge_spans(ctypes.byref(count), spans, count.value, bridge)
    return list(spans)
