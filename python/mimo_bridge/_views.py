"""Torch tensors as the library sees them, and the other way round."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from . import _c
from .errors import ArgumentError, ShapeError

DTYPES = {
    torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3, torch.int32: 4,
    torch.int64: 5, torch.uint8: _c.F8, torch.int8: _c.F8, torch.bool: _c.F8,
    torch.float8_e4m3fn: _c.F8, torch.float8_e5m2: _c.F8,
}
LAYOUTS = ("sbh", "bsh", "bh", "th")  # of a tile: letters, slowest first

_Shape = ctypes.c_int64 * 3


def is_flat(letters: str) -> bool:
    return "s" not in letters


def check_layout(letters: str) -> str:
    if letters not in LAYOUTS:
        raise ArgumentError(f"a tile is one of {', '.join(LAYOUTS)}, not {letters!r}")
    return letters


def view(x: torch.Tensor, letters: bytes) -> _c.mimo_tensor:
    """The view of a contiguous tensor. It borrows the memory of x."""
    return _c.mimo_tensor(x.data_ptr(), DTYPES[x.dtype], _c.CUDA if x.is_cuda else _c.HOST, letters,
                          _Shape(*x.shape))


def plain(x: torch.Tensor) -> torch.Tensor:
    """x with its elements one after the other in memory, as they are: x itself, or a copy. (A view can
    also have a sign to be applied when it is read.)"""
    return x.contiguous().resolve_neg()


def nobody(letters: bytes = b"") -> _c.mimo_tensor:
    """A view that every call refuses."""
    return _c.mimo_tensor(None, -1, _c.HOST, letters, _Shape(-1, -1, -1))


def check_tensor(what: str, x: torch.Tensor, letters: str, device: torch.device) -> None:
    """Raise where x can't be a tile of these letters on this device."""
    if x.device != device:
        raise ArgumentError(f"{what} is on {x.device}, and the communicator works with {device}")
    if x.dtype not in DTYPES:
        raise ArgumentError(f"{what} has dtype {x.dtype}, which can't be moved: the dtypes are "
                            f"{', '.join(str(d) for d in DTYPES)}")
    if x.dim() != len(letters):
        raise ShapeError(f"{what} has shape {list(x.shape)}, and needs the {len(letters)} dimensions "
                         f"{letters!r}")


class Memory:
    """Bytes at an address, for torch to make a tensor of. Torch holds this object as long as any
    tensor has the memory, so its end is theirs."""

    def __init__(self, address: int, size: int) -> None:
        # what torch.as_tensor reads, for CUDA memory
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (size,),
                                         "typestr": "|u1", "version": 3}


def tensor_at(address: int, size: int, device: torch.device) -> tuple[torch.Tensor, object]:
    """A uint8 tensor over `size` > 0 bytes, and the object that lives as long as its memory is used.
    The object can have weak references."""
    if device.type == "cuda":
        memory = Memory(address, size)
        return torch.as_tensor(memory, device=device), memory
    array = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(array, dtype=torch.uint8), array


def typed(raw: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The first bytes of a uint8 tensor as a tensor of another type."""
    count = dtype.itemsize
    for length in shape:
        count *= length
    return raw[:count].view(dtype).view(shape)
