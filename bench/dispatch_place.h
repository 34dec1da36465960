/* Where a dispatch is measured: in host memory over MPI, or on GPUs over NCCL. The bare calls are
 * those that a user would make instead of a dispatch. All enqueue on one stream, or have ended on
 * return. An error ends the launch. */
#ifndef MIMO_BENCH_DISPATCH_PLACE_H
#define MIMO_BENCH_DISPATCH_PLACE_H

#include <mimo/mimo.h>

#include "dispatch_routing.h"

/* Rows by rank. */
typedef struct place_rows {
    const int64_t *to, *from; /* [ranks]: rows that go to each rank, and come from it */
    int64_t row_bytes;
} place_rows;

typedef void (*place_call)(void *context);

typedef struct dispatch_place {
    mimo_memory memory;
    /* Collective; once. */
    void (*open)(mimo_comm **comm, mimo_stream *stream);
    void (*close)(void);
    void *(*room)(int64_t bytes);
    void (*release)(void *room);
    void (*put)(void *to, const void *from, int64_t bytes);  /* from the host */
    void (*take)(void *to, const void *from, int64_t bytes); /* to the host */
    /* Microseconds of a call, the mean of `calls` that begin together with those of all ranks. */
    double (*time)(place_call call, void *context, int calls);
    /* Record a call that only enqueues, and run it as often as wanted. NULL: calls run by
     * themselves. */
    void *(*record)(place_call call, void *context);
    void (*replay)(void *recorded);
    void (*forget)(void *recorded);

    void (*exchange)(void *to, const void *from, const place_rows *rows);
    void (*gather)(void *to, const void *from, int64_t bytes);         /* bytes of each rank */
    void (*scatter_sums)(float *to, const float *from, int64_t count); /* [ranks * count] */
    /* to[i] = from[index[i]] */
    void (*select)(void *to, const void *from, const int32_t *index, int64_t rows,
                   int64_t row_bytes);
    /* Sums of rows of bf16, in f32: into f32 (wide) or rounded. `begin` and `leaf` lie here. */
    void (*add)(void *to, const void *from, const routing_sums *sums, int64_t hidden, int wide);
} dispatch_place;

extern const dispatch_place dispatch_place_host, dispatch_place_cuda;

#endif
