/*
 * The proof trusts the ids alone. Where a row must stand is said by the order of the pairs, which
 * it walks through expert by expert. What a rank sends must be what the receiver expects, and each
 * sum must have every part of its token.
 */
#include "dispatch/route/route_proof.h"

#include "core/checked.h"
#include "core/memory.h"

typedef struct route_proof {
    const mimo_virtual_ranks *ranks;
    const mimo_route_map *maps;
    int64_t *marks; /* of one rank: a mark for each row, then for each part of a sum */
} route_proof;

enum { UNMARKED = -1 };

static void clear(const route_proof *proof, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        proof->marks[i] = UNMARKED;
}

/* ------------------------------------------- rows ------------------------------------------- */

/* Mark the rows of a tile with their pairs. */
static mimo_status mark_rows(const route_proof *proof, const mimo_route_map *map)
{
    const mimo_route_blocks *in = &map->in;
    int64_t rows = mimo_route_rows(map, map->rank), entries = in->begin[map->shape.ranks];
    clear(proof, rows);
    for (int64_t source = 0, n = 0; n < entries; n++) {
        while (n >= in->begin[source + 1])
            source++;
        for (int64_t q = in->pairs[n]; q < in->pairs[n + 1]; q++) {
            int64_t row = in->row[q];
            MIMO_CHECK(row >= 0 && row < rows && proof->marks[row] == UNMARKED, MIMO_ERR_INTERNAL,
                       "rank %" PRId64 ": row %" PRId64 " of %" PRId64 " has two pairs, or none",
                       map->rank, row, rows);
            MIMO_CHECK(in->pair[q] / map->shape.top_k == in->token[n] &&
                           in->first[n] == in->row[in->pairs[n]],
                       MIMO_ERR_INTERNAL,
                       "rank %" PRId64 ": row %" PRId64 " is not of token %" PRId64
                       " of rank %" PRId64 ", whose first row is %" PRId64,
                       map->rank, row, in->token[n], source, in->first[n]);
            proof->marks[row] = source * proof->ranks->ids.stride + in->pair[q];
        }
    }
    return MIMO_OK;
}

/* The pairs of an expert stand from *row on, in order. */
static mimo_status prove_expert(const route_proof *proof, const mimo_route_map *map, int64_t expert,
                                int64_t *row)
{
    const mimo_route_ids *ids = &proof->ranks->ids;
    int64_t top_k = map->shape.top_k, rows = mimo_route_rows(map, map->rank);
    for (int64_t rank = 0; rank < map->shape.ranks; rank++)
        for (int64_t pair = 0; pair < ids->tokens[rank] * top_k; pair++) {
            int64_t mark = rank * ids->stride + pair;
            if (ids->ids[mark] != expert)
                continue;
            MIMO_CHECK(*row < rows && proof->marks[*row] == mark, MIMO_ERR_INTERNAL,
                       "rank %" PRId64 ": row %" PRId64 " is not that of rank %" PRId64
                       ", token %" PRId64 ", choice %" PRId64 " and expert %" PRId64,
                       map->rank, *row, rank, pair / top_k, pair % top_k, expert);
            ++*row;
        }
    return MIMO_OK;
}

static mimo_status prove_padding(const route_proof *proof, const mimo_route_map *map,
                                 int64_t expert, int64_t *row)
{
    for (; *row % map->shape.alignment != 0; ++*row)
        MIMO_CHECK(*row < mimo_route_rows(map, map->rank) && proof->marks[*row] == UNMARKED,
                   MIMO_ERR_INTERNAL,
                   "rank %" PRId64 ": row %" PRId64 " behind expert %" PRId64 " is no padding",
                   map->rank, *row, expert);
    return MIMO_OK;
}

static mimo_status prove_tile(const route_proof *proof, const mimo_route_map *map)
{
    int64_t row = 0, held = map->shape.held, first = mimo_route_x(&map->shape, map->rank) * held;
    MIMO_TRY(mark_rows(proof, map));
    for (int64_t expert = first; expert < first + held; expert++) {
        MIMO_CHECK(map->starts[expert] == row, MIMO_ERR_INTERNAL,
                   "rank %" PRId64 ": expert %" PRId64 " begins at row %" PRId64
                   ", and the pairs before it end at %" PRId64,
                   map->rank, expert, map->starts[expert], row);
        MIMO_TRY(prove_expert(proof, map, expert, &row));
        MIMO_TRY(prove_padding(proof, map, expert, &row));
        MIMO_CHECK(map->ends[expert - first] == row, MIMO_ERR_INTERNAL,
                   "rank %" PRId64 ": expert %" PRId64 " ends at row %" PRId32 ", not %" PRId64,
                   map->rank, expert, map->ends[expert - first], row);
    }
    MIMO_CHECK(row == mimo_route_rows(map, map->rank), MIMO_ERR_INTERNAL,
               "rank %" PRId64 ": %" PRId64 " rows, and the experts have %" PRId64, map->rank,
               mimo_route_rows(map, map->rank), row);
    return MIMO_OK;
}

