/* Calls on groups of rows in the fixed order, bit for bit against loops over the rows: groups
 * without rows, without a product, and beyond the tile's end; and calls on as many rows as are
 * there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "train/nn/ops/nn_fixed.h"
#include "train/nn/ops/nn_groups.h"
#include "nn_gradient_check.h"
#include "same_bits.h"
#include "test_memory.h"

enum { MOST_GROUPS = 70, MOST = 1 << 20, CASES = 40 };

static float a_data[MOST], b_data[MOST], z_data[MOST], given[MOST], expected[MOST], got[MOST];
static int64_t sums_expected[MOST], sums_got[MOST];
static int32_t ends[MOST_GROUPS];

static const nn_runtime *fixed_runtime(void)
{
    static nn_runtime made;
    const nn_runtime_desc desc = {
        .memory = test_memory(), .stream = test_stream(), .order = NN_ORDER_FIXED};
    if (!made.ops)
        SUCCEEDS(nn_runtime_init(&made, &desc));
    return &made;
}

/* Numbers in (-1, 1) whose last bits count. */
static void fill(float *x, uint64_t key)
{
    for (int64_t i = 0; i < MOST; i++)
        x[i] = (float)((int64_t)(mimo_hash_int(key, i) >> 39) - (1 << 24)) * 0x1p-24f;
}

static void fill_all(void)
{
    fill(a_data, 1);
    fill(b_data, 2);
    fill(z_data, 3);
    fill(given, 4);
}

static int64_t below(uint64_t *seed, int64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*seed >> 33) % (uint64_t)n);
}

