/* Routes: by hand; then of random ids, proved, and compared with plain loops; then values moved and
 * added between virtual ranks; then the proof on routes that were changed; then every error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "cases_ran.h"
#include "dispatch/route/route_proof.h"
#include "expect_failure.h"
#include "plain_routing.h"

/* ------------------------------------- a group of ranks ------------------------------------- */

/* The routes of all ranks of a case. */
typedef struct routed {
    mimo_route_desc *descs;
    mimo_routing routing;
    mimo_virtual_ranks ranks;
    mimo_route_map *maps;
} routed;

static routed describe(const plain_route *plain, const int64_t *capacity)
{
    routed it = {.descs = calloc((size_t)plain->ranks, sizeof *it.descs)};
    it.routing = plain_routing(it.descs, plain, capacity);
    return it;
}

static routed route_all(const plain_route *plain)
{
    routed it = describe(plain, NULL);
    SUCCEEDS(mimo_virtual_ranks_read(&it.ranks, &it.routing, "test"));
    it.maps = calloc((size_t)plain->ranks, sizeof *it.maps);
    for (int64_t rank = 0; rank < plain->ranks; rank++)
        SUCCEEDS(mimo_virtual_ranks_route(&it.maps[rank], &it.ranks, rank));
    return it;
}

static void release(routed *it)
{
    for (int64_t rank = 0; it->maps && rank < it->routing.rank_count; rank++)
        mimo_route_map_release(&it->maps[rank]);
    if (it->maps)
        mimo_virtual_ranks_release(&it->ranks);
    free(it->maps);
    free(it->descs);
}

static void expect_text(const routed *it, int64_t rank, const char *expected)
{
    char text[2048];
    int64_t length;
    SUCCEEDS(mimo_route_text(&length, text, sizeof text, &it->routing, rank));
    cr_assert_str_eq(text, expected);
    cr_assert_eq(length, (int64_t)strlen(expected));
}

/* ------------------------------------------ goldens ----------------------------------------- */

/* Two ranks, four experts, two choices. */
static plain_route *golden_a(int64_t alignment)
{
    static const int32_t first[] = {1, 0, 3, 1, 2, 3}, second[] = {0, 2, 1, 0};
    plain_route *plain = plain_route_create(2, 1, 4, 2, alignment);
    plain_route_set(plain, 0, 3, first);
    plain_route_set(plain, 1, 2, second);
    return plain;
}

Test(route, golden_a)
{
    plain_route *plain = golden_a(1);
    routed it = describe(plain, NULL);
    SUCCEEDS(mimo_route_check(&it.routing));
    expect_text(&it, 0,
                "rank 0 of 2, t 0, x 0, tokens 3, rows needed 6\n"
                "expert 0 rows [0,3): (0,0,1) (1,0,0) (1,1,1)\n"
                "expert 1 rows [3,6): (0,0,0) (0,1,1) (1,1,0)\n"
                "to rank 0: 0 at 0 3, 1 at 4\n"
                "to rank 1: 1 at 2, 2 at 0 3\n"
                "from rank 0: 0 at 0 3, 1 at 4\n"
                "from rank 1: 0 at 1, 1 at 2 5\n"
                "lost:\n");
    expect_text(&it, 1,
                "rank 1 of 2, t 0, x 1, tokens 2, rows needed 4\n"
                "expert 2 rows [0,2): (0,2,0) (1,0,1)\n"
                "expert 3 rows [2,4): (0,1,0) (0,2,1)\n"
                "to rank 0: 0 at 1, 1 at 2 5\n"
                "to rank 1: 0 at 1\n"
                "from rank 0: 1 at 2, 2 at 0 3\n"
                "from rank 1: 0 at 1\n"
                "lost:\n");
    release(&it);
    plain_route_destroy(plain);
}

/* A row of a token crosses to a rank once, and not once for each pair. */
Test(route, golden_a_crosses_in_four_rows)
{
    int64_t rows = 0, pairs = 0;
    plain_route *plain = golden_a(1);
    routed it = route_all(plain);
    for (int64_t rank = 0; rank < 2; rank++) {
        const mimo_route_blocks *out = &it.maps[rank].out;
        int64_t first = out->begin[1 - rank], end = out->begin[2 - rank];
        rows += end - first;
        pairs += out->pairs[end] - out->pairs[first];
    }
    cr_assert(rows == 4 && pairs == 6, "%d rows of %d pairs", (int)rows, (int)pairs);
    release(&it);
    plain_route_destroy(plain);
}

