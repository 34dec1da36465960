"""Torch tensors as the library sees them, and the other way round."""
from __future__ import annotations

import ctypes
import math

import torch

from . import _c
from .errors import ArgumentError, ShapeError

DTYPES = {
    torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3, torch.int32: 4,
    torch.int64: 5, torch.uint8: _c.F8, torch.int8: _c.F8, torch.bool: _c.F8,
    torch.float8_e4m3fn: _c.F8, torch.float8_e5m2: _c.F8,
}
LAYOUTS = ("sbh", "bsh", "bh", "th")  # of a tile: letters, slowest first

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


def plain(x: torch.Tensor) -> torch.Tensor:
    """x with its elements one after the other in memory, as they are: x itself, or a copy. (A view can
    also have a sign to be applied when it is read.)"""
    return x.contiguous().resolve_neg()


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
    if x.dim() != len(letters):
        raise ShapeError(f"{what} has shape {list(x.shape)}, and needs the {len(letters)} dimensions "
                         f"{letters!r}")


# How an array of these elements is called outside of torch. Others are made as whole numbers of their
# size, and then seen as what they are.
_NAMES = {torch.float16: "<f2", torch.float32: "<f4", torch.float64: "<f8", torch.int32: "<i4",
          torch.int64: "<i8", torch.uint8: "|u1", torch.int8: "|i1"}
_NAMES_BY_SIZE = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}


class Memory:
    """Elements at an address, for torch to make a tensor of. Torch holds this object as long as any
    tensor has the memory, so its end is theirs."""

    def __init__(self, address: int, name: str, shape: tuple[int, ...]) -> None:
        # what torch.as_tensor reads, for CUDA memory
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": name,
                                         "version": 3}


def tensor_at(address: int, dtype: torch.dtype, shape: tuple[int, ...],
              device: torch.device) -> tuple[torch.Tensor, object]:
    """A tensor over the memory at an address, and the object that lives as long as this memory is used.
    The object can have weak references. A tensor without elements uses one byte all the same. `.data`:
    autograd refuses changes in place of a view that a function of its own returns."""
    if 0 in shape:
        raw, owner = tensor_at(address, torch.uint8, (1,), device)
        return raw[:0].view(dtype).view(shape).data, owner
    if device.type == "cuda":
        memory = Memory(address, _NAMES.get(dtype) or _NAMES_BY_SIZE[dtype.itemsize], shape)
        found = torch.as_tensor(memory, device=device)
        return (found if dtype in _NAMES else found.view(dtype)).data, memory
    count = math.prod(shape)
    array = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(array, dtype=dtype).view(shape).data, array
