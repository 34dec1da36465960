"""Attention of a shard of each sequence, for models of transformers under cp."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from ._shards import Runs

__all__ = ["attention"]


def attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              attention_mask: torch.Tensor | None, scaling: float | None = None, dropout: float = 0.0, *,
              mimo_samples: int, **_kwargs: Any) -> tuple[torch.Tensor, None]:
    """"mimo_cp" of transformers: queries of this rank's shard, keys and values gathered over cp, S of them on each
    rank. Backward adds the gradients of the cp ranks.

    attention_mask  bool [b, 1, S/cp, S]: which keys a query sees. None: those that are not behind it
    mimo_samples    samples of all lanes
    """
    owner = module._mimo_colocated
    key, value = owner._gather(key, value, mimo_samples)
    how: dict[str, Any] = {"dropout_p": dropout, "scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
    if attention_mask is not None:
        out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, **how)
    else:
        out = run_by_run(query, key, value, owner._runs_of(key.shape[2]), how)
    return out.transpose(1, 2).contiguous(), None


def run_by_run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, runs: Runs,
               how: dict[str, Any]) -> torch.Tensor:
    """Causal attention of a shard: each run of positions sees the keys up to its end, by a kernel that needs no mask."""
    parts, at = [], 0
    for first, end in runs:
        length = end - first
        parts.append(scaled_dot_product_attention(query[:, :, at:at + length], key[:, :, :end], value[:, :, :end],
                                                  attn_mask=causal_lower_right(length, end), **how))
        at += length
    return torch.cat(parts, 2)
