/* Dispatch on real ranks: rows and sums of random routes, against plain loops; numbers by hand;
 * bits that do not depend on ep; what is in flight; every error. */
#include <math.h>
#include <stdlib.h>

#include "cases_ran.h"
#include "dispatch/dispatch_types.h"
#include "dispatch_bed.h"
#include "exchange_counter.h"
#include "kept_widths.h"
#include "same_bits.h"
#include "test_memory.h"

#define P2P MIMO_TRANSPORT_P2P
#define AUTO MIMO_TRANSPORT_AUTO
#define ZERO_COPY MIMO_TRANSPORT_ZERO_COPY

/* etp, held, top_k, alignment, hidden, dtype, narrow, transport, shared, spare */
static const dispatch_case cases[] = {
    {1, 4, 2, 1, 67, MIMO_F32, false, P2P, false, -1},
    {1, 1, 1, 1, 1, MIMO_F64, false, P2P, false, 0},
    {1, 3, 3, 4, 64, MIMO_BF16, false, AUTO, false, 5},
    {1, 2, 2, 1, 130, MIMO_F16, true, P2P, false, -1},
    {2, 2, 2, 1, 67, MIMO_F32, false, P2P, false, -1},
    {2, 5, 4, 8, 33, MIMO_BF16, true, AUTO, false, 3},
    {3, 2, 2, 1, 9, MIMO_F32, false, P2P, false, -1},
    {4, 3, 3, 2, 9, MIMO_F16, false, P2P, false, -1},
    {1, 4, 3, 1, 67, MIMO_F32, false, ZERO_COPY, true, 4},
    {1, 4, 3, 16, 40, MIMO_BF16, false, AUTO, true, -1},
    {2, 4, 3, 1, 40, MIMO_F32, false, ZERO_COPY, true, 0},
    {1, 4, 3, 1, 40, MIMO_F32, false, P2P, true, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], SEEDS = 4 };

/* ------------------------------------- random routes ---------------------------------------- */

static void move_all(bool guarded)
{
    int ran = 0;
    mimo_comm *comm = mpi_test_comm();
    mpi_test_guard(comm, guarded);
    for (int i = 0; i < CASES; i++) {
        const dispatch_case its = dispatch_case_here(&cases[i]);
        if (!dispatch_case_fits(&its, mpi_test_size()))
            continue;
        dispatch_bed bed = dispatch_bed_new(comm, &its);
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            dispatch_bed_set(&bed, seed + (uint64_t)i * 10);
            for (int again = 0; again < 2; again++, ran++) {
                dispatch_bed_move_rows(&bed, seed + (uint64_t)again * 50);
                dispatch_bed_combine(&bed, seed + (uint64_t)again * 50);
            }
        }
        dispatch_bed_free(&bed);
    }
    mpi_test_guard(comm, false);
    MPI_CASES_RAN(ran, CASES * SEEDS * 2, 40, "routes");
}

MPI_TEST(dispatch, random_routes)
{
    move_all(false);
}

MPI_TEST(dispatch, random_routes_under_a_deadline)
{
    move_all(true);
}

/* ---------------------------------------- by hand ------------------------------------------- */

/* Two ranks, four experts, two choices: expert e gives (e + 1) x, x is 10 s + i + 1, the weights
 * are 3/4 and 1/4, and every output has gradient 1. */
static const int32_t golden_ids[2][6] = {{1, 0, 3, 1, 2, 3}, {0, 2, 1, 0}};
static const int64_t golden_tokens[] = {3, 2}, golden_rows[] = {6, 4};

static mimo_dispatch *golden_dispatch(void)
{
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = 4;
    desc.top_k = 2;
    desc.max_tokens = 3;
    desc.hidden = 1;
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, mpi_test_comm(), &desc));
    return dispatch;
}

static mimo_route_desc golden_choice(int64_t capacity)
{
    mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
    desc.ids = golden_ids[mpi_test_rank()];
    desc.tokens = golden_tokens[mpi_test_rank()];
    desc.capacity = capacity;
    return desc;
}

static mimo_tensor one_column(void *data, int64_t rows)
{
    return mimo_tensor_2d(data, MIMO_F32, "th", rows, 1);
}

