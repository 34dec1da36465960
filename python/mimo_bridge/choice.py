"""The choice of experts: the k best scores of each token, or ids that were chosen before."""
from __future__ import annotations

import torch

from . import _c, _views
from .errors import ArgumentError, ShapeError

__all__ = ["top_k"]


def top_k(scores: torch.Tensor, k: int,
          forced: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, ids): the k largest scores of each token and their experts, the largest first. Local.

    scores   [..., E], floating. Values have gradients to them
    forced   [..., k], i32 or i64: ids that were chosen before, by a rollout or for a recomputation; -1: no
             expert. They are taken as they are, and values are the scores at them. So weights that are made
             from values have gradients, as those of a choice of one's own
    returns  values [..., k] with the dtype of scores, ids [..., k] i64

    Of equal scores the lower id comes first, on every device (torch.topk promises no order); -0 equals +0.
    A token with a NaN among its scores gets the ids 0 ... k-1 and values that are NaN. The value of the id
    -1 is 0.

    Errors: ArgumentError (k, dtypes, no dense tensor), ShapeError (forced, more choices than experts); on
    the CPU ArgumentError also names the first forced id that is no expert's.
    """
    _check(scores, k)
    if forced is not None:
        _check_forced(forced, scores, k)
        ids = forced.long()
        return scores.gather(-1, ids.clamp(min=0)).masked_fill(ids < 0, 0), ids
    detached = scores.detach()
    broken = detached.isnan().any(-1, keepdim=True)
    # As equal numbers: a sort by bits would part -0 from +0, and the sort is stable.
    keys = torch.where((detached == 0) | broken, 0, detached)
    ids = keys.sort(dim=-1, descending=True, stable=True)[1][..., :k]
    return scores.gather(-1, ids).masked_fill(broken, float("nan")), ids


def _check(scores: torch.Tensor, k: int) -> None:
    _views.check_strided("top_k: scores", scores)
    if not scores.is_floating_point() or scores.dim() < 1:
        raise ArgumentError(f"top_k: scores are {list(scores.shape)} of {scores.dtype}, and floating, with a "
                            "last dimension for the experts")
    if _c.whole("top_k: k", k, 1) > scores.shape[-1]:
        raise ShapeError(f"top_k: {k} of {scores.shape[-1]} experts")


def _check_forced(forced: torch.Tensor, scores: torch.Tensor, k: int) -> None:
    _views.check_strided("top_k: forced", forced)
    if forced.device != scores.device:
        raise ArgumentError(f"top_k: forced ids are on {forced.device}, and scores on {scores.device}")
    if forced.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(f"top_k: forced ids are {forced.dtype}, and must be int32 or int64")
    if forced.shape != (*scores.shape[:-1], k):
        raise ShapeError(f"top_k: forced ids have shape {list(forced.shape)}, and for scores "
                         f"{list(scores.shape)} and k={k} they need {[*scores.shape[:-1], k]}")
    if forced.device.type != "cpu" or torch.compiler.is_compiling():
        return  # who reads them there would wait for the device
    wrong = ((forced < -1) | (forced >= scores.shape[-1])).nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise ArgumentError(f"top_k: forced{list(place)} is expert {int(forced[place])} of {scores.shape[-1]}")
