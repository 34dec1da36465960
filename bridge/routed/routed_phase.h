/* One phase of a routed operation: rows move once between the ranks, then contributions are added.
 * All rows at once, or chunk by chunk. */
#ifndef MIMO_BRIDGE_ROUTED_PHASE_H
#define MIMO_BRIDGE_ROUTED_PHASE_H

#include "bridge/routed/transfer_types.h"
#include "move/prepared_call.h"
#include "plan/plan_chunk.h"

/* How rows are pushed into buffers. */
typedef struct mimo_push_rule {
    bool idle;          /* mimo_bridge_desc.destinations_idle */
    int ctas;           /* mimo_bridge_desc.ctas */
    mimo_buffer *flags; /* the bridge's own flags; NULL: those of the buffer that rows go to */
} mimo_push_rule;

/* A sum whose data and terms are placed. */
typedef struct mimo_placed_sum {
    mimo_addends sum; /* its pointers are not read */
    mimo_place data, terms;
} mimo_placed_sum;

/* What one chunk of a phase does. */
typedef struct mimo_phase_chunk {
    mimo_exchange *exchange;
    mimo_placed_sum *sums; /* sums[sum_count] */
    int64_t sum_count;
} mimo_phase_chunk;

typedef struct mimo_phase {
    mimo_transfer *transfers; /* transfers[count]; the caller fills them, the phase releases them */
    int count;
    int64_t classes;
    mimo_phase_chunk *chunks; /* chunks[chunk_count] */
    int64_t chunk_count;
    bool guarded; /* its messages are guarded */
} mimo_phase;

/* What a phase is made with. */
typedef struct mimo_phase_context {
    mimo_comm *comm;
    const mimo_push_rule *rule;
    mimo_buffer *fifos; /* that messages are staged through; NULL: they are not */
    const mimo_bases *bases;
} mimo_phase_context;

/* Turn the transfers into chunks, which move parts of the samples of `tiles`. With one chunk
 * `tiles` is NULL. Local. */
mimo_status mimo_phase_compile(mimo_phase *phase, const mimo_phase_context *context,
                               const mimo_layout *tiles);
void mimo_phase_release(mimo_phase *phase, mimo_comm *comm);

/* Say where the bases lie from now on, and a hash of what all ranks that push must have alike.
 * Local. */
mimo_status mimo_phase_bind(mimo_phase *phase, mimo_comm *comm, const mimo_bases *bases,
                            uint64_t signature);

/* Have all that moving a chunk would take for the first time. */
mimo_status mimo_phase_connect(const mimo_phase_chunk *chunk, mimo_comm *comm, mimo_stream stream);

/* Start to move the rows of a chunk. */
mimo_status mimo_phase_move(mimo_request **out, const mimo_phase_chunk *chunk, mimo_comm *comm,
                            mimo_stream stream);

/* Once they have arrived: add classes 1, 2, ... to class 0, in this order. */
mimo_status mimo_phase_add(const mimo_phase_chunk *chunk, mimo_comm *comm, const mimo_bases *bases,
                           mimo_stream stream);

#endif