static mimo_tensor values_of(void *data, int64_t rows)
{
    return mimo_tensor_2d(data, MIMO_F32, "t", rows, 1);
}

static void expect_floats(const float *got, const float *expected, int64_t count, const char *what)
{
    MPI_EXPECT_BITS(bits_of(got, expected, count * 4, 4, 0), "%s", what);
}

MPI_TEST(dispatch, golden_a)
{
    static const float weights[] = {.75f, .25f, .75f, .25f, .75f, .25f};
    static const float xs[2][6] = {{1, 11, 12, 1, 2, 12}, {3, 11, 2, 3}};
    static const float ys[2][3] = {{1.75f, 7, 9.75f}, {16.5f, 21}};
    static const float dxs[2][3] = {{1.75f, 3.5f, 3.25f}, {1.5f, 1.75f}};
    static const float dws[2][6] = {{2, 1, 8, 4, 9, 12}, {11, 33, 24, 12}};
    int rank = mpi_test_rank();
    int64_t n = golden_tokens[rank], rows = golden_rows[rank];
    float x[3], y[3], dx[3], dw[6], tile[6], w[6], out[6], dtile[6], dvalues[6];
    mimo_dispatch *dispatch = golden_dispatch();
    mimo_route *route = NULL;
    mimo_route_desc choice = golden_choice(-1);
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(10 * rank + i + 1);
    const mimo_tensor from[] = {one_column(x, n),
                                mimo_tensor_2d((void *)weights, MIMO_F32, "tk", n, 2)};
    const mimo_tensor to[] = {one_column(tile, rows), values_of(w, rows)};
    MPI_EXPECT_OK(mimo_dispatch_rows(route, to, from, 2, NULL));
    expect_floats(tile, xs[rank], rows, "rows");
    const int32_t *ends;
    MPI_EXPECT_OK(mimo_route_ends(&ends, route));
    for (int64_t row = 0; row < rows; row++) {
        float scale = (float)(2 * rank + (row < ends[0] ? 1 : 2));
        out[row] = scale * tile[row] * w[row];
        dtile[row] = scale * w[row];
        dvalues[row] = scale * tile[row];
    }
    const mimo_tensor sum = one_column(y, n), outputs = one_column(out, rows);
    MPI_EXPECT_OK(mimo_dispatch_combine(route, &sum, &outputs, 1, NULL));
    expect_floats(y, ys[rank], n, "y");
    const mimo_tensor gradients[] = {one_column(dx, n), mimo_tensor_2d(dw, MIMO_F32, "tk", n, 2)};
    const mimo_tensor back[] = {one_column(dtile, rows), values_of(dvalues, rows)};
    MPI_EXPECT_OK(mimo_dispatch_combine(route, gradients, back, 2, NULL));
    expect_floats(dx, dxs[rank], n, "dx");
    expect_floats(dw, dws[rank], 2 * n, "dw");
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
}

/* Both ranks share each expert, so each gets all values, and gives a part of each back. */
MPI_TEST(dispatch, values_in_f64)
{
    enum { N = 3, VALUES = 2 * N };
    int rank = mpi_test_rank();
    mimo_dispatch *dispatch = NULL;
    mimo_route *route = NULL;
    mimo_dispatch_desc desc = {.size = sizeof desc,
                               .experts = 4,
                               .top_k = 2,
                               .etp = 2,
                               .max_tokens = N,
                               .hidden = 1,
                               .alignment = 1};
    mimo_route_desc choice = MIMO_ROUTE_DESC_INIT;
    choice.ids = golden_ids[rank];
    choice.tokens = golden_tokens[rank];
    double values[VALUES], back[VALUES], tile[2 * VALUES];
    for (int i = 0; i < VALUES; i++)
        values[i] = 1 / (3.0 + rank + i);
    int64_t n = choice.tokens, rows = 2 * (golden_tokens[0] + golden_tokens[1]);
    const mimo_tensor pairs = mimo_tensor_2d(values, MIMO_F64, "tk", n, 2);
    const mimo_tensor sums = mimo_tensor_2d(back, MIMO_F64, "tk", n, 2);
    const mimo_tensor there = mimo_tensor_2d(tile, MIMO_F64, "t", rows, 1);
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, mpi_test_comm(), &desc));
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    MPI_EXPECT_OK(mimo_dispatch_rows(route, &there, &pairs, 1, NULL));
    for (int64_t row = 0; row < rows; row++)
        tile[row] *= 1 + 2 * rank; /* 1 w + 3 w */
    MPI_EXPECT_OK(mimo_dispatch_combine(route, &sums, &there, 1, NULL));
    for (int64_t i = 0; i < 2 * n; i++)
        MPI_EXPECT(back[i] == values[i] + 3 * values[i], "value %d: %.17g", (int)i, back[i]);
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
}

