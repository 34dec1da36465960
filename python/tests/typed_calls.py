"""What type checkers find out about calls: torch_types.py has mypy read it, and nothing runs it."""
from typing import assert_type

import torch

import mimo_bridge as mb


def results(bridge: mb.Bridge, balanced: mb.Balanced, dispatch: mb.Dispatch, x: torch.Tensor) -> None:
    assert_type(bridge(x, seq=8), torch.Tensor)
    assert_type(bridge([x, x]), list[torch.Tensor])
    assert_type(balanced(x, [4], ids=x), torch.Tensor | list[torch.Tensor])
    assert_type(balanced(x, [4], ids=x, into=x), torch.Tensor)
    assert_type(balanced((x, x), micro_batch=0, into=[x, x]), list[torch.Tensor])
    weights, ids = mb.top_k(x, 2, weights="softmax")
    assert_type(dispatch(x, weights, dispatch.route(ids)), tuple[torch.Tensor, torch.Tensor])


def mistakes(bridge: mb.Bridge, balanced: mb.Balanced, x: torch.Tensor) -> None:
    bridge(x, sequence=8)  # type: ignore[call-overload]
    balanced(x, [4], text=x)  # type: ignore[call-overload]
