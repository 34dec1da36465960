/*
 * Calls of a dispatch on devices, as its executor hands them to a backend. A call only enqueues:
 * its kernels read numbers of rows from the tables, so the host never learns them. All ranks make
 * the same calls of a dispatch in the same order. Whatever a call points to is read before it
 * returns, except memory of the device.
 */
#ifndef MIMO_COMM_EXPERT_CALLS_H
#define MIMO_COMM_EXPERT_CALLS_H

#include <stdbool.h>

#include <mimo/buffer.h>

#include "comm/expert_memory.h"

/* What stays of a dispatch: its shape, and the buffer whose data lie as `at` says. The buffer's
 * flags order the calls. All ranks are within reach of it. */
typedef struct mimo_expert_memory {
    mimo_expert_shape shape;
    mimo_expert_layout at;
    mimo_buffer *buffer;
} mimo_expert_memory;

/* Thread blocks of the calls of a dispatch. */
typedef struct mimo_expert_limit {
    int ctas;      /* the largest number; 0: the backend chooses */
    bool reserves; /* the dispatch's own limit: its calls may run beside others that wait */
} mimo_expert_limit;

/* What all calls have. */
typedef struct mimo_expert_call {
    const mimo_expert_memory *memory;
    mimo_route_tables tables; /* of the route that is set, or moved by */
    uint64_t signature;       /* of what must be alike on all ranks */
    int ctas;                 /* the largest number of thread blocks; 0: the backend chooses */
    int64_t most;             /* thread blocks of the dispatch's lane (experts_prepare) */
} mimo_expert_call;

/* A set of a route: tables are written. */
typedef struct mimo_route_call {
    mimo_expert_call call;
    const void *ids;          /* [tokens, k], in device memory; read when the work runs */
    bool wide;                /* ids of 64 bits, otherwise of 32 */
    int64_t tokens, capacity; /* capacity >= 0 */
} mimo_route_call;

/* A tensor of a move. */
typedef struct mimo_expert_tensor {
    const void *from;  /* of `rows`, this rank's tokens; of a combine, its tile */
    void *to;          /* the other way round */
    int64_t row_bytes; /* by pair, of one value */
    bool by_pair;      /* "tk" and "t", otherwise "th" and "th" */
    mimo_dtype dtype;
    bool narrow;         /* a combine: partial sums travel in `dtype`, otherwise in f32 or f64 */
    mimo_buffer *buffer; /* of `rows`: that the tile lies in, on all ranks at this offset; NULL: the
                            tile takes the way through flat tiles, or is by pair */
    int64_t offset;
} mimo_expert_tensor;

/* A move: tensors by token come first. */
typedef struct mimo_expert_move {
    mimo_expert_call call;
    int count;
    const mimo_expert_tensor *tensors;
} mimo_expert_move;

#endif
