/* The bridge: what its files share. */
#ifndef MIMO_BRIDGE_BRIDGE_TYPES_H
#define MIMO_BRIDGE_BRIDGE_TYPES_H

#include "bridge/executor.h"
#include "comm/fifos.h"
#include "move/mover.h"

struct mimo_bridge {
    mimo_mover mover;
    mimo_fifo_user fifos; /* of the parent, where a pass may stage its messages */
    bool may_stage;       /* transport AUTO may (MIMO_STAGED) */
    const mimo_grid *src, *dst;
    int64_t rank, size; /* of the communicator */
    mimo_memory memory; /* where its tiles lie */

    mimo_pairing pairing; /* scale 0 where the grids do not pair */
    int64_t slot;         /* this rank's index in its gather group */

    /* By pass: forward, backward. */
    mimo_executor executor[2];                   /* its algorithm is never AUTO */
    const mimo_executor_table *const *executors; /* all that there are, by mimo_algorithm */
    bool measured[2]; /* chosen by measurement, so it takes only what both executors accept */
    void *state[MIMO_EXECUTORS]; /* of each executor, by mimo_algorithm; NULL where it moves neither
                                    pass */

    int64_t batch;   /* of the calls to come, as the caller gave it; -1: not given */
    int batch_count; /* micro-batches of the last update; 1 where it gave one or none */
    int selected;    /* which of them the next calls move */

    /* Where an executor takes batches (batch/); otherwise NULL. */
    struct mimo_bridge_sides *sides;
    struct mimo_bridge_batch *batches; /* batches[batch_count] */
    int64_t first_batch;               /* as the descriptor gave it; -1: not given */
    int64_t given_bytes; /* of what a rank gave the last update: see given_batches.c; 0: none yet */

    bool check_samples; /* MIMO_CHECK=samples */
    char *replicated; /* MIMO_CHECK=replicas: the dimensions along which sources are copies, "tp,x";
                         NULL where there are none, or they are not checked */
    mimo_comm *copies; /* this rank's group along these; NULL outside the src grid as well */
};

/* What moves one pass. */
static inline const mimo_executor_table *mimo_bridge_executor_of(const mimo_bridge *bridge,
                                                                 bool backward)
{
    return bridge->executors[bridge->executor[backward].algorithm];
}

/* Whether calls of a pass may write straight into buffers. */
static inline bool mimo_bridge_pushes(const mimo_bridge *bridge, bool backward)
{
    return mimo_executor_pushes(mimo_bridge_executor_of(bridge, backward),
                                bridge->executor[backward].transport);
}

/* Whether a pass may stage its messages. */
static inline bool mimo_bridge_stages(const mimo_bridge *bridge, bool backward)
{
    return mimo_executor_stages(mimo_bridge_executor_of(bridge, backward),
                                bridge->executor[backward].transport, bridge->may_stage);
}

/* Whether a destination must lie in a buffer of the parent, in either pass. */
static inline bool mimo_bridge_wants_buffers(const mimo_bridge *bridge)
{
    return bridge->executor[0].transport == MIMO_TRANSPORT_ZERO_COPY ||
           bridge->executor[1].transport == MIMO_TRANSPORT_ZERO_COPY;
}

/* ---------------------------------- sizes (bridge_tile.c) ----------------------------------- */

/* Sizes in this version's form, with the batch and S that hold: those of the sizes, or those that
 * the bridge knows. MIMO_ERR_SHAPE where these differ. Local. */
mimo_status mimo_bridge_read_sizes(mimo_bridge_sizes *out, const mimo_bridge *bridge,
                                   const mimo_bridge_sizes *given);

/* What all ranks gave of their rows, where a call of tiles of these letters counts rows; otherwise
 * NULL. `batch` of the sizes are then these rows, and S is 1. */
const struct mimo_batch_split *mimo_bridge_given_rows(const mimo_bridge *bridge,
                                                      const mimo_bridge_sizes *sizes);

#endif
