/* The route of one rank: where each pair lies, and what this rank sends, receives and adds. A pure
 * function of the ids of all ranks. */
#ifndef MIMO_DISPATCH_ROUTE_MAP_H
#define MIMO_DISPATCH_ROUTE_MAP_H

#include "dispatch/route/route_shape.h"
#include "dispatch/route/sum_order.h"

/* Blocks between this rank and others, by peer. An entry is a token that has pairs there; its pairs
 * ascend in (expert, choice), and so do their rows. */
typedef struct mimo_route_blocks {
    int64_t *begin; /* [peers + 1]: entries begin[i] to begin[i + 1] are those of peer i */
    int64_t *token; /* [entries] */
    int64_t *pairs; /* [entries + 1]: pairs[n] to pairs[n + 1] are those of entry n */
    int64_t *pair;  /* [pairs]: token * top_k + choice */
    int64_t *row;   /* [pairs]: in the tile of the experts' ranks */
    int64_t *first; /* [entries]: the first row of each, which the token's row is written to */
} mimo_route_blocks;

typedef struct mimo_route_map {
    mimo_route_shape shape;
    int64_t rank, max_tokens;

    /* Of all ranks. */
    int64_t *counts; /* [ranks, experts]: pairs */
    int64_t *starts; /* [experts]: the first row of each, in the tile of its ranks */
    int64_t *rows;   /* [ep]: rows that these tiles need, padding behind the last expert included */

    /* Of this rank's tile. */
    int32_t *ends;         /* [held]: where each of its experts ends, padding included */
    mimo_route_blocks in;  /* by rank of the token */
    mimo_sum_list partial; /* one for each entry, of rows */

    /* Of this rank's tokens. */
    mimo_route_blocks out;   /* by x: the etp ranks of one x get the same rows */
    int64_t *returned;       /* [ranks + 1]: where the partial sums of each rank begin in what comes
                              back, one for each entry of `out` of that rank's x */
    int64_t *returned_pairs; /* the same for values of pairs */
    mimo_sum_list sums;      /* one for each token, of what comes back */
    mimo_sum_list pair_sums; /* one for each token and choice */

    struct mimo_route_work *work;
} mimo_route_map;

/* The pairs of all ranks where each has this number of tokens. MIMO_ERR_OVERFLOW where a tile that
 * has all of them has 2^31 rows and more; `name` begins the sentence. */
mimo_status mimo_route_most_pairs(int64_t *pairs, const mimo_route_shape *shape, int64_t tokens,
                                  const char *name);

/* Memory for any route in which no rank has more tokens; everything is to be released, also after
 * an error. Errors as above. */
mimo_status mimo_route_map_reserve(mimo_route_map *map, const mimo_route_shape *shape, int64_t rank,
                                   int64_t max_tokens);
void mimo_route_map_release(mimo_route_map *map);

/* Find the route of these ids, in which no rank has more than max_tokens tokens. */
void mimo_route_map_fill(mimo_route_map *map, const mimo_route_ids *ids);

/* Rows that the tile of a rank needs. */
static inline int64_t mimo_route_rows(const mimo_route_map *map, int64_t rank)
{
    return map->rows[mimo_route_x(&map->shape, rank)];
}

/* Rows of an expert, on each of its ranks, padding not included. */
int64_t mimo_route_expert_rows(const mimo_route_map *map, int64_t expert);

/* The first rank whose tile has fewer rows than it needs; -1: none has. */
int64_t mimo_route_overflow(const mimo_route_map *map, const mimo_route_ids *ids);

/* Whether a row lies behind the end of a tile of these ranks. */
bool mimo_route_is_lost(const mimo_route_map *map, const mimo_route_ids *ids, int64_t x,
                        int64_t row);

#endif
