"""What a colocated model of transformers is called with: whole sequences of a lane, and what of them a shard takes.
Local."""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from .balanced_encoder import Step
from .errors import ArgumentError, ShapeError, UnsupportedError
from .partition import LocalPartition

__all__ = ["PADDING", "WholeBatch", "merge_images", "refuse_arguments"]

PADDING = -100  # a label that is no target
PIXELS = ("pixel_values", "pixel_values_videos")
GRIDS = ("image_grid_thw", "video_grid_thw")


def refuse_arguments(args: Sequence[Any], kwargs: dict[str, Any], config: Any, cp: bool) -> None:
    """ArgumentError, UnsupportedError. `config` is the language model's, `cp` whether sequences are cut."""
    if args or kwargs.get("input_ids") is None:
        raise ArgumentError("colocate: call the model with keyword arguments, input_ids among them")
    refused = {"inputs_embeds": "images are placed by input_ids", "mm_encoder_outputs": "ranks share the encoding",
               "past_key_values": "sequences are whole (generate with another copy of the model)",
               "output_router_logits": "its loss is a mean over the tokens of one rank",
               **({"output_attentions": "no rank has them whole under cp > 1",
                   "logits_to_keep": "they lie on another rank under cp > 1"} if cp else {})}
    settings = {"output_router_logits": getattr(config, "output_router_logits", None)}
    for name, why in refused.items():
        value = kwargs.get(name, settings.get(name))
        if isinstance(value, torch.Tensor) or value:
            raise UnsupportedError(f"colocate: {name} is not taken: {why}")


