"""What MimoModel(fused=True) needs for each modality, and for the text between its rows."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch

from .alignment import spans_of
from .balanced_encoder import Balanced
from .bridge import Batch, Bridge
from .communicator import Communicator
from .errors import ArgumentError
from .grid import Grid
from .partition import Partition

__all__ = ["BalancedPlacement", "Placement", "TextPlaces"]


class Placement:
    """Carries the rows of one modality to where its special id stands in the LLM's shards.

    src, dst   grids of the encoder and of the LLM
    special    the id that stands for one row
    partition  of the LLM's sequences; None: each rank holds full ones

    Collective, as are place() and destroy().
    """

    def __init__(self, src: Grid, dst: Grid, special: int, *, comm: Communicator,
                 partition: Partition | None, name: str) -> None:
        self.special = special
        self.bridge = Bridge(src, dst, comm=comm, layout="bh", dst_layout="sbh", partition=partition,
                             name=name)
        self._dp, self._index = dst.dim("dp"), dst.coords(comm.rank).get("dp", 0)

    def place(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """x at the positions of `ids`, 0 elsewhere. Differentiable; blocks the host.

        x        [rows, H], the rows of this rank's even share of all samples, sample after sample
        ids      [b, S], the token ids of the LLM's samples of this rank. All ranks have one b and S
        returns  [S/(cp*tp), b, H], this rank's shard (tp: under sp)

        Backward of an earlier place() is a StateError. Errors, on every rank: ShapeError (another
        number of rows than the ids of the samples have; b or S that differ or do not split).
        """
        def batches() -> list[Batch]:
            samples, first = ids.shape[0], ids.shape[0] * self._index
            return [Batch(batch=samples * self._dp, spans=spans_of(ids, self.special, first))]

        self.bridge._update(batches)
        y: torch.Tensor = self.bridge(x, seq=ids.shape[1])
        return y

    def destroy(self) -> None:
        """Release the bridge. Again: nothing."""
        self.bridge.close()


class BalancedPlacement:
    """An encoder of Megatron's that works on images of any rank, and its rows where its special id stands.

    find    gives the modality's module, when it is called: it may be wrapped until then. Its one encoder takes patches,
            counts and cu_seqlens, and extras where images have some
    more    of Balanced

    Collective, as are place() and destroy().
    """

    def __init__(self, find: Callable[[], Any], src: Grid, dst: Grid, special: int, **more: Any) -> None:
        self.name = ""  # of the encoder, once there are modules

        def encode(patches: Any, counts: list[int], cu_seqlens: torch.Tensor, *extras: torch.Tensor) -> Any:
            inputs = {"patches": patches, "counts": counts, "cu_seqlens": cu_seqlens}
            return find()(encoder_inputs={self.name: inputs | dict(zip(("extras",), extras))})

        self.balanced = Balanced(encode, src, dst, special=special, **more)

    def place(self, inputs: Mapping[str, Any] | None, ids: torch.Tensor) -> torch.Tensor:
        """The rows at the positions of `ids` in this rank's shard, 0 elsewhere. `inputs` are the encoder's on this
        rank, by its name: patches, counts, and extras."""
        own = (inputs or {}).get(self.name) or {}
        patches: Any = own.get("patches")
        return cast(torch.Tensor, self.balanced(patches, own.get("counts", ()), ids=ids, extras=own.get("extras")))

    def destroy(self) -> None:
        """Release the bridges. Again: nothing."""
        self.balanced.close()


class TextPlaces:
    """Where the text goes in this rank's shard. Local.

    The embedding is asked for the text of the cp shard, on all tp ranks alike, because its vocabulary
    may be cut along tp. Under sp each of them then keeps what is in its own part.
    """

    def __init__(self, partition: Partition | None, dst: Grid, rank: int) -> None:
        self._local = None if partition is None else partition.at(dst, rank)
        self.cuts_tp = partition is not None and partition.sp and dst.dim("tp") > 1
        place = dst.coords(rank)
        self._tp, self._part = (dst.dim("tp"), place.get("tp", 0)) if self.cuts_tp else (1, 0)

    def of_cp(self, x: torch.Tensor) -> torch.Tensor:
        """[..., S] -> [..., S/cp]: ids and the like of the positions that this cp rank has."""
        if self._local is None:
            return x
        return x.index_select(-1, self._local.index(x.shape[-1], "labels").to(x.device))

    def tile(self, text: torch.Tensor, is_text: torch.Tensor) -> torch.Tensor:
        """[S/(cp*tp), b, H]: the rows of text at their positions, 0 elsewhere. Differentiable.

        text     [number of True in is_text, H], in its order
        is_text  [b, S/cp]
        """
        sample, position = is_text.nonzero(as_tuple=True)
        if len(text) != len(sample):
            raise ArgumentError(f"the embedding gave {len(text)} rows for {len(sample)} text tokens")
        length = is_text.shape[1] // self._tp
        if self._tp > 1:
            here = position // length == self._part
            text, sample, position = text[here], sample[here], position[here] - self._part * length
        empty = text.new_zeros(length, is_text.shape[0], text.shape[1])
        return empty.index_put_((position, sample), text)