/* Rank 0 needs 6 rows and has 4. All ranks get the numbers, before a row moves. */
MPI_TEST(dispatch, golden_a_overflows)
{
    int rank = mpi_test_rank();
    float x[3] = {0}, tile[4];
    mimo_dispatch *dispatch = golden_dispatch();
    mimo_route *route = NULL;
    mimo_route_desc choice = golden_choice(4);
    mimo_route_counts counts = MIMO_ROUTE_COUNTS_INIT;
    mimo_dispatch_counts report = MIMO_DISPATCH_COUNTS_INIT;
    const char *sentence = "rank 0 needs 6 rows for its experts, its tile has 4";
    const mimo_tensor from = one_column(x, golden_tokens[rank]), to = one_column(tile, 4);
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_FAILS(mimo_route_set(route, &choice, NULL), MIMO_ERR_SHAPE, sentence);
    MPI_FAILS(mimo_dispatch_rows(route, &to, &from, 1, NULL), MIMO_ERR_SHAPE, sentence);
    MPI_EXPECT_STATUS(mimo_dispatch_combine(route, &from, &to, 1, NULL), MIMO_ERR_SHAPE);
    MPI_EXPECT_OK(mimo_route_read(&counts, route));
    MPI_EXPECT(counts.rows[0] == 6 && counts.rows[1] == 4 && counts.overflows == 1, "%d %d %d",
               (int)counts.rows[0], (int)counts.rows[1], (int)counts.overflows);
    choice.capacity = golden_rows[rank];
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    MPI_EXPECT_OK(mimo_dispatch_report(&report, dispatch));
    MPI_EXPECT(report.routes == 2 && report.rows == 6 && report.overflows == 1, "%d %d %d",
               (int)report.routes, (int)report.rows, (int)report.overflows);
    MPI_EXPECT_OK(mimo_dispatch_report(&report, dispatch));
    MPI_EXPECT(report.routes == 0 && report.rows == 0 && report.overflows == 0, "not set back");
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
}

/* Each rank in turn has a row less than it needs. All get its numbers, from the set and from the
 * moves. Other tiles may have any size, and with more rows the route is set. */
MPI_TEST(dispatch, one_rank_overflows)
{
    int ran = 0, rank = mpi_test_rank();
    for (int i = 0; i < CASES; i++) {
        dispatch_case its = cases[i];
        its.spare = -1;
        if (!dispatch_case_fits(&its, mpi_test_size()))
            continue;
        dispatch_bed bed = dispatch_bed_new(mpi_test_comm(), &its);
        dispatch_bed_set(&bed, (uint64_t)(i + 1));
        for (int small = 0; small < mpi_test_size(); small++) {
            char sentence[96];
            int64_t need;
            mimo_route_desc desc = MIMO_ROUTE_DESC_INIT;
            free(plain_route_tile(&need, bed.plain, small));
            if (need == 0)
                continue;
            snprintf(sentence, sizeof sentence,
                     "rank %d needs %d rows for its experts, its tile has %d", small, (int)need,
                     (int)need - 1);
            desc.ids = bed.plain->ids[rank];
            desc.tokens = bed.tokens;
            desc.capacity = rank == small ? need - 1 : (rank % 2 == 0 ? -1 : bed.rows + rank);
            MPI_FAILS(mimo_route_set(bed.route, &desc, NULL), MIMO_ERR_SHAPE, sentence);
            const mimo_tensor from = one_column(NULL, 0), to = one_column(NULL, 0);
            MPI_FAILS(mimo_dispatch_rows(bed.route, &to, &from, 1, NULL), MIMO_ERR_SHAPE, sentence);
            ran++;
        }
        dispatch_bed_set(&bed, (uint64_t)(i + 2));
        dispatch_bed_move_rows(&bed, 3);
        dispatch_bed_free(&bed);
    }
    MPI_CASES_RAN(ran, CASES * mpi_test_size(), 3 * mpi_test_size(), "overflows");
}

