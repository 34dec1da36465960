/* Image rows between the tile that the bridge fills and the LLM's input: put to their positions in
 * whole sentences, of which this rank takes its part; and their gradients back. The trainer's
 * bridge does all of that by itself (train/model/image_rows.h). Here the calls of alignment and
 * partition do it. */
#ifndef ORACLE_ORACLE_POSITIONS_H
#define ORACLE_ORACLE_POSITIONS_H

#include "train/model/language.h"

#include "oracle_topology.h"
#include "ref_model.h"

typedef struct oracle_positions {
    const oracle_topology *topology; /* borrowed, as the next */
    const language_model *llm;
    int64_t tokens;            /* P */
    mimo_alignment **of_state; /* [states of the model's first chunk]: of its sentences */
    int64_t states;
    nn_real *whole; /* [S, B, H], where rows of text mean nothing */
} oracle_positions;

/* Local. The caller zeroes *out before and destroys it after, whatever the result. */
mimo_status oracle_positions_create(oracle_positions *out, const oracle_topology *topology,
                                    const ref_sizes *sizes, const language_model *llm);
void oracle_positions_destroy(oracle_positions *positions);

/* Put image rows into the input of a state that begins the model. They are [P, B, H], or [B, P, H]
 * where the topology is sample-major. ids[B, S] are those of its sentences. Local. */
mimo_status oracle_positions_put(const oracle_positions *positions, int64_t state,
                                 const nn_real *image_rows, const int64_t *ids);

/* Back, in the order of the image rows: this rank's contribution to their gradient. Collective over
 * tp under sp. */
mimo_status oracle_positions_back(const oracle_positions *positions, int64_t state,
                                  nn_real *d_image);

#endif
