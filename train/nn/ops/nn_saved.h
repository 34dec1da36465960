/*
 * A saved state: what one forward of a layer leaves for its backward. It stands beside the layer.
 * So several micro-batches can be in flight: each has a saved state of its own, and the layer has
 * what all share (parameters, workspace).
 *
 *   room = {0};
 *   nn_X_saved_take(&saved, &layer, &room);   measures
 *   nn_room_reserve(&room, runtime);           takes the memory
 *   nn_X_saved_take(&saved, &layer, &room);   places the state there
 *   ...
 *   nn_room_release(&room);                    ends it
 *
 * One room may hold the states of many layers: both passes place the same ones in the same order. A
 * state owns nothing, so it has no release.
 */
#ifndef MIMO_NN_NN_SAVED_H
#define MIMO_NN_NN_SAVED_H

#include "train/nn/ops/nn_real.h"
#include "train/nn/ops/nn_runtime.h"

/* How far a micro-batch has come in a layer. */
typedef enum nn_progress {
    NN_PROGRESS_NONE = 0,    /* no forward yet, or its backward is over */
    NN_PROGRESS_FORWARD = 1, /* forward is over */
    NN_PROGRESS_INPUT = 2,   /* so is the input's half of backward */
} nn_progress;

/** Memory of a runtime for saved states. Zeroed, it measures. */
typedef struct nn_room {
    const nn_runtime *runtime;
    char *base;    /* NULL: it measures */
    int64_t used;  /* bytes of what was taken in this pass */
    int64_t bytes; /* of the memory: what the states in it take */
} nn_room;

/** Take room for `count` elements of `size` bytes; *out (a pointer of any type) is NULL while the
 *  room measures. Errors: MIMO_ERR_STATE (more than was measured), and those of mimo_mul. */
mimo_status nn_room_take(nn_room *room, void *out, int64_t count, size_t size);

/** End the pass that measures: reserve zeroed memory, and start the pass that places. Errors:
 *  MIMO_ERR_MEMORY. Release accepts a zeroed room, and leaves it zeroed. */
mimo_status nn_room_reserve(nn_room *room, const nn_runtime *runtime);
void nn_room_release(nn_room *room);

/** The same in memory of the caller, who keeps it and does not release the room: at *memory, which
 *  then is behind the room. Errors: those of nn_runtime_zero. */
mimo_status nn_room_lend(nn_room *room, const nn_runtime *runtime, char **memory);

/** In builds with MIMO_MUTATIONS: fill a gradient that its borrower gives back with NaN, where it
 *  lies on the host. So a later reader is found. In other builds it does nothing. */
void nn_poison(const nn_runtime *runtime, nn_real *room, int64_t count);

#endif
