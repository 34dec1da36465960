"""MimoModel(fused=True): image rows go straight to their positions in this rank's shard.

Against the same model with fused=False and against the model in one piece. Skipped where Megatron-LM is
missing (megatron_import.py).
"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mimo_bridge as mb
from megatron_import import process_groups, whole
from mimo_model_cases import (
    BATCH, HIDDEN, LANGUAGES, PIXELS, SEQ, SPECIAL, Data, inputs_of, model_of, relative, run_step,
    train)
from rank_runner import case, raises, same

ENCODERS = {"vision": "tp=1,dp=8", "audio": "tp=2,dp=4"}


class FullTiles(TorchDispatchMode):
    """Notes tensors of H columns and as many rows as the full sequences of this rank's samples."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.found = rows, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for x in tree_leaves(results):
            if isinstance(x, torch.Tensor) and x.dim() > 1 and x.shape[-1] == HIDDEN and (
                    x.numel() == self.rows * HIDDEN):
                self.found.append(f"{function} gives {list(x.shape)}")
        return results


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@case(8)
def fused_steps(comm):
    """Gradients of the model in one piece, with cp = 1, 2 and 4, sp, and ranks without images."""
    upstream = whole()
    mb.communicator._default = comm
    with process_groups(comm):
        for language, sp in LANGUAGES:
            train(comm, upstream, {**ENCODERS, "language": language}, sp, {}, fused=True)
        grids = {**ENCODERS, "language": "tp=2,cp=2,dp=2"}
        for none in ({"vision": (6, 7)}, {"vision": (0, 1), "audio": range(8)},
                     {"vision": range(BATCH), "audio": range(BATCH)}):
            train(comm, upstream, grids, True, none, fused=True)


@case(8)
def balanced_steps(comm):
    """The same with an encoder, or both, on images of any rank. Special ids stand anywhere: an image has several
    runs."""
    scattered = {"vision": {"cost": 4, "runs": "any"}}
    upstream = whole()
    mb.communicator._default = comm
    with process_groups(comm):
        for (language, sp), balance in ((LANGUAGES[1], scattered), (LANGUAGES[3], {
                "audio": {"cost": lambda patches: patches, "runs": "any"},
                "vision": {"cost": 2, "home": "dst", "runs": "any"}})):
            train(comm, upstream, {**ENCODERS, "language": language}, sp, {"vision": (0, 1, 6), "audio": range(8)},
                  fused=True, balance=balance)
        grids = {**ENCODERS, "language": "tp=2,cp=2,dp=2"}
        raises(ValueError, "balance of vision needs fused=True", model_of, upstream, grids, False,
               balance={"vision": 4})
        raises(ValueError, "balance of images needs", model_of, upstream, grids, False, fused=True,
               balance={"images": 4})
        data = Data(0, {"audio": range(BATCH)})
        model = model_of(upstream, grids, False, fused=True, balance=scattered | {"audio": 4})
        inputs = inputs_of(grids, data, comm.rank, ("vision",))
        if comm.rank == 3:
            del inputs["modality_inputs"]["vision"]
        raises(mb.MismatchError, "ranks 0 and 3 of lane 0 have loaded other images", model, **inputs)
        inputs = inputs_of(grids, Data(0, {"vision": range(BATCH)}), comm.rank, ("vision",))
        if comm.rank == 3:
            del inputs["modality_inputs"]["vision"]
        raises(ValueError, "Balanced: patches is a NoneType", model, **inputs)
        run_step(model, grids, data, comm.rank)
        model.destroy()


@case(8)
def fused_and_not(comm):
    """What the language model sees has equal bits, and no full-sequence tile is made where a rank has a
    shard; the spy does see those of fused=False."""
    upstream = whole()
    mb.communicator._default = comm
    with process_groups(comm):
        for language, sp in LANGUAGES:
            grids, grid = {**ENCODERS, "language": language}, mb.Grid(language)
            cut = grid.dim("cp") * (grid.dim("tp") if sp else 1)
            packing = {"packing_kwargs": {}} if grid.dim("cp") == 1 else {}
            seen, found, got = [], [], []
            for fused in (False, True):
                model = model_of(upstream, grids, sp, fused=fused)
                with FullTiles(SEQ * BATCH // grid.dim("dp")) as spy:
                    run_step(model, grids, Data(7, {"audio": (3,)}), comm.rank, **packing)
                seen.append(model.language_model.seen)
                got.append(gradients(model))
                found.append(spy.found)
                model.destroy()
            same(seen[1], seen[0], language)
            for name, one in got[0].items():
                assert relative(got[1][name], one) < 1e-12, (language, name)
            assert found[0] and (cut == 1 or not found[1]), (language, found[1])


@case(8)
def fused_mistakes(comm):
    upstream = whole()
    mb.communicator._default = comm
    grids = {**ENCODERS, "language": "tp=2,cp=2,dp=2"}
    with process_groups(comm):
        raises(ValueError, "id of audio", model_of, upstream, grids, False, fused=True,
               special={"vision": SPECIAL["vision"]})
        raises(ValueError, "config has cp=1, its grid cp=2", model_of, upstream, grids, False, cp=1,
               fused=True)
        raises(ValueError, "config has tp=2, its grid tp=4", model_of, upstream,
               {**grids, "language": "tp=4,cp=1,dp=2"}, True, tp=2, fused=True)
        raises(ValueError, "share all ranks", model_of, upstream, {**grids, "vision": "dp=8"}, False,
               fused=True)
        model, data = model_of(upstream, grids, False, fused=True), Data(0, {})
        few = data.images["vision"][4]
        data.images["vision"][4] = torch.cat([few, few.new_ones(1, PIXELS)])
        raises(ValueError, "", run_step, model, grids, data, comm.rank)
        # the same rows in the same order, one of them on a rank that does not have its sample
        data = Data(0, {})
        data.images["vision"][1:3] = torch.cat(data.images["vision"][1:3]).split(
            [len(data.images["vision"][1]) + 1, len(data.images["vision"][2]) - 1])
        raises(ValueError, "", run_step, model, grids, data, comm.rank)
        data = Data(0, {})
        raises(NotImplementedError, "packed sequences under cp=2", model, data.ids, None,
               packing_kwargs={})
        raises(ValueError, "", model, data.ids[:, :SEQ - 2], None)  # 8 does not divide 22
        raises(mb.MismatchError, "ragged batch of", model, data.ids[:comm.rank // 4 + 1], None)
        early, late = (model(**inputs_of(grids, data, comm.rank))[0].sum() for _ in range(2))
        raises(mb.StateError, "updated", early.backward)
        late.backward()
        run_step(model, grids, Data(1, {}), comm.rank)
        model.destroy()
