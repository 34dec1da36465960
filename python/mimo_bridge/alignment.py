"""Alignment: rows of modalities and rows of text, merged by token ids."""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import _c, _handles, _ops, _views
from .errors import ArgumentError, ShapeError, StateError

__all__ = ["Alignment", "Span", "spans_of"]

SPANS = 64  # that find_spans() has room for at first


class Span(NamedTuple):
    """Rows [row, row + length) of one modality in a sample, at positions [position, position +
    length) of the sample's sequence."""

    sample: int
    row: int
    position: int
    length: int


def spans_of(ids: torch.Tensor, special: int, first: int = 0, *, packs: Sequence[Sequence[int]] | None = None,
             cp: int = 1) -> list[Span]:
    """The spans of a modality in token ids [B, S]: where its special id stands. Local; waits for the device where ids lie
    on one.

    first  the number of the first sample in the global batch
    packs  where sequences are packed, for each sample: their cumulative lengths from 0 to S, padded
    cp     of the LLM, over whose ranks each sequence of a pack is cut by itself. The bridge gets the partition of whole
           samples, Partition(). Spans are given for that one: under it each rank keeps the rows of its packs

    ShapeError, ArgumentError.
    """
    first, cp = _c.whole("spans_of: first", first), _c.whole("spans_of: cp", cp, 1)
    spans, count = find_spans(ids, special)
    if packs is not None:
        if len(packs) != len(ids):
            raise ShapeError(f"spans_of: {len(packs)} packs, and ids have {len(ids)} samples")
        spans, count = spans_of_packs(spans, count, packs, cp)
    return [Span(span.sample + first, span.row, span.position, span.length) for span in spans[:count]]


def spans_of_packs(spans: Any, count: int, packs: Sequence[Sequence[int]], cp: int) -> tuple[Any, int]:
    """Spans of packs as find_spans() gives them, for a partition that cuts whole samples. `packs` has the lengths of each
    sample, from 0 on. ShapeError, ArgumentError."""
    size, at = ctypes.sizeof(_c.mimo_span), 0
    found = bytearray()
    for sample, lengths in enumerate(packs):
        first = at
        while at < count and spans[at].sample == sample:
            at += 1
        cu = (ctypes.c_int32 * len(lengths))(*lengths)
        pack = _c.mimo_packed_spans(ctypes.addressof(spans) + first * size, at - first, ctypes.addressof(cu),
                                    len(lengths) - 1)
        try:
            found += _spans_of_pack(pack, cp)
        except ShapeError as error:
            raise ShapeError(f"sample {sample}: {error}") from None
    number = len(found) // size
    return (_c.mimo_span * max(number, 1)).from_buffer(found or bytearray(size)), number


def _spans_of_pack(pack: _c.mimo_packed_spans, cp: int) -> bytes:
    count = ctypes.c_int64()
    _c.lib.mimo_spans_pack(ctypes.byref(count), None, 0, ctypes.byref(pack), cp)
    spans = (_c.mimo_span * count.value)()
    _c.lib.mimo_spans_pack(ctypes.byref(count), spans, count.value, ctypes.byref(pack), cp)
    return bytes(spans)


def find_spans(ids: torch.Tensor, special: int) -> tuple[Any, int]:
    """An array of mimo_span that begins with those of spans_of(), and their number. Errors as those of spans_of()."""
    _views.check_strided("spans_of: ids", ids)
    if ids.dim() != 2:
        raise ShapeError(f"spans_of: ids have shape {list(ids.shape)}, and need two dimensions: B, S")
    host = _views.plain(ids.detach().to("cpu"))
    if host.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(f"spans_of: ids are i32 or i64, not {host.dtype}")
    view, special = _views.view(host, b"bs"), _c.whole("spans_of: special", special)
    count, room = ctypes.c_int64(), SPANS
    while True:
        spans = (_c.mimo_span * room)()
        _c.lib.mimo_spans_find(ctypes.byref(count), spans, room, ctypes.byref(view), special)
        if count.value <= room:
            return spans, count.value
        room = count.value


