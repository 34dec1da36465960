"""Bugs that the cases must notice: each is planted while its cases run again.

    mpirun -n 4 python rank_runner.py --mutations
"""
from __future__ import annotations

import contextlib
import ctypes
import sys

import torch

import mimo_bridge as mb
from mimo_bridge import (
    _c, _calls, _dispatch_ops, _expert_groups, _loaded, _movement, _ops, _shards, _views, balanced_encoder, choice,
    communicator,
)
from mimo_bridge._cut import Cut
from mimo_bridge._dispatching import Dispatching
from mimo_bridge._lanes import DeviceLanes, Holds
from mimo_bridge._movement import Movement
from mimo_bridge._walk import Walk


def wrap(owner, name, change):
    """Replace owner.name by change(the original, *its arguments)."""
    original = getattr(owner, name)
    return owner, name, lambda *args, **more: change(original, *args, **more)


def zero_of_cp(original, self, adjoint, x, *rest):
    return original(self, adjoint, x * 0 if adjoint and self.comm.rank % 2 else x, *rest)


def reversed_gradient(original, self, adjoint, x, *rest):
    return original(self, adjoint, x.flip(0) if adjoint else x, *rest)


def ignored_strides(_original, x):
    return x


def other_slot(original, self):
    return (original(self) + 1) % self.slots


