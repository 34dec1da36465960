/* What dispatch_bench times: the calls of a dispatch, a copy of as many bytes, and what users make
 * instead. All of them move the same tokens of one routing. */
#ifndef MIMO_BENCH_DISPATCH_WAYS_H
#define MIMO_BENCH_DISPATCH_WAYS_H

#include "dispatch_place.h"

typedef enum dispatch_way {
    WAY_FLOOR, /* rows once a rank, contiguous at both ends, pushed into the peers' memory */
    WAY_ROUTE,
    WAY_ROWS,
    WAY_COMBINE,
    WAY_ALL,       /* these three; on a GPU as a graph */
    WAY_PER_PAIR,  /* permute, all-to-all of a row a pair, permute */
    WAY_ONCE,      /* all-to-all of a row once a rank, then index_select */
    WAY_GATHERED,  /* all-gather, then index_select */
    WAY_ADDED,     /* permute, all-to-all of a row a pair back, then index_add_ */
    WAY_SCATTERED, /* index_add_ into the tokens of all ranks, then reduce-scatter, in f32 */
    WAYS,
} dispatch_way;

extern const char *const way_names[WAYS], *const way_keys[WAYS];

typedef struct ways_desc {
    const dispatch_place *place;
    mimo_comm *comm;
    mimo_stream stream;
    int64_t hidden; /* a multiple of 8; rows are bf16 */
    int ctas;
    bool narrow; /* partial sums of a combine in bf16, not f32 */
    bool graph;  /* where graphs are: each way is one, not only WAY_ALL */
} ways_desc;

typedef struct dispatch_ways dispatch_ways;

/* Collective. `routing` is borrowed. */
dispatch_ways *dispatch_ways_new(const ways_desc *desc, const routing *its);
void dispatch_ways_free(dispatch_ways *it);

/* Run all of them once, and compare what they bring bit for bit. The first that differs, or WAYS.
 * Collective; the same on all ranks. */
dispatch_way dispatch_ways_check(dispatch_ways *it);

/* Microseconds of a call, the mean of `calls`, on the slowest rank. Collective. The first time of a
 * way records its graph. */
double dispatch_ways_time(dispatch_ways *it, dispatch_way way, int calls);

#endif