Test(route, golden_a_aligned)
{
    plain_route *plain = golden_a(4);
    routed it = describe(plain, NULL);
    SUCCEEDS(mimo_route_check(&it.routing));
    expect_text(&it, 0,
                "rank 0 of 2, t 0, x 0, tokens 3, rows needed 8\n"
                "expert 0 rows [0,4): (0,0,1) (1,0,0) (1,1,1) 0\n"
                "expert 1 rows [4,8): (0,0,0) (0,1,1) (1,1,0) 0\n"
                "to rank 0: 0 at 0 4, 1 at 5\n"
                "to rank 1: 1 at 4, 2 at 0 5\n"
                "from rank 0: 0 at 0 4, 1 at 5\n"
                "from rank 1: 0 at 1, 1 at 2 6\n"
                "lost:\n");
    release(&it);
    plain_route_destroy(plain);
}

/* Of capacities 4 and 4, rank 0 needs 6. Its rows 4 and 5 are those of token 1 of either rank. */
Test(route, golden_a_of_capacity_4)
{
    static const int64_t capacity[] = {4, 4};
    plain_route *plain = golden_a(1);
    routed all = route_all(plain), it = describe(plain, capacity);
    expect_text(&it, 1,
                "rank 1 of 2, t 0, x 1, tokens 2, rows needed 4 of 4\n"
                "expert 2 rows [0,2): (0,2,0) (1,0,1)\n"
                "expert 3 rows [2,4): (0,1,0) (0,2,1)\n"
                "to rank 0: 0 at 1, 1 at 2 5\n"
                "to rank 1: 0 at 1\n"
                "from rank 0: 1 at 2, 2 at 0 3\n"
                "from rank 1: 0 at 1\n"
                "lost: 1\n");
    char text[2048];
    mimo_route_text(NULL, text, sizeof text, &it.routing, 0);
    cr_assert(strstr(text, "rows needed 6 of 4\n") && strstr(text, "\nlost: 1\n"), "%s", text);
    for (int rank = 0; rank < 2; rank++) {
        const mimo_route_ids few = {NULL, 0, NULL, capacity};
        cr_assert_eq(mimo_route_overflow(&all.maps[rank], &few), 0, "rank %d", rank);
        cr_assert_eq(mimo_route_overflow(&all.maps[rank], &all.ranks.ids), -1, "rank %d", rank);
    }
    release(&all);
    release(&it);
    plain_route_destroy(plain);
}

/* Four ranks, etp 2 and ep 2. Rank 2 has no token, and rank 3 one without an expert. */
Test(route, golden_b)
{
    static const int32_t ids[][6] = {{1, 0}, {3, 1, 2, 3}, {0}, {0, 2, -1, -1, 1, -1}};
    static const int64_t tokens[] = {1, 2, 0, 3};
    static const int64_t sent[4][4] = {{1, 1, 0, 0}, {1, 1, 2, 2}, {0, 0, 0, 0}, {2, 2, 1, 1}};
    static const int64_t starts[] = {0, 2, 0, 2};
    static const int32_t ends[2][2] = {{2, 5}, {2, 4}};
    plain_route *plain = plain_route_create(4, 2, 4, 2, 1);
    for (int64_t rank = 0; rank < 4; rank++)
        plain_route_set(plain, rank, tokens[rank], ids[rank]);
    routed it = route_all(plain);
    SUCCEEDS(mimo_route_prove(&it.ranks, it.maps));
    for (int64_t rank = 0; rank < 4; rank++) {
        const mimo_route_map *map = &it.maps[rank];
        for (int64_t to = 0; to < 4; to++)
            cr_assert_eq(map->out.begin[to / 2 + 1] - map->out.begin[to / 2], sent[rank][to],
                         "from %d to %d", (int)rank, (int)to);
        cr_assert_arr_eq(map->starts, starts, sizeof starts);
        cr_assert_arr_eq(map->ends, ends[rank / 2], sizeof ends[0]);
    }
    expect_text(&it, 3,
                "rank 3 of 4, t 1, x 1, tokens 3, rows needed 4\n"
                "expert 2 rows [0,2): (1,1,0) (3,0,1)\n"
                "expert 3 rows [2,4): (1,0,0) (1,1,1)\n"
                "to rank 0: 0 at 1, 2 at 4\n"
                "to rank 1: 0 at 1, 2 at 4\n"
                "to rank 2: 0 at 1\n"
                "to rank 3: 0 at 1\n"
                "from rank 0:\n"
                "from rank 1: 0 at 2, 1 at 0 3\n"
                "from rank 2:\n"
                "from rank 3: 0 at 1\n"
                "lost:\n");
    release(&it);
    plain_route_destroy(plain);
}