class WholeBatch:
    """The arguments of one call. Ids and grids are read here, on the CPU.

    step    (counts, ids, extras) of a Balanced: images and videos in the order of their tokens
    pixels  [patches, C] of these

    ArgumentError, ShapeError, UnsupportedError.
    """

    def __init__(self, model: Any, part: LocalPartition | None, kwargs: dict[str, Any]) -> None:
        self._core, self._config, self._kwargs = model.model, model.config, kwargs
        self._ids = self._cpu("input_ids")
        if self._ids.dim() != 2:
            raise ShapeError(f"colocate: input_ids {list(self._ids.shape)}, and not [samples, positions]")
        for name in ("labels", "shift_labels"):
            given = kwargs.get(name)
            if given is not None and given.shape != self._ids.shape:
                raise ShapeError(f"colocate: {name} {list(given.shape)} of input_ids {list(self._ids.shape)}")
        self._at = None if part is None else part.index(self._ids.shape[1])
        self._kinds = (self._ids == self._config.image_token_id).int() + 2 * (
            self._ids == self._config.video_token_id).int()
        self._grids = [self._grid(i) for i in (0, 1)]
        self._mask = self._padding()
        self._positions = self._rotary_positions()
        self._seen = None if self._at is None else self._seen_keys(self._at)
        self._list_images()

    def _cpu(self, name: str) -> Any:
        value = self._kwargs.get(name)
        return value.cpu() if isinstance(value, torch.Tensor) else value

    def _grid(self, i: int) -> torch.Tensor:
        """i64 [images, 3] of images (0) or videos (1)."""
        grid: torch.Tensor | None = self._cpu(GRIDS[i])
        pixels: torch.Tensor | None = self._kwargs.get(PIXELS[i])
        if grid is None and pixels is None:
            return torch.zeros(0, 3, dtype=torch.int64)
        if grid is None or pixels is None:
            raise ArgumentError(f"colocate: {PIXELS[i]} and {GRIDS[i]} come together")
        patches = int(grid.prod(-1).sum())
        if patches != len(pixels):
            raise ShapeError(f"colocate: {PIXELS[i]} has {len(pixels)} patches, and {GRIDS[i]} has {patches}")
        return grid.long()

    def _padding(self) -> torch.Tensor | None:
        """[b, S], 0 where padding stands. Another mask is the model's business, except under cp."""
        mask = self._cpu("attention_mask")
        if mask is None or isinstance(mask, torch.Tensor) and mask.shape == self._ids.shape:
            return mask
        if self._at is None:
            return None
        raise UnsupportedError("colocate: under cp > 1 an attention_mask is [samples, positions], 0 where padding "
                               f"stands, and this one is {list(getattr(mask, 'shape', [])) or type(mask).__name__}")

    # Images and videos, as Balanced takes them.

    def _list_images(self) -> None:
        counts = [grid.prod(-1).tolist() for grid in self._grids]
        merge = self._config.vision_config.spatial_merge_size ** 2
        order = merge_images(self._kinds, counts, merge)
        grids = torch.cat(self._grids)[order]
        ids = torch.where(self._kinds > 0, self._config.image_token_id, self._ids)
        self.step: Step = grids.prod(-1).tolist(), ids, grids
        self.pixels = self._pixels(counts, order)

    def _pixels(self, counts: Sequence[list[int]], order: list[int]) -> torch.Tensor:
        given = [pixels for pixels in map(self._kwargs.get, PIXELS) if pixels is not None]
        if not given:
            tower = self._core.visual
            width = tower.patch_embed.proj.weight.shape[1:].numel()
            return torch.zeros(0, width, dtype=tower.dtype)
        if not (counts[0] and counts[1]):  # the usual case: no copy
            return torch.cat(given) if len(given) > 1 else given[0]
        parts = [part for pixels, count in zip(given, counts) for part in pixels.split(count)]
        return torch.cat([parts[i] for i in order])

    def split(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of this shard's images, and of its videos."""
        if not len(self._grids[1]):
            return rows, rows[:0]
        kinds = self.cut(self._kinds)
        kinds = kinds[kinds > 0]
        images, videos = ((kinds == kind).nonzero().flatten().to(rows.device, non_blocking=True) for kind in (1, 2))
        return rows[images], rows[videos]

    # What the language model gets.

    def cut(self, x: torch.Tensor) -> torch.Tensor:
        """This shard's positions, of a tensor whose last dimension is the sequence."""
        return x if self._at is None else x[..., self._at.to(x.device)]

    def arguments(self, device: torch.device) -> dict[str, Any]:
        """Those of the call, for this shard. Labels are still whole. Of pixels the model only learns that there are some:
        every rank says so of images, and takes the same way."""
        given = {name: value for name, value in self._kwargs.items() if name not in PIXELS}
        kwargs = {name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
                  for name, value in given.items()} | {"use_cache": False, "pixel_values": self.pixels[:0]}
        if self._kwargs.get("pixel_values_videos") is not None:
            kwargs["pixel_values_videos"] = self.pixels[:0]
        kwargs["input_ids"], kwargs["position_ids"] = (
            self.cut(x).to(device, non_blocking=True) for x in (self._ids, self._positions))
        kwargs.pop("mm_token_type_ids", None)  # for positions, which are there
        if self._at is not None:
            kwargs["attention_mask"] = None if self._seen is None else self._seen.to(device, non_blocking=True)
        return kwargs

    def _rotary_positions(self) -> torch.Tensor:
        """[3 or 4, b, S]: the caller's, or the model's own of whole sequences."""
        given = self._cpu("position_ids")
        samples, seq = self._ids.shape
        if given is not None:
            positions: torch.Tensor = given
            if positions.shape[-2:] != self._ids.shape:
                raise ShapeError(f"colocate: position_ids {list(positions.shape)} of input_ids {[samples, seq]}")
            return positions
        if not any(map(len, self._grids)) and self._mask is None:
            return torch.arange(seq).expand(3, samples, seq)
        known: dict[str, Any] = {"mm_token_type_ids": self._kinds, "attention_mask": self._mask}
        known |= {name: grid if len(grid) else None for name, grid in zip(GRIDS, self._grids)}
        known["second_per_grid_ts"] = self._cpu("second_per_grid_ts")
        taken = inspect.signature(self._core.get_rope_index).parameters
        positions = self._core.get_rope_index(self._ids, **{k: v for k, v in known.items() if k in taken})[0]
        return positions

    def _seen_keys(self, at: torch.Tensor) -> torch.Tensor | None:
        """bool [b, 1, S/cp, S]: which keys the queries of this shard see. None: those that are not behind them, which
        is all that padding on the right asks for."""
        mask, parts = self._mask, self._packed_sequences()
        left = mask is not None and bool((mask[:, 1:] > mask[:, :-1]).any())
        if parts is None and not left:
            return None
        keys = torch.arange(self._ids.shape[1])
        seen = (at[:, None] >= keys)[None]
        if parts is not None:
            seen = seen & (parts[:, at, None] == parts[:, None, :])
        if mask is not None and left:  # a query of padding may see nothing: sdpa then gives 0, here as elsewhere
            seen = seen & mask.bool()[:, None, :]
        return seen[:, None]

    def _packed_sequences(self) -> torch.Tensor | None:
        """[b, S]: the number of each token's sequence in its pack; None: nothing is packed. As transformers finds them:
        by cu_seq_lens_q, or where text positions do not go on by one and there is no mask."""
        cu, positions = self._cpu("cu_seq_lens_q"), self._cpu("position_ids")
        samples, seq = self._ids.shape
        if cu is not None:
            if samples != 1 or int(cu[-1]) != seq:
                raise ShapeError(f"colocate: cu_seq_lens_q ends at {int(cu[-1])}, and input_ids are {[samples, seq]}")
            return torch.searchsorted(cu[1:].contiguous(), torch.arange(seq, dtype=cu.dtype), right=True)[None]
        if positions is None or self._mask is not None or positions.dim() == 3 and len(positions) == 3:
            return None
        text = positions[0] if positions.dim() == 3 else positions
        parts = (torch.diff(text, prepend=text[:, :1] - 1) != 1).cumsum(-1)
        return parts if bool(parts[:, -1].any()) else None


def merge_images(kinds: torch.Tensor, counts: Sequence[list[int]], merge: int) -> list[int]:
    """The order of images (0, 1, ...) and of the videos behind them, by their tokens.

    kinds   [b, S]: 1 where a token of an image stands, 2 of a video
    counts  patches of the images, and of the videos

    Where they do not fit, Balanced says so. ShapeError where tokens of images and videos mix.
    """
    images, videos = counts
    if not images or not videos:
        return [*range(len(images) + len(videos))]
    order, next_of = [], [0, 0]
    for line in kinds:
        row = line[line > 0].tolist()
        at = 0
        while at < len(row):
            kind = row[at] - 1
            i = next_of[kind]
            if i == len(counts[kind]):
                raise ShapeError(f"colocate: {len(counts[kind])} {('images', 'videos')[kind]}, and further tokens of "
                                 "them")
            rows = max(counts[kind][i] // merge, 1)
            if row[at:at + rows] != [kind + 1] * len(row[at:at + rows]):
                raise ShapeError(f"colocate: tokens of the other kind stand among the {rows} of "
                                 f"{('image', 'video')[kind]} {i}")
            order.append(i + kind * len(images))
            next_of[kind] += 1
            at += rows
    return order + [k for kind in (0, 1) for k in range(kind * len(images) + next_of[kind],
                                                       kind * len(images) + len(counts[kind]))]
