/*
 * The shape of a sequence tile "sbh" [rows, batch, H], and the positions of its rows. Attention
 * needs them besides its input. A sequence is made once for a shape and shared by all layers. So a
 * call of attention exchanges no positions. Which of its rows are padding differs from micro-batch
 * to micro-batch (nn_sequence_masked).
 */
#ifndef MIMO_NN_NN_SEQUENCE_H
#define MIMO_NN_NN_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/comm.h>

#include "train/nn/ops/nn_real.h"
#include "train/nn/ops/nn_runtime.h"

typedef struct nn_sequence_desc {
    mimo_comm *cp;             /* NULL: this rank holds whole sequences */
    bool causal;               /* a query sees the keys up to its own position; false: all keys */
    int64_t rows;              /* S_local, the same on every cp rank */
    int64_t batch;             /* B of this rank, the same on every cp rank */
    const int64_t *positions;  /* [rows] global positions (mimo_partition_index), in any order,
                                 gaps allowed; NULL: 0, 1, 2, ...; copied */
    const nn_runtime *runtime; /* of the layers that take the sequence; NULL: the host's */
    int64_t pairs;             /* the fixed order: C, of all cp ranks; 0 counts as 1 */
} nn_sequence_desc;

typedef struct nn_sequence {
    const nn_runtime *runtime;
    mimo_comm *cp;
    bool causal;
    int64_t rows, batch;
    int64_t parts;         /* cp size */
    int64_t part;          /* cp rank */
    int64_t *positions;    /* [parts * rows], in host memory: of all cp ranks, in rank order */
    nn_real *mask;         /* causal: [rows, parts * rows]; 1: the query sees the key; otherwise 0.
                           Keys are in rank order, in the fixed order in that of their positions */
    const uint8_t *masked; /* borrowed [rows, batch] in the runtime's memory; 1: no token, which
                              goes to no expert; NULL: all are tokens */
} nn_sequence;

/** Fill *sequence. Collective over cp, blocking. Errors: MIMO_ERR_ARGUMENT (a size < 1, a negative
 *  position, cp > 1 without positions, a position twice); in the fixed order MIMO_ERR_SHAPE and
 *  MIMO_ERR_UNSUPPORTED (positions that are not those of the zigzag partition); MIMO_ERR_MEMORY,
 *  MIMO_ERR_COMM. Release accepts a zeroed struct. */
mimo_status nn_sequence_init(nn_sequence *sequence, const nn_sequence_desc *desc);
void nn_sequence_release(nn_sequence *sequence);

/** The sequence for one micro-batch, whose masked rows are given. It borrows what the sequence has,
 *  and is not released. */
nn_sequence nn_sequence_masked(const nn_sequence *sequence, const uint8_t *masked);

#endif
