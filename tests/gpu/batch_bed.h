/* A whole batch between devices, by the public calls: a set, rows with weights, and a combine with
 * the gradients of weights; and what they must bring, by plain loops. */
#ifndef MIMO_TESTS_BATCH_BED_H
#define MIMO_TESTS_BATCH_BED_H

#include "gpu_calls.h"
#include "plain_route.h"
#include "test_memory.h"

enum { N = 12, H = 16 }; /* most tokens of a rank, and elements of a row */
enum { ROWS, WEIGHTS };  /* the tensors of a batch */

typedef struct batch_case {
    int64_t etp, held, top_k, alignment, capacity;
    bool shared, narrow;
} batch_case;

typedef struct batch {
    const batch_case *its;
    plain_route *plain;
    int32_t *row; /* [ranks, N, top_k]: of each pair, in the tiles of its expert's ranks */
    mimo_dispatch *dispatch;
    mimo_route *route;
    test_room ids;
    test_tile tokens[2], tiles[2]; /* rows and weights, as they are moved */
    test_tile given[2], sums[2];   /* what experts give back, and what becomes of it */
    mimo_stream stream;
    uint64_t seed;
    bool last_apart; /* no token of the last rank has an expert, and none goes there */
} batch;

/* Of a dispatch with this number of thread blocks; 0: as many as it likes. A tile that is shared
 * lies in a buffer of mpi_test_comm(). Collective. */
batch batch_open(mimo_comm *comm, const batch_case *its, int ctas);
void batch_close(batch *it);

/* New ids and new values, at the same places. */
void batch_prepare(batch *it, uint64_t seed);

/* The calls, on the stream of the batch. */
mimo_status batch_set(const batch *it);
mimo_status batch_rows(const batch *it);
mimo_status batch_combine(const batch *it);

/* Compare the tiles, which have been pulled. */
void batch_expect_rows(const batch *it);
/* Pull and compare all that the three calls bring. Returns how many tokens lost a pair. */
int batch_expect_all(const batch *it);

#endif