def _check_runs(ids: torch.Tensor, special: int, rows: Sequence[int]) -> None:
    """ShapeError where images of these rows don't lie in one run of the special id each."""
    spans, count = find_spans(ids, special)
    listed = _c.numbers(ctypes.c_int64, "update: rows of an image", rows)
    lane = _c.mimo_lane_images(*ids.shape, ctypes.addressof(listed), len(rows), ctypes.addressof(spans), count)
    items = _c.mimo_item * max(len(rows), 1)
    found = _c.mimo_image_lists(items(), items(), (_c.mimo_span * max(count, 1))())
    _c.lib.mimo_images_find(ctypes.byref(found), ctypes.byref(lane), 1, 1, False)


class Alignment:
    """Which positions of token sequences take the rows of which modality. Local, no communicator. One
    thread at a time.

    special     for each modality the token id that stands for one of its rows
    vocabulary  ids in [0, vocabulary) that are not special are text; 0: any id >= 0
    device      where rows and tiles lie

    Errors: ArgumentError (an id that is negative or named twice), SizeOverflowError, UnsupportedError.
    """

    def __init__(self, special: Sequence[int], *, vocabulary: int = 0,
                 device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        ids = _c.numbers(ctypes.c_int64, "Alignment: a special id", special)
        memory = _c.CUDA if self.device.type == "cuda" else _c.HOST
        desc = _c.sized(_c.mimo_alignment_desc, modalities=len(special), special=ids,
                        vocabulary=vocabulary, memory=memory)
        handle = ctypes.c_void_p()
        _c.lib.mimo_alignment_create(ctypes.byref(handle), ctypes.byref(desc))
        weakref.finalize(self, _c.lib.mimo_alignment_destroy, handle)
        self._handle = handle
        self._modalities, self._special = len(special), tuple(ids[:len(special)])
        self._shape = (0, 0)  # B, S of the ids in force
        self._updates = 0
        self._number = _handles.add(self)

    def update(self, ids: torch.Tensor, *, images: Sequence[Sequence[int] | None] | None = None) -> None:
        """Take the ids of a micro-batch: [B, S], i32 or i64. Copied; ids on a device make the host
        wait. A merge of earlier ids can't run backward any more: have one Alignment for each
        micro-batch in flight.

        images  for each modality the rows of each of its images, sample after sample, where they are known; None:
                they are not. Each image lies in one run of its special id, in which others may lie beside it.
                Without them only sums are compared, and images of 3 and 5 rows fit runs of 5 and 3

        Errors: ShapeError; ArgumentError for an unknown id, with its place, or another number of modalities.
        """
        _views.check_strided("update: ids", ids)
        host = _views.plain(ids.detach().to("cpu"))
        _views.check_tensor("update: ids", host, "bs", torch.device("cpu"))
        self._check_images(host, images)
        with self._current_device():
            _c.lib.mimo_alignment_update(self._handle, ctypes.byref(_views.view(host, b"bs")),
                                         self._stream())
        self._shape = (host.shape[0], host.shape[1])
        self._updates += 1

    def _check_images(self, ids: torch.Tensor, images: Sequence[Sequence[int] | None] | None) -> None:
        if images is not None and len(images) != self._modalities:
            raise ArgumentError(f"update: images of {len(images)} modalities, and there are {self._modalities}")
        for modality, (special, rows) in enumerate(zip(self._special, images or ())):
            if rows is not None:
                try:
                    _check_runs(ids, special, rows)
                except ShapeError as error:
                    raise ShapeError(f"update: modality {modality}: {error}") from None

    def rows(self, modality: int) -> int:
        """How many rows a modality takes with the ids in force; -1: text rows. StateError before the
        first update, ArgumentError (no such modality)."""
        rows = ctypes.c_int64()
        _c.lib.mimo_alignment_rows(ctypes.byref(rows), self._handle,
                                   _c.whole("rows: modality", modality, -1, 2**31 - 1))
        return rows.value

    def merge(self, rows: Sequence[torch.Tensor], text: torch.Tensor, *, layout: str = "sbh",
              row_layouts: Sequence[str] | None = None) -> torch.Tensor:
        """The tile of the ids in force: each row at its position. Differentiable, local.

        rows         one tensor for each modality: [N_m, H], sample after sample. Also [s, b, H] and
                     [b, s, H] with s * b = N_m: `row_layouts` says so ("th" by default, "sbh",
                     "bsh"). A modality without rows gives 0 rows
        text         [N_text, H]
        returns      [S, B, H], or [B, S, H] with layout "bsh"

        All have one H, dtype and device. Errors: ShapeError (a count differs: both are printed),
        ArgumentError, StateError before the first update.
        """
        layouts = tuple(row_layouts or ("th",) * self._modalities) + ("th", layout)
        if len(rows) != self._modalities or len(layouts) != self._modalities + 2:
            raise ArgumentError(f"merge: {len(rows)} tensors of rows and {len(layouts) - 2} layouts for "
                                f"{self._modalities} modalities")
        for one in layouts[:-1]:
            if one not in _views.LAYOUTS:
                raise ArgumentError(f"merge: rows are one of {', '.join(_views.LAYOUTS)}, not {one!r}")
        for tensor in (*rows, text):
            _views.check_strided("merge: a tensor", tensor)
            _ops.refuse_transforms("merge", tensor)
            if tensor.device != text.device:  # the op would take the fake kernel where one is on meta
                raise ArgumentError(f"merge: a tensor is on {tensor.device}, and the text on {text.device}")
        if layout not in ("sbh", "bsh") or text.dim() != 2:
            raise ArgumentError(f"merge: a tile is sbh or bsh, not {layout!r}, and text is [N_text, H], "
                                f"not {list(text.shape)}")
        sizes = {"b": self._shape[0], "s": self._shape[1], "h": text.shape[-1]}
        shape = [sizes[letter] for letter in layout]
        merged: torch.Tensor = _ops.merge([*rows, text], self._number, ",".join(layouts), shape,
                                          self._updates)
        return merged

    def join(self, parts: Sequence[torch.Tensor], layouts: str, shape: Sequence[int],
             update: int) -> torch.Tensor:
        """The body of mimo_bridge::merge."""
        tile = parts[-1].new_empty(tuple(shape))
        self._move(_c.lib.mimo_alignment_merge, tile, parts, layouts, update)
        return tile

    def part(self, x: torch.Tensor, layouts: str, sizes: Sequence[int], update: int) -> list[torch.Tensor]:
        """The body of mimo_bridge::split."""
        parts = [x.new_empty(tuple(shape)) for _, shape in _ops.shapes_of(layouts, sizes)]
        self._move(_c.lib.mimo_alignment_split, x, parts, layouts, update)
        return parts

    def _move(self, function: Any, tile: torch.Tensor, parts: Sequence[torch.Tensor],
              layouts: str, update: int) -> None:
        if update != self._updates:
            raise StateError("merge: the ids were updated since this forward: have one Alignment for "
                             "each micro-batch in flight")
        letters = layouts.split(",")
        tensors = [_views.plain(tensor) for tensor in (*parts, tile)]
        for tensor, layout in zip(tensors, letters):
            _views.check_tensor("merge: a tensor", tensor, layout, self.device)
        views = [_views.view(tensor, layout.encode()) for tensor, layout in zip(tensors, letters)]
        rows = (_c.mimo_tensor * max(self._modalities, 1))(*views[:self._modalities])
        text, whole = ctypes.byref(views[-2]), ctypes.byref(views[-1])
        merges = function is _c.lib.mimo_alignment_merge
        order = (whole, rows, text) if merges else (rows, text, whole)
        with self._current_device():
            function(self._handle, *order, self._stream())

    def __reduce__(self) -> str:
        raise TypeError("an Alignment can't be copied or pickled: make another, and update it")

    def _stream(self) -> int | None:
        if self.device.type == "cpu":
            return None
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def _current_device(self) -> torch.cuda.device:
        return torch.cuda.device(self.device if self.device.type == "cuda" else -1)