/* ------------------------------------ bits and adjoints ------------------------------------- */

enum { ALL_TOKENS = 24, EXPERTS = 64, CHOICES = 6, WIDTH = 5 };

static double rough(int64_t token, int64_t choice, int64_t c)
{
    int64_t index = (token * CHOICES + choice) * WIDTH + c;
    return (double)(float)((double)plain_random(99, index, 1 << 30) / 3e8 - 1.7);
}

typedef struct whole_tokens {
    int64_t column;
} whole_tokens;

static double rough_value(const void *context, const plain_row *pair, int64_t t)
{
    (void)t;
    return rough(pair->token, pair->choice, ((const whole_tokens *)context)->column);
}

/* The tokens of a group, cut evenly over its ranks. Every expert gives the value of the token's
 * number, so y does not say who has it. */
static void expect_bits_over(mimo_comm *comm, const plain_route *one)
{
    int size = mimo_comm_size(comm), rank = mimo_comm_rank(comm);
    int64_t n = ALL_TOKENS / size, first = rank * n, rows;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    mimo_dispatch *dispatch = NULL;
    mimo_route *route = NULL;
    mimo_route_desc choice = MIMO_ROUTE_DESC_INIT;
    desc.experts = EXPERTS;
    desc.top_k = CHOICES;
    desc.max_tokens = ALL_TOKENS;
    desc.hidden = WIDTH;
    choice.ids = one->ids[0] + first * CHOICES;
    choice.tokens = n;
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, comm, &desc));
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    plain_route *cut = plain_route_create(size, 1, EXPERTS, CHOICES, 1);
    for (int r = 0; r < size; r++)
        plain_route_set(cut, r, n, one->ids[0] + r * n * CHOICES);
    plain_row *tile = plain_route_tile(&rows, cut, rank);
    float *out = calloc((size_t)(rows * WIDTH) + 1, sizeof *out);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < WIDTH; c++)
            out[row * WIDTH + c] =
                (float)rough(tile[row].rank * n + tile[row].token, tile[row].choice, c);
    float y[ALL_TOKENS * WIDTH];
    const mimo_tensor to = mimo_tensor_2d(y, MIMO_F32, "th", n, WIDTH);
    const mimo_tensor from = mimo_tensor_2d(out, MIMO_F32, "th", rows, WIDTH);
    MPI_EXPECT_OK(mimo_dispatch_combine(route, &to, &from, 1, NULL));
    for (int64_t i = 0; i < n * WIDTH; i++) {
        const whole_tokens it = {i % WIDTH};
        const plain_sum sum = {.value = rough_value, .context = &it};
        double expected = plain_route_sum(&sum, one, 0, first + i / WIDTH);
        MPI_EXPECT((double)y[i] == expected, "ep %d, token %d: %.9g, not %.9g", size,
                   (int)(first + i / WIDTH), (double)y[i], expected);
    }
    free(out);
    free(tile);
    plain_route_destroy(cut);
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
}

/* Nine experts on three ranks. A tree that halves [0, 9) has a node for the experts of no rank:
 * each rank halves its own three. So 1 + (2^-24 + 2^-24), and not (1 + 2^-24) + 2^-24. */
