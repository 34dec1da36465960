#include "dispatch_routing.h"

#include <stdbool.h>
#include <stdlib.h>

#include "bench_support.h"

const char *const routing_names[ROUTING_KINDS] = {"even", "zipf", "one-rank"};

/* ---------------------------------------- ids ----------------------------------------- */

/* The choices of all ranks. */
typedef struct draw {
    const routing_sizes *sizes;
    int32_t *ids; /* [ranks * tokens, top_k] */
} draw;

static double random_of(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* sums[e]: how likely an expert up to e is. */
static void weigh(double *sums, const routing_sizes *sizes, routing_kind kind)
{
    int64_t held = sizes->experts / sizes->ranks;
    int64_t first = held > sizes->top_k ? held : sizes->top_k;
    double sum = 0;
    for (int64_t e = 0; e < sizes->experts; e++) {
        double weight = kind == ROUTING_ZIPF ? 1 / (double)(e + 1) : 1;
        sum += kind == ROUTING_ONE_RANK && e >= first ? 0 : weight;
        sums[e] = sum;
    }
}

static int32_t pick(const double *sums, int64_t experts, double at)
{
    int64_t low = 0, high = experts - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (sums[middle] > at * sums[experts - 1])
            high = middle;
        else
            low = middle + 1;
    }
    return (int32_t)low;
}

static bool is_among(const int32_t *ids, int64_t count, int32_t id)
{
    for (int64_t j = 0; j < count; j++)
        if (ids[j] == id)
            return true;
    return false;
}

static draw draw_ids(const routing_sizes *sizes, routing_kind kind)
{
    uint64_t state = 1 + (uint64_t)kind;
    int64_t tokens = sizes->ranks * sizes->tokens, k = sizes->top_k;
    draw made = {sizes, bench_room(tokens * k, sizeof *made.ids)};
    double *sums = bench_room(sizes->experts, sizeof *sums);
    weigh(sums, sizes, kind);
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t j = 0; j < k; j++)
            do
                made.ids[i * k + j] = pick(sums, sizes->experts, random_of(&state));
            while (is_among(&made.ids[i * k], j, made.ids[i * k + j]));
    free(sums);
    return made;
}

static int64_t rank_of(const draw *it, int32_t id)
{
    return id / (it->sizes->experts / it->sizes->ranks);
}

/* The choice of a token that is this expert; -1: none is. */
static int64_t choice_of(const draw *it, int64_t token, int64_t expert)
{
    for (int64_t j = 0; j < it->sizes->top_k; j++)
        if (it->ids[token * it->sizes->top_k + j] == expert)
            return j;
    return -1;
}

/* The choices of a token on a rank. */
static int64_t choices_on(const draw *it, int64_t token, int64_t rank)
{
    int64_t count = 0;
    for (int64_t j = 0; j < it->sizes->top_k; j++)
        count += rank_of(it, it->ids[token * it->sizes->top_k + j]) == rank;
    return count;
}

/* --------------------------------------- counts --------------------------------------- */

/* Rows from one rank to another: a row a pair, or once. */
static int64_t rows_between(const draw *it, int64_t from, int64_t to, bool once)
{
    int64_t count = 0;
    for (int64_t i = 0; i < it->sizes->tokens; i++) {
        int64_t on = choices_on(it, from * it->sizes->tokens + i, to);
        count += once ? on > 0 : on;
    }
    return count;
}

static routing_counts count_rows(const draw *it, int64_t rank, bool once)
{
    int64_t ranks = it->sizes->ranks;
    routing_counts made = {bench_room(ranks, sizeof *made.to), bench_room(ranks, sizeof *made.from),
                           0, 0};
    for (int64_t r = 0; r < ranks; r++) {
        made.to[r] = rows_between(it, rank, r, once);
        made.from[r] = rows_between(it, r, rank, once);
        made.sent += made.to[r];
        made.received += made.from[r];
    }
    return made;
}

static void free_counts(routing_counts *it)
{
    free(it->to);
    free(it->from);
}

static void find_most(routing *out, const draw *it)
{
    for (int64_t r = 0; r < it->sizes->ranks; r++) {
        routing_counts pairs = count_rows(it, r, false), once = count_rows(it, r, true);
        int64_t leaves = once.sent - once.to[r], comes = once.received - once.from[r];
        int64_t link = leaves > comes ? leaves : comes;
        out->most_rows = pairs.received > out->most_rows ? pairs.received : out->most_rows;
        out->most_link = link > out->most_link ? link : out->most_link;
        free_counts(&pairs);
        free_counts(&once);
    }
}

/* ---------------------------------------- lists --------------------------------------- */