/* A token that has an expert twice has two rows there, and is sent once. */
Test(route, an_expert_twice)
{
    static const int32_t ids[] = {2, 0, 2};
    plain_route *plain = plain_route_create(2, 1, 4, 3, 1);
    plain_route_set(plain, 0, 1, ids);
    routed it = describe(plain, NULL);
    SUCCEEDS(mimo_route_check(&it.routing));
    expect_text(&it, 1,
                "rank 1 of 2, t 0, x 1, tokens 0, rows needed 2\n"
                "expert 2 rows [0,2): (0,0,0) (0,0,2)\n"
                "expert 3 rows [2,2):\n"
                "to rank 0:\n"
                "to rank 1:\n"
                "from rank 0: 0 at 0 1\n"
                "from rank 1:\n"
                "lost:\n");
    release(&it);
    plain_route_destroy(plain);
}

/* ------------------------------------------ random ------------------------------------------ */

static void expect_tiles(const routed *it, const plain_route *plain)
{
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        const mimo_route_map *map = &it->maps[rank];
        int64_t count, held = map->shape.held;
        plain_row *rows = plain_route_tile(&count, plain, rank);
        int32_t *ends = calloc((size_t)held, sizeof *ends);
        plain_route_ends(ends, plain, rank);
        cr_assert_arr_eq(map->ends, ends, (size_t)held * sizeof *ends);
        cr_assert_eq(mimo_route_rows(map, rank), count);
        int64_t pairs = 0;
        for (int64_t row = 0; row < count; row++)
            pairs += rows[row].rank >= 0;
        for (int64_t source = 0; source < plain->ranks; source++)
            for (int64_t q = map->in.pairs[map->in.begin[source]];
                 q < map->in.pairs[map->in.begin[source + 1]]; q++, pairs--) {
                const plain_row *row = &rows[map->in.row[q]];
                cr_assert(row->rank == source &&
                              row->token * plain->top_k + row->choice == map->in.pair[q],
                          "rank %d, row %d", (int)rank, (int)map->in.row[q]);
            }
        cr_assert_eq(pairs, 0);
        free(rows);
        free(ends);
    }
}

typedef struct random_case {
    int64_t ranks, etp, experts, top_k, alignment, tokens;
    int draws;
} random_case;

Test(route, random_routings, .timeout = 120)
{
    static const random_case cases[] = {
        {1, 1, 4, 2, 1, 9, 20},     {2, 1, 8, 3, 1, 9, 20},    {2, 2, 4, 2, 4, 9, 20},
        {3, 1, 9, 2, 1, 9, 20},     {6, 2, 9, 3, 8, 9, 20},    {4, 2, 16, 4, 1, 17, 20},
        {8, 2, 16, 16, 3, 9, 20},   {8, 1, 64, 8, 16, 33, 10}, {64, 1, 256, 8, 1, 24, 2},
        {64, 2, 256, 8, 16, 12, 2}, {64, 4, 256, 6, 1, 12, 1},
    };
    int ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int seed = 0; seed < cases[i].draws; seed++, ran++) {
            const random_case *it = &cases[i];
            const plain_draw draw = {(uint64_t)(seed + 1), it->tokens, seed % 2 == 0};
            plain_route *plain =
                plain_route_create(it->ranks, it->etp, it->experts, it->top_k, it->alignment);
            plain_route_draw(plain, &draw);
            routed all = route_all(plain);
            cr_assert_eq(mimo_route_prove(&all.ranks, all.maps), MIMO_OK, "case %d, seed %d: %s",
                         (int)i, seed, mimo_last_error());
            expect_tiles(&all, plain);
            release(&all);
            plain_route_destroy(plain);
        }
    CASES_RAN(ran, ran, 155, "routings");
}