MPI_TEST(dispatch, own_tree_of_a_rank)
{
    static const int32_t ids[] = {0, 1, 2};
    mimo_dispatch *dispatch = NULL;
    mimo_route *route = NULL;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    mimo_route_desc choice = MIMO_ROUTE_DESC_INIT;
    int64_t n = mpi_test_rank() == 0;
    float rows[] = {1, 0x1p-24f, 0x1p-24f}, sum = 0;
    const mimo_tensor to = one_column(&sum, n), from = one_column(rows, 3 * n);
    desc.experts = 9;
    desc.top_k = 3;
    desc.max_tokens = desc.hidden = 1;
    choice.ids = ids;
    choice.tokens = n;
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, mpi_test_comm(), &desc));
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    MPI_EXPECT_OK(mimo_dispatch_combine(route, &to, &from, 1, NULL));
    MPI_EXPECT(n == 0 || sum == 1 + 0x1p-23f, "%.9g", (double)sum);
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
}

/* A token's result has the same bits at ep 1, 2, 4 and 8. */
MPI_TEST(dispatch, same_bits_over_ep)
{
    int compared = 0;
    int32_t ids[ALL_TOKENS * CHOICES];
    plain_route *one = plain_route_create(1, 1, EXPERTS, CHOICES, 1);
    for (int64_t i = 0; i < ALL_TOKENS * CHOICES; i++)
        ids[i] = (int32_t)plain_random(7, i, EXPERTS);
    plain_route_set(one, 0, ALL_TOKENS, ids);
    for (int ep = 1; ep <= mpi_test_size(); ep *= 2, compared++) {
        mimo_comm *group = NULL;
        MPI_EXPECT_OK(
            mimo_comm_split(&group, mpi_test_comm(), mpi_test_rank() / ep, mpi_test_rank()));
        expect_bits_over(group, one);
        mimo_comm_destroy(group);
    }
    MPI_EXPECT(compared > 1, "nothing was compared");
    plain_route_destroy(one);
}

/* <y, g> = <x, dx> and <w, dw>, in whole numbers, on every rank's part and over all ranks. */
static void expect_adjoint(const dispatch_case *its, uint64_t seed)
{
    dispatch_bed bed = dispatch_bed_new(mpi_test_comm(), its);
    dispatch_bed_set(&bed, seed);
    int64_t rows = bed.rows, n = bed.tokens, k = its->top_k, sums[4] = {0}, all[4];
    float *x = calloc((size_t)(n * (1 + k)) + 1, sizeof *x), *w = x + n;
    float *tile = calloc((size_t)(2 * rows) + 1, sizeof *tile), *values = tile + rows;
    float *g = calloc((size_t)(2 * rows) + 1, sizeof *g), *h = g + rows;
    float *dx = calloc((size_t)(n * (1 + k)) + 1, sizeof *dx), *dw = dx + n;
    const uint64_t own = seed * 64 + (uint64_t)mpi_test_rank();
    for (int64_t i = 0; i < n * (1 + k); i++)
        x[i] = (float)(plain_random(own, i, 41) - 20);
    for (int64_t i = 0; i < 2 * rows; i++)
        g[i] = (float)(plain_random(~own, i, 41) - 20);
    const mimo_tensor from[] = {one_column(x, n), mimo_tensor_2d(w, MIMO_F32, "tk", n, k)};
    const mimo_tensor to[] = {one_column(tile, rows), values_of(values, rows)};
    MPI_EXPECT_OK(mimo_dispatch_rows(bed.route, to, from, 2, NULL));
    const mimo_tensor back[] = {one_column(dx, n), mimo_tensor_2d(dw, MIMO_F32, "tk", n, k)};
    const mimo_tensor out[] = {one_column(g, rows), values_of(h, rows)};
    MPI_EXPECT_OK(mimo_dispatch_combine(bed.route, back, out, 2, NULL));
    for (int64_t row = 0; row < rows; row++) {
        sums[0] += (int64_t)(g[row] * tile[row]);
        sums[2] += (int64_t)(h[row] * values[row]);
    }
    for (int64_t i = 0; i < n; i++)
        sums[1] += (int64_t)(x[i] * dx[i]);
    for (int64_t i = 0; i < n * k; i++)
        sums[3] += (int64_t)(w[i] * dw[i]);
    MPI_Allreduce(sums, all, 4, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_EXPECT(all[0] == all[1] && all[2] == all[3], "seed %d: %d %d, %d %d", (int)seed,
               (int)all[0], (int)all[1], (int)all[2], (int)all[3]);
    free(x);
    free(tile);
    free(g);
    free(dx);
    dispatch_bed_free(&bed);
}

MPI_TEST(dispatch, combine_is_the_adjoint_of_rows)
{
    int ran = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        const dispatch_case its = {1 + (int64_t)(seed % 2),
                                   4,
                                   3,
                                   1 + (int64_t)(seed % 3),
                                   1,
                                   MIMO_F32,
                                   false,
                                   P2P,
                                   false,
                                   -1};
        if (!dispatch_case_fits(&its, mpi_test_size()))
            continue;
        expect_adjoint(&its, seed);
        ran++;
    }
    MPI_CASES_RAN(ran, 40, 20, "routes");
}

