"""The choice of experts: the k best scores of each token, or ids that were chosen before, and their weights."""
from __future__ import annotations

from typing import Literal

import torch

from . import _c, _views
from .errors import ArgumentError, ShapeError

__all__ = ["top_k"]

WEIGHTS = ("softmax", "sigmoid")
SCORE_FLOOR = 1e-20  # of a sum of sigmoids


def top_k(scores: torch.Tensor, k: int, forced: torch.Tensor | None = None, *,
          weights: Literal["softmax", "sigmoid"] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, ids): the k largest scores of each token and their experts, the largest first. Local.

    scores   [..., E], floating. Values have gradients to them
    forced   [..., k], i32 or i64: ids that were chosen before, by a rollout or for a recomputation; -1: no
             expert. They are taken as they are, and values are made of the scores at them. So they have
             gradients, as those of a choice of one's own
    weights  what values are:
             None       the scores, with their dtype
             "softmax"  exp(score), divided by the sum over the token's choices
             "sigmoid"  sigmoid(score), divided by the sum over the token's choices and 1e-20; with k = 1
                        not divided
             Weights are f32, or f64 of f64 scores: what a Dispatch takes
    returns  values [..., k], ids [..., k] i64

    The value of the id -1 is 0, with a gradient of 0. No sum of weights has a part for it: a token without
    an expert weighs 0. (A softmax of the scores that None gives would take their 0 for a score.)

    Of equal scores the lower id comes first, on every device (torch.topk promises no order); -0 equals +0.
    A token with a NaN among its scores gets the ids 0 ... k-1 and values that are NaN.

    Errors: ArgumentError (k, weights, dtypes, no dense tensor), ShapeError (forced, more choices than
    experts); on the CPU ArgumentError also names the first forced id that is no expert's.
    """
    _check(scores, k, weights)
    values, ids = _choose(scores, k, forced)
    if weights is None:
        return values.masked_fill(ids < 0, 0), ids
    return _weigh(weights, values if values.dtype == torch.float64 else values.float(), ids < 0), ids


def _choose(scores: torch.Tensor, k: int, forced: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and ids of the choices. The score of the id -1 is that of any expert."""
    if forced is not None:
        _check_forced(forced, scores, k)
        ids = forced.long()
        return scores.gather(-1, ids.clamp(min=0)), ids
    detached = scores.detach()
    broken = detached.isnan().any(-1, keepdim=True)
    # As equal numbers: a sort by bits would part -0 from +0, and the sort is stable.
    keys = torch.where((detached == 0) | broken, 0, detached)
    ids = keys.sort(dim=-1, descending=True, stable=True)[1][..., :k]
    return scores.gather(-1, ids).masked_fill(broken, float("nan")), ids


def _weigh(kind: str, scores: torch.Tensor, none: torch.Tensor) -> torch.Tensor:
    """Weights over the last dimension. What the scores are where there is `none` has no part in them."""
    if kind == "softmax":
        # A token without an expert gets zeros: the softmax of -inf alone is NaN, and so is its gradient.
        weights = scores.masked_fill(none, -torch.inf).masked_fill(none.all(-1, keepdim=True), 0).softmax(-1)
    else:
        weights = scores.sigmoid().masked_fill(none, 0)
        if scores.shape[-1] > 1:
            weights = weights / (weights.sum(-1, keepdim=True) + SCORE_FLOOR)
    return weights.masked_fill(none, 0)


def _check(scores: torch.Tensor, k: int, weights: str | None) -> None:
    if weights is not None and weights not in WEIGHTS:
        raise ArgumentError(f"top_k: weights are None, {' or '.join(WEIGHTS)}, not {weights!r}")
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