/* The route of each of 64 ranks by the public function, of 256 experts. */
Test(route, check_of_64_ranks, .timeout = 120)
{
    plain_route *plain = plain_route_create(64, 1, 256, 8, 1);
    const plain_draw draw = {5, 40, true};
    plain_route_draw(plain, &draw);
    routed it = describe(plain, NULL);
    SUCCEEDS(mimo_route_check(&it.routing));
    release(&it);
    plain_route_destroy(plain);
}

/* ------------------------------- values between virtual ranks ------------------------------- */

/* Rows of one value: a tile of each rank, from the tokens' values. */
static double **move_rows(const routed *it, const plain_route *plain, double *const *tokens)
{
    double **tiles = calloc((size_t)plain->ranks, sizeof *tiles);
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        const mimo_route_map *map = &it->maps[rank];
        tiles[rank] = calloc((size_t)mimo_route_rows(map, rank) + 1, sizeof(double));
    }
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        const mimo_route_blocks *out = &it->maps[rank].out;
        for (int64_t to = 0; to < plain->ranks; to++)
            for (int64_t n = out->begin[to / plain->etp]; n < out->begin[to / plain->etp + 1]; n++)
                for (int64_t q = out->pairs[n]; q < out->pairs[n + 1]; q++)
                    tiles[to][out->row[q]] = tokens[rank][out->token[n]];
    }
    return tiles;
}

/* A sum of a list, by its additions, in f32 or f64. */
static double add_up(const mimo_sum_list *sums, int64_t i, const double *values, bool wide)
{
    double open[MIMO_SUM_OPEN];
    int depth = 0;
    for (int64_t at = sums->begin[i]; at < sums->begin[i + 1]; at++) {
        open[depth++] = values[sums->leaf[at]];
        for (int adds = sums->adds[at]; adds > 0; adds--) {
            depth--;
            double sum = open[depth - 1] + open[depth];
            volatile float narrow = (float)open[depth - 1] + (float)open[depth];
            open[depth - 1] = wide ? sum : (double)narrow;
        }
    }
    return depth == 0 ? 0 : open[0];
}

/* What comes back to a rank: from each rank the partial sums of this rank's block. */
static double *bring_back(const routed *it, double *const *tiles, int64_t rank, bool wide)
{
    const mimo_route_map *own = &it->maps[rank];
    double *back = calloc((size_t)own->returned[own->shape.ranks] + 1, sizeof *back);
    for (int64_t from = 0; from < own->shape.ranks; from++) {
        const mimo_route_map *map = &it->maps[from];
        for (int64_t n = map->in.begin[rank]; n < map->in.begin[rank + 1]; n++)
            back[own->returned[from] + n - map->in.begin[rank]] =
                add_up(&map->partial, n, tiles[from], wide);
    }
    return back;
}

static void free_tiles(double **tiles, int64_t ranks)
{
    for (int64_t rank = 0; rank < ranks; rank++)
        free(tiles[rank]);
    free(tiles);
}

