"""Torch tensors as the library sees them, and the other way round."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _c
from .errors import ArgumentError, ShapeError

DTYPES = {
    torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3, torch.int32: 4,
    torch.int64: 5, torch.uint8: _c.F8, torch.int8: _c.F8, torch.bool: _c.F8,
    torch.float8_e4m3fn: _c.F8, torch.float8_e5m2: _c.F8,
}
LAYOUTS = ("sbh", "bsh", "bh", "th")  # of a tile: letters, slowest first

ALIGNMENT = 256  # of what lies in a buffer
DIMS = 3  # MIMO_TENSOR_DIMS: the most that a view has
_Shape = ctypes.c_int64 * DIMS


def is_flat(letters: str) -> bool:
    return "s" not in letters


def check_layout(letters: str) -> None:
    if letters not in LAYOUTS:
        raise ArgumentError(f"a tile is one of {', '.join(LAYOUTS)}, not {letters!r}")


def address_of(x: torch.Tensor) -> int:
    """Where the elements of x begin. ArgumentError for what only looks like a tensor."""
    try:
        return x.data_ptr()
    except RuntimeError as error:
        raise ArgumentError(f"a tensor {list(x.shape)} has no memory of its own, as in a batch of gradients "
                            f"(is_grads_batched): move them one by one ({error})") from None


def view(x: torch.Tensor, letters: bytes) -> _c.mimo_tensor:
    """The view of a contiguous tensor. It borrows the memory of x."""
    return _c.mimo_tensor(address_of(x), DTYPES[x.dtype], _c.CUDA if x.is_cuda else _c.HOST, letters,
                          _Shape(*x.shape))


def borrowed(address: int, dtype: torch.dtype, shape: tuple[int, ...],
             device: torch.device) -> tuple[torch.Tensor, Any]:
    """A tensor over memory of the library, which must outlive it, and its storage."""
    make: Any = torch._C._construct_storage_from_data_pointer  # private in torch
    storage = make(address, device, dtype.itemsize * math.prod(shape))
    return torch.empty(0, dtype=dtype, device=device).set_(storage).view(shape), storage


def plain(x: torch.Tensor) -> torch.Tensor:
    """x with its elements one after the other in memory, as they are: x itself, or a copy. (A view can
    also have a sign to be applied when it is read.)"""
    return x if x.is_contiguous() and not x.is_neg() else x.contiguous().resolve_neg()


def check_strided(what: str, x: object) -> None:
    """Raise where x is no tensor with sizes and strides."""
    if not isinstance(x, torch.Tensor):
        raise ArgumentError(f"{what} is a {type(x).__name__}, and must be a tensor")
    if type(x).__name__ == "DTensor":
        raise ArgumentError(f"{what} is a DTensor, and a bridge moves the rows of this rank: give it what "
                            ".to_local() gives")
    if x.is_nested or x.layout != torch.strided:
        raise ArgumentError(f"{what} is {'nested' if x.is_nested else x.layout}, where rows have no fixed "
                            "places: make it dense")


def check_device(what: str, x: torch.Tensor, device: torch.device) -> None:
    if x.device != device:
        raise ArgumentError(f"{what} is on {x.device}, and the communicator works with {device}")


def check_tensor(what: str, x: torch.Tensor, letters: str, device: torch.device) -> None:
    """Raise where x can't be a tile of these letters on this device."""
    check_strided(what, x)
    check_device(what, x, device)
    if x.dtype not in DTYPES:
        raise ArgumentError(f"{what} has dtype {x.dtype}, which can't be moved: the dtypes are "
                            f"{', '.join(str(d) for d in DTYPES)}")
    check_letters(what, x, letters)


def check_letters(what: str, x: torch.Tensor, letters: str) -> None:
    if x.dim() != len(letters):
        raise ShapeError(f"{what} has shape {list(x.shape)}, and needs the {len(letters)} dimensions "
                         f"{letters!r}")


KINDS = 64  # of tensors, or calls, of which something is kept
_users_of: Callable[[int], int] = torch._C._storage_Use_Count  # private in torch


class Slot:
    """Memory of the library at an address, for results of one call after the other.

    Torch makes a storage of an address, and counts who has it. One is made for each dtype and shape, with a
    tensor in it. A result is another tensor of this storage: so a call costs little, and the count says
    whether a result, or anything made from it, lives."""

    def __init__(self, address: int, bytes: int, device: torch.device) -> None:
        self.address, self.bytes, self.device = address, bytes, device
        self._kept: dict[tuple[torch.dtype, tuple[int, ...]], tuple[torch.Tensor, int, Any]] = {}
        self._last: int | None = None  # the storage of the last result
        self._cuts: dict[tuple[int, ...], list[Slot]] = {}
        self._parts: list[Slot] = []  # of the last call of several tensors

    def in_use(self) -> bool:
        """Whether an earlier call's result, or what shares its memory, still lives."""
        if self._last is not None and _users_of(self._last) > 2:  # besides those that are kept
            return True
        return bool(self._parts) and any(part.in_use() for part in self._parts)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """A result, where none is in use. ShapeError where the slot is too small. `.data`: autograd refuses
        changes in place of a view that a function of its own returns."""
        kept, self._last, _ = self._kept.get((dtype, shape)) or self._make(dtype, shape)
        return kept.data

    def tensors(self, kinds: Sequence[tuple[torch.dtype, tuple[int, ...]]],
                widths: Sequence[int] | None = None) -> list[torch.Tensor]:
        """tensor() of several ones, each in its part. `widths`: bytes of a row, where that is not the last
        dimension."""
        self._parts = self.cut(widths or [dtype.itemsize * shape[-1] for dtype, shape in kinds])
        return [part.tensor(*kind) for part, kind in zip(self._parts, kinds)]

    def cut(self, widths: Sequence[int]) -> list[Slot]:
        """Parts for tensors with rows of these bytes.

        Each part has its share of the row's bytes, because these are what all ranks have alike: their
        numbers of rows differ. Tensors fit where the slot has ALIGNMENT more bytes for each of them."""
        key = tuple(widths)
        found = self._cuts.get(key)
        if found is None:
            if len(self._cuts) >= KINDS:
                self._cuts.clear()
            room, whole, start = max(self.bytes - ALIGNMENT * len(key), 0), max(sum(key), 1), 0
            found = self._cuts[key] = []
            for width in key:
                size = -(-(room * width // whole) // ALIGNMENT) * ALIGNMENT
                if len(found) == len(key) - 1:
                    size = self.bytes - start
                found.append(Slot(self.address + start, size, self.device))
                start += size
        return found

    def _make(self, dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[torch.Tensor, int, Any]:
        size = dtype.itemsize * math.prod(shape)
        if size > self.bytes:
            raise ShapeError(f"a result of {size} bytes does not fit the {self.bytes} bytes that it has in a "
                             "slot")
        if len(self._kept) >= KINDS:
            self._kept.clear()
        tensor, storage = borrowed(self.address, dtype, shape, self.device)
        made = self._kept[dtype, shape] = tensor.data, int(storage._cdata), storage
        return made
