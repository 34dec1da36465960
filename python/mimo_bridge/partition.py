"""The sequence partition: which tokens of a sequence an LLM rank keeps."""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from . import _c, _handles, _ops, _views
from .communicator import Communicator, communicator_of
from .errors import ArgumentError, ShapeError, StateError
from .grid import Grid, check_grids

__all__ = ["Partition", "LocalPartition", "padded_lengths"]

Content = Literal["embeddings", "labels"]
_CONTENTS = {"embeddings": _c.EMBEDDINGS, "labels": _c.LABELS}


@dataclass(frozen=True)
class Partition:
    """What all ranks of an LLM share about the cut of a sequence: zigzag over cp, then an even cut of
    the embeddings over tp where `sp`.

    cu         packed sequences (thd): cumulative lengths, from 0 to T
    cu_padded  the same, padded: these then drive the split
    strict     Megatron-LM's rule of divisibility: 2 * cp * tp divides S. tp counts where `sp`
    """

    sp: bool = False
    cu: Sequence[int] | None = None
    cu_padded: Sequence[int] | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("cu", "cu_padded"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(
                    _c.whole(f"Partition: a length of {name}", v, 0, 2**31 - 1) for v in value))
        if self.cu is not None and not self.cu:
            raise ArgumentError("Partition: cu begins with 0, this one is empty")
        if self.cu_padded is not None and len(self.cu_padded) != len(self.cu or ()):
            raise ArgumentError(f"Partition: cu_padded has {len(self.cu_padded)} lengths, and cu has "
                                f"{len(self.cu or ())}")

    @property
    def packed_length(self) -> int | None:
        """T, the length of a pack; None where the partition packs nothing."""
        lengths = self.cu_padded or self.cu
        return lengths[-1] if lengths else None

    def cut(self, grid: Grid, content: Content = "embeddings") -> int:
        """Into how many shards a sequence is cut: cp, times tp for embeddings under sp."""
        both = self.sp and content == "embeddings"
        return grid.dim("cp") * (grid.dim("tp") if both else 1)

    def pad_rows(self, rows: torch.Tensor, fill: float = 0) -> torch.Tensor:
        """Rows of packed sequences where `cu_padded` puts them, as a new tensor.

        rows     [cu[-1], ...]: token ids, labels, positions, embeddings, of any dtype and device
        fill     what stands behind each sequence: 0 for tokens, -100 for labels
        returns  [T, ...]. Differentiable

        Local. Errors: ArgumentError (nothing is packed), ShapeError.
        """
        cu, padded = self._packed("pad_rows")
        if rows.dim() < 1 or rows.shape[0] != cu[-1]:
            raise ShapeError(f"pad_rows: rows have shape {list(rows.shape)}, and cu ends with {cu[-1]}")
        begins = torch.tensor([b - a for a, b in zip(cu[:-1], padded[:-1], strict=True)], dtype=torch.int64)
        lengths = torch.tensor([b - a for a, b in zip(cu[:-1], cu[1:], strict=True)], dtype=torch.int64)
        at = torch.arange(cu[-1]) + begins.repeat_interleave(lengths)
        to = rows.new_full((padded[-1], *rows.shape[1:]), fill)
        return to.index_copy(0, at.to(rows.device), rows)

    def shift_labels(self, labels: torch.Tensor, fill: int = -100) -> torch.Tensor:
        """Labels for the next token, as a new tensor: to be called on whole sequences, before they are cut.

        labels   [T] of a pack; [..., S] where nothing is packed
        fill     the label of each sequence's last row. What follows it in a pack is another document
        returns  labels' shape

        Local. ShapeError.
        """
        shifted = torch.full_like(labels, fill)
        if self.cu is None:
            shifted[..., :-1] = labels[..., 1:]
            return shifted
        _, padded = self._packed("shift_labels")
        if list(labels.shape) != [padded[-1]]:
            raise ShapeError(f"shift_labels: labels have shape {list(labels.shape)}, and a pack has "
                             f"{[padded[-1]]}")
        shifted[:-1] = labels[1:]
        ends = [end - 1 for begin, end in zip(padded[:-1], padded[1:], strict=True) if end > begin]
        shifted[torch.tensor(ends, dtype=torch.int64, device=labels.device)] = fill
        return shifted

    def _packed(self, call: str) -> tuple[Sequence[int], Sequence[int]]:
        if self.cu is None:
            raise ArgumentError(f"{call}: the partition packs nothing: it has no cu")
        return self.cu, self.cu_padded or self.cu

    def at(self, grid: Grid, rank: int, comm: Communicator | None = None) -> LocalPartition:
        """The partition of one rank of the LLM's grid. Local, unless `comm` is given.

        comm  under sp with tp > 1 the gradient of embeddings is gathered over tp. Then this is
              collective over comm, whose ranks are those of the grid, and `rank` is this one's

        Errors: GridError (no such rank), ShapeError (lengths of packed sequences); with `comm` on every
        rank, also ArgumentError (another rank, or another number of them) and MismatchError (another
        grid, sp on some ranks).
        """
        if comm is None:
            return LocalPartition(self, grid, rank)
        comm = communicator_of("Partition.at", comm)

        def local() -> LocalPartition:
            check_grids("Partition.at", grid)
            if (rank, grid.size, grid.offset) != (comm.rank, comm.size, 0):
                raise ArgumentError(f"Partition.at: rank {rank} of {grid!r}, and this is rank {comm.rank} "
                                    f"of the communicator's {comm.size}")
            return LocalPartition(self, grid, rank)

        made = comm._together("Partition.at", local)
        comm._alike("Partition.at", f"sp={self.sp}, {grid!r}")
        made._gather_over(comm, grid)
        return made

    def _rule(self) -> _c.mimo_partition_rule:
        rule = _c.sized(_c.mimo_partition_rule, sp=self.sp, strict=self.strict)
        if self.cu is not None:
            rule.format = _c.THD
            rule.sequences = len(self.cu) - 1
            rule.cu = (ctypes.c_int32 * len(self.cu))(*self.cu)
        if self.cu_padded is not None:
            rule.cu_padded = (ctypes.c_int32 * len(self.cu_padded))(*self.cu_padded)
        return rule


