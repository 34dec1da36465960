/*
 * A route in four passes: count the pairs of all ranks, place the experts, list the blocks at both
 * ends, list the sums.
 */
#include "dispatch/route/route_map.h"

#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ------------------------------------------ memory ------------------------------------------ */

/* A pair of the token that is looked at. */
typedef struct token_pair {
    int64_t expert, choice;
} token_pair;

/* What is only used while a route is made. */
struct mimo_route_work {
    token_pair *sorted; /* [top_k] */
    int64_t *next;      /* [experts]: the row of the next pair */
    int64_t *cursor;    /* [ep] */
    /* The memory of the sums, which others only read. */
    uint8_t *partial_adds, *adds, *pair_adds;
    int64_t *begin, *leaf, *pair_begin, *pair_leaf;
};

static mimo_status reserve_blocks(mimo_route_blocks *blocks, int64_t peers, int64_t entries,
                                  int64_t pairs)
{
    MIMO_TRY(mimo_reserve(&blocks->begin, peers + 1, sizeof *blocks->begin));
    MIMO_TRY(mimo_reserve(&blocks->token, entries, sizeof *blocks->token));
    MIMO_TRY(mimo_reserve(&blocks->pairs, entries + 1, sizeof *blocks->pairs));
    MIMO_TRY(mimo_reserve(&blocks->pair, pairs, sizeof *blocks->pair));
    MIMO_TRY(mimo_reserve(&blocks->row, pairs, sizeof *blocks->row));
    return mimo_reserve(&blocks->first, entries, sizeof *blocks->first);
}

static void release_blocks(mimo_route_blocks *blocks)
{
    mimo_release(blocks->begin);
    mimo_release(blocks->token);
    mimo_release(blocks->pairs);
    mimo_release(blocks->pair);
    mimo_release(blocks->row);
    mimo_release(blocks->first);
}

static mimo_status reserve_work(struct mimo_route_work *work, const mimo_route_shape *shape,
                                int64_t tokens, int64_t all_pairs)
{
    int64_t pairs = tokens * shape->top_k;
    int64_t leaves = tokens * mimo_smaller(shape->top_k, shape->ep) * shape->etp;
    MIMO_TRY(mimo_reserve(&work->sorted, shape->top_k, sizeof *work->sorted));
    MIMO_TRY(mimo_reserve(&work->next, shape->experts, sizeof *work->next));
    MIMO_TRY(mimo_reserve(&work->cursor, shape->ep, sizeof *work->cursor));
    MIMO_TRY(mimo_reserve(&work->partial_adds, all_pairs, 1));
    MIMO_TRY(mimo_reserve(&work->begin, tokens + 1, sizeof *work->begin));
    MIMO_TRY(mimo_reserve(&work->leaf, leaves, sizeof *work->leaf));
    MIMO_TRY(mimo_reserve(&work->adds, leaves, 1));
    MIMO_TRY(mimo_reserve(&work->pair_begin, pairs + 1, sizeof *work->pair_begin));
    MIMO_TRY(mimo_reserve(&work->pair_leaf, pairs * shape->etp, sizeof *work->pair_leaf));
    return mimo_reserve(&work->pair_adds, pairs * shape->etp, 1);
}

static void release_work(struct mimo_route_work *work)
{
    if (!work)
        return;
    mimo_release(work->sorted);
    mimo_release(work->next);
    mimo_release(work->cursor);
    mimo_release(work->partial_adds);
    mimo_release(work->begin);
    mimo_release(work->leaf);
    mimo_release(work->adds);
    mimo_release(work->pair_begin);
    mimo_release(work->pair_leaf);
    mimo_release(work->pair_adds);
    mimo_release(work);
}

static mimo_status most_rows(int64_t *rows, int64_t *pairs, const mimo_route_shape *shape,
                             int64_t tokens)
{
    int64_t padding;
    MIMO_TRY(mimo_mul(pairs, tokens, shape->top_k));
    MIMO_TRY(mimo_mul(pairs, *pairs, shape->ranks));
    MIMO_TRY(mimo_mul(&padding, shape->held, shape->alignment - 1));
    return mimo_add(rows, *pairs, padding);
}

mimo_status mimo_route_most_pairs(int64_t *pairs, const mimo_route_shape *shape, int64_t tokens,
                                  const char *name)
{
    int64_t rows;
    mimo_status status = most_rows(&rows, pairs, shape, tokens);
    if (status != MIMO_OK)
        return mimo_fail_prefix(status, "%s: alignment %" PRId64 ": ", name, shape->alignment);
    MIMO_CHECK(rows <= INT32_MAX, MIMO_ERR_OVERFLOW,
               "%s: %" PRId64 " ranks of %" PRId64 " tokens and top_k %" PRId64
               ", aligned to %" PRId64 ", can fill a tile of %" PRId64 " rows, more than %d",
               name, shape->ranks, tokens, shape->top_k, shape->alignment, rows, (int)INT32_MAX);
    return MIMO_OK;
}

