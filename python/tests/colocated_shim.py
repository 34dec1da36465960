"""pytest plugin: Megatron-LM's tests of a colocated language model with pp > 1 (pull request 4784), on forward_backward.

    torchrun --nproc-per-node 8 -m pytest -p colocated_shim MEGATRON/tests/unit_tests/models/test_mimo_colocated_pp.py

These tests want CUDA, and a Megatron-LM of that request. It gives them the function that they import, and our model.
"""
import sys
import types
from functools import partial

import torch

from mimo_bridge import megatron as ours


def part(x, dim, parts, index):
    return x.chunk(parts, dim)[index] if isinstance(x, torch.Tensor) and x.dim() > dim else x


def batch_of(iterator, encoder_grid, llm_grid, name):
    """Theirs has the samples of the larger of both lanes: the encoder's, or the language model's, take their part."""
    batch, sizes = dict(next(iterator)), [grid.get_pg("dp").size() for grid in (encoder_grid, llm_grid)]
    ratio, fan_in = max(sizes) // min(sizes), sizes[0] > sizes[1]
    index = (encoder_grid if fan_in else llm_grid).get_pg("dp").rank() % ratio
    if fan_in:
        batch["modality_inputs"] = {name: {encoder: {key: part(x, 1, ratio, index) for key, x in given.items()}
                                           for encoder, given in batch["modality_inputs"][name].items()}}
        return batch
    return {key: x if key == "modality_inputs" else part(x, 0, ratio, index) for key, x in batch.items()}


def loss_of(losses, mask, *_more):
    return losses.float().mul(mask.float()).sum(), mask.sum().int(), {"loss_reduced": losses.detach().sum().item()}


def step(iterator, model):
    losses, mask = model(**next(iterator))
    return losses, partial(loss_of, mask=mask)


def colocated_forward_backward_with_pp(mimo_model, data_iterator, num_microbatches, encoder_grid=None, llm_grid=None,
                                       encoder_name="images", forward_only=False, **more):
    return ours.forward_backward(
        forward_step_func=step, data_iterator=data_iterator, model=[mimo_model], num_microbatches=num_microbatches,
        forward_only=forward_only, **more,
        get_batch=lambda iterator: batch_of(iterator, encoder_grid, llm_grid, encoder_name))


def pytest_configure():
    schedule = types.ModuleType("megatron.core.models.mimo.colocated_schedule")
    schedule.colocated_forward_backward_with_pp = colocated_forward_backward_with_pp
    sys.modules[schedule.__name__] = schedule
    sys.modules["megatron.core.models.mimo.model.base"].MimoModel = ours.MimoModel