/* ------------------------------------------ blocks ------------------------------------------ */

static bool same_entry(const mimo_route_blocks *a, int64_t n, const mimo_route_blocks *b, int64_t m)
{
    int64_t pairs = a->pairs[n + 1] - a->pairs[n];
    bool same = a->token[n] == b->token[m] && b->first[m] == a->first[n] &&
                b->pairs[m + 1] - b->pairs[m] == pairs && pairs > 0;
    for (int64_t q = 0; q < pairs && same; q++)
        same = a->pair[a->pairs[n] + q] == b->pair[b->pairs[m] + q] &&
               a->row[a->pairs[n] + q] == b->row[b->pairs[m] + q];
    return same;
}

/* Tokens ascend, and so do the rows of a token. */
static bool in_order(const mimo_route_blocks *blocks, int64_t n, int64_t first)
{
    bool ascend = n == first || blocks->token[n - 1] < blocks->token[n];
    for (int64_t q = blocks->pairs[n] + 1; q < blocks->pairs[n + 1]; q++)
        ascend = ascend && blocks->row[q - 1] < blocks->row[q];
    return ascend;
}

/* What `sender` lists for `receiver` is what that lists for the sender. */
static mimo_status prove_block(const route_proof *proof, int64_t sender, int64_t receiver)
{
    int64_t x = mimo_route_x(&proof->ranks->shape, receiver);
    const mimo_route_blocks *out = &proof->maps[sender].out, *in = &proof->maps[receiver].in;
    int64_t n = out->begin[x], m = in->begin[sender];
    MIMO_CHECK(out->begin[x + 1] - n == in->begin[sender + 1] - m, MIMO_ERR_INTERNAL,
               "rank %" PRId64 " sends %" PRId64 " tokens to rank %" PRId64
               ", which expects %" PRId64,
               sender, out->begin[x + 1] - n, receiver, in->begin[sender + 1] - m);
    for (int64_t first = n; n < out->begin[x + 1]; n++, m++)
        MIMO_CHECK(same_entry(out, n, in, m) && in_order(out, n, first), MIMO_ERR_INTERNAL,
                   "rank %" PRId64 " sends token %" PRId64 " to rank %" PRId64
                   ", which expects token %" PRId64 " with other rows",
                   sender, out->token[n], receiver, in->token[m]);
    return MIMO_OK;
}

/* ------------------------------------------- sums ------------------------------------------- */

/* The additions of a sum leave one value, and find two values each time. */
static bool adds_to_one(const mimo_sum_list *sums, int64_t i)
{
    int64_t open = 0;
    for (int64_t at = sums->begin[i]; at < sums->begin[i + 1]; at++) {
        open += 1 - (int64_t)sums->adds[at];
        if (open < 1)
            return false;
    }
    return open == 1 || sums->begin[i] == sums->begin[i + 1];
}

/* The parts that are to be added are marked with their sums. Every sum has its own, once. */
static mimo_status prove_sums(const route_proof *proof, const mimo_route_map *map,
                              const mimo_sum_list *sums, int64_t parts)
{
    int64_t marked = 0;
    for (int64_t i = 0; i < parts; i++)
        marked += proof->marks[i] != UNMARKED;
    for (int64_t i = 0; i < sums->count; i++)
        for (int64_t at = sums->begin[i]; at < sums->begin[i + 1]; at++, marked--) {
            int64_t leaf = sums->leaf[at];
            MIMO_CHECK(leaf >= 0 && leaf < parts && proof->marks[leaf] == i && adds_to_one(sums, i),
                       MIMO_ERR_INTERNAL,
                       "rank %" PRId64 ": sum %" PRId64 " does not have part %" PRId64
                       " of %" PRId64 " once",
                       map->rank, i, leaf, parts);
            proof->marks[leaf] = UNMARKED;
        }
    MIMO_CHECK(marked == 0, MIMO_ERR_INTERNAL, "rank %" PRId64 ": %" PRId64 " parts are in no sum",
               map->rank, marked);
    return MIMO_OK;
}