class LocalPartition:
    """The rows that one rank keeps, and functions that keep them. Made by Partition.at()."""

    def __init__(self, rule: Partition, grid: Grid, rank: int) -> None:
        place = grid.coords(rank)
        coords = _c.sized(_c.mimo_partition_coords, cp_rank=place.get("cp", 0),
                          cp_size=grid.dim("cp"), tp_rank=place.get("tp", 0), tp_size=grid.dim("tp"))
        handle = ctypes.c_void_p()
        _c.lib.mimo_partition_create(ctypes.byref(handle), ctypes.byref(rule._rule()),
                                     ctypes.byref(coords))
        weakref.finalize(self, _c.lib.mimo_partition_destroy, handle)
        self.rule = rule
        self._handle = handle
        self._cuts = {_c.EMBEDDINGS: rule.cut(grid), _c.LABELS: rule.cut(grid, "labels")}
        self._gathers = rule.sp and grid.dim("tp") > 1
        self._tp: Communicator | None = None
        self._number = _handles.add(self)

    def _gather_over(self, comm: Communicator, grid: Grid) -> None:
        if self._gathers:
            # One for a grid: packed sequences take a new partition for each batch, and communicators are few.
            self._tp = comm.group(grid, "tp")

    def __reduce__(self) -> str:
        raise TypeError("a LocalPartition can't be copied or pickled: make another with Partition.at()")

    def rows(self, seq: int, content: Content = "embeddings") -> int:
        """How many rows of a sequence of `seq` tokens this rank keeps. Local. ShapeError where a rule
        of divisibility is broken."""
        rows = ctypes.c_int64()
        _c.lib.mimo_partition_rows(ctypes.byref(rows), self._handle, _content(content),
                                   _c.whole("rows: seq", seq))
        return rows.value

    def index(self, seq: int, content: Content = "embeddings") -> torch.Tensor:
        """i64 [rows], on the CPU: which row of the sequence, or of the pack, each row is that this
        rank keeps: `full[index]` is the shard. Local. ShapeError."""
        return self._map(_c.lib.mimo_partition_index, seq, content)

    def positions(self, seq: int, content: Content = "embeddings") -> torch.Tensor:
        """i64 [rows], on the CPU: the position of each of these rows in its own sequence, for an attention
        mask or rotary positions. In a pack each sequence begins at 0. Local. ShapeError."""
        return self._map(_c.lib.mimo_partition_positions, seq, content)

    def _map(self, read: Callable[..., None], seq: int, content: Content) -> torch.Tensor:
        values = torch.empty(self.rows(seq, content), dtype=torch.int64, device="cpu")
        if values.numel():
            read(values.data_ptr(), self._handle, _content(content), seq)
        return values

    def shard(self, x: torch.Tensor, layout: str = "sbh",
              content: Content = "embeddings") -> torch.Tensor:
        """This rank's rows of x, as a new tensor. Differentiable.

        x        1 to 3 dimensions, one letter of `layout` each: "s" is the sequence, "t" where it is
                 packed. sp does not cut content "labels": labels, loss mask, position ids
        returns  x's shape, with rows(S, content) in place of S

        Local. The gradient is zeros with this rank's rows put back. Under sp with tp > 1 gradients of
        embeddings are gathered over tp, so backward is collective over the tp ranks.

        Errors: ShapeError; ArgumentError; StateError where backward gathers and at() got no comm.
        """
        kind = _content(content)
        _views.check_strided("shard: x", x)
        _c.text("shard: the layout", layout)
        if x.dim() > _views.DIMS:
            raise ShapeError(f"shard: x has shape {list(x.shape)}, and can have at most {_views.DIMS} "
                             "dimensions: flatten those behind the sequence")
        _ops.refuse_transforms("shard", x)
        axis = layout.find("s" if self.rule.cu is None else "t")
        if axis < 0 or x.dim() != len(layout) or not layout.isascii():
            raise ArgumentError(f"shard: x has shape {list(x.shape)}, which {layout!r} does not "
                                "describe")
        shape = list(x.shape)
        shape[axis] = shape[axis] // self._cuts[kind]
        kept: torch.Tensor = _ops.shard(x, self._number, layout, kind, shape)
        return kept

    def move(self, adjoint: bool, x: torch.Tensor, layout: str, content: int,
             shape: Sequence[int]) -> torch.Tensor:
        """The body of the ops."""
        _views.check_tensor("shard: x", x, layout, x.device)
        x = _views.plain(x)
        to = x.new_empty(tuple(shape))
        if not x.numel() and not to.numel():
            return to
        views = [_views.view(tensor, layout.encode()) for tensor in (to, x)]
        pointers = [ctypes.byref(view) for view in views]
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        if not adjoint:
            _c.lib.mimo_partition_shard(self._handle, content, *pointers, stream)
        elif not self._gathers or content != _c.EMBEDDINGS:
            _c.lib.mimo_partition_adjoint(self._handle, content, *pointers, None, stream)
        elif self._tp is None:
            raise StateError("shard: under sp the gradient is gathered over tp: give Partition.at() a "
                             "communicator")
        else:
            with self._tp._turn() as tp:
                _c.lib.mimo_partition_adjoint(self._handle, content, *pointers, tp, stream)
        return to


def _content(name: str) -> int:
    if name not in _CONTENTS:
        raise ArgumentError(f"content is {' or '.join(_CONTENTS)}, not {name!r}")
    return _CONTENTS[name]


def padded_lengths(lengths: Sequence[int], multiple: int) -> list[int]:
    """cu_padded for packed sequences of these lengths: cumulative, each length rounded up to a
    multiple (2 * cp, or 2 * cp * tp under sp). Local. ArgumentError, SizeOverflowError."""
    cu = (ctypes.c_int32 * (len(lengths) + 1))()
    _c.lib.mimo_partition_pad(cu, _c.numbers(ctypes.c_int32, "padded_lengths: a length", lengths),
                              len(lengths), _c.whole("padded_lengths: multiple", multiple))
    return list(cu)