mimo_status mimo_route_map_reserve(mimo_route_map *map, const mimo_route_shape *shape, int64_t rank,
                                   int64_t max_tokens)
{
    int64_t pairs, choices = mimo_smaller(shape->top_k, shape->ep);
    *map = (mimo_route_map){.shape = *shape, .rank = rank, .max_tokens = max_tokens};
    MIMO_TRY(mimo_route_most_pairs(&pairs, shape, max_tokens, "route"));
    MIMO_TRY(mimo_reserve(&map->work, 1, sizeof *map->work));
    MIMO_TRY(reserve_work(map->work, shape, max_tokens, pairs));
    MIMO_TRY(mimo_reserve(&map->counts, shape->ranks * shape->experts, sizeof *map->counts));
    MIMO_TRY(mimo_reserve(&map->starts, shape->experts, sizeof *map->starts));
    MIMO_TRY(mimo_reserve(&map->rows, shape->ep, sizeof *map->rows));
    MIMO_TRY(mimo_reserve(&map->ends, shape->held, sizeof *map->ends));
    MIMO_TRY(mimo_reserve(&map->returned, shape->ranks + 1, sizeof *map->returned));
    MIMO_TRY(mimo_reserve(&map->returned_pairs, shape->ranks + 1, sizeof *map->returned_pairs));
    MIMO_TRY(reserve_blocks(&map->in, shape->ranks, shape->ranks * max_tokens, pairs));
    return reserve_blocks(&map->out, shape->ep, max_tokens * choices, max_tokens * shape->top_k);
}

void mimo_route_map_release(mimo_route_map *map)
{
    release_work(map->work);
    mimo_release(map->counts);
    mimo_release(map->starts);
    mimo_release(map->rows);
    mimo_release(map->ends);
    mimo_release(map->returned);
    mimo_release(map->returned_pairs);
    release_blocks(&map->in);
    release_blocks(&map->out);
}

/* ------------------------------------------ experts ----------------------------------------- */

static const mimo_route_id *ids_of(const mimo_route_map *map, const mimo_route_ids *ids,
                                   int64_t rank, int64_t token)
{
    return ids->ids + rank * ids->stride + token * map->shape.top_k;
}

static void count_pairs(mimo_route_map *map, const mimo_route_ids *ids)
{
    const mimo_route_shape *shape = &map->shape;
    memset(map->counts, 0, (size_t)(shape->ranks * shape->experts) * sizeof *map->counts);
    for (int64_t rank = 0; rank < shape->ranks; rank++) {
        const mimo_route_id *id = ids_of(map, ids, rank, 0);
        for (int64_t i = 0; i < ids->tokens[rank] * shape->top_k; i++)
            if (id[i] != MIMO_ROUTE_NONE)
                map->counts[rank * shape->experts + id[i]]++;
    }
}

int64_t mimo_route_expert_rows(const mimo_route_map *map, int64_t expert)
{
    int64_t rows = 0;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++)
        rows += map->counts[rank * map->shape.experts + expert];
    return rows;
}

static void place_experts(mimo_route_map *map)
{
    const mimo_route_shape *shape = &map->shape;
    int64_t first = mimo_route_x(shape, map->rank) * shape->held;
    for (int64_t x = 0; x < shape->ep; x++) {
        int64_t rows = 0;
        for (int64_t e = x * shape->held; e < (x + 1) * shape->held; e++) {
            map->starts[e] = rows;
            rows += mimo_route_expert_rows(map, e);
            rows = (rows + shape->alignment - 1) / shape->alignment * shape->alignment;
            if (e >= first && e < first + shape->held)
                map->ends[e - first] = (int32_t)rows;
        }
        map->rows[x] = rows;
    }
}

/* ------------------------------------------ blocks ------------------------------------------ */

