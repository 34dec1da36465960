/*
 * The shape of a sequence tile "sbh" [rows, batch, H] and which positions its rows are: what
 * attention needs beside its input. Made once per shape, shared by all layers; attention exchanges
 * no positions per call.
 */
#ifndef MIMO_NN_NN_SEQUENCE_H
#define MIMO_NN_NN_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/comm.h>

#include "nn/nn_real.h"
#include "nn/nn_runtime.h"

typedef struct nn_sequence_desc {
    mimo_comm *cp;            /* NULL: this rank has the whole sequence */
    bool causal;              /* a query sees keys at its own position and before; else all keys */
    int64_t rows;             /* S_local, the same on every cp rank */
    int64_t batch;            /* B of this rank, the same on every cp rank */
    const int64_t *positions; /* [rows] global positions (mimo_partition_index); NULL: 0, 1, 2, ...;
                                 copied. Any order; need not be contiguous */
    const nn_runtime *runtime; /* of the layers that take the sequence; NULL: the host's */
} nn_sequence_desc;

typedef struct nn_sequence {
    const nn_runtime *runtime;
    mimo_comm *cp;
    bool causal;
    int64_t rows, batch;
    int64_t parts;      /* cp size */
    int64_t part;       /* cp rank */
    int64_t *positions; /* [parts * rows] in host memory: every cp rank's, in rank order */
    nn_real *mask;      /* causal: [rows, parts * rows], 1 where the query sees the key, else 0 */
} nn_sequence;

/** Fill *sequence. Collective over cp, blocking. Errors: MIMO_ERR_ARGUMENT (a size < 1, a negative
 *  position, cp > 1 without positions, a position twice), MIMO_ERR_MEMORY, MIMO_ERR_COMM. Release
 *  takes a zeroed struct too. */
mimo_status nn_sequence_init(nn_sequence *sequence, const nn_sequence_desc *desc);
void nn_sequence_release(nn_sequence *sequence);

/** The same positions with another batch (a last, smaller one): local, no communication. */
mimo_status nn_sequence_set_batch(nn_sequence *sequence, int64_t batch);

#endif
