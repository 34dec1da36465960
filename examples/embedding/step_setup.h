/* What a training loop makes once: grids, bridges, a buffer, gradient rules, tensors. */
#ifndef EMBEDDING_STEP_SETUP_H
#define EMBEDDING_STEP_SETUP_H

#include <mimo/mimo.h>

#include "step_place.h"
#include "toy_models.h"

/* The sentence of a failure stays in mimo_last_error() on its way to main. */
#define TRY(call)                        \
    do {                                 \
        mimo_status try_status = (call); \
        if (try_status != MIMO_OK)       \
            return try_status;           \
    } while (0)

enum { CP = 2, SHARE = SEQ / CP, ENCODED = 2, HELD = CP * ENCODED }; /* samples of a rank's roles */
enum { SAMPLE = SHARE * HIDDEN, ROWS = ENCODED * MOST_ROWS * HIDDEN }; /* elements */

typedef struct training {
    step_place at;
    mimo_grid *encoder, *llm;
    mimo_partition *partition;
    mimo_bridge *bridge[MODALITIES];
    mimo_gradient *gradient;
    mimo_buffer *buffer; /* what the bridges write: rows go straight where they are used */
    float *tile, *d_rows[MODALITIES]; /* in it, at the same offsets on all ranks */
    float *rows[MODALITIES], *d_tile, *d_weights;
    int64_t batch, encoded, held; /* B; the first samples that this rank encodes and holds */
    toy_sums sums;
} training;

/** Collective. The caller zeroes *out before and calls training_destroy after, whatever the result.
 */
mimo_status training_create(training *out, bool cuda);

/** Collective in effect, after an abort local. */
void training_destroy(training *t);

#endif