/* Golden A: expert e gives (e + 1) x, the weights are 3/4 and 1/4, and x is 10 s + i + 1. */
Test(route, values_of_golden_a)
{
    static const double y[2][3] = {{1.75, 7, 9.75}, {16.5, 21}};
    static const double dx[2][3] = {{1.75, 3.5, 3.25}, {1.5, 1.75}};
    plain_route *plain = golden_a(1);
    routed it = route_all(plain);
    double x0[] = {1, 2, 3}, x1[] = {11, 12}, *const x[] = {x0, x1};
    double **tiles = move_rows(&it, plain, x);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t rank = 0; rank < 2; rank++) {
            int64_t count;
            plain_row *rows = plain_route_tile(&count, plain, rank);
            for (int64_t row = 0; row < count; row++)
                tiles[rank][row] = (double)(rows[row].expert + 1) *
                                   (rows[row].choice == 0 ? .75 : .25) *
                                   (pass == 0 ? tiles[rank][row] : 1);
            free(rows);
        }
        for (int64_t rank = 0; rank < 2; rank++) {
            double *back = bring_back(&it, tiles, rank, true);
            for (int64_t i = 0; i < plain->tokens[rank]; i++)
                cr_assert_eq(add_up(&it.maps[rank].sums, i, back, true), (pass ? dx : y)[rank][i],
                             "pass %d, rank %d, token %d", pass, (int)rank, (int)i);
            free(back);
        }
    }
    free_tiles(tiles, 2);
    release(&it);
    plain_route_destroy(plain);
}

/* A value whose sums depend on their order. */
static double rough(const void *context, const plain_row *pair, int64_t t)
{
    uint64_t seed = *(const uint64_t *)context;
    int64_t index = ((pair->rank * 1000 + pair->token) * 64 + pair->choice) * 8 + t;
    return (double)(float)((double)plain_random(seed, index, 1 << 30) / 3e8 - 1.7);
}

/* The sums of all tokens of a case, one after the other. */
static double *all_sums(const plain_route *plain, const plain_sum *sum, bool plainly)
{
    int64_t at = 0, tokens = 0;
    routed it = route_all(plain);
    double **tiles = calloc((size_t)plain->ranks, sizeof *tiles);
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        int64_t count;
        plain_row *rows = plain_route_tile(&count, plain, rank);
        tiles[rank] = calloc((size_t)count + 1, sizeof(double));
        for (int64_t row = 0; row < count; row++)
            tiles[rank][row] =
                rows[row].rank < 0 ? NAN : sum->value(sum->context, &rows[row], rank % plain->etp);
        free(rows);
        tokens += plain->tokens[rank];
    }
    double *sums = calloc((size_t)tokens + 1, sizeof *sums);
    for (int64_t rank = 0; rank < plain->ranks; rank++) {
        double *back = bring_back(&it, tiles, rank, false);
        for (int64_t i = 0; i < plain->tokens[rank]; i++)
            sums[at++] = plainly ? plain_route_sum(sum, plain, rank, i)
                                 : add_up(&it.maps[rank].sums, i, back, false);
        free(back);
    }
    free_tiles(tiles, plain->ranks);
    release(&it);
    return sums;
}

static int64_t count_tokens(const plain_route *plain)
{
    int64_t tokens = 0;
    for (int64_t rank = 0; rank < plain->ranks; rank++)
        tokens += plain->tokens[rank];
    return tokens;
}

/* The order of the additions is the tree's. */
Test(route, sums_have_the_bits_of_plain_loops, .timeout = 60)
{
    static const random_case cases[] = {{1, 1, 7, 5, 1, 30, 4},  {4, 2, 16, 6, 4, 30, 4},
                                        {6, 3, 10, 8, 1, 30, 4}, {3, 1, 48, 12, 1, 30, 4},
                                        {8, 8, 5, 4, 1, 30, 4},  {8, 1, 64, 8, 1, 30, 4}};
    int64_t compared = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint64_t seed = 1; seed <= (uint64_t)cases[i].draws; seed++) {
            const random_case *it = &cases[i];
            const plain_draw draw = {seed, it->tokens, true};
            const plain_sum sum = {.value = rough, .context = &seed};
            plain_route *plain =
                plain_route_create(it->ranks, it->etp, it->experts, it->top_k, it->alignment);
            plain_route_draw(plain, &draw);
            double *got = all_sums(plain, &sum, false), *expected = all_sums(plain, &sum, true);
            int64_t tokens = count_tokens(plain);
            for (int64_t n = 0; n < tokens; n++)
                cr_assert_eq(got[n], expected[n], "case %d, seed %d, token %d: %.9g, not %.9g",
                             (int)i, (int)seed, (int)n, got[n], expected[n]);
            compared += tokens;
            free(got);
            free(expected);
            plain_route_destroy(plain);
        }
    CASES_RAN(compared, compared, 1200, "sums");
}

