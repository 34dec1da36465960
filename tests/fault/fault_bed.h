/*
 * Four ranks with a bridge that uses all it has, staging and the checks included. It moves two
 * samples, each held by a pair of tp replicas, to four shards over cp and sp. A dispatch moves two
 * tokens of each rank except one, which has none, to four experts over etp and ep. Every collective
 * call of the library can be made on them by its name: a rank can miss it, call it wrongly, or die
 * in it.
 */
#ifndef MIMO_TESTS_FAULT_BED_H
#define MIMO_TESTS_FAULT_BED_H

#include <mimo/mimo.h>

#include "executors.h"

enum { FAULT_RANKS = 4, FAULT_H = 3, FAULT_SEQ = 8, FAULT_BATCH = 2, FAULT_ROWS = 2 };
enum { FAULT_TOKENS = 2, FAULT_TOP_K = 2, FAULT_TILE = 6, FAULT_WITHOUT_TOKENS = 2 };

typedef struct fault_bed {
    mimo_comm *comm; /* the caller's */
    int rank;
    mimo_grid *src, *dst;
    executor_id executor;
    mimo_bridge *bridge;
    mimo_gradient *gradient;
    mimo_comm *tp; /* ranks {0, 1} and {2, 3} */
    mimo_partition *partition;
    mimo_dispatch *dispatch;
    mimo_route *route;
    float full[FAULT_SEQ][FAULT_H]; /* this rank's sample */
    float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H];
    float second[FAULT_ROWS][FAULT_BATCH][FAULT_H];
    float joined[FAULT_SEQ][FAULT_BATCH][FAULT_H]; /* a full sequence of both samples */
    float weights[FAULT_H];
    float tokens[FAULT_TOKENS][FAULT_H]; /* of this rank */
    float tile[FAULT_TILE][FAULT_H];     /* of its experts */
} fault_bed;

typedef mimo_status (*fault_act)(fault_bed *bed);

/* Objects that are made on the grids. */
enum {
    FAULT_BRIDGE = 1,
    FAULT_GRADIENT = 2,
    FAULT_PARTITION = 4,
    FAULT_DISPATCH = 8,
    FAULT_ALL = 15
};

/* A call. `words` are in its sentence when a rank is missing; `needs` are the objects that it is
 * made on. */
typedef struct fault_call {
    const char *name;
    fault_act act;
    const char *words;
    unsigned needs;
} fault_call;

/* Ends with name NULL. */
extern const fault_call fault_calls[];
/* NULL where no call has that name. */
const fault_call *fault_find_call(const char *name);

/* The first makes the grids, the second the objects on them (tp comes with the partition). */
mimo_status fault_bed_begin(fault_bed *out, mimo_comm *comm, executor_id executor);
mimo_status fault_bed_create(fault_bed *bed, unsigned what);
/* Destroys what was made of the bed, in another order than it was made. */
void fault_bed_end(fault_bed *bed);

mimo_status fault_create_bridge(fault_bed *bed);
/* Creates the bed's bridge by measurement, without a partition. Rows of `hidden` elements lie in
 * buffers. */
mimo_status fault_create_fastest(fault_bed *bed, int64_t hidden);
mimo_status fault_create_gradient(fault_bed *bed);

mimo_tensor fault_full_view(fault_bed *bed);
mimo_tensor fault_shard_view(float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H]);

/* Write the right values; or count the elements that differ from them. */
void fault_fill_full(fault_bed *bed);
void fault_fill_shard(const fault_bed *bed, float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H]);
int fault_wrong_full(fault_bed *bed);
int fault_wrong_shard(const fault_bed *bed, float shard[FAULT_ROWS][FAULT_BATCH][FAULT_H]);
int fault_wrong_tile(fault_bed *bed);
int fault_wrong_tokens(fault_bed *bed);

/* One call of each kind. Its tensors are filled first. */
mimo_status fault_forward(fault_bed *bed);
mimo_status fault_backward(fault_bed *bed);
mimo_status fault_adjoint(fault_bed *bed);
mimo_status fault_gradient_step(fault_bed *bed);

#endif
