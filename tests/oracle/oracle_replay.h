/*
 * The experts that routers take in place of those that they choose: the reference's. A choice is
 * found by its layer, and by its token, which is sample * S + position. Calls may come in any
 * order.
 *
 * Slots behind the last sample are no samples of the reference: their tokens get no expert.
 */
#ifndef ORACLE_ORACLE_REPLAY_H
#define ORACLE_ORACLE_REPLAY_H

#include <mimo/comm.h>

#include "train/nn/layers/nn_router.h"

typedef struct oracle_replay {
    int64_t steps, blocks, samples, seq, top_k;
    int32_t *ids; /* [steps, blocks, samples * seq, top_k]; ORACLE_NO_CHOICE: was not set */
    int64_t step; /* that is in progress */
    /* The rows of the forward in progress: row s * batch + b is of sample first + b, at
     * position[s]. */
    int64_t first, positions;
    const int64_t *position; /* [positions]; borrowed */
} oracle_replay;

enum { ORACLE_NO_CHOICE = -2 };

/* Room for the choices; sizes are set. Release accepts a zeroed struct. */
mimo_status oracle_replay_reserve(oracle_replay *replay);
void oracle_replay_release(oracle_replay *replay);

/* Set the choices of one block in one step, ids[samples * seq, top_k]. */
void oracle_replay_set(oracle_replay *replay, int64_t step, int64_t block, const double *ids);
/* Bring rank 0's choices to all. Collective. */
mimo_status oracle_replay_share(oracle_replay *replay, mimo_comm *host);

/* The choice of a token in this step, ids[top_k]; NULL: there is none. */
const int32_t *oracle_replay_find(const oracle_replay *replay, int64_t block, int64_t token);
/* The token of a row; -1: its slot has no sample, or there is no such row. */
int64_t oracle_replay_token(const oracle_replay *replay, int64_t row, int64_t batch);

/* nn_replay's function; context is the replay. MIMO_ERR_NOT_FOUND names layer and token. */
mimo_status oracle_replay_ids(void *context, int32_t *ids, const char *layer,
                              const nn_row_range *rows);

#endif
