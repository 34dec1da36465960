/* The model as it was when its held-out loss was lowest: all that steps change (model_state.h), in
 * host memory. A run that has learned too much by heart ends with the state of that step, as if it
 * had ended there. A resumed run goes on from it. */
#ifndef CAPTIONER_BEST_STATE_H
#define CAPTIONER_BEST_STATE_H

#include "captioner/training/model_state.h"

typedef struct best_state {
    bridged_model *model; /* borrowed */
    model_state state;
    nn_real *kept; /* the elements of its arrays, one after the other */
    int64_t step;  /* after which they were kept; 0: none yet */
    double loss;   /* of that step */
} best_state;

/** Room for one state. Local. The caller zeroes *out before and calls best_state_release after,
 *  whatever the result. MIMO_ERR_MEMORY. */
mimo_status best_state_reserve(best_state *out, bridged_model *model);
void best_state_release(best_state *best);

/** Keep the model after `step` steps, where its loss is below that of the state that is kept. On
 *  every rank, with the same loss. Local. The errors of nn_params_read. */
mimo_status best_state_offer(best_state *best, int64_t step, double loss);

/** Put the model back to the state that is kept: there is one. On every rank. Local. The errors of
 *  nn_params_write. */
mimo_status best_state_restore(const best_state *best);

#endif