/* ------------------------------------- other addresses -------------------------------------- */

/* The expert of rank 1 takes every token. So rank 0 only sends, and its own tile is empty. */
enum { SENT_TOKENS = 4, WIDE = 8 };

static mimo_route *all_to_rank_1(mimo_dispatch *dispatch)
{
    static const int32_t ids[SENT_TOKENS] = {1, 1, 1, 1};
    mimo_route *route = NULL;
    mimo_route_desc choice = MIMO_ROUTE_DESC_INIT;
    choice.ids = ids;
    choice.tokens = SENT_TOKENS;
    MPI_EXPECT_OK(mimo_route_create(&route, dispatch));
    MPI_EXPECT_OK(mimo_route_set(route, &choice, NULL));
    return route;
}

static void move_to(mimo_route *route, char *at, uint64_t seed)
{
    enum { COUNT = SENT_TOKENS * WIDE };
    float tokens[2 * COUNT];
    int rank = mpi_test_rank();
    int64_t rows = rank == 1 ? 2 * SENT_TOKENS : 0;
    const mimo_tensor from =
        mimo_tensor_2d(tokens + (size_t)rank * COUNT, MIMO_F32, "th", SENT_TOKENS, WIDE);
    const mimo_tensor to = mimo_tensor_2d(at, MIMO_F32, "th", rows, WIDE);
    fill_elements(tokens, seed, 2 * (int64_t)COUNT, sizeof *tokens);
    MPI_EXPECT_OK(mimo_dispatch_rows(route, &to, &from, 1, NULL));
    MPI_EXPECT_BITS(bits_of(at, tokens, rows * WIDE * 4, 4, WIDE), "the tile at %p", (void *)at);
}

/* A kept call writes into a tile by words that its alignment decides, also on a rank whose own tile
 * is empty. Where rows are staged, it serves a tile that lies anywhere. */
static void move_to_all(bool shared)
{
    static const int64_t offsets[] = {0, 8, 0, 64, 8, 68, 4, 2};
    static const int classes[] = {1, 2, 2, 2, 2, 3, 3, 4};
    enum { OFFSETS = sizeof offsets / sizeof *offsets, ROOM = 2 * SENT_TOKENS * WIDE * 4 + 128 };
    mimo_dispatch *dispatch = NULL;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = 2;
    desc.top_k = 1;
    desc.max_tokens = SENT_TOKENS;
    desc.hidden = WIDE;
    desc.transport = shared ? ZERO_COPY : P2P;
    MPI_EXPECT_OK(mimo_dispatch_create(&dispatch, mpi_test_comm(), &desc));
    mimo_route *route = all_to_rank_1(dispatch);
    test_room room = (shared ? test_shared_room_new : test_room_new)(ROOM);
    int64_t first = -(intptr_t)room.place & 15;
    count_exchanges(dispatch->mover.comm);
    watch_widths(dispatch->mover.comm);
    for (int i = 0; i < OFFSETS; i++) {
        int wanted = shared ? classes[i] : 1;
        move_to(route, (char *)room.place + first + offsets[i], (uint64_t)i);
        MPI_EXPECT(exchange_counter.created == wanted, "offset %d: %d exchanges, not %d",
                   (int)offsets[i], exchange_counter.created, wanted);
    }
    mimo_route_destroy(route);
    mimo_dispatch_destroy(dispatch);
    test_room_free(&room);
}

MPI_TEST(dispatch, tiles_at_other_addresses)
{
    move_to_all(true);
    move_to_all(false);
}
