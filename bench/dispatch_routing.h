/* Which experts the tokens of a benchmark go to, and the lists that other ways than a dispatch need
 * for it. All ranks compute them alike. */
#ifndef MIMO_BENCH_DISPATCH_ROUTING_H
#define MIMO_BENCH_DISPATCH_ROUTING_H

#include <stdint.h>

typedef enum routing_kind {
    ROUTING_EVEN,     /* experts alike */
    ROUTING_ZIPF,     /* expert e, from 0, with a probability like 1 / (e + 1) */
    ROUTING_ONE_RANK, /* experts of rank 0 alone, where it has top_k of them */
    ROUTING_KINDS,
} routing_kind;

extern const char *const routing_names[ROUTING_KINDS];

typedef struct routing_sizes {
    int64_t ranks, tokens, experts, top_k; /* tokens: of each rank */
} routing_sizes;

/* Row i of a list is the sum of these rows: leaf[begin[i]] to leaf[begin[i + 1]]. */
typedef struct routing_sums {
    int64_t count;
    int32_t *begin, *leaf;
} routing_sums;

/* Rows that a rank sends to each rank, and gets from each: [ranks]. */
typedef struct routing_counts {
    int64_t *to, *from;
    int64_t sent, received; /* in all */
} routing_counts;

/* Of one rank. Tiles are in the order of a dispatch: by expert, then by rank, then by token. */
typedef struct routing {
    routing_sizes sizes;
    int32_t *ids;            /* [tokens, top_k], of this rank */
    int64_t rows, most_rows; /* of this rank's tile; of any rank's */
    int64_t most_link; /* rows once a rank that the busiest rank sends to, or gets from, others */
    routing_counts pairs, once;   /* a row a pair; a row once a rank */
    int32_t *pair_tokens;         /* [pairs.sent]: which token a sent row is, by rank and expert */
    int32_t *once_tokens;         /* [once.sent] */
    int32_t *tile_of_pairs;       /* [rows]: the received row that a tile's row is */
    int32_t *tile_of_once;        /* [rows] */
    int32_t *tile_of_all;         /* [rows]: of the tokens of all ranks */
    int32_t *pairs_of_tile;       /* [rows]: the other way round */
    routing_sums tokens_of_pairs; /* [tokens], of rows in the order of pair_tokens */
    routing_sums all_of_tile;     /* [ranks * tokens], of a tile's rows */
} routing;

routing routing_make(const routing_sizes *sizes, routing_kind kind, int rank);
void routing_free(routing *it);

#endif
