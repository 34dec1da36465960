/* Routes by plain loops, from the ids of all ranks alone: what a route must give. Nothing here uses
 * the library's own order of rows or of sums. */
#ifndef MIMO_TESTS_PLAIN_ROUTE_H
#define MIMO_TESTS_PLAIN_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* A group of ranks and what they chose. */
typedef struct plain_route {
    int64_t ranks, etp, experts, top_k, alignment;
    int64_t *tokens; /* [ranks] */
    int32_t **ids;   /* ids[rank][token * top_k + choice] */
} plain_route;

/* A row of a tile: the pair that it holds; rank -1: padding. */
typedef struct plain_row {
    int64_t expert, rank, token, choice;
} plain_row;

/* How random ids are drawn. */
typedef struct plain_draw {
    uint64_t seed;
    int64_t most_tokens; /* some ranks have none */
    bool twice;          /* a token may have an expert twice */
} plain_draw;

plain_route *plain_route_create(int64_t ranks, int64_t etp, int64_t experts, int64_t top_k,
                                int64_t alignment);
void plain_route_set(plain_route *route, int64_t rank, int64_t tokens, const int32_t *ids);
void plain_route_draw(plain_route *route, const plain_draw *draw);
void plain_route_destroy(plain_route *route);

/* The rows of a rank's tile, padding included, and their number. The caller frees them. */
plain_row *plain_route_tile(int64_t *count, const plain_route *route, int64_t rank);

/* Where each expert of a rank ends, padding included. */
void plain_route_ends(int32_t *ends, const plain_route *route, int64_t rank);

/* A random number below `below`, as a function of the seed and an index. */
int64_t plain_random(uint64_t seed, int64_t index, int64_t below);

/* How a tile's values become those of a token: leaves by (expert, choice), in f32 or f64. `wire`
 * and `round` round as the wire and the result do; NULL: nothing is rounded. */
typedef double (*plain_rounding)(double value);
typedef struct plain_sum {
    bool wide; /* additions in f64, otherwise in f32 */
    plain_rounding wire, round;
    /* The value of a pair on the rank with coordinate t. */
    double (*value)(const void *context, const plain_row *pair, int64_t t);
    const void *context;
} plain_sum;

double plain_route_sum(const plain_sum *sum, const plain_route *route, int64_t rank, int64_t token);

#endif