static int compare_ends(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* A third of the groups is empty, and the last end may lie behind the tile. */
static void draw_ends(uint64_t *seed, int64_t count, int64_t rows)
{
    for (int64_t g = 0; g < count; g++)
        ends[g] = (int32_t)below(seed, rows + rows / 8 + 1);
    qsort(ends, (size_t)count, sizeof *ends, compare_ends);
    for (int64_t g = 1; g < count; g++)
        if (below(seed, 3) == 0)
            ends[g] = ends[g - 1];
}

static nn_groups host_groups(int64_t count, int64_t rows)
{
    return (nn_groups){ends, count, rows};
}

static void *sent_bytes(const void *from, int64_t bytes)
{
    nn_real *room = nn_test_room((bytes + 3) / 4);
    SUCCEEDS(nn_runtime_write(fixed_runtime(), room, from, bytes));
    return room;
}

static nn_groups sent_groups(int64_t count, int64_t rows)
{
    return (nn_groups){sent_bytes(ends, count * (int64_t)sizeof *ends), count, rows};
}

static int64_t group_of(const nn_groups *groups, int64_t row)
{
    for (int64_t g = 0; g < groups->count; g++)
        if (row < nn_group_end(groups, g))
            return g;
    return -1;
}

/* Which groups have an array. Each begins an element further from 16 bytes. */
static bool has(int64_t g, int64_t without)
{
    return g % 5 != without;
}

static int64_t array_at(int64_t g, int64_t size)
{
    return g * (size + 1);
}

/* A list of arrays of `size` elements that lie in a room. */
static void *sent_list(char *room, int64_t count, int64_t size, size_t element, int64_t without)
{
    void *list[MOST_GROUPS];
    for (int64_t g = 0; g < count; g++)
        list[g] = has(g, without) ? room + array_at(g, size) * (int64_t)element : NULL;
    return sent_bytes(list, count * (int64_t)sizeof *list);
}

/* ------------------------------------------ products ------------------------------------------ */

typedef struct product_case {
    int64_t count, rows, columns, k, then; /* then: k of the second factors; 0: none */
    bool transposed, then_transposed;
    float alpha, beta;
} product_case;

enum { NO_FIRST = 4, NO_THEN = 2 };

static float element(const float *b, int64_t k, int64_t columns, bool transposed, int64_t l,
                     int64_t j)
{
    return transposed ? b[j * k + l] : b[l * columns + j];
}

static float one_chain(const product_case *c, int64_t g, int64_t i, int64_t j)
{
    const float *b = b_data + array_at(g, c->k * c->columns);
    const float *then = given + array_at(g, c->then * c->columns);
    float sum = c->beta != 0 ? given[i * c->columns + j] : 0;
    for (int64_t l = 0; l < c->k; l++)
        sum = fmaf(c->alpha * a_data[i * c->k + l],
                   element(b, c->k, c->columns, c->transposed, l, j), sum);
    for (int64_t l = 0; l < c->then && has(g, NO_THEN); l++)
        sum = fmaf(0.5f * z_data[i * c->then + l],
                   element(then, c->then, c->columns, c->then_transposed, l, j), sum);
    return sum;
}

static void expect_product(const product_case *c)
{
    const nn_groups groups = host_groups(c->count, c->rows);
    for (int64_t i = 0; i < c->rows; i++) {
        int64_t g = group_of(&groups, i);
        for (int64_t j = 0; j < c->columns; j++)
            expected[i * c->columns + j] =
                g >= 0 && has(g, NO_FIRST) ? one_chain(c, g, i, j) : given[i * c->columns + j];
    }
}

static void run_product(const product_case *c)
{
    int64_t size = c->k * c->columns, more = c->then * c->columns;
    float *b = nn_test_sent(b_data, array_at(c->count, size) + 1);
    float *then = nn_test_sent(given, array_at(c->count, more) + 1);
    nn_real *room = nn_test_sent(given, c->rows * c->columns + 1);
    const nn_group_factors second = {0.5f, nn_test_sent(z_data, c->rows * c->then + 1),
                                     sent_list((char *)then, c->count, more, sizeof *b, NO_THEN),
                                     c->then, c->then_transposed};
    const nn_group_product product = {
        .groups = sent_groups(c->count, c->rows),
        .c = room,
        .columns = c->columns,
        .beta = c->beta,
        .first = {c->alpha, nn_test_sent(a_data, c->rows * c->k + 1),
                  sent_list((char *)b, c->count, size, sizeof *b, NO_FIRST), c->k, c->transposed},
        .then = c->then > 0 ? &second : NULL};
    SUCCEEDS(fixed_runtime()->ops->multiply_groups(fixed_runtime(), &product));
    nn_test_read(got, room, c->rows * c->columns);
    nn_test_free_rooms();
}

static void check_product(const product_case *c)
{
    cr_assert(array_at(c->count, c->k * c->columns) < MOST && c->rows * c->columns < MOST &&
              c->rows * c->k < MOST && array_at(c->count, c->then * c->columns) < MOST);
    expect_product(c);
    run_product(c);
    EXPECT_BITS(bits_of(got, expected, c->rows * c->columns * 4, 4, c->columns),
                "%d groups, %d x %d x %d and %d, transposed %d %d, alpha %g, beta %g",
                (int)c->count, (int)c->rows, (int)c->columns, (int)c->k, (int)c->then,
                c->transposed, c->then_transposed, (double)c->alpha, (double)c->beta);
}

/* Any sizes; and for each shape of tiles sizes that make it the best. */
Test(nn_groups, products)
{
    static const product_case large[] = {
        {2, 700, 520, 33, 0, true, false, 1, 0}, {3, 256, 256, 64, 8, false, true, 1, 0},
        {70, 500, 64, 40, 4, true, true, 1, 0},  {8, 96, 1, 300, 0, false, false, 1, 1},
        {16, 300, 96, 1, 0, false, false, 1, 1}, {1, 130, 132, 16, 2, true, false, 1, 0},
        {64, 3, 40, 24, 0, false, false, 1, 0},  {5, 200, 128, 128, 0, true, false, 1, 0},
    };
    uint64_t seed = 5;
    fill_all();
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        draw_ends(&seed, large[i].count, large[i].rows);
        check_product(&large[i]);
    }
    for (int i = 0; i < CASES; i++) {
        const product_case c = {.count = 1 + below(&seed, MOST_GROUPS),
                                .rows = below(&seed, 150),
                                .columns = 1 + below(&seed, 90),
                                .k = 1 + below(&seed, 60),
                                .then = i % 3 ? 0 : 1 + below(&seed, 9),
                                .transposed = below(&seed, 2),
                                .then_transposed = below(&seed, 2),
                                .alpha = i % 4 ? 1 : 0.3f,
                                .beta = (float)(i % 5 == 0)};
        draw_ends(&seed, c.count, c.rows);
        check_product(&c);
    }
}

