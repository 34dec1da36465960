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

/* Samples of a rank's roles. The image encoder has dp N. The audio encoder has dp N/2, so each of
 * its ranks encodes twice as many samples, and the two along tp encode the same ones. */
enum { CP = 2, SHARE = SEQ / CP, ENCODED = 2, HELD = CP * ENCODED };
enum { AUDIO_TP = 2, MOST_ENCODED = AUDIO_TP * ENCODED };
enum { SAMPLE = SHARE * HIDDEN, ROWS = MOST_ENCODED * MOST_ROWS * HIDDEN }; /* elements */
enum { WEIGHTS = MODALITIES + 1 }; /* HIDDEN of each encoder, then of the LLM */

typedef struct training {
    step_place at;
    mimo_grid *encoder[MODALITIES], *llm;
    mimo_partition *partition;
    mimo_bridge *bridge[MODALITIES];
    mimo_gradient *gradient;
    mimo_buffer *buffer; /* what the bridges write: rows go straight where they are used */
    float *tile, *d_rows[MODALITIES]; /* in it, at the same offsets on all ranks */
    float *rows[MODALITIES], *d_tile, *d_weights;
    int64_t batch, held;                            /* B; the first sample that this rank holds */
    int64_t first[MODALITIES], encoded[MODALITIES]; /* the first sample that it encodes; how many */
    toy_sums sums;
} training;

/** Collective. The caller zeroes *out before and calls training_destroy after, whatever the result.
 */
mimo_status training_create(training *out, bool cuda);

/** Collective in effect, after an abort local. */
void training_destroy(training *t);

#endif