static void list_sent(routing *out, const draw *it, int64_t rank)
{
    int64_t held = it->sizes->experts / it->sizes->ranks, pairs = 0, once = 0;
    const int64_t first = rank * it->sizes->tokens;
    out->pair_tokens = bench_room(out->pairs.sent, sizeof *out->pair_tokens);
    out->once_tokens = bench_room(out->once.sent, sizeof *out->once_tokens);
    for (int64_t r = 0; r < it->sizes->ranks; r++) {
        for (int64_t e = r * held; e < (r + 1) * held; e++)
            for (int64_t i = 0; i < it->sizes->tokens; i++)
                if (choice_of(it, first + i, e) >= 0)
                    out->pair_tokens[pairs++] = (int32_t)i;
        for (int64_t i = 0; i < it->sizes->tokens; i++)
            if (choices_on(it, first + i, r) > 0)
                out->once_tokens[once++] = (int32_t)i;
    }
}

/* Where rows of each rank begin among those that are received; at: the next one of each. */
static int32_t *begins_of(const routing_counts *counts, int64_t ranks)
{
    int32_t *at = bench_room(ranks, sizeof *at);
    for (int64_t r = 1; r < ranks; r++)
        at[r] = at[r - 1] + (int32_t)counts->from[r - 1];
    return at;
}

/* Of each token of all ranks: which received row it is. */
static int32_t *rows_of_once(const draw *it, int64_t rank)
{
    int64_t tokens = it->sizes->ranks * it->sizes->tokens;
    int32_t *row = bench_room(tokens, sizeof *row), next = 0;
    for (int64_t i = 0; i < tokens; i++)
        row[i] = choices_on(it, i, rank) > 0 ? next++ : -1;
    return row;
}

static void list_tile(routing *out, const draw *it, int64_t rank)
{
    int64_t held = it->sizes->experts / it->sizes->ranks, row = 0;
    int32_t *at = begins_of(&out->pairs, it->sizes->ranks), *once = rows_of_once(it, rank);
    out->tile_of_pairs = bench_room(out->rows, sizeof(int32_t));
    out->tile_of_once = bench_room(out->rows, sizeof(int32_t));
    out->tile_of_all = bench_room(out->rows, sizeof(int32_t));
    out->pairs_of_tile = bench_room(out->rows, sizeof(int32_t));
    for (int64_t e = rank * held; e < (rank + 1) * held; e++)
        for (int64_t i = 0; i < it->sizes->ranks * it->sizes->tokens; i++) {
            if (choice_of(it, i, e) < 0)
                continue;
            int32_t received = at[i / it->sizes->tokens]++;
            out->tile_of_pairs[row] = received;
            out->pairs_of_tile[received] = (int32_t)row;
            out->tile_of_once[row] = once[i];
            out->tile_of_all[row++] = (int32_t)i;
        }
    free(at);
    free(once);
}

/* The sums of `count` rows whose leaf i belongs to row `of`[i]. */
static routing_sums sums_of(const int32_t *of, int64_t leaves, int64_t count)
{
    routing_sums made = {count, bench_room(count + 1, sizeof(int32_t)),
                         bench_room(leaves, sizeof(int32_t))};
    int32_t *next = bench_room(count, sizeof *next);
    for (int64_t i = 0; i < leaves; i++)
        made.begin[of[i] + 1]++;
    for (int64_t i = 0; i < count; i++)
        made.begin[i + 1] += next[i] = made.begin[i];
    for (int64_t i = 0; i < leaves; i++)
        made.leaf[next[of[i]]++] = (int32_t)i;
    free(next);
    return made;
}

routing routing_make(const routing_sizes *sizes, routing_kind kind, int rank)
{
    draw all = draw_ids(sizes, kind);
    int64_t pairs = sizes->tokens * sizes->top_k;
    routing made = {.sizes = *sizes, .ids = bench_room(pairs, sizeof *made.ids)};
    for (int64_t i = 0; i < pairs; i++)
        made.ids[i] = all.ids[rank * pairs + i];
    made.pairs = count_rows(&all, rank, false);
    made.once = count_rows(&all, rank, true);
    made.rows = made.pairs.received;
    find_most(&made, &all);
    list_sent(&made, &all, rank);
    list_tile(&made, &all, rank);
    made.tokens_of_pairs = sums_of(made.pair_tokens, made.pairs.sent, sizes->tokens);
    made.all_of_tile = sums_of(made.tile_of_all, made.rows, sizes->ranks * sizes->tokens);
    free(all.ids);
    return made;
}

void routing_free(routing *it)
{
    void *const lists[] = {it->ids,
                           it->pair_tokens,
                           it->once_tokens,
                           it->tile_of_pairs,
                           it->tile_of_once,
                           it->tile_of_all,
                           it->pairs_of_tile,
                           it->tokens_of_pairs.begin,
                           it->tokens_of_pairs.leaf,
                           it->all_of_tile.begin,
                           it->all_of_tile.leaf};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]);
    free_counts(&it->pairs);
    free_counts(&it->once);
}