/* The pairs of a token with experts [lo, hi), in ascending (expert, choice). */
static int64_t sort_pairs(token_pair *sorted, const mimo_route_id *ids, int64_t top_k,
                          const mimo_route_id range[2])
{
    int64_t count = 0;
    for (int64_t choice = 0; choice < top_k; choice++) {
        int64_t at = count;
        if (ids[choice] < range[0] || ids[choice] >= range[1])
            continue;
        for (; at > 0 && sorted[at - 1].expert > ids[choice]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = (token_pair){ids[choice], choice};
        count++;
    }
    return count;
}

/* Which rank's tokens are listed, where, and from which entry and pair on. */
typedef struct block_writer {
    mimo_route_map *map;
    const mimo_route_ids *ids;
    mimo_route_blocks *blocks;
    int64_t entry, pair;
} block_writer;

/* Append a token with `count` > 0 sorted pairs. */
static void append_token(block_writer *it, int64_t token, int64_t count)
{
    mimo_route_blocks *blocks = it->blocks;
    int64_t first = it->pair, top_k = it->map->shape.top_k;
    for (int64_t i = 0; i < count; i++) {
        const token_pair *at = &it->map->work->sorted[i];
        blocks->pair[it->pair] = token * top_k + (MIMO_MUTATED("weights-by-slot") ? i : at->choice);
        blocks->row[it->pair++] = it->map->work->next[at->expert]++;
    }
    blocks->token[it->entry] = token;
    blocks->first[it->entry] = blocks->row[first];
    blocks->pairs[it->entry++] = first;
    blocks->pairs[it->entry] = it->pair;
}

/* Append the block of a rank's tokens and an x. */
static void append_block(block_writer *it, int64_t rank, int64_t x)
{
    const mimo_route_shape *shape = &it->map->shape;
    const mimo_route_id range[] = {(mimo_route_id)(x * shape->held),
                                   (mimo_route_id)((x + 1) * shape->held)};
    for (int64_t token = 0; token < it->ids->tokens[rank]; token++) {
        const mimo_route_id *ids = ids_of(it->map, it->ids, rank, token);
        int64_t count = sort_pairs(it->map->work->sorted, ids, shape->top_k, range);
        if (count > 0)
            append_token(it, token, count);
    }
}

static void list_in(mimo_route_map *map, const mimo_route_ids *ids)
{
    const mimo_route_shape *shape = &map->shape;
    block_writer writer = {.map = map, .ids = ids, .blocks = &map->in};
    memcpy(map->work->next, map->starts, (size_t)shape->experts * sizeof *map->starts);
    map->in.begin[0] = map->in.pairs[0] = 0;
    for (int64_t rank = 0; rank < shape->ranks; rank++) {
        append_block(&writer, rank, mimo_route_x(shape, map->rank));
        map->in.begin[rank + 1] = writer.entry;
    }
}

/* Rows of this rank's pairs come behind those of all ranks before it. */
static void skip_earlier_ranks(mimo_route_map *map)
{
    const mimo_route_shape *shape = &map->shape;
    memcpy(map->work->next, map->starts, (size_t)shape->experts * sizeof *map->starts);
    for (int64_t rank = 0; rank < map->rank && !MIMO_MUTATED("route-own-counts"); rank++)
        for (int64_t e = 0; e < shape->experts; e++)
            map->work->next[e] += map->counts[rank * shape->experts + e];
}

static void list_out(mimo_route_map *map, const mimo_route_ids *ids)
{
    block_writer writer = {.map = map, .ids = ids, .blocks = &map->out};
    skip_earlier_ranks(map);
    map->out.begin[0] = map->out.pairs[0] = 0;
    for (int64_t x = 0; x < map->shape.ep; x++) {
        append_block(&writer, map->rank, x);
        map->out.begin[x + 1] = writer.entry;
    }
}

/* ------------------------------------------- sums ------------------------------------------- */

/* The expert of this rank that has a row. Rows of an entry ascend, so the search goes on from the
 * last one. */
static int64_t expert_of(const mimo_route_map *map, int64_t from, int64_t row)
{
    while (map->ends[from] <= row)
        from++;
    return from;
}

/* What this rank gives back for each entry: rows of one expert one after the other, experts by the
 * tree over those that the rank has. */
static void list_partial_sums(mimo_route_map *map)
{
    const mimo_route_blocks *in = &map->in;
    uint8_t *adds = map->work->partial_adds;
    int64_t entries = in->begin[map->shape.ranks];
    for (int64_t n = 0; n < entries; n++) {
        int64_t first = in->pairs[n], count = in->pairs[n + 1] - first;
        int64_t a = expert_of(map, 0, in->row[first]), b;
        for (int64_t i = 0; i + 1 < count; i++, a = b) {
            b = expert_of(map, a, in->row[first + i + 1]);
            adds[first + i] =
                (uint8_t)(a == b ? MIMO_SUM_SAME_PLACE : mimo_sum_gap(a, b, map->shape.held));
        }
        mimo_sum_order(adds + first, count);
    }
    map->partial = (mimo_sum_list){entries, in->pairs, in->row, adds};
}

/* Where what each rank gives back begins. */
static void place_returned(mimo_route_map *map)
{
    const mimo_route_blocks *out = &map->out;
    map->returned[0] = map->returned_pairs[0] = 0;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++) {
        int64_t x = mimo_route_x(&map->shape, rank), first = out->begin[x], end = out->begin[x + 1];
        map->returned[rank + 1] = map->returned[rank] + end - first;
        map->returned_pairs[rank + 1] =
            map->returned_pairs[rank] + out->pairs[end] - out->pairs[first];
    }
}