/* The sums of 48 tokens with 64 experts, as ep ranks would have them. Rank 0 has all tokens, so
 * that every token has the same index everywhere. */
static double *sums_over(int64_t *tokens, int64_t ep, uint64_t *seed)
{
    const plain_draw draw = {*seed, 48, false};
    plain_route *one = plain_route_create(1, 1, 64, 8, 1);
    plain_route *plain = plain_route_create(ep, 1, 64, 8, 1);
    plain_route_draw(one, &draw);
    plain_route_set(plain, 0, one->tokens[0], one->ids[0]);
    for (int64_t rank = 1; rank < plain->ranks; rank++)
        plain_route_set(plain, rank, 0, NULL);
    const plain_sum sum = {.value = rough, .context = seed};
    double *sums = all_sums(plain, &sum, false);
    *tokens = plain->tokens[0];
    plain_route_destroy(one);
    plain_route_destroy(plain);
    return sums;
}

/* ep that is a power of two changes no bit. */
Test(route, sums_do_not_depend_on_ep)
{
    int64_t compared = 0, tokens;
    for (uint64_t seed = 11; seed < 19; seed++) {
        double *one = sums_over(&tokens, 1, &seed);
        for (int64_t ep = 2; ep <= 64; ep *= 2, compared += tokens) {
            double *parts = sums_over(&tokens, ep, &seed);
            for (int64_t i = 0; i < tokens; i++)
                cr_assert_eq(one[i], parts[i], "ep %d, token %d", (int)ep, (int)i);
            free(parts);
        }
        free(one);
    }
    CASES_RAN(compared, compared, 600, "sums");
}

/* <y, g> = <x, dx>, in whole numbers: a combine is the adjoint of moving rows. */
Test(route, combine_is_the_adjoint_of_rows, .timeout = 60)
{
    int64_t pairs = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        static const int64_t groups[][2] = {{1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 2}, {8, 2}, {3, 1}};
        const int64_t *group = groups[seed % 7];
        plain_route *plain = plain_route_create(group[0], group[1], 12, 3, 1 + (int64_t)seed % 3);
        const plain_draw draw = {seed, 12, true};
        plain_route_draw(plain, &draw);
        routed it = route_all(plain);
        double **x = calloc((size_t)plain->ranks, sizeof *x), there = 0, back = 0;
        for (int64_t rank = 0; rank < plain->ranks; rank++) {
            x[rank] = calloc((size_t)plain->tokens[rank] + 1, sizeof(double));
            for (int64_t i = 0; i < plain->tokens[rank]; i++)
                x[rank][i] = (double)(plain_random(seed, rank * 100 + i, 41) - 20);
        }
        double **tiles = move_rows(&it, plain, x), **g = calloc((size_t)plain->ranks, sizeof *g);
        for (int64_t rank = 0; rank < plain->ranks; rank++) {
            int64_t count;
            plain_row *rows = plain_route_tile(&count, plain, rank);
            g[rank] = calloc((size_t)count + 1, sizeof(double));
            for (int64_t row = 0; row < count; row++) {
                g[rank][row] = rows[row].rank < 0
                                   ? NAN
                                   : (double)(plain_random(~seed, rank * 1000 + row, 41) - 20);
                if (rows[row].rank >= 0) {
                    there += g[rank][row] * tiles[rank][row];
                    pairs++;
                }
            }
            free(rows);
        }
        for (int64_t rank = 0; rank < plain->ranks; rank++) {
            double *parts = bring_back(&it, g, rank, true);
            for (int64_t i = 0; i < plain->tokens[rank]; i++)
                back += x[rank][i] * add_up(&it.maps[rank].sums, i, parts, true);
            free(parts);
        }
        cr_assert_eq(there, back, "seed %d: %g and %g", (int)seed, there, back);
        free_tiles(tiles, plain->ranks);
        free_tiles(g, plain->ranks);
        free_tiles(x, plain->ranks);
        release(&it);
        plain_route_destroy(plain);
    }
    CASES_RAN(pairs, pairs, 9000, "rows");
}

/* ------------------------------------------ the proof --------------------------------------- */

/* Each change of a route of golden B's kind is noticed. */
typedef void (*route_change)(mimo_route_map *maps);

