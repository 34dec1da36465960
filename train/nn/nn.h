/*
 * The parallel layers that the examples and the oracle train with. They are a static library of
 * their own, never a part of libmimo-bridge. nn computes in f32; nn_f64 is the same sources in f64.
 *
 * Life of a model:
 *
 *   nn_runtime_init      says where to compute; not needed on the host
 *   nn_params_create     one store for each module (encoder, LLM); sets BLAS to one thread
 *   nn_X_init            every layer, in the same order on all ranks; adds the layer's parameters
 *                        and reserves its workspace. `max_rows` and the like are upper limits: a
 *                        call may bring less
 *   nn_X_saved_take     a saved state for each micro-batch in flight (nn_saved.h)
 *   nn_params_seal       reserves the arenas and sets initial values
 *   forward, backward    of micro-batches, as below; gradients add up in the store
 *   mimo_gradient_*      count, finalize, norm over nn_params_buckets of both modules
 *   nn_adamw_step        for each module; then nn_params_zero_grad
 *   nn_X_release, nn_params_destroy, nn_runtime_release
 *
 * Rules for every layer:
 *  - Activations are rows [n, width], row-major and contiguous. A sequence tile "sbh" [S_local, B,
 *    H] is rows [S_local * B, H], row = s * B + b.
 *  - Tensors lie in the memory of the store's runtime. Its stream orders the work: on a device,
 *    forward, backward and the optimizer only enqueue. Ids and labels lie in host memory, and the
 *    call copies them. A function that waits for the device says so (nn_loss_read, nn_loss_argmax,
 *    nn_params_read).
 *  - A communicator may be NULL, which means one rank. The layer borrows its communicators, so they
 *    must outlive it. Calls of a layer with communicators are collective over them.
 *  - Inputs, outputs and gradients must not overlap unless a function allows it.
 *  - Gradients are those of the SUM of the token losses: nothing divides here.
 *  - The structs are public so that callers can read them. Only nn functions write them. Release
 *    accepts a zeroed struct, and leaves the struct zeroed.
 *  - Only one thread at a time uses a store and its layers.
 *
 * A micro-batch goes through a layer in three calls, each with the layer's saved state for it:
 *
 *   forward(layer, saved, y, x)            writes y
 *   backward_input(layer, saved, dx, dy)   writes dx
 *   backward_params(layer, saved)          adds to the gradients of the parameters; much later, or
 *                                          never where everything is frozen
 *
 *   memory        from            to              whose it is
 *   x             forward         parameters      borrowed, unchanged; of norm and block, and a
 *                                                 sequence, to the input's half only
 *   y, dx         the call        the call        the caller's
 *   dy            input's half    parameters      lent: then its contents are gone (NaN in builds
 *                                                 with MIMO_MUTATIONS); of norm and embedding only
 *                                                 read by the call, of a shared expert by others
 *                                                 as well
 *   saved state   forward         parameters      this micro-batch's alone
 *   layer         init            release         all micro-batches': workspace for one call, or
 *                                                 for one part of a block
 *   a move's      its start       its wait        the move's; all of it lies in the saved state, x,
 *   tensors                                       y, dx or dy
 *
 *  - Forward may run without a backward. A forward with a used saved state begins again.
 *  - A layer without parameters, or without a gradient of its input, has one half. Norm does both
 *    in the input's half: that costs less than another reading of x and dy.
 *  - A block is a row of parts (nn_block_kind.h), and a stack runs them one by one (nn_stack.h).
 *    Parts of several micro-batches may run in turn. Parts compute one after the other, in the
 *    order of the runtime's stream; only moves of rows to experts and back run beside them. So a
 *    workspace that one part writes and reads to its end stays in the layer, once for all
 *    micro-batches. What another part reads later, or a move writes or reads, lies in the saved
 *    state.
 *  - Bits: gradients of a parameter add up in the order of the calls that add to it. So where these
 *    ascend by micro-batch for each parameter, any interleaving of micro-batches gives the bits of
 *    one after the other. In the fixed order of additions every interleaving does.
 *
 * Errors of every init: MIMO_ERR_ARGUMENT (a size < 1, a size that tp does not divide, a tp
 * communicator whose size, rank or kind of memory is not the store's), MIMO_ERR_STATE (the store is
 * sealed), MIMO_ERR_EXISTS (the store already has that name), MIMO_ERR_MEMORY. After a failure the
 * layer holds nothing. The store keeps what was added, so destroy it.
 *
 * Errors of every forward: MIMO_ERR_SHAPE (more rows than the limit), MIMO_ERR_STATE (the store is
 * not sealed), MIMO_ERR_COMM. Errors of every backward: MIMO_ERR_STATE (no forward before),
 * MIMO_ERR_COMM.
 *
 * Each rank checks its arguments alone. So a layer costs no agreement beyond its reductions. A rank
 * that returns an error leaves its peers waiting in their next collective call. The program must
 * then end, or call mimo_comm_agree before it goes on.
 *
 * H hidden, S tokens of a sample, B samples, V vocabulary, n rows; tp, cp sizes of communicators.
 */
#ifndef MIMO_NN_NN_H
#define MIMO_NN_NN_H

#include "train/nn/exchange/nn_dispatch.h"
#include "train/nn/exchange/nn_edge.h"
#include "train/nn/exchange/nn_exchange.h"
#include "train/nn/layers/nn_attention.h"
#include "train/nn/layers/nn_block.h"
#include "train/nn/layers/nn_block_kind.h"
#include "train/nn/layers/nn_embedding.h"
#include "train/nn/layers/nn_experts.h"
#include "train/nn/layers/nn_linear.h"
#include "train/nn/layers/nn_lora.h"
#include "train/nn/layers/nn_loss.h"
#include "train/nn/layers/nn_mlp.h"
#include "train/nn/layers/nn_moe.h"
#include "train/nn/layers/nn_norm.h"
#include "train/nn/layers/nn_router.h"
#include "train/nn/layers/nn_sequence.h"
#include "train/nn/layers/nn_stack.h"
#include "train/nn/ops/nn_order.h"
#include "train/nn/ops/nn_runtime.h"
#include "train/nn/ops/nn_saved.h"
#include "train/nn/params/nn_gradients.h"
#include "train/nn/params/nn_hash.h"
#include "train/nn/params/nn_optimizer.h"
#include "train/nn/params/nn_params.h"
#include "train/nn/params/nn_placement.h"

#endif
