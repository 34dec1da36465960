/*
 * The parallel layers that the examples and the oracle train with. A static library of its own (nn
 * in f32, nn_f64 the same sources in f64); never part of libmimo-bridge.
 *
 * Life of a model:
 *
 *   nn_runtime_init      where to compute; on the host nothing to do
 *   nn_params_create     one store per module (encoder, LLM); one BLAS thread from here on
 *   nn_X_init            every layer, in the same order on all ranks: adds its parameters, reserves
 *                        its room. `max_rows` and the like are ceilings; a call may bring less
 *   nn_params_seal       arenas, initial values
 *   forward, backward    of one micro-batch, then of the next; gradients add up in the store
 *   mimo_gradient_*      count, finalize, norm over nn_params_spans of both modules
 *   nn_adamw_step        per module; then nn_params_zero_grad
 *   nn_X_release, nn_params_destroy, nn_runtime_release
 *
 * Rules for every layer:
 *  - activations are rows [n, width], row-major and contiguous. A sequence tile "sbh" [S_local, B,
 *    H] is rows [S_local * B, H], row = s * B + b;
 *  - tensors lie in the memory of the store's runtime, whose stream orders the work: on a device,
 *    forward, backward and the optimizer only enqueue. Ids and labels lie in host memory and are
 *    copied. What waits for the device says so (nn_loss_read, nn_loss_argmax, nn_params_read);
 *  - a communicator may be NULL: one rank. Communicators are borrowed and outlive the layer. Calls
 *    of a layer with communicators are collective over them;
 *  - an input of forward is *borrowed until backward*: it stays where it is, unchanged (layers keep
 *    no copy). Forward without backward, and forward twice, are fine; backward belongs to the last
 *    forward;
 *  - backward *adds* to the parameters' gradients and *writes* the input's gradient. Gradients are
 *    those of the SUM of the token losses: nothing divides here;
 *  - inputs, outputs and gradients must not overlap unless a function says so;
 *  - the structs are in the open for reading; only nn functions write them. Release takes a zeroed
 *    struct too, and zeroes it. One thread at a time per store and its layers.
 *
 * Errors of every init: MIMO_ERR_ARGUMENT (a size < 1, a size that tp does not divide, a tp
 * communicator of another size, rank or kind of memory than the store), MIMO_ERR_STATE (store
 * sealed), MIMO_ERR_EXISTS (a name twice), MIMO_ERR_MEMORY; the layer holds nothing after a
 * failure, but the store keeps what was added: destroy it. Errors of every forward: MIMO_ERR_SHAPE
 * (rows beyond the ceiling), MIMO_ERR_STATE (store not sealed), MIMO_ERR_COMM; of every backward:
 * MIMO_ERR_STATE (no forward before), MIMO_ERR_COMM.
 *
 * Arguments are checked on each rank alone, so that layers cost no more agreements than their
 * reductions: a rank that returns an error has left its peers in the next collective call, and the
 * program is to end (or to go through mimo_comm_agree before it goes on).
 *
 * H hidden, S tokens per sample, B samples, V vocabulary, n rows; tp, cp sizes of communicators.
 */
#ifndef MIMO_NN_NN_H
#define MIMO_NN_NN_H

#include "nn/nn_attention.h"
#include "nn/nn_block.h"
#include "nn/nn_embedding.h"
#include "nn/nn_linear.h"
#include "nn/nn_loss.h"
#include "nn/nn_mlp.h"
#include "nn/nn_norm.h"
#include "nn/nn_optimizer.h"
#include "nn/nn_params.h"
#include "nn/nn_runtime.h"
#include "nn/nn_sequence.h"

#endif