static void swap(int64_t *a, int64_t *b)
{
    int64_t kept = *a;
    *a = *b;
    *b = kept;
}

static void row_twice(mimo_route_map *maps)
{
    maps[1].in.row[1] = maps[1].in.row[0];
}

static void rows_swapped(mimo_route_map *maps)
{
    swap(&maps[0].in.row[0], &maps[0].in.row[maps[0].in.pairs[1]]);
    swap(&maps[0].in.first[0], &maps[0].in.first[1]);
}

static void start_moved(mimo_route_map *maps)
{
    maps[0].starts[1]++;
}

static void end_moved(mimo_route_map *maps)
{
    maps[1].ends[0]++;
}

static void sent_elsewhere(mimo_route_map *maps)
{
    maps[1].out.row[0]++;
}

static void other_token(mimo_route_map *maps)
{
    maps[1].out.token[0]++;
}

static void rows_added(mimo_route_map *maps)
{
    maps[0].rows[0] += maps[0].shape.alignment;
}

/* One pair more, of the last token, where there is padding. */
static void pair_in_padding(mimo_route_map *maps)
{
    mimo_route_blocks *in = &maps[0].in;
    int64_t entries = in->begin[maps[0].shape.ranks], q = in->pairs[entries]++;
    int64_t row = maps[0].starts[0] + mimo_route_expert_rows(&maps[0], 0);
    cr_assert(row < maps[0].ends[0], "no padding");
    in->pair[q] = in->token[entries - 1] * maps[0].shape.top_k;
    in->row[q] = row;
}

static void token_forgotten(mimo_route_map *maps)
{
    maps[1].out.begin[1]--;
}

static void other_first_row(mimo_route_map *maps)
{
    maps[0].in.first[0]++;
}

static void part_twice(mimo_route_map *maps)
{
    int64_t *leaf = (int64_t *)maps[1].sums.leaf;
    leaf[0] = leaf[1];
}

static void addition_missing(mimo_route_map *maps)
{
    ((uint8_t *)maps[1].sums.adds)[1] = 0;
}

static void pair_part_twice(mimo_route_map *maps)
{
    int64_t *leaf = (int64_t *)maps[1].pair_sums.leaf;
    leaf[0] = leaf[1];
}

static void sum_forgotten(mimo_route_map *maps)
{
    maps[1].sums.count--;
}

static void partial_short(mimo_route_map *maps)
{
    maps[0].partial.count--;
}

Test(route, the_proof_notices_changes)
{
    static const struct {
        route_change change;
        const char *said;
    } changes[] = {{row_twice, "two pairs"},
                   {rows_swapped, "is not that of rank"},
                   {start_moved, "begins at row"},
                   {end_moved, "ends at row"},
                   {sent_elsewhere, "with other rows"},
                   {other_token, "with other rows"},
                   {token_forgotten, "tokens to rank"},
                   {rows_added, "and the experts have"},
                   {pair_in_padding, "is no padding"},
                   {other_first_row, "whose first row is"},
                   {part_twice, "once"},
                   {addition_missing, "once"},
                   {pair_part_twice, "once"},
                   {sum_forgotten, "in no sum"},
                   {partial_short, "in no sum"}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        plain_route *plain = plain_route_create(4, 2, 6, 3, 2);
        const plain_draw draw = {3, 9, true};
        plain_route_draw(plain, &draw);
        routed it = route_all(plain);
        cr_assert(it.maps[1].out.begin[1] > 1 && it.maps[0].in.begin[4] > 3, "too few tokens");
        SUCCEEDS(mimo_route_prove(&it.ranks, it.maps));
        changes[i].change(it.maps);
        FAILS(mimo_route_prove(&it.ranks, it.maps), MIMO_ERR_INTERNAL, "rank ", changes[i].said);
        release(&it);
        plain_route_destroy(plain);
    }
}

/* ------------------------------------------- errors ----------------------------------------- */

