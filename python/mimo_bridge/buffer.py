"""Buffers: memory that other ranks write into, in slots that are used in turn."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from . import _c, _views
from .communicator import Communicator, communicator_of
from .errors import MimoError, MismatchError, ShapeError, StateError

__all__ = ["Buffer"]


class Buffer:
    """`slots` destinations of up to `bytes` bytes each, which other ranks write into. Collective,
    blocking.

    A bridge with a buffer puts the result of call number n into slot n % slots. All ranks count the
    same calls, so all choose the same slot. A result is in use until its last tensor is gone, a saved
    activation until its backward. A call whose slot is still in use raises StateError: so there are
    at least as many slots as results are alive at once (micro-batches in flight).

    bytes  ranks may ask for different sizes: all get the largest. A call of several tensors takes what
           these have together, and 256 more for each
    slots  the same on every rank, as results lie at the same place on each
    comm   None: the default communicator

    Errors, the same on every rank: ArgumentError, ShapeError, SizeOverflowError, MismatchError,
    OutOfMemoryError, UnsupportedError (the backend has no such memory here).
    """

    kind = "buffer"

    def __init__(self, bytes: int, slots: int = 2, *, comm: Communicator | None = None) -> None:
        self.comm = communicator_of("Buffer", comm)
        self._calls = 0
        handle = ctypes.c_void_p()

        def check() -> tuple[int, int]:
            count, length = _c.whole("Buffer: slots", slots), _c.whole("Buffer: bytes", bytes)
            if count < 1 or length < 0:
                raise ShapeError(f"Buffer: {slots} slots of {bytes} bytes")
            whole = count * max(_views.ALIGNMENT, -(-length // _views.ALIGNMENT) * _views.ALIGNMENT)
            return count, _c.whole(f"Buffer: {slots} slots of {bytes} bytes", whole)

        self.slots, size = self.comm._together("Buffer", check)
        self.comm._alike("Buffer", f"slots={self.slots}")
        with self.comm._turn() as parent:
            _c.lib.mimo_buffer_create(ctypes.byref(handle), parent, size)
            self._handle: ctypes.c_void_p | None = handle
            self.comm._children.append(self)
        self._address = int(_c.lib.mimo_buffer_data(handle))
        # of what all ranks got, so that slots begin at the same offset everywhere
        self.bytes = int(_c.lib.mimo_buffer_size(handle)) // self.slots // _views.ALIGNMENT * _views.ALIGNMENT
        self._slots = [_views.Slot(self._address + slot * self.bytes, self.bytes, self.comm.device)
                       for slot in range(self.slots)]

    @property
    def reach(self) -> int:
        """How many ranks' memory this rank reaches, itself included; others' rows are sent. Local."""
        with self.comm._turn():
            return int(_c.lib.mimo_buffer_reach(self._open()))

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise StateError("the buffer is closed")
        return self._handle

    def next_slot(self) -> int:
        """Count a call and give the slot of its result. A bridge does so first of all in each call,
        so that ranks whose call fails count it as well."""
        slot = self._calls % self.slots
        self._calls += 1
        return slot

    def failed(self, error: MimoError) -> None:
        """The call that was counted last got this error of all ranks. Where they called different things, some
        counted none: then it counts nowhere."""
        if isinstance(error, MismatchError):
            self._calls -= 1

    def tensor(self, slot: int, dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[torch.Tensor, int]:
        """A tensor in a slot, and its address (a tensor without elements does not tell it). StateError
        where the slot is in use, ShapeError where it is too small. Local."""
        place = self._slots[slot]
        if self._handle is None or place.in_use():
            self._free(slot)  # raises
        return place.tensor(dtype, shape), place.address

    def tensors(self, slot: int, kinds: Sequence[tuple[torch.dtype, tuple[int, ...]]],
                widths: Sequence[int] | None = None) -> list[torch.Tensor]:
        """tensor() of several ones, at the addresses that addresses() says of the same widths (None: of the
        last dimensions)."""
        return self._free(slot).tensors(kinds, widths)

    def addresses(self, slot: int, widths: Sequence[int]) -> list[int]:
        """Where tensors with rows of these bytes begin in a slot. Local."""
        return [part.address for part in self._slots[slot].cut(widths)]

    def _free(self, slot: int) -> _views.Slot:
        if self._handle is None:
            raise StateError("the buffer is closed")
        place = self._slots[slot]
        if place.in_use():
            raise StateError(f"slot {slot} of {self.slots} is in use: a tensor of an earlier call lies "
                             f"there. Give the buffer more slots (slots={self.slots + 1}), or let go of "
                             "the tensor")
        return place

    def in_use(self) -> str | None:
        """A sentence about a slot that a tensor lies in, or None. Local."""
        for slot, place in enumerate(self._slots):
            if place.in_use():
                return (f"slot {slot} of {self.slots} of a buffer is in use: let go of the tensor in it "
                        "before the buffer is closed")
        return None

    def release(self) -> None:
        """Destroy the C object; the communicator calls it. Where the communicator has failed, tensors
        may lie in it: then it is never destroyed."""
        handle, self._handle = self._handle, None
        if self.in_use() is None:
            _c.lib.mimo_buffer_destroy(handle)

    def close(self) -> None:
        """Release the memory on every rank. Collective, blocking. Again: nothing. StateError on every
        rank where a tensor still lies in a slot on one of them."""
        if self._handle is not None and not self.comm.closed:
            self.comm._close_child(self)

    def __reduce__(self) -> str:
        raise TypeError("a Buffer can't be copied or pickled: it belongs to its process")