/* ------------------------------------------- sums --------------------------------------------- */

typedef struct sum_case {
    int64_t count, rows, out, in;
    bool ones;
    float scale;
} sum_case;

enum { NO_SUM = 3 };

static float one_term(const sum_case *c, int64_t i, int64_t o, int64_t j)
{
    float left = c->scale * a_data[i * c->out + o];
    return c->ones ? left : fmaf(left, z_data[i * c->in + j], 0);
}

/* Sums begin with what other micro-batches gave. */
static void expect_sums(const sum_case *c, int64_t size, int64_t n)
{
    const nn_groups groups = host_groups(c->count, c->rows);
    for (int64_t i = 0; i < n; i++)
        sums_expected[i] = sums_got[i] = (int64_t)rint((double)given[i] * 0x1p45);
    for (int64_t i = 0; i < c->rows; i++) {
        int64_t g = group_of(&groups, i);
        for (int64_t e = 0; e < size && g >= 0 && has(g, NO_SUM); e++) {
            int64_t *sum = &sums_expected[array_at(g, size) + e];
            *sum = nn_fixed_sum(*sum, (double)one_term(c, i, e / c->in, e % c->in));
        }
    }
}

static void check_sums(const sum_case *c)
{
    int64_t size = c->out * c->in, n = array_at(c->count, size) + 1;
    cr_assert(n < MOST && c->rows * c->out < MOST && c->rows * c->in < MOST);
    expect_sums(c, size, n);
    char *room = sent_bytes(sums_got, n * (int64_t)sizeof *sums_got);
    const nn_group_sums sums = {.groups = sent_groups(c->count, c->rows),
                                .scale = c->scale,
                                .dy = nn_test_sent(a_data, c->rows * c->out + 1),
                                .x = c->ones ? NULL : nn_test_sent(z_data, c->rows * c->in + 1),
                                .out = c->out,
                                .in = c->in,
                                .to = sent_list(room, c->count, size, sizeof *sums_got, NO_SUM)};
    SUCCEEDS(fixed_runtime()->ops->sum_groups(fixed_runtime(), &sums));
    SUCCEEDS(nn_runtime_read(fixed_runtime(), sums_got, room, n * (int64_t)sizeof *sums_got));
    nn_test_free_rooms();
    EXPECT_BITS(bits_of(sums_got, sums_expected, n * 8, 8, 0),
                "%d groups, %d rows, %d x %d, ones %d, scale %g", (int)c->count, (int)c->rows,
                (int)c->out, (int)c->in, c->ones, (double)c->scale);
}

Test(nn_groups, sums)
{
    static const sum_case large[] = {
        {2, 700, 300, 280, false, 1}, {60, 500, 64, 65, false, 1},  {4, 1000, 130, 1, false, 1},
        {4, 1000, 130, 1, true, 1},   {8, 90, 4, 200, false, 0.7f}, {1, 17, 64, 64, false, 1},
    };
    uint64_t seed = 6;
    fill_all();
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        draw_ends(&seed, large[i].count, large[i].rows);
        check_sums(&large[i]);
    }
    for (int i = 0; i < CASES; i++) {
        const bool column = i % 4 == 0;
        const sum_case c = {.count = 1 + below(&seed, MOST_GROUPS),
                            .rows = below(&seed, 150),
                            .out = 1 + below(&seed, 90),
                            .in = column ? 1 : 1 + below(&seed, 90),
                            .ones = column && i % 8 == 0,
                            .scale = i % 3 || column ? 1 : 0.3f};
        draw_ends(&seed, c.count, c.rows);
        check_sums(&c);
    }
}

/* What is no number, and what lies behind the tile's end, concerns its own group alone. */
Test(nn_groups, sums_that_break)
{
    const sum_case c = {.count = 3, .rows = 40, .out = 20, .in = 20, .scale = 1};
    fill_all();
    ends[0] = 9, ends[1] = 20, ends[2] = 60;
    a_data[12 * c.out + 4] = NAN;
    for (int64_t i = 40 * c.out; i < 60 * c.out; i++)
        a_data[i] = NAN;
    check_sums(&c);
    int64_t group = array_at(1, c.out * c.in);
    cr_assert(sums_got[group + 4 * c.in] == NN_FIXED_BROKEN);
    cr_assert(sums_got[group + 5 * c.in] != NN_FIXED_BROKEN);
}