/* The terms of a token from the ranks of one x, by the tree over these. Returns where the next term
 * goes. */
static int64_t append_terms(mimo_route_map *map, int64_t at, int64_t x, int64_t index)
{
    int64_t etp = map->shape.etp;
    if (MIMO_MUTATED("etp-first-part"))
        etp = 1;
    for (int64_t t = 0; t < etp; t++, at++) {
        map->work->leaf[at] = map->returned[x * map->shape.etp + t] + index;
        if (t + 1 < etp)
            map->work->adds[at] = (uint8_t)(MIMO_SUM_INNER + mimo_sum_gap(t, t + 1, etp));
    }
    return at;
}

/* What a token adds: parts of an x by the tree over etp, these by the tree over ep. */
static void list_sums(mimo_route_map *map, int64_t tokens)
{
    struct mimo_route_work *work = map->work;
    const mimo_route_blocks *out = &map->out;
    int64_t at = 0, ep = map->shape.ep;
    memcpy(work->cursor, out->begin, (size_t)ep * sizeof *work->cursor);
    for (int64_t token = 0; token < tokens; token++) {
        int64_t last = -1;
        work->begin[token] = at;
        for (int64_t x = 0; x < ep; x++) {
            int64_t entry = work->cursor[x];
            if (entry == out->begin[x + 1] || out->token[entry] != token)
                continue;
            if (last >= 0)
                work->adds[at - 1] = (uint8_t)mimo_sum_gap(last, x, ep);
            work->cursor[x]++;
            if (last >= 0 && MIMO_MUTATED("combine-one-place"))
                continue;
            last = x;
            at = append_terms(map, at, x, entry - out->begin[x]);
        }
        mimo_sum_order(work->adds + work->begin[token], at - work->begin[token]);
    }
    work->begin[tokens] = at;
    map->sums = (mimo_sum_list){tokens, work->begin, work->leaf, work->adds};
}

/* A value of a pair: its parts, by the tree over etp. */
static void list_pair(mimo_route_map *map, int64_t pair, int64_t x, int64_t index)
{
    struct mimo_route_work *work = map->work;
    int64_t etp = map->shape.etp, at = work->pair_begin[pair];
    for (int64_t t = 0; t < etp; t++) {
        work->pair_leaf[at + t] = map->returned_pairs[x * etp + t] + index;
        if (t + 1 < etp)
            work->pair_adds[at + t] = (uint8_t)mimo_sum_gap(t, t + 1, etp);
    }
    mimo_sum_order(work->pair_adds + at, etp);
}

static void list_pair_sums(mimo_route_map *map, const mimo_route_ids *ids)
{
    struct mimo_route_work *work = map->work;
    const mimo_route_blocks *out = &map->out;
    int64_t pairs = ids->tokens[map->rank] * map->shape.top_k;
    const mimo_route_id *id = ids_of(map, ids, map->rank, 0);
    work->pair_begin[0] = 0;
    for (int64_t i = 0; i < pairs; i++)
        work->pair_begin[i + 1] =
            work->pair_begin[i] + (id[i] == MIMO_ROUTE_NONE ? 0 : map->shape.etp);
    for (int64_t x = 0; x < map->shape.ep; x++) {
        int64_t first = out->pairs[out->begin[x]], end = out->pairs[out->begin[x + 1]];
        for (int64_t q = first; q < end; q++)
            list_pair(map, out->pair[q], x, q - first);
    }
    map->pair_sums = (mimo_sum_list){pairs, work->pair_begin, work->pair_leaf, work->pair_adds};
}

/* -------------------------------------------- all ------------------------------------------- */

void mimo_route_map_fill(mimo_route_map *map, const mimo_route_ids *ids)
{
    count_pairs(map, ids);
    place_experts(map);
    list_in(map, ids);
    list_out(map, ids);
    list_partial_sums(map);
    place_returned(map);
    list_sums(map, ids->tokens[map->rank]);
    list_pair_sums(map, ids);
}

int64_t mimo_route_overflow(const mimo_route_map *map, const mimo_route_ids *ids)
{
    for (int64_t rank = 0; rank < map->shape.ranks; rank++) {
        int64_t capacity = ids->capacity[rank];
        if (MIMO_MUTATED("capacity-own") && rank != map->rank)
            continue;
        if (capacity >= 0 && mimo_route_rows(map, rank) > capacity)
            return rank;
    }
    return -1;
}

bool mimo_route_is_lost(const mimo_route_map *map, const mimo_route_ids *ids, int64_t x,
                        int64_t row)
{
    for (int64_t t = 0; t < map->shape.etp; t++) {
        int64_t capacity = ids->capacity[x * map->shape.etp + t];
        if (capacity >= 0 && row >= capacity && !MIMO_MUTATED("lost-as-zero"))
            return true;
    }
    return false;
}