static mimo_status prove_token_sums(const route_proof *proof, const mimo_route_map *map)
{
    const mimo_route_blocks *out = &map->out;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++) {
        int64_t x = mimo_route_x(&map->shape, rank), first = out->begin[x];
        for (int64_t n = first; n < out->begin[x + 1]; n++)
            proof->marks[map->returned[rank] + n - first] = out->token[n];
    }
    return prove_sums(proof, map, &map->sums, map->returned[map->shape.ranks]);
}

static mimo_status prove_pair_sums(const route_proof *proof, const mimo_route_map *map)
{
    const mimo_route_blocks *out = &map->out;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++) {
        int64_t x = mimo_route_x(&map->shape, rank), first = out->pairs[out->begin[x]];
        for (int64_t q = first; q < out->pairs[out->begin[x + 1]]; q++)
            proof->marks[map->returned_pairs[rank] + q - first] = out->pair[q];
    }
    return prove_sums(proof, map, &map->pair_sums, map->returned_pairs[map->shape.ranks]);
}

static mimo_status prove_partial_sums(const route_proof *proof, const mimo_route_map *map)
{
    const mimo_route_blocks *in = &map->in;
    int64_t rows = mimo_route_rows(map, map->rank);
    clear(proof, rows);
    for (int64_t n = 0; n < in->begin[map->shape.ranks]; n++)
        for (int64_t q = in->pairs[n]; q < in->pairs[n + 1]; q++)
            proof->marks[in->row[q]] = n;
    return prove_sums(proof, map, &map->partial, rows);
}

/* -------------------------------------------- all ------------------------------------------- */

static mimo_status prove_rank(const route_proof *proof, int64_t rank)
{
    MIMO_TRY(prove_tile(proof, &proof->maps[rank]));
    for (int64_t receiver = 0; receiver < proof->ranks->shape.ranks; receiver++)
        MIMO_TRY(prove_block(proof, rank, receiver));
    MIMO_TRY(prove_partial_sums(proof, &proof->maps[rank]));
    MIMO_TRY(prove_token_sums(proof, &proof->maps[rank]));
    return prove_pair_sums(proof, &proof->maps[rank]);
}

/* The most rows of a tile, or parts that come back to a rank. */
static int64_t most_marks(const route_proof *proof)
{
    int64_t most = 0;
    for (int64_t rank = 0; rank < proof->ranks->shape.ranks; rank++) {
        const mimo_route_map *map = &proof->maps[rank];
        most = mimo_larger(most, mimo_route_rows(map, rank));
        most = mimo_larger(most, map->returned_pairs[map->shape.ranks]);
    }
    return most;
}

mimo_status mimo_route_prove(const mimo_virtual_ranks *ranks, const mimo_route_map *maps)
{
    route_proof proof = {.ranks = ranks, .maps = maps};
    MIMO_TRY(mimo_reserve(&proof.marks, most_marks(&proof), sizeof *proof.marks));
    mimo_status status = MIMO_OK;
    for (int64_t rank = 0; rank < ranks->shape.ranks && status == MIMO_OK; rank++)
        status = prove_rank(&proof, rank);
    mimo_release(proof.marks);
    return status;
}

static mimo_status prove_all(const mimo_virtual_ranks *ranks, mimo_route_map *maps)
{
    for (int64_t rank = 0; rank < ranks->shape.ranks; rank++)
        MIMO_TRY(mimo_virtual_ranks_route(&maps[rank], ranks, rank));
    return mimo_route_prove(ranks, maps);
}

mimo_status mimo_route_check(const mimo_routing *routing)
{
    mimo_virtual_ranks ranks;
    mimo_route_map *maps = NULL;
    mimo_status status = mimo_virtual_ranks_read(&ranks, routing, "mimo_route_check");
    if (status == MIMO_OK)
        status = mimo_reserve(&maps, ranks.shape.ranks, sizeof *maps);
    if (status == MIMO_OK)
        status = prove_all(&ranks, maps);
    for (int64_t rank = 0; maps && rank < ranks.shape.ranks; rank++)
        mimo_route_map_release(&maps[rank]);
    mimo_release(maps);
    mimo_virtual_ranks_release(&ranks);
    return status;
}
