/*
 * How layers talk to other ranks. An exchange is a communicator, and the runtime whose tensors it
 * moves. Nothing else in train/nn calls a communicator, except nn_dispatch. So what a micro-batch
 * costs can be counted here, and a test holds it against a formula.
 *
 * On one rank (`comm` NULL, or of size 1) every call is MIMO_OK, moves nothing and counts nothing.
 * On more it is collective, ordered by the runtime's stream, and the rules of mimo_comm_* hold.
 *
 * In the fixed order a sum of nn_real is the balanced binary tree over the ranks, in rank order:
 * each rank gets its piece of every rank's tensor (all-to-all), adds the tree, and all gather the
 * pieces. A rank then receives as many bytes as in a ring all-reduce. Up to 4 KiB all gather the
 * whole tensors: more bytes on more than two ranks, in one step. Both count as the same kind.
 */
#ifndef MIMO_NN_NN_EXCHANGE_H
#define MIMO_NN_NN_EXCHANGE_H

#include <mimo/comm.h>

#include "train/nn/ops/nn_real.h"
#include "train/nn/ops/nn_runtime.h"

typedef enum nn_exchange_kind {
    NN_EXCHANGE_SUM = 0,         /* all-reduce */
    NN_EXCHANGE_MAX = 1,         /* all-reduce */
    NN_EXCHANGE_GATHER = 2,      /* all-gather */
    NN_EXCHANGE_SUM_SCATTER = 3, /* reduce-scatter */
    NN_EXCHANGE_ROWS = 4,        /* rows to experts (nn_dispatch.h) */
    NN_EXCHANGE_COMBINE = 5,     /* their sums back */
} nn_exchange_kind;
enum { NN_EXCHANGE_KINDS = 6 };

/** What was exchanged since the counts were zero. `bytes` are those of the whole tensor: of a
 *  gather's result, of a scatter's input. `received` is what reaches this rank from others by the
 *  steps that are done here; where the backend reduces, by a ring. Of the last two kinds `bytes`
 *  are those of this rank's tokens, and `received` stays 0: the choices decide it. Only the owner
 *  of the counts sets them back to zero. */
typedef struct nn_exchange_counts {
    int64_t calls[NN_EXCHANGE_KINDS], bytes[NN_EXCHANGE_KINDS], received[NN_EXCHANGE_KINDS];
} nn_exchange_counts;

typedef struct nn_exchange {
    mimo_comm *comm;            /* borrowed; NULL: one rank */
    const nn_runtime *runtime;  /* borrowed */
    nn_exchange_counts *counts; /* borrowed; several exchanges may share them; NULL: uncounted */
} nn_exchange;

static inline int nn_comm_size(const mimo_comm *comm)
{
    return comm ? mimo_comm_size(comm) : 1;
}

static inline int nn_comm_rank(const mimo_comm *comm)
{
    return comm ? mimo_comm_rank(comm) : 0;
}

static inline int nn_exchange_size(const nn_exchange *exchange)
{
    return nn_comm_size(exchange->comm);
}

static inline int nn_exchange_rank(const nn_exchange *exchange)
{
    return nn_comm_rank(exchange->comm);
}

/** data[i] becomes its sum over the ranks. */
mimo_status nn_exchange_sum(const nn_exchange *exchange, nn_real *data, int64_t count);

/** The same for the loss, which adds in f64, or in fixed point; and the maxima. */
mimo_status nn_exchange_sum_f64(const nn_exchange *exchange, double *data, int64_t count);
mimo_status nn_exchange_sum_i64(const nn_exchange *exchange, int64_t *data, int64_t count);
mimo_status nn_exchange_max_f64(const nn_exchange *exchange, double *data, int64_t count);

/** `to` [size * bytes] holds `own` [bytes] of every rank, in rank order. `own` may lie in its place
 *  in `to`. */
mimo_status nn_exchange_gather(const nn_exchange *exchange, void *to, const void *own,
                               int64_t bytes);

/** `to` [count] is this rank's part of the sum over the ranks of `from` [size * count]. */
mimo_status nn_exchange_sum_scatter(const nn_exchange *exchange, nn_real *to, const nn_real *from,
                                    int64_t count);

/** Copy `data` [bytes] of rank `root` to all. Not counted, as the next one: they are no steps of
 *  training. */
mimo_status nn_exchange_broadcast(const nn_exchange *exchange, void *data, int64_t bytes, int root);

/** `to` [size * bytes] holds `own` [bytes] of every rank, also of a single one. Both lie in host
 *  memory, and apart. */
mimo_status nn_exchange_host_gather(const nn_exchange *exchange, void *to, const void *own,
                                    int bytes);

/** In the fixed order the n elements that a bridge's backward brought: -0 becomes +0. Where the
 *  bridge adds what several cp ranks have for a row it does so by itself, and where it moves the
 *  row of one rank it does not. In the fast order nothing is done. Local. */
mimo_status nn_plain_zeros(const nn_runtime *runtime, nn_real *x, int64_t n);

/** The status that all ranks agree on (mimo_comm_agree). */
mimo_status nn_exchange_agree(const nn_exchange *exchange, mimo_status status);

/** Check that the communicator moves tensors in the runtime's memory. Local. */
mimo_status nn_exchange_check(const nn_exchange *exchange, const char *layer);

#endif