def slots_of_one_rank(original, self):
    return (original(self) + self.comm.rank // 2) % self.slots


def no_anchor(_original, self, _x):
    return self._no_anchor


def other_reason(original, _error):
    return original(mb.ArgumentError("something is wrong"))


def unguarded(_original, self, call, *arguments):
    return call(*arguments)


class NoLock(contextlib.nullcontext):
    def acquire(self, **_more):
        return True

    def release(self):
        pass


def unlocked(original, self):
    self.comm._lock = NoLock()
    return original(self)


def any_number(_original, _what, value, *_limits):
    return value


def no_check(_original, *_arguments, **_more):
    return None


def no_events(original, self, i):
    kept, self._waits = self._waits, {i: ()}
    try:
        return original(self, i)
    finally:
        self._waits = kept


def any_mode(original, arguments):
    return original(arguments) or torch._C._len_torch_dispatch_stack() > 0


def never_equal(_original, _self, _other):
    return False


def a_view(original, self, dtype, shape):
    found = original(self, dtype, shape)
    return found.view(found.shape)


def selected_now(original, self, _call):
    return original(self, self.call)


def first_views(original, self, key, x, y):
    found = [views for other, views in self._kinds.items() if other[0] == key[0]]
    return found[0] if found else original(self, key, x, y)


def old_selection(original, self, micro_batch):
    kept = self._in_force
    original(self, micro_batch)
    self._in_force = kept


def nothing_told(original, self, call):
    result = original(self, call)
    return mb.Batch() if result.spans is not None else result


def no_mask(original, self, y, call):
    return torch.zeros_like(original(self, y, call))


def careless_tensor(original, self, slot, dtype, shape):
    self._slots[slot]._last = None
    return original(self, slot, dtype, shape)


def one_more(original, self, whole):
    return original(self, whole + 1)


def old_ids(original, self, function, tile, parts, layouts, _update):
    return original(self, function, tile, parts, layouts, self._updates)


def own_error_alone(_original, self, _call, local):
    return local()


def detached(_original, ctx, *grads):
    return (torch.zeros(ctx.shape, dtype=grads[0].dtype), None, None, None, None)


def one_by_one(_original, self, adjoint, xs, shapes, call, _tiles=None):
    return [self.move(adjoint, x, shape, call) for x, shape in zip(xs, shapes)]


def other_order(original, moved, gradients):
    return original(moved, [*gradients][::-1])


def one_part(original, self, widths):
    return [_views.Slot(self.address, self.bytes, self.device) for _ in original(self, widths)]


def parts_forgotten(original, self):
    self._parts = []
    return original(self)


def no_anchor_beside(_original, self, xs):
    return xs[0].new_empty(0)


def unsummed(original, self, back, xs, token, kinds):
    ys = original(self, back, xs, token, kinds)
    return [y * 0 if kind == "k" and back else y for y, kind in zip(ys, kinds)]


def as_it_is(_original, _self, tile):
    return tile


def first_part(original, self, *arguments):
    return original(self, *arguments)[:1]


def a_token_alone(original, self, *arguments):
    ends, token = original(self, *arguments)
    return ends, token.clone()


def a_route_more(original, self):
    handle = original(self)
    if self.comm.rank == 1:
        self.ended.append(handle)  # behind a newer one it counts
        handle = ctypes.c_void_p()
        _c.lib.mimo_route_create(ctypes.byref(handle), self.open())
    return handle


def zeros_as_scores(original, kind, scores, none):
    return original(kind, scores.masked_fill(none, 0), torch.zeros_like(none))


def any_width(original, self, slot, kinds, widths=None):
    return original(self, slot, kinds)


def all_moved(_original, xs):
    return [True for _ in xs]


def wrong_letters(original, x, letters):
    return original(x, {b"sbh": b"bsh", b"bsh": b"sbh"}.get(letters, letters))


def lane_by_rank(_original, self, ranks):
    return self.comm.rank % len(ranks.of_lane)


def dummy_kept(_original, self, patches, move):
    return self._encoded(patches if move.counts else patches.new_zeros(self._merge, patches.shape[1]),
                         move.counts or [self._merge], [], 0)


def gradient_to_home(original, self, patches, move):
    rows = original(self, patches, move)
    lane, _, counts, home = move.assignment
    here = [(counts[i] // self._merge, float(home[i] == lane[i])) for i in range(len(lane)) if lane[i] == self._encodes]
    stays = torch.tensor([stays for rows_of_image, stays in here for _ in range(rows_of_image)], dtype=rows.dtype)
    if rows.requires_grad:
        rows.register_hook(lambda gradient: gradient * stays[:, None])
    return rows


def extras_of_the_first(original, self, loads):
    move = original(self, loads)
    move.extras = (move.extras[:move.width] * len(move.counts))
    return move


def prefetch_of_the_last(original, self, step, patch_gradients):
    self._ahead.rotate(1)
    return original(self, step, patch_gradients)


def always_called(original, self, loads):
    move = original(self, loads)
    move.quiet = [False] * len(move.quiet)
    return move


def by_number(_original, _self, patches):
    return [1] * len(patches)


def as_loaded(_original, cost, lanes, home=None, **_more):
    return [0] * len(cost) if home is None else home


def one_pair(original, self, *args, **more):
    original(self, *args, **more)
    self._pairs = self._pairs[:1]


def images_of_other_samples(original, *arguments):
    images = original(*arguments)
    for items in (images.rows, images.inputs):  # each lane's images in the order of their sizes
        for first, end in zip(images.first, images.first[1:]):
            order = sorted(range(first, end), key=lambda i: images.patches[i])
            items[first:end] = [type(items[i]).from_buffer_copy(items[i]) for i in order]
    return images


def images_of_any_runs(original, lanes, merge, _any_runs):
    return original(lanes, merge, True)


def runs_reversed(original, index):
    return original(index)[::-1]


def not_packed(original, self, cp):
    return original(self._replace(packs=None), cp)


def one_sequence(original, self, cu):
    return original(self, (0, cu[-1]))


def rows_as_positions(original, self, seq, content="embeddings"):
    return self.index(seq, content)


def shifted_across(original, self, labels, fill=-100):
    return torch.cat([labels[1:], labels.new_tensor([fill])])


# what -> (the patch, cases that must fail)
MUTATIONS = {
    "no sum over cp": (wrap(Movement, "move", zero_of_cp), ["autograd/sums_in_the_order_of_ranks",
                                                          "mimo_model/mimo_model_steps"]),
    "swapped backward": (wrap(Movement, "move", reversed_gradient), [
        "bridge/random_pairs", "wrapper/data_parallel", "wrapper/fully_sharded"]),
    "strides ignored": (wrap(_views, "plain", ignored_strides), ["bridge/not_contiguous"]),
    "another slot": (wrap(mb.Buffer, "next_slot", other_slot), ["buffer/slots_in_turn"]),
    "slots that differ": (wrap(mb.Buffer, "next_slot", slots_of_one_rank), ["buffer/slots_in_turn"]),
    "no anchor": (wrap(mb.Bridge, "_anchor_of", no_anchor), ["autograd/some_ranks_only"]),
    "refusals unsaid": (wrap(Movement, "_refuse", no_check), ["error/wrong_on_one_rank"]),
    "another reason": (wrap(_c, "fail", other_reason), ["error/wrong_on_one_rank"]),
    "failures before the call unsaid": (wrap(Movement, "guarded", unguarded), [
        "error/wrong_arguments_on_one_rank"]),
    "no lock": (wrap(communicator._Turn, "__enter__", unlocked), [
        "error/threads_take_turns", "error/one_thread_at_a_time"]),
    "numbers cut off": (wrap(_c, "whole", any_number), ["error/numbers_that_do_not_fit"]),
    "transforms let through": (wrap(_ops, "refuse_transforms", no_check), [
        "autograd/transforms_that_are_refused", "compile/mistakes"]),
    "arguments unchecked": (wrap(mb.Bridge, "_check_arguments", no_check), [
        "error/wrong_arguments_on_one_rank", "compile/mistakes"]),
    "modes taken for fake tensors": (wrap(_movement, "_are_fake", any_mode), [
        "error/wrong_arguments_on_one_rank"]),
    "views in slots": (wrap(_views.Slot, "tensor", a_view), ["buffer/changed_in_place"]),
    "a new group each time": (wrap(mb.Grid, "__eq__", never_equal), ["group/groups_of_ranks"]),
    "no tensors let through": (wrap(_views, "check_strided", no_check), ["error/wrong_on_one_rank"]),
    "selection of now": (wrap(Movement, "_for", selected_now), ["bridge/micro_batches"]),
    "an old selection": (wrap(Movement, "select", old_selection), ["bridge/micro_batches"]),
    "views of other shapes": (wrap(Movement, "_new_views", first_views), ["bridge/uneven_batches"]),
    "spans forgotten": (wrap(Movement, "_for", nothing_told), ["bridge/ragged_place"]),
    "no mask": (wrap(Movement, "_mask", no_mask), ["bridge/ragged_place", "several/places_of_several"]),
    "a call for each tensor": (wrap(Movement, "move_all", one_by_one), ["several/random_pairs_of_several"]),
    "gradients in another order": (wrap(_ops, "spread", other_order), [
        "several/random_pairs_of_several", "several/places_of_several"]),
    "one part for all tensors": (wrap(_views.Slot, "cut", one_part), ["several/several_in_slots"]),
    "parts forgotten": (wrap(_views.Slot, "in_use", parts_forgotten), ["several/several_in_slots"]),
    "buffers closed early": (wrap(mb.Buffer, "in_use", no_check), ["buffer/closing_buffers"]),
    "bridges closed amid chunks": (wrap(Movement, "in_use", no_check), [
        "bridge/closing_amid_chunks"]),
    "slots taken anyway": (wrap(mb.Buffer, "tensor", careless_tensor), ["buffer/slot_that_is_in_use",
                                                                       "buffer/saved_activations"]),
    "one sample more": (wrap(mb.bridge._Places, "share", one_more), ["bridge/uneven_batches"]),
    "old ids": (wrap(mb.Alignment, "_move", old_ids), ["local/alignments"]),
    "errors kept": (wrap(mb.Communicator, "_together", own_error_alone), ["error/different_bridges"]),
    "no gradient": (wrap(_calls._Forward, "backward", detached), ["autograd/backward_twice"]),
    "a dispatch without anchor": (wrap(mb.Dispatch, "_anchor_beside", no_anchor_beside), [
        "dispatch/gradients_of_some_ranks"]),
    "gradients of weights lost": (wrap(Dispatching, "move", unsummed), ["dispatch/batches_at_random"]),
    "rows of one dtype alone": (wrap(Dispatching, "_parts", first_part), ["dispatch/tensors_in_one_call"]),
    "routes of graphs forgotten": (wrap(Dispatching, "_note_recorded", no_check), ["dispatch/routes_of_graphs"]),
    "tokens without routes": (wrap(Dispatching, "_made", a_token_alone), ["dispatch/routes_that_end"]),
    "routes of one rank": (wrap(Dispatching, "_create_route", a_route_more), ["dispatch/routes_that_end"]),
    "refusals of dispatches unsaid": (wrap(Dispatching, "_refuse_move", no_check), [
        "dispatch/mistakes_of_one_rank"]),
    "widths of last dimensions": (wrap(mb.Buffer, "tensors", any_width), ["dispatch/batches_at_random"]),
    "gradients of whole numbers": (wrap(_dispatch_ops, "have_gradients", all_moved), [
        "dispatch/tensors_in_one_call"]),
    "edges without events": (wrap(DeviceLanes, "enter", no_events), ["overlap/streams"]),
    "memory of lanes not held": (wrap(Holds, "keep", no_check), ["overlap/streams"]),
    "gradients of weights left out": (wrap(Cut, "weights", no_check), ["overlap/walks_the_list"]),
    "tied weights unseen": (wrap(Walk, "_own", no_check), ["overlap/refusals"]),
    "lists of ranks not compared": (wrap(mb.Communicator, "_alike", no_check), ["overlap/ranks_differ"]),
    "scores of no expert": (wrap(choice, "_weigh", zeros_as_scores), ["dispatch/weights_of_replays"]),
    "wrong letters": (wrap(_views, "view", wrong_letters), ["bridge/random_pairs"]),
    "lanes by rank": (wrap(mb.Balanced, "_lane_of", lane_by_rank), ["balance/as_without_balance"]),
    "an image of zeros kept": (wrap(mb.Balanced, "_call_encoder", dummy_kept), ["balance/lanes_are_even"]),
    "gradients to home": (wrap(mb.Balanced, "_encode", gradient_to_home), [
        "balance/as_without_balance", "balance_wrapper/balanced_data_parallel"]),
    "extras of another image": (wrap(mb.Balanced, "_plan", extras_of_the_first), [
        "balance/extras_of_images_and_patches"]),
    "prefetches in another order": (wrap(mb.Balanced, "_next", prefetch_of_the_last), ["balance/prefetches"]),
    "lanes called without images": (wrap(mb.Balanced, "_plan", always_called), ["balance/lanes_without_a_call"]),
    "images by number": (wrap(mb.Balanced, "_costs", by_number), ["balance/lanes_are_even"]),
    "chunks of a shard swapped": (wrap(_shards, "runs_of", runs_reversed), ["balance/rows_alone"]),
    "images as loaded": (wrap(balanced_encoder, "balance", as_loaded), ["balance/lanes_are_even"]),
    "one pair of bridges": (wrap(mb.Balanced, "__init__", one_pair), ["balance/micro_batches"]),
    "images in any runs": (wrap(balanced_encoder, "find_images", images_of_any_runs), ["balance/what_does_not_fit"]),
    "texts of any length": (wrap(mb.Balanced, "_check_tile", no_check), ["balance/what_does_not_fit"]),
    "micro-batches without a plan": (wrap(mb.Balanced, "_not_planned", no_check), ["balance/what_does_not_fit"]),
    "images by size": (wrap(balanced_encoder, "find_images", images_of_other_samples), ["balance/micro_batches"]),
    "packs as one sequence": (wrap(_loaded.Images, "placed", not_packed), ["balance/packed_documents"]),
    "shards of packs as of one sequence": (wrap(_shards.Shards, "_runs_of", one_sequence), ["balance/packed_documents"]),
    "positions in the pack": (wrap(mb.partition.LocalPartition, "positions", rows_as_positions), [
        "balance/packed_documents"]),
    "labels of the next document": (wrap(mb.Partition, "shift_labels", shifted_across), ["balance/packed_documents"]),
}


def even_rows(original, self, tensor, rows=None):
    return original(self, tensor)


def leaf_of_nothing(original, self, name, comm):
    return original(self, name, comm).detach()


def moved_nowhere(original, self):
    original(self)
    self._stays = True


def own_rules(original, self, *args, rules="bridge", **more):
    original(self, *args, **more)


def swapped(original, grid):
    return {rank: place[::-1] for rank, place in original(grid).items()}


def one_late(original, ids, special, first):
    return original(ids.roll(1, 1), special, first)


def summed_over_cp(original, self, x, ids):
    y = original(self, x, ids)
    y.register_hook(lambda gradient: gradient * 2)  # what a sum of two equal ones gives
    return y


def first_positions(original, self, x):
    return x[..., :original(self, x).shape[-1]]


def own_gradient_alone(_original, text, _group):
    return text


def ids_of_weights(original, routing_map, k):
    return original(routing_map & (torch.arange(routing_map.shape[1]) > 0), k)


def encoder_first(original, *arguments):
    """BB and EB of a micro-batch change places."""
    other = {"BB": "EB", "EB": "BB"}
    return tuple(mb.Step(other.get(step.kind, step.kind), step.index) for step in original(*arguments))


def never_last(original, self, m):
    self._last = -1
    original(self, m)


def rows_before(original, self, m):
    self._moved, kept = {**self._moved, m: self._moved.get(m - 1, self._moved[m])}, self._moved[m]
    original(self, m)
    if m in self._moved:
        self._moved[m] = kept


@contextlib.contextmanager
def hooks_of_all(original, model, finish):
    config = model.config
    kept = config.no_sync_func, config.grad_sync_func
    with original(model, finish) as finalizes:
        config.no_sync_func, config.grad_sync_func = kept
        yield finalizes


def one_group(original, self, *arguments):
    original(self, *arguments)
    for sender, receiver in list(self.of):
        self.of[sender, receiver] = self.of[min(sender, receiver), max(sender, receiver)]


def weighted_twice(original, out, weights):
    return original(original(out, weights), weights)


def experts_of_the_next_rank(original, self, ids):
    return original(self, (ids + self.experts_here) % self.experts)


def first_of_sizes(original, group, sizes):
    made = [dispatch for (other, its), dispatch in _expert_groups._MADE.items() if its == sizes and not other.closed]
    return made[0] if made else original(group, sizes)


def any_ranks(_original, _what, ranks, world):
    return mb.Grid({"ep": len(ranks), "edp": world.size // len(ranks)})


def ends_included(_original, route):
    return torch.searchsorted(route.ends, torch.arange(route.rows, dtype=torch.int32))[:, None]


def counts_of_others(original, ends):
    return original(ends).roll(1)


OF_BOTH = ["experts/of_transformers", "experts/of_torchtitan"]
MUTATIONS |= {
    "weights of experts twice": (wrap(_expert_groups, "weighted", weighted_twice), OF_BOTH),
    "experts of the next rank": (wrap(mb.Dispatch, "route", experts_of_the_next_rank), OF_BOTH),
    "a dispatch for all groups": (wrap(_expert_groups, "dispatch_of", first_of_sizes), OF_BOTH),
    "experts on any ranks": (wrap(_expert_groups, "grid_around", any_ranks), [
        "experts/refused_of_transformers", "experts/refused_of_torchtitan"]),
}
if "mimo_bridge.hf_experts" in sys.modules:
    from mimo_bridge import hf_experts
    MUTATIONS["ends of experts included"] = wrap(hf_experts, "local_ids", ends_included), OF_BOTH[:1]
if "mimo_bridge.torchtitan" in sys.modules:
    from mimo_bridge import torchtitan
    MUTATIONS["counts of other experts"] = wrap(torchtitan, "counts_of", counts_of_others), OF_BOTH[1:]
    MUTATIONS["rows of experts unsaved"] = (
        (torchtitan.SelectiveAC, "get_save_ops", torchtitan.SelectiveAC.__mro__[1].get_save_ops),
        ["experts/checkpoints_of_torchtitan"])
if "mimo_bridge.megatron" in sys.modules:  # where its cases ran
    from mimo_bridge import _fused, _hops, _moe, _pipeline_checks, _pipelined, megatron
    theirs = megatron.MimoModel.__mro__[1]
    colocated = megatron.ColocatedBridgeCommunicator
    MUTATIONS |= {
        "empty ranks left out": (
            (megatron.MimoModel, "_apply_colocated_comms", theirs._apply_colocated_comms),
            ["mimo_model/mimo_model_without_images"]),
        "rows split evenly": (wrap(colocated, "communicate", even_rows),
                              ["mimo_model/mimo_model_steps", "megatron/colocated_beyond_megatron"]),
        "no gradient of 0": (wrap(megatron.MimoModel, "_no_rows", leaf_of_nothing),
                             ["mimo_model/mimo_model_without_images"]),
        "nothing moves": (wrap(colocated, "_compare", moved_nowhere),
                          ["megatron/colocated_beyond_megatron", "mimo_model/mimo_model_steps"]),
        "swapped positions": (wrap(megatron, "_positions", swapped), ["megatron/colocated_bits"]),
        "any values behind the last end": (wrap(_moe.TokenDispatcher, "_without_rest", as_it_is), [
            "megatron_moe/layers_of_fixed_tiles"]),
        "no upstream rules": (wrap(colocated, "__init__", own_rules), ["megatron/colocated_refusals"]),
        "rows one position late": (wrap(_fused, "spans_of", one_late), ["fused/fused_steps"]),
        "a sum over cp": (wrap(_fused.Placement, "place", summed_over_cp), ["fused/fused_steps"]),
        "text of other positions": (wrap(_fused.TextPlaces, "of_cp", first_positions),
                                    ["fused/fused_steps"]),
        "the encoder's backward before the bridge's": (wrap(_pipelined, "steps_of", encoder_first),
                                                       ["pipelined/frozen_encoders"]),
        "no backward is the last": (wrap(_pipelined.Run, "_EB", never_last), ["pipelined/reduced_in_backward"]),
        "rows of another micro-batch": (wrap(_pipelined.Run, "_forward", rows_before), ["pipelined/frozen_encoders"]),
        "MimoModel's own hooks": (wrap(_pipelined, "hooks", hooks_of_all), ["pipelined/reduced_in_backward"]),
        "averages unchecked": (wrap(_pipeline_checks, "check_averages", no_check), ["pipelined/reduced_in_backward"]),
        "a group for both directions": (wrap(_hops.HopGroups, "__init__", one_group), ["pipelined/stages"]),
        "an expert left out": (wrap(_moe, "ids_of", ids_of_weights), ["megatron_moe/layers_over_ours"]),
        "text gradient of a part": (wrap(megatron, "copy_to_tensor_model_parallel_region",
                                         own_gradient_alone), ["fused/fused_steps"]),
    }


def shifted_after_the_cut(original, self, batch, kwargs):
    labels = kwargs["labels"].clone()
    labels[..., batch._at] = hf.next_tokens(batch.cut(labels))
    return original(self, batch, kwargs | {"shift_labels": labels})


def positions_of_the_shard(original, self):
    positions = original(self).clone()
    positions[..., self._at] = torch.arange(len(self._at))
    return positions


def pixels_of_another(original, self, counts, order):
    return original(self, counts, order).roll(4, 0)


def no_level(original, self, tensors):
    return original(self, [tensors[0], *(0 * level for level in tensors[1:])])


def averaged(_original, module):
    module.set_force_sum_reduction_for_comms(True)
    return module


def tokens_of_this_rank(original, self, batch, kwargs):
    targets = hf.next_tokens(kwargs["labels"])
    return original(self, batch, kwargs | {"num_items_in_batch": (batch.cut(targets) != -100).sum()})


def refused_alone(_original, _self, error):
    raise error


if "mimo_bridge.hf" in sys.modules:  # where its cases ran
    from mimo_bridge import _hf_batch, hf
    DEEP, TP = ["hf/deep_features_under_cp"], ["hf/own_plan_of_tp"]
    MUTATIONS |= {
        "labels moved after the cut": (wrap(hf.Colocated, "_with_targets", shifted_after_the_cut), DEEP),
        "positions of the shard": (wrap(_hf_batch.WholeBatch, "_rotary_positions", positions_of_the_shard), DEEP),
        "pixels of another image": (wrap(_hf_batch.WholeBatch, "_pixels", pixels_of_another), DEEP + TP),
        "no levels of features": (wrap(hf.Colocated, "_features", no_level), DEEP),
        "averages of FSDP": (wrap(hf, "sums", averaged), DEEP),
        "sums over tp": (wrap(hf.Colocated, "_copies", lambda _original, _self: None), TP),
        "N of one rank": (wrap(hf.Colocated, "_with_targets", tokens_of_this_rank), DEEP + TP),
        "refused on one rank alone": (wrap(balanced_encoder.Balanced, "_refuse", refused_alone), ["hf/what_is_refused"]),
    }