Test(route, errors_of_a_routing)
{
    plain_route *plain = golden_a(1);
    routed it = describe(plain, NULL);
    char text[8];
    FAILS(mimo_route_check(NULL), MIMO_ERR_ARGUMENT, "mimo_route_check: routing is NULL");
    FAILS(mimo_route_print(NULL, &it.routing, 0), MIMO_ERR_ARGUMENT, "stream is NULL");
    FAILS(mimo_route_text(NULL, text, -1, &it.routing, 0), MIMO_ERR_ARGUMENT, "text of -1 bytes");
    FAILS(mimo_route_text(NULL, text, 8, &it.routing, 2), MIMO_ERR_ARGUMENT, "rank 2 of 2");
    FAILS(mimo_route_text(NULL, text, 8, &it.routing, -1), MIMO_ERR_ARGUMENT, "rank -1 of 2");
    FILE *full = fopen("/dev/full", "w");
    FAILS(mimo_route_print(full, &it.routing, 1), MIMO_ERR_IO,
          "the route of rank 1 could not be written");
    fclose(full);
#define FAILS_WITH(field, value, status, ...)                   \
    do {                                                        \
        mimo_routing changed = it.routing;                      \
        changed.field = (value);                                \
        FAILS(mimo_route_check(&changed), status, __VA_ARGS__); \
    } while (0)
    FAILS_WITH(experts, 0, MIMO_ERR_ARGUMENT, "0 experts, where 1 to 65535 are possible");
    FAILS_WITH(experts, 65536, MIMO_ERR_ARGUMENT, "65536 experts");
    FAILS_WITH(top_k, 5, MIMO_ERR_ARGUMENT, "top_k 5 of 4 experts");
    FAILS_WITH(top_k, 0, MIMO_ERR_ARGUMENT, "top_k 0 of 4 experts");
    FAILS_WITH(alignment, 0, MIMO_ERR_ARGUMENT, "an alignment of 0 rows");
    FAILS_WITH(etp, 0, MIMO_ERR_ARGUMENT, "etp=0");
    FAILS_WITH(etp, 3, MIMO_ERR_GRID, "2 ranks are no multiple of etp=3");
    FAILS_WITH(experts, 3, MIMO_ERR_GRID, "3 experts over ep=2");
    FAILS_WITH(rank_count, 0, MIMO_ERR_GRID, "0 ranks");
    FAILS_WITH(ranks, NULL, MIMO_ERR_ARGUMENT, "2 of them");
    FAILS_WITH(size, 3, MIMO_ERR_ARGUMENT, "descriptor's size is 3");
    FAILS_WITH(alignment, INT64_C(1) << 40, MIMO_ERR_OVERFLOW, "can fill a tile of");
    release(&it);
    plain_route_destroy(plain);
}

Test(route, errors_of_a_rank)
{
    static const int64_t wide[] = {1, 0, 4, 1};
    plain_route *plain = golden_a(1);
    routed it = describe(plain, NULL);
    const mimo_route_desc good = it.descs[1];
#define FAILS_FOR(field, value, status, ...)                       \
    do {                                                           \
        it.descs[1] = good;                                        \
        it.descs[1].field = (value);                               \
        FAILS(mimo_route_check(&it.routing), status, __VA_ARGS__); \
    } while (0)
    FAILS_FOR(tokens, -1, MIMO_ERR_ARGUMENT, "rank 1: route: -1 tokens");
    FAILS_FOR(capacity, -2, MIMO_ERR_ARGUMENT, "a capacity of -2 rows");
    FAILS_FOR(id_dtype, MIMO_F32, MIMO_ERR_ARGUMENT, "ids of f32");
    FAILS_FOR(ids, NULL, MIMO_ERR_ARGUMENT, "ids is NULL, for 2 tokens");
    FAILS_FOR(memory, MIMO_MEMORY_CUDA, MIMO_ERR_UNSUPPORTED,
              "rank 1: route: the ids lie in memory of kind 1");
    FAILS_FOR(size, 8, MIMO_ERR_ARGUMENT, "its size is 8");
    it.descs[1] = good;
    it.descs[1].ids = wide;
    it.descs[1].id_dtype = MIMO_I64;
    FAILS(mimo_route_check(&it.routing), MIMO_ERR_SHAPE,
          "rank 1: route: token 1, choice 0: expert 4 of 4");
    release(&it);
    plain_route_destroy(plain);
}