/* ------------------------------------------- rows --------------------------------------------- */

Test(nn_groups, biases)
{
    enum { ROWS = 90, WIDTH = 70, COUNT = 12, NO_BIAS = 1 };
    uint64_t seed = 7;
    fill_all();
    for (int i = 0; i < 8; i++) {
        draw_ends(&seed, COUNT, ROWS);
        const nn_groups host = host_groups(COUNT, ROWS), groups = sent_groups(COUNT, ROWS);
        nn_real *y = nn_test_sent(a_data, ROWS * WIDTH);
        float *room = nn_test_sent(b_data, array_at(COUNT, WIDTH));
        const void *biases = sent_list((char *)room, COUNT, WIDTH, sizeof *room, NO_BIAS);
        SUCCEEDS(fixed_runtime()->ops->add_group_bias(fixed_runtime(), y, &groups, biases, WIDTH));
        nn_test_read(got, y, ROWS * WIDTH);
        for (int64_t e = 0; e < ROWS * WIDTH; e++) {
            int64_t g = group_of(&host, e / WIDTH);
            expected[e] = a_data[e];
            if (g >= 0 && has(g, NO_BIAS))
                expected[e] += b_data[array_at(g, WIDTH) + e % WIDTH];
        }
        EXPECT_BITS(bits_of(got, expected, ROWS * WIDTH * 4, 4, WIDTH), "biases");
        nn_test_free_rooms();
    }
}

/* y[0, n) of a call on the first rows alone, and of one on `end` of the tile's rows. */
typedef void row_call(nn_real *y, nn_rows rows);
enum { TILE = 50, WIDE = 37 };

static void call_gelu(nn_real *y, nn_rows rows)
{
    const nn_runtime *here = fixed_runtime();
    SUCCEEDS(here->ops->gelu(here, y, nn_test_room(TILE * WIDE), nn_test_sent(a_data, TILE * WIDE),
                             rows, WIDE));
}

static void call_gelu_backward(nn_real *y, nn_rows rows)
{
    const nn_runtime *here = fixed_runtime();
    SUCCEEDS(here->ops->gelu_backward(here, y, nn_test_sent(a_data, TILE * WIDE),
                                      nn_test_sent(b_data, TILE * WIDE), rows, WIDE));
}

static void call_scale_rows(nn_real *y, nn_rows rows)
{
    const nn_runtime *here = fixed_runtime();
    SUCCEEDS(here->ops->scale_rows(here, y, nn_test_sent(a_data, TILE * WIDE),
                                   nn_test_sent(b_data, TILE), rows, WIDE));
}

static void call_row_dots(nn_real *y, nn_rows rows)
{
    const nn_runtime *here = fixed_runtime();
    SUCCEEDS(here->ops->row_dots(here, y, nn_test_sent(a_data, TILE * WIDE),
                                 nn_test_sent(b_data, TILE * WIDE), rows, WIDE));
}

Test(nn_groups, rows_that_are_there)
{
    static row_call *const calls[] = {call_gelu, call_gelu_backward, call_scale_rows,
                                      call_row_dots};
    static const int32_t counts[] = {0, 1, 31, TILE, TILE + 9};
    fill_all();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            int64_t most = counts[n] < TILE ? counts[n] : TILE;
            nn_real *y = nn_test_sent(given, TILE * WIDE);
            calls[i](y, (nn_rows){.most = most});
            nn_test_read(expected, y, TILE * WIDE);
            y = nn_test_sent(given, TILE * WIDE);
            calls[i](y, (nn_rows){TILE, sent_bytes(&counts[n], sizeof counts[n])});
            nn_test_read(got, y, TILE * WIDE);
            EXPECT_BITS(bits_of(got, expected, TILE * WIDE * 4, 4, WIDE), "call %d on %d rows",
                        (int)i, (int)counts[n]);
            int64_t written = i == 3 ? most : most * WIDE;
            EXPECT_BITS(bits_of(got + written, given + written, (TILE * WIDE - written) * 4, 4, 0),
                        "call %d behind %d rows", (int)i, (int)counts[n]);
            nn_test_free_rooms();
        }
}
