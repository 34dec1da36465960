/* Experts on devices, as far as the host computes it: where the shared memory and the tables lie,
 * and the programs of sums, compared with the lists of the reference's routes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "cases_ran.h"
#include "comm/expert_token.h"
#include "dispatch/route/virtual_ranks.h"
#include "expect_failure.h"
#include "expert_sizes.h"
#include "plain_routing.h"

/* -------------------------------------- symbolic sums --------------------------------------- */

/* A value that shows how it was added: the same for a + b and b + a, another one for every other
 * change. */
static uint64_t leaf_value(uint64_t leaf)
{
    return (leaf + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t added(uint64_t a, uint64_t b)
{
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    uint64_t mixed = (low ^ (high << 21 | high >> 43)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (mixed ^ mixed >> 29) * UINT64_C(0x94d049bb133111eb) + high;
}

/* A sum of a list: every term opens, and adds join the last two. */
static uint64_t sum_of_list(const uint64_t *leaf, const uint8_t *adds, int64_t count)
{
    uint64_t open[MIMO_SUM_OPEN];
    int depth = 0;
    for (int64_t i = 0; i < count; i++) {
        open[depth++] = leaf[i];
        for (int n = 0; n < adds[i]; n++, depth--)
            open[depth - 2] = added(open[depth - 2], open[depth - 1]);
    }
    cr_assert_eq(depth, count > 0);
    return count > 0 ? open[0] : 0;
}

/* A sum by its program, as a kernel adds it. */
static uint64_t sum_of_program(const uint64_t *program, int words, const uint64_t *leaf)
{
    uint64_t top = 0, below[MIMO_PROGRAM_BELOW];
    int depth = 0, leaves = mimo_program_leaves(program, words);
    for (int v = 0; v < leaves; v++) {
        uint64_t value = leaf[mimo_program_leaf(program, words, v)];
        int adds = mimo_program_adds(program, words, v);
        if (v > 0 && adds == 0) {
            cr_assert_lt(depth, MIMO_PROGRAM_BELOW);
            below[depth++] = top;
        }
        top = v > 0 && adds > 0 ? added(top, value) : value;
        for (int n = 1; n < adds; n++)
            top = added(top, below[--depth]);
    }
    cr_assert_eq(depth, 0);
    return top;
}

/* ---------------------------------------- the routes ---------------------------------------- */

static mimo_expert_shape shape_of(const mimo_route_shape *route, int64_t max_tokens)
{
    mimo_expert_shape shape;
    const mimo_expert_sizes sizes =
        EXPERT_SIZES(route, max_tokens, .tensors = 2, .sums = 1, .return_bytes = 72);
    SUCCEEDS(mimo_expert_shape_read(&shape, &sizes));
    return shape;
}

/* `most` as kernels are compiled. */
static int most_of(const mimo_expert_shape *shape)
{
    return shape->words == 1 ? MIMO_PROGRAM_LEAVES_1 : MIMO_PROGRAM_LEAVES_2;
}

typedef struct routed {
    mimo_routing routing;
    mimo_route_desc descs[16];
    mimo_virtual_ranks ranks;
    mimo_route_map map; /* of one rank */
    mimo_expert_shape shape;
} routed;

static void route(routed *it, const plain_route *plain, int64_t rank)
{
    *it = (routed){0};
    it->routing = plain_routing(it->descs, plain, NULL);
    SUCCEEDS(mimo_virtual_ranks_read(&it->ranks, &it->routing, "test"));
    SUCCEEDS(mimo_virtual_ranks_route(&it->map, &it->ranks, rank));
    it->shape = shape_of(&it->map.shape, 64);
}

static void release(routed *it)
{
    mimo_route_map_release(&it->map);
    mimo_virtual_ranks_release(&it->ranks);
}

static void read_token(mimo_token *out, const routed *it, int64_t rank, int64_t token)
{
    const mimo_route_ids *ids = &it->ranks.ids;
    int top_k = it->shape.top_k;
    mimo_token_read(out, ids->ids + rank * ids->stride + token * top_k, top_k, most_of(&it->shape));
}

/* ----------------------------------------- partial sums ------------------------------------- */

/* What the rank adds for one entry: leaves are choices. */
static void expect_partial(const routed *it, int64_t rank, int64_t entry)
{
    const mimo_route_blocks *in = &it->map.in;
    const mimo_sum_list *list = &it->map.partial;
    uint64_t leaf[MIMO_EXPERT_MOST_TOP_K], by_choice[MIMO_EXPERT_MOST_TOP_K] = {0}, program[2];
    int64_t first = list->begin[entry], count = list->begin[entry + 1] - first;
    mimo_token token;
    for (int64_t i = 0; i < count; i++) {
        leaf[i] = leaf_value((uint64_t)list->leaf[first + i]);
        by_choice[in->pair[first + i] % it->shape.top_k] = leaf[i];
    }
    read_token(&token, it, rank, in->token[entry]);
    int x = (int)mimo_route_x(&it->map.shape, it->map.rank);
    mimo_partial_program(program, &token, &it->shape, x, false, most_of(&it->shape));
    cr_assert_eq(mimo_program_leaves(program, it->shape.words), count);
    cr_assert_not(mimo_program_lost(program, it->shape.words));
    cr_assert_eq(sum_of_program(program, it->shape.words, by_choice),
                 sum_of_list(leaf, list->adds + first, count));
}

static int64_t expect_partials(const routed *it)
{
    const mimo_route_blocks *in = &it->map.in;
    for (int64_t rank = 0; rank < it->map.shape.ranks; rank++)
        for (int64_t entry = in->begin[rank]; entry < in->begin[rank + 1]; entry++)
            expect_partial(it, rank, entry);
    return in->begin[it->map.shape.ranks];
}

/* ------------------------------------------ totals ------------------------------------------ */

static int64_t sender_of(const mimo_route_map *map, int64_t returned)
{
    int64_t rank = 0;
    while (map->returned[rank + 1] <= returned)
        rank++;
    return rank;
}

/* The numbers of the x of a token, and the leaves behind each: the sums over its ranks. */
static int list_slots(uint64_t *slots, const routed *it, const mimo_token *token, int64_t number)
{
    const int etp = it->shape.etp, words = it->shape.words;
    uint64_t program[2], shared[2], leaf[MIMO_EXPERT_MOST_ETP];
    int count = 0;
    mimo_shared_program(shared, &it->shape);
    for (int x = 0; x < it->shape.ep; x++) {
        mimo_partial_program(program, token, &it->shape, x, false, most_of(&it->shape));
        if (mimo_program_leaves(program, words) == 0)
            continue;
        cr_assert_eq(mimo_program_ordinal(program, words), count, "token %d", (int)number);
        for (int t = 0; t < etp; t++)
            leaf[t] = leaf_value((uint64_t)(x * etp + t));
        slots[count++] = sum_of_program(shared, words, leaf);
    }
    return count;
}

static void expect_total(const routed *it, int64_t number)
{
    const mimo_sum_list *list = &it->map.sums;
    const int words = it->shape.words;
    int64_t first = list->begin[number], count = list->begin[number + 1] - first;
    uint64_t leaf[256], slots[MIMO_EXPERT_MOST_TOP_K], program[2];
    mimo_token token;
    for (int64_t i = 0; i < count; i++)
        leaf[i] = leaf_value((uint64_t)sender_of(&it->map, list->leaf[first + i]));
    read_token(&token, it, it->map.rank, number);
    int held = list_slots(slots, it, &token, number);
    mimo_total_program(program, &token, &it->shape, false, most_of(&it->shape));
    cr_assert_eq(mimo_program_leaves(program, words), held);
    cr_assert_leq(held * it->shape.etp, it->shape.returns);
    cr_assert_eq(sum_of_program(program, words, slots),
                 sum_of_list(leaf, list->adds + first, count));
}

static int64_t expect_sums(const plain_route *plain, int64_t rank)
{
    routed it;
    route(&it, plain, rank);
    int64_t compared = expect_partials(&it) + plain->tokens[rank];
    for (int64_t token = 0; token < plain->tokens[rank]; token++)
        expect_total(&it, token);
    release(&it);
    return compared;
}

typedef struct drawn_case {
    int64_t ranks, etp, experts, top_k, draws;
} drawn_case;

Test(experts, programs_are_the_sums_of_routes, .timeout = 120)
{
    static const drawn_case cases[] = {
        {1, 1, 7, 5, 40},    {2, 1, 256, 8, 40}, {3, 1, 48, 8, 40},   {4, 2, 16, 6, 40},
        {6, 3, 10, 8, 40},   {8, 1, 64, 8, 40},  {8, 1, 8, 2, 40},    {8, 8, 5, 4, 40},
        {12, 1, 12, 12, 20}, {4, 1, 64, 14, 40}, {14, 14, 20, 3, 20}, {8, 2, 300, 14, 40},
    };
    int64_t compared = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t seed = 1; seed <= cases[i].draws; seed++) {
            const drawn_case *it = &cases[i];
            const plain_draw draw = {(uint64_t)seed, 24, true};
            plain_route *plain = plain_route_create(it->ranks, it->etp, it->experts, it->top_k, 1);
            plain_route_draw(plain, &draw);
            for (int64_t rank = 0; rank < it->ranks; rank++)
                compared += expect_sums(plain, rank);
            plain_route_destroy(plain);
        }
    CASES_RAN(compared, compared, 160000, "sums");
}

Test(experts, a_program_that_lost_rows)
{
    const mimo_route_shape route = {
        .ranks = 2, .etp = 1, .ep = 2, .experts = 4, .held = 2, .top_k = 2, .alignment = 1};
    const mimo_expert_shape shape = shape_of(&route, 1);
    const uint16_t ids[] = {3, 0}, none[] = {MIMO_TOKEN_NONE, MIMO_TOKEN_NONE};
    uint64_t program;
    mimo_token token;
    mimo_token_read(&token, ids, 2, MIMO_PROGRAM_LEAVES_1);
    mimo_total_program(&program, &token, &shape, true, MIMO_PROGRAM_LEAVES_1);
    cr_assert(mimo_program_lost(&program, 1));
    cr_assert_eq(mimo_program_leaves(&program, 1), 2);
    mimo_token_read(&token, none, 2, MIMO_PROGRAM_LEAVES_1);
    mimo_total_program(&program, &token, &shape, false, MIMO_PROGRAM_LEAVES_1);
    cr_assert_eq(program, 0);
}

/* ------------------------------------------ memory ------------------------------------------ */

static mimo_expert_sizes usual(void)
{
    return (mimo_expert_sizes){.ranks = 8,
                               .etp = 1,
                               .experts = 256,
                               .top_k = 8,
                               .alignment = 1,
                               .max_tokens = 4096,
                               .tensors = 1,
                               .sums = 1,
                               .return_bytes = 4 * 7168};
}

static mimo_expert_shape read_sizes(const mimo_expert_sizes *sizes)
{
    mimo_expert_shape shape;
    SUCCEEDS(mimo_expert_shape_read(&shape, sizes));
    return shape;
}

/* By hand, for 8 ranks of 4096 tokens. */
Test(experts, layout_by_hand)
{
    const mimo_expert_sizes sizes = usual();
    const mimo_expert_shape shape = read_sizes(&sizes);
    const int64_t pairs = INT64_C(8) * 4096 * 8;
    mimo_expert_layout at;
    int64_t bytes;
    SUCCEEDS(mimo_expert_layout_of(&at, &shape));
    cr_assert_eq(at.arrived, 0);
    cr_assert_eq(at.inbox_head, 512);
    cr_assert_eq(at.inbox_count, 512 + 256);
    cr_assert_eq(at.inbox_id, at.inbox_count + 8 * 256 * 4);
    cr_assert_eq(at.inbox_place, at.inbox_id + 2 * pairs);
    cr_assert_eq(at.row_flags, at.inbox_place + 4 * pairs);
    cr_assert_eq(at.return_flags, at.row_flags + 8 * 4096 * 32);
    cr_assert_eq(at.pairs, at.return_flags + 8 * 4096 * 32);
    cr_assert_eq(at.returns, at.pairs + 8 * pairs);
    cr_assert_eq(at.flat, at.returns + INT64_C(8) * 4096 * 28672);
    cr_assert_eq(at.counters, at.flat);
    cr_assert_eq(at.bytes, at.counters + 256);
    SUCCEEDS(mimo_route_tables_bytes(&bytes, &shape));
    cr_assert_lt(bytes, INT64_C(1500000)); /* the rows of pairs 1 MiB, programs 1/4 MiB */
}

/* The tables fill their bytes, one behind the other. */
Test(experts, tables_lie_apart)
{
    mimo_expert_sizes sizes = usual();
    sizes.top_k = 14; /* two words */
    sizes.max_tokens = 100;
    const mimo_expert_shape shape = read_sizes(&sizes);
    mimo_route_tables it;
    int64_t bytes;
    static _Alignas(MIMO_EXPERT_STEP) char memory[1 << 18];
    SUCCEEDS(mimo_route_tables_bytes(&bytes, &shape));
    cr_assert_leq(bytes, sizeof memory);
    SUCCEEDS(mimo_route_tables_place(&it, &shape, memory));
    const char *const begin[] = {(char *)it.tokens, (char *)it.capacity, (char *)it.needed,
                                 (char *)it.ends,   (char *)it.filled,   (char *)it.starts,
                                 (char *)it.row,    (char *)it.x,        (char *)it.partial,
                                 (char *)it.total,  (char *)it.shared,   memory + bytes};
    const int64_t size[] = {32,           32,       32,       128,      128, 8 * 256 * 4,
                            800 * 14 * 4, 1400 * 2, 800 * 16, 100 * 16, 16};
    cr_assert_eq(begin[0], memory);
    for (int i = 0; i < 11; i++) {
        cr_assert_geq(begin[i + 1] - begin[i], size[i], "table %d", i);
        cr_assert_lt(begin[i + 1] - begin[i], size[i] + MIMO_EXPERT_STEP, "table %d", i);
        cr_assert_eq((begin[i] - memory) % MIMO_EXPERT_STEP, 0, "table %d", i);
    }
}

static mimo_expert_sizes changed(int64_t experts, int64_t top_k, int64_t etp)
{
    mimo_expert_sizes sizes = usual();
    sizes.ranks = etp;
    sizes.experts = experts;
    sizes.top_k = top_k;
    sizes.etp = etp;
    return sizes;
}

Test(experts, shapes_at_the_limits)
{
    mimo_expert_shape shape;
    const mimo_expert_sizes fit = changed(3000, 14, 14), many = changed(3001, 8, 1);
    const mimo_expert_sizes wide = changed(3000, 15, 1), shared = changed(3000, 8, 15);
    mimo_expert_sizes most = usual(), more = usual(), sizes = usual();
    most.max_tokens = 64512;
    more.max_tokens = 64513;
    SUCCEEDS(mimo_expert_shape_read(&shape, &fit));
    cr_assert_eq(shape.words, 2);
    SUCCEEDS(mimo_expert_shape_read(&shape, &most));
    sizes.tensors = 17;
    FAILS(mimo_expert_shape_read(&shape, &sizes), MIMO_ERR_UNSUPPORTED, "17 tensors");
    FAILS(mimo_expert_shape_read(&shape, &more), MIMO_ERR_UNSUPPORTED, "64513 tokens");
    FAILS(mimo_expert_shape_read(&shape, &many), MIMO_ERR_UNSUPPORTED, "3001 experts");
    FAILS(mimo_expert_shape_read(&shape, &wide), MIMO_ERR_UNSUPPORTED, "top_k 15");
    FAILS(mimo_expert_shape_read(&shape, &shared), MIMO_ERR_UNSUPPORTED, "etp=15");
}

Test(experts, memory_beyond_64_bits)
{
    mimo_expert_sizes sizes = usual();
    mimo_expert_layout at;
    sizes.tensors = sizes.sums = 16;
    sizes.return_bytes = INT64_C(1) << 50;
    const mimo_expert_shape shape = read_sizes(&sizes);
    FAILS(mimo_expert_layout_of(&at, &shape), MIMO_ERR_OVERFLOW, "64 bits");
}
