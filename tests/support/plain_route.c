#include "plain_route.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

/* ------------------------------------------- cases ------------------------------------------ */

plain_route *plain_route_create(int64_t ranks, int64_t etp, int64_t experts, int64_t top_k,
                                int64_t alignment)
{
    plain_route *route = calloc(1, sizeof *route);
    *route = (plain_route){.ranks = ranks,
                           .etp = etp,
                           .experts = experts,
                           .top_k = top_k,
                           .alignment = alignment,
                           .tokens = calloc((size_t)ranks, sizeof(int64_t)),
                           .ids = calloc((size_t)ranks, sizeof(int32_t *))};
    return route;
}

void plain_route_set(plain_route *route, int64_t rank, int64_t tokens, const int32_t *ids)
{
    size_t bytes = (size_t)(tokens * route->top_k) * sizeof *ids;
    free(route->ids[rank]);
    route->ids[rank] = malloc(bytes + 1);
    if (bytes > 0)
        memcpy(route->ids[rank], ids, bytes);
    route->tokens[rank] = tokens;
}

int64_t plain_random(uint64_t seed, int64_t index, int64_t below)
{
    return (int64_t)(mimo_hash_int(seed, index) % (uint64_t)below);
}

static bool chosen_before(const int32_t *ids, int64_t choice, int64_t expert)
{
    for (int64_t j = 0; j < choice; j++)
        if (ids[j] == expert)
            return true;
    return false;
}

/* One pair of eight is none; half of the experts get three quarters of the others. */
static int32_t draw_id(const plain_draw *draw, int64_t index, int64_t experts)
{
    if (plain_random(draw->seed, 3 * index, 8) == 0)
        return -1;
    bool few = plain_random(draw->seed, 3 * index + 1, 2) == 0;
    return (int32_t)plain_random(draw->seed, 3 * index + 2, few ? (experts + 1) / 2 : experts);
}

void plain_route_draw(plain_route *route, const plain_draw *draw)
{
    for (int64_t rank = 0; rank < route->ranks; rank++) {
        uint64_t seed = draw->seed + (uint64_t)rank * 7919;
        bool none = plain_random(seed, -1, 5) == 0;
        int64_t tokens = none ? 0 : plain_random(seed, -2, draw->most_tokens + 1);
        int32_t *ids = calloc((size_t)(tokens * route->top_k) + 1, sizeof *ids);
        for (int64_t i = 0; i < tokens * route->top_k; i++) {
            const plain_draw own = {seed, 0, false};
            int64_t choice = i % route->top_k;
            ids[i] = draw_id(&own, i, route->experts);
            if (!draw->twice && chosen_before(ids + i - choice, choice, ids[i]))
                ids[i] = -1;
        }
        plain_route_set(route, rank, tokens, ids);
        free(ids);
    }
}

void plain_route_destroy(plain_route *route)
{
    for (int64_t rank = 0; rank < route->ranks; rank++)
        free(route->ids[rank]);
    free(route->ids);
    free(route->tokens);
    free(route);
}

/* ------------------------------------------- tiles ------------------------------------------ */

static int64_t held_by(const plain_route *route)
{
    return route->experts / (route->ranks / route->etp);
}

/* Walk through a tile: each row to `rows`, if that is not NULL, and each end to `ends`. Returns the
 * number of rows. */
static int64_t walk(plain_row *rows, int32_t *ends, const plain_route *route, int64_t rank)
{
    int64_t count = 0, held = held_by(route), first = rank / route->etp * held;
    for (int64_t e = first; e < first + held; e++) {
        for (int64_t source = 0; source < route->ranks; source++)
            for (int64_t i = 0; i < route->tokens[source] * route->top_k; i++)
                if (route->ids[source][i] == e) {
                    if (rows)
                        rows[count] = (plain_row){e, source, i / route->top_k, i % route->top_k};
                    count++;
                }
        for (; count % route->alignment != 0; count++)
            if (rows)
                rows[count] = (plain_row){e, -1, -1, -1};
        if (ends)
            ends[e - first] = (int32_t)count;
    }
    return count;
}

plain_row *plain_route_tile(int64_t *count, const plain_route *route, int64_t rank)
{
    *count = walk(NULL, NULL, route, rank);
    plain_row *rows = calloc((size_t)*count + 1, sizeof *rows);
    walk(rows, NULL, route, rank);
    return rows;
}

void plain_route_ends(int32_t *ends, const plain_route *route, int64_t rank)
{
    walk(NULL, ends, route, rank);
}

/* ------------------------------------------- sums ------------------------------------------- */

/* A value, or none: then `here` is false. */
typedef struct partial {
    bool here;
    double value;
} partial;

static partial add(const plain_sum *sum, partial a, partial b)
{
    if (!a.here || !b.here)
        return a.here ? a : b;
    volatile float narrow = (float)a.value + (float)b.value;
    return (partial){true, sum->wide ? a.value + b.value : (double)narrow};
}

/* The pairs of a token with an expert, in the order of their choices. */
static partial sum_expert(const plain_sum *sum, const plain_route *route, const plain_row *token,
                          int64_t t)
{
    partial result = {false, 0};
    const int32_t *ids = route->ids[token->rank] + token->token * route->top_k;
    for (int64_t j = 0; j < route->top_k; j++) {
        const plain_row pair = {token->expert, token->rank, token->token, j};
        if (ids[j] == token->expert)
            result = add(sum, result, (partial){true, sum->value(sum->context, &pair, t)});
    }
    return result;
}

static partial sum_experts(const plain_sum *sum, const plain_route *route, plain_row *token,
                           int64_t lo, int64_t hi, int64_t t)
{
    if (hi - lo == 1) {
        token->expert = lo;
        return sum_expert(sum, route, token, t);
    }
    int64_t middle = lo + (hi - lo) / 2;
    partial left = sum_experts(sum, route, token, lo, middle, t);
    return add(sum, left, sum_experts(sum, route, token, middle, hi, t));
}

/* What the ranks [lo, hi) along etp of an x give back. */
static partial sum_parts(const plain_sum *sum, const plain_route *route, plain_row *token,
                         int64_t x, int64_t lo, int64_t hi)
{
    if (hi - lo == 1) {
        int64_t held = held_by(route);
        partial part = sum_experts(sum, route, token, x * held, (x + 1) * held, lo);
        if (part.here && sum->wire)
            part.value = sum->wire(part.value);
        return part;
    }
    int64_t middle = lo + (hi - lo) / 2;
    partial left = sum_parts(sum, route, token, x, lo, middle);
    return add(sum, left, sum_parts(sum, route, token, x, middle, hi));
}

static partial sum_ranks(const plain_sum *sum, const plain_route *route, plain_row *token,
                         int64_t lo, int64_t hi)
{
    if (hi - lo == 1)
        return sum_parts(sum, route, token, lo, 0, route->etp);
    int64_t middle = lo + (hi - lo) / 2;
    partial left = sum_ranks(sum, route, token, lo, middle);
    return add(sum, left, sum_ranks(sum, route, token, middle, hi));
}

double plain_route_sum(const plain_sum *sum, const plain_route *route, int64_t rank, int64_t token)
{
    plain_row at = {0, rank, token, 0};
    partial all = sum_ranks(sum, route, &at, 0, route->ranks / route->etp);
    if (!all.here)
        return 0;
    return sum->round ? sum->round(all.value) : all.value;
}
