/* Adapters: initial values, the rules of their gradients on virtual ranks, merging, refusals. */
#include <math.h>
#include <string.h>

#include "train/nn/params/nn_initial.h"
#include "train/nn/params/nn_support.h"
#include "train/nn/params/nn_whole.h"
#include "nn_gradient_check.h"
#include "same_bits.h"

/* ----------------------------------- goldens of two tp ranks ---------------------------------- */

enum { N = 2, R = 2, RANKS = 2, MOST = 8 };

/* A layer of integers that are exact in every precision: each tp rank's part of it. */
typedef struct golden {
    int64_t in, out; /* global */
    int cut;
    nn_real x[N * MOST], w[MOST * MOST], a[R * MOST], b[MOST * R], dy[N * MOST];
} golden;

static const golden columns = {2,
                               4,
                               0,
                               {1, 2, 3, -1},
                               {1, 0, 0, 1, 1, 1, 2, -1},
                               {1, 2, 0, 1},
                               {1, 0, 0, 1, 1, -1, 2, 1},
                               {1, 0, 2, -1, 0, 1, 1, 1}};
static const golden rows = {4,
                            2,
                            1,
                            {1, 2, 0, -1, 3, -1, 1, 2},
                            {1, 0, 2, -1, 0, 1, 1, 1},
                            {1, 0, 1, 2, 0, 1, -1, 1},
                            {1, 2, 0, -1},
                            {1, -1, 2, 1}};

/* What one rank computes. */
typedef struct parts {
    nn_real z[N * R], dz[N * R], y[N * MOST], dx[N * MOST], da[R * MOST], db[MOST * R];
    nn_real merged[MOST * MOST];
} parts;

/* Columns [first, first + width) of a matrix [height, whole]. */
static void take_columns(nn_real *to, const nn_real *from, int64_t height, int64_t whole,
                         int64_t first, int64_t width)
{
    for (int64_t i = 0; i < height; i++)
        memcpy(to + i * width, from + i * whole + first, (size_t)width * sizeof *to);
}

/* y = x W^T, or dx = dy W where `back`. */
static void base(nn_real *to, const nn_real *from, const nn_real *w, int64_t in, int64_t out,
                 bool back)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < (back ? in : out); i++) {
            to[n * (back ? in : out) + i] = 0;
            for (int64_t k = 0; k < (back ? out : in); k++)
                to[n * (back ? in : out) + i] +=
                    from[n * (back ? out : in) + k] * w[back ? k * in + i : i * in + k];
        }
}

static void add_product(nn_real *to, const nn_factors *added)
{
    const nn_runtime *runtime = nn_runtime_or_host(nn_test_runtime());
    SUCCEEDS(nn_add_product(runtime, to, added));
}

static int add_weight(nn_params *params, const golden *g)
{
    int weight;
    nn_param_desc desc = {.name = "up.weight",
                          .ndim = 2,
                          .shape = {g->out, g->in},
                          .rule = NN_SHARDED,
                          .shard_dim = g->cut};
    SUCCEEDS(nn_params_add(params, &desc, &weight));
    return weight;
}

static void run_rank(parts *out, const golden *g, int rank)
{
    nn_params *params = nn_test_store(rank, RANKS);
    nn_lora_target target = {"up", g->in, g->out, g->cut, false, false, false, N, {0}};
    nn_lora_desc desc = {.rank = R, .alpha = 2 * R};
    nn_lora lora;
    nn_lora_saved saved;
    nn_room memory = {0};
    int weight = add_weight(params, g);
    SUCCEEDS(nn_lora_init(&lora, params, &target, &desc));
    SUCCEEDS(nn_params_seal(params));
    NN_TEST_PLACE(memory, nn_lora_saved_take(&saved, &lora, &memory));
    int64_t in = lora.in, out_width = lora.out, first_in = g->cut == 1 ? rank * in : 0;
    int64_t first_out = g->cut == 0 ? rank * out_width : 0;
    nn_real a[R * MOST], x[N * MOST], dy[N * MOST], w[MOST * MOST], rows_of_w[MOST * MOST];
    take_columns(a, g->a, R, g->in, first_in, in);
    take_columns(x, g->x, N, g->in, first_in, in);
    take_columns(dy, g->dy, N, g->out, first_out, out_width);
    take_columns(rows_of_w, g->w, g->out, g->in, first_in, in);
    memcpy(w, rows_of_w + first_out * in, (size_t)(out_width * in) * sizeof *w);
    SUCCEEDS(nn_params_write(params, lora.a, NN_VALUE, a));
    SUCCEEDS(nn_params_write(params, lora.b, NN_VALUE, g->b + first_out * R));
    SUCCEEDS(nn_params_write(params, weight, NN_VALUE, w));

    base(out->y, x, w, in, out_width, false);
    base(out->dx, dy, w, in, out_width, true);
    nn_real *room = nn_test_sent(out->y, N * MOST), *d_room = nn_test_sent(out->dx, N * MOST);
    const nn_real *x_sent = nn_test_sent(x, N * in), *dy_sent = nn_test_sent(dy, N * out_width);
    SUCCEEDS(nn_lora_forward(&lora, &saved, x_sent, N));
    SUCCEEDS(nn_lora_backward(&lora, &saved, dy_sent));
    nn_factors added;
    cr_assert(nn_lora_output(&added, &lora, &saved));
    add_product(room, &added);
    cr_assert(nn_lora_input(&added, &lora, &saved));
    add_product(d_room, &added);
    SUCCEEDS(nn_lora_backward_params(&lora, &saved, dy_sent, x_sent, (nn_tokens){N, 1}));
    nn_test_read(out->y, room, N * out_width);
    nn_test_read(out->dx, d_room, N * in);
    nn_test_read(out->z, saved.z, N * R);
    nn_test_read(out->dz, saved.dz, N * R);
    SUCCEEDS(nn_params_read(params, lora.a, NN_GRAD, out->da));
    SUCCEEDS(nn_params_read(params, lora.b, NN_GRAD, out->db));
    SUCCEEDS(nn_lora_merge(&lora, weight));
    SUCCEEDS(nn_params_read(params, weight, NN_VALUE, out->merged));
    nn_lora_release(&lora);
    nn_room_release(&memory);
    nn_params_destroy(params);
}

static void expect(const char *what, const nn_real *got, const int *expected, int count)
{
    for (int i = 0; i < count; i++)
        cr_assert_eq(got[i], (nn_real)expected[i], "%s[%d] is %g, must be %d", what, i,
                     (double)got[i], expected[i]);
}

#define EXPECT(got, ...)                                                        \
    do {                                                                        \
        static const int expected[] = {__VA_ARGS__};                            \
        expect(#got, got, expected, (int)(sizeof expected / sizeof *expected)); \
    } while (0)

static void add_to(nn_real *to, const nn_real *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] += from[i];
}

Test(nn_lora, columns_on_two_ranks)
{
    parts first, second;
    run_rank(&first, &columns, 0);
    run_rank(&second, &columns, 1);
    EXPECT(first.z, 5, 2, 1, -1);
    EXPECT(second.z, 5, 2, 1, -1);
    EXPECT(first.y, 11, 6, 5, -3);
    EXPECT(second.y, 9, 24, 6, 9);
    EXPECT(first.dz, 2, 0, 0, 2);
    EXPECT(first.da, 2, 4, 6, -2);
    EXPECT(first.db, 10, 4, 2, -2);
    EXPECT(first.dx, 3, 4, 0, 3);
    EXPECT(second.dz, 0, -6, 6, 0);
    EXPECT(second.da, 18, -6, -6, -12);
    EXPECT(second.db, 22, 6, -8, -6);
    EXPECT(second.dx, 0, -3, 9, 12);
    add_to(first.da, second.da, R * 2);
    add_to(first.dx, second.dx, N * 2);
    EXPECT(first.da, 20, -2, 0, -14); /* the SUM, not the mean */
    EXPECT(first.dx, 3, 1, 9, 15);
    EXPECT(first.merged, 3, 4, 0, 3);
    EXPECT(second.merged, 3, 3, 6, 9);
}

Test(nn_lora, rows_on_two_ranks)
{
    parts first, second;
    run_rank(&first, &rows, 0);
    run_rank(&second, &rows, 1);
    EXPECT(first.z, 1, 2, 3, -1);
    EXPECT(first.y, 11, -2, 5, 1);
    EXPECT(first.db, 14, 0, 4, -6);
    EXPECT(first.da, 14, 0, 24, 6);
    EXPECT(first.dx, 3, 5, 6, 7);
    EXPECT(second.z, -2, -1, 5, 1);
    EXPECT(second.y, -7, 1, 14, 1);
    EXPECT(second.db, 16, 2, 14, 4);
    EXPECT(second.da, 4, 6, 6, 6);
    EXPECT(second.dx, -3, 8, 3, 13);
    add_to(first.y, second.y, N * 2);
    add_to(first.db, second.db, R * 2);
    EXPECT(first.y, 4, -1, 19, 2); /* and the bias of [1, -1] */
    EXPECT(first.db, 30, 2, 18, -2);
    EXPECT(first.merged, 3, 4, 0, -1);
    EXPECT(second.merged, 0, 7, 3, -1);
}

/* ------------------------------------------- values ------------------------------------------- */

#ifndef NN_REAL_F64
Test(nn_lora, initial_values_are_those_of_every_topology)
{
    static const uint32_t golden_bits[R][8] = {{0x3e263fcb, 0x3e177bce, 0x3e403b74, 0xbd860a4f,
                                                0xbca68b77, 0x3c4f38fe, 0xbdc8e24d, 0xbd024202},
                                               {0x3d8f6f8b, 0xbde8d37f, 0xbd477872, 0xbe3474b1,
                                                0xbe825a0d, 0xbe49c3f9, 0xbda096c1, 0x3e38adea}};
    nn_params_desc store = {
        .name = "llm", .module = MIMO_DST, .seed = 1, .tp_size = 1, .runtime = nn_test_runtime()};
    nn_lora_target target = {"llm.block0.mlp.down", 8, 4, 1, false, false, false, 1, {0}};
    nn_lora_desc desc = {.rank = R, .alpha = 4};
    for (int rank = -1; rank < RANKS; rank++) { /* -1: alone */
        nn_params *params;
        nn_lora lora;
        nn_real a[R * 8];
        int64_t first = rank > 0 ? 4 : 0, width = rank < 0 ? 8 : 4;
        store.tp_size = rank < 0 ? 1 : RANKS;
        store.tp_rank = rank < 0 ? 0 : rank;
        SUCCEEDS(nn_params_create(&params, &store));
        SUCCEEDS(nn_lora_init(&lora, params, &target, &desc));
        SUCCEEDS(nn_params_seal(params));
        SUCCEEDS(nn_params_read(params, lora.a, NN_VALUE, a));
        for (int64_t i = 0; i < R; i++)
            EXPECT_BITS(bits_of(a + i * width, golden_bits[i] + first, width * 4, 4, width),
                        "row %d of rank %d", (int)i, rank);
        nn_lora_release(&lora);
        nn_params_destroy(params);
    }
}

Test(nn_hash, goldens)
{
    static const nn_real a[] = {1, 2, 0, 1}, minus_zero[] = {1, 2, -0.0F, 1}, zeros[] = {0, 0};
    const char *name = "llm.block0.mlp.up.lora_A.weight";
    cr_assert_eq(nn_hash_elements(name, 0, a, 4), UINT64_C(0x143c6f7ba8e5b06a));
    cr_assert_eq(nn_hash_elements(name, 0, minus_zero, 4), UINT64_C(0xb196127c8458543d));
    cr_assert_eq(nn_hash_elements("z", 0, zeros, 2), UINT64_C(0xe603c8a5e1835fb9));
}
#endif

enum { MOST_TENSORS = 8, MOST_ELEMENTS = 128 };

/* A store with every placement, as rank `rank` of `size`. */
static nn_params *store_of_all(int rank, int size)
{
    nn_params *params = nn_test_store(rank, size);
    for (int cut = -1; cut < 2; cut++) {
        nn_lora lora;
        nn_lora_target target = {
            cut < 0 ? "a" : cut == 0 ? "b" : "c", 8, 16, cut, false, false, false, 1, {0}};
        SUCCEEDS(nn_lora_init(&lora, params, &target, &(nn_lora_desc){.rank = 3, .alpha = 1}));
        nn_lora_release(&lora);
    }
    SUCCEEDS(nn_params_seal(params));
    return params;
}

Test(nn_hash, does_not_depend_on_the_topology)
{
    uint64_t whole, moments;
    nn_params *params = store_of_all(0, 1);
    SUCCEEDS(nn_hash_params(&whole, params, NN_VALUE));
    SUCCEEDS(nn_hash_params(&moments, params, NN_MOMENT_M));
    cr_assert_neq(whole, moments);
    nn_params_destroy(params);
    for (int size = 2; size <= 8; size *= 2) {
        uint64_t sum = 0;
        for (int rank = 0; rank < size; rank++) {
            uint64_t part;
            params = store_of_all(rank, size);
            SUCCEEDS(nn_hash_params(&part, params, NN_VALUE));
            nn_params_destroy(params);
            sum += part;
        }
        cr_assert_eq(sum, whole, "tp %d", size);
    }
}

/* What the ranks' summands of each tensor add up to. */
static void add_tensors(uint64_t sums[], int size, nn_part part, uint64_t *whole)
{
    *whole = 0;
    for (int rank = 0; rank < size; rank++) {
        nn_params *params = store_of_all(rank, size);
        uint64_t hashes[MOST_TENSORS], hash;
        cr_assert_leq(nn_params_count(params), MOST_TENSORS);
        SUCCEEDS(nn_hash_tensors(hashes, params, part));
        for (int i = 0; i < nn_params_count(params); i++)
            sums[i] += hashes[i];
        SUCCEEDS(nn_hash_params(&hash, params, part));
        *whole += hash;
        nn_params_destroy(params);
    }
}

/* Against the elements of the initial values, which a store of one rank holds in global order. */
Test(nn_hash, each_tensor_has_its_own)
{
    nn_params *params = store_of_all(0, 1);
    int count = nn_params_count(params);
    uint64_t expected[MOST_TENSORS], sum = 0;
    for (int i = 0; i < count; i++) {
        const nn_param *param = nn_params_at(params, i);
        nn_real values[MOST_ELEMENTS];
        cr_assert_leq(param->count, MOST_ELEMENTS);
        SUCCEEDS(nn_params_read(params, i, NN_VALUE, values));
        expected[i] = nn_hash_elements(param->name, 0, values, param->count);
        sum += expected[i];
        for (int j = 0; j < i; j++)
            cr_assert_neq(expected[i], expected[j], "%s", param->name);
    }
    for (int size = 1; size <= 8; size *= 2) {
        uint64_t sums[MOST_TENSORS] = {0}, whole;
        add_tensors(sums, size, NN_VALUE, &whole);
        for (int i = 0; i < count; i++)
            cr_assert_eq(sums[i], expected[i], "tp %d, %s", size, nn_params_at(params, i)->name);
        cr_assert_eq(whole, sum, "tp %d: the store's is the sum of its tensors'", size);
    }
    nn_params_destroy(params);
}

Test(nn_hash, what_is_frozen_has_no_gradient)
{
    nn_params *params;
    uint64_t hashes[2], whole;
    int index;
    nn_params_desc desc = {.name = "m", .module = MIMO_DST, .tp_size = 1, .frozen = true};
    SUCCEEDS(nn_params_create(&params, &desc));
    for (int i = 0; i < 2; i++) {
        nn_param_desc param = {
            .name = i ? "b" : "a", .ndim = 1, .shape = {3, 1}, .adapter = i, .init = NN_INIT_ONES};
        SUCCEEDS(nn_params_add(params, &param, &index));
    }
    SUCCEEDS(nn_params_seal(params));
    SUCCEEDS(nn_hash_tensors(hashes, params, NN_GRAD));
    SUCCEEDS(nn_hash_params(&whole, params, NN_GRAD));
    cr_assert_eq(hashes[0], 0);
    cr_assert_neq(hashes[1], 0);
    cr_assert_eq(whole, hashes[1]);
    SUCCEEDS(nn_hash_tensors(hashes, params, NN_VALUE));
    cr_assert(hashes[0] != 0 && hashes[1] != 0);
    nn_params_destroy(params);
}

Test(nn_placement, runs_cover_each_element_once)
{
    enum { HEIGHT = 16, WIDTH = 24 };
    for (int cut = 0; cut < 2; cut++)
        for (int ranks = 1; ranks <= 8; ranks *= 2) {
            nn_placement placement = {{HEIGHT, WIDTH}, cut, ranks};
            int seen[HEIGHT * WIDTH] = {0};
            for (int rank = 0; rank < ranks; rank++) {
                int64_t next = 0;
                for (int64_t i = 0; i < nn_placement_runs(&placement); i++) {
                    nn_run run = nn_placement_run(&placement, rank, i);
                    cr_assert_eq(run.local, next, "runs follow each other on the rank");
                    next += run.count;
                    for (int64_t j = 0; j < run.count; j++)
                        seen[run.global + j]++;
                }
                cr_assert_eq(next, HEIGHT * WIDTH / ranks);
            }
            for (int i = 0; i < HEIGHT * WIDTH; i++)
                cr_assert_eq(seen[i], 1, "cut %d over %d, element %d", cut, ranks, i);
        }
}

Test(nn_placement, packed_rows)
{
    /* queries, keys and values of 2 heads of size 2 */
    static const int64_t expected[] = {0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};
    nn_packing packing = {2, 3}, none = {0};
    for (int64_t row = 0; row < 12; row++) {
        cr_assert_eq(nn_packing_unpacked(&packing, 12, row), expected[row], "row %d", (int)row);
        cr_assert_eq(nn_packing_unpacked(&none, 12, row), row);
    }
    packing.groups = 4; /* 24 rows: tp 2 rank 1 holds the second half */
    static const int64_t half[] = {4, 5, 12, 13, 20, 21, 6, 7, 14, 15, 22, 23};
    for (int64_t row = 0; row < 12; row++)
        cr_assert_eq(nn_packing_unpacked(&packing, 24, 12 + row), half[row]);
}

/* -------------------------------------- the linear layer -------------------------------------- */

enum { IN = 3, OUT = 4, ROWS = 5 };

static nn_linear_desc adapted(const nn_lora_desc *adapter)
{
    return (nn_linear_desc){.name = "up",
                            .in = IN,
                            .out = OUT,
                            .split = NN_SPLIT_COLUMNS,
                            .bias = true,
                            .std = 0.1,
                            .max_rows = ROWS,
                            .lora = adapter};
}

/* alpha / rank, and of rsLoRA alpha / sqrt(rank). */
Test(nn_lora, scale)
{
    for (int rslora = 0; rslora < 2; rslora++) {
        nn_params *params = nn_test_store(0, 1);
        nn_lora_desc adapter = {.rank = 4, .alpha = 6, .rslora = rslora == 1};
        nn_linear_desc desc = adapted(&adapter);
        nn_linear layer;
        SUCCEEDS(nn_linear_init(&layer, params, NULL, &desc));
        cr_assert_eq(layer.lora.scale, rslora ? 3 : 1.5);
        nn_linear_release(&layer);
        nn_params_destroy(params);
    }
}

typedef struct linear_pair {
    nn_linear layer;
    nn_linear_saved saved;
    nn_room room;
} linear_pair;

static void make_pair(linear_pair *p, nn_params *params, const nn_linear_desc *desc)
{
    memset(p, 0, sizeof *p);
    SUCCEEDS(nn_linear_init(&p->layer, params, NULL, desc));
    SUCCEEDS(nn_params_seal(params));
    NN_TEST_PLACE(p->room, nn_linear_saved_take(&p->saved, &p->layer, &p->room));
}

static void release_pair(linear_pair *p)
{
    nn_linear_release(&p->layer);
    nn_room_release(&p->room);
}

#ifdef NN_REAL_F64
static mimo_status forward(void *layer, nn_real *y, const nn_real *x)
{
    linear_pair *p = layer;
    return nn_linear_forward(&p->layer, &p->saved, y, x, ROWS, 1);
}

static mimo_status backward(void *layer, nn_real *dx, nn_real *dy)
{
    linear_pair *p = layer;
    return nn_linear_backward(&p->layer, &p->saved, dx, dy);
}

Test(nn_lora, gradients_of_every_split)
{
    for (int split = NN_SPLIT_NONE; split <= NN_SPLIT_ROWS; split++)
        for (int rslora = 0; rslora < 2; rslora++) {
            nn_params *params = nn_test_store(0, 1);
            nn_lora_desc adapter = {.rank = 2, .alpha = 3, .b_std = 0.3, .rslora = rslora == 1};
            nn_linear_desc desc = adapted(&adapter);
            linear_pair p;
            desc.split = (nn_split)split;
            make_pair(&p, params, &desc);
            nn_case c = {"adapted", &p, params, ROWS * IN, ROWS * OUT, forward, backward};
            nn_check_gradients(&c);
            release_pair(&p);
            nn_params_destroy(params);
        }
}
#endif

/* The gradients of the parameters may come later than that of the input. */
Test(nn_linear, backward_in_halves)
{
    enum { PARAMETERS = 4 };
    nn_real x[ROWS * IN], dy[ROWS * OUT], dx[2][ROWS * IN], grads[2][PARAMETERS][OUT * IN];
    nn_lora_desc adapter = {.rank = 2, .alpha = 3, .b_std = 0.3};
    nn_linear_desc desc = adapted(&adapter);
    nn_test_fill(x, ROWS * IN, "x");
    nn_test_fill(dy, ROWS * OUT, "dy");
    const nn_real *x_sent = nn_test_sent(x, ROWS * IN);
    nn_real *dy_sent = nn_test_sent(dy, ROWS * OUT);
    for (int halves = 0; halves < 2; halves++) {
        nn_params *params = nn_test_store(0, 1);
        linear_pair p;
        nn_real *dx_room = nn_test_room(ROWS * IN);
        make_pair(&p, params, &desc);
        cr_assert_eq(nn_params_count(params), PARAMETERS);
        SUCCEEDS(nn_linear_forward(&p.layer, &p.saved, nn_test_room(ROWS * OUT), x_sent, ROWS, 1));
        if (halves) {
            FAILS(nn_linear_backward_params(&p.layer, &p.saved), MIMO_ERR_STATE,
                  "before the input");
            SUCCEEDS(nn_linear_backward_input(&p.layer, &p.saved, dx_room, dy_sent));
            SUCCEEDS(nn_linear_backward_params(&p.layer, &p.saved));
        } else {
            SUCCEEDS(nn_linear_backward(&p.layer, &p.saved, dx_room, dy_sent));
        }
        nn_test_read(dx[halves], dx_room, ROWS * IN);
        for (int i = 0; i < PARAMETERS; i++)
            SUCCEEDS(nn_params_read(params, i, NN_GRAD, grads[halves][i]));
        release_pair(&p);
        nn_params_destroy(params);
    }
    EXPECT_BITS(bits_of(dx[1], dx[0], sizeof dx[0], sizeof **dx, 0), "dx");
    EXPECT_BITS(
        bits_of(grads[1][0], grads[0][0], OUT * IN * (int64_t)sizeof(nn_real), sizeof(nn_real), 0),
        "the weight's gradient");
    EXPECT_BITS(
        bits_of(grads[1][2], grads[0][2], 2 * IN * (int64_t)sizeof(nn_real), sizeof(nn_real), 0),
        "A's gradient");
}

/* A frozen store with one adapted layer; B is not zero. */
typedef struct frozen_layer {
    nn_params *params;
    linear_pair p;
    nn_real x[ROWS * IN], y[ROWS * OUT];
    nn_real *x_sent, *y_room;
} frozen_layer;

static void make_frozen(frozen_layer *f)
{
    nn_lora_desc adapter = {.rank = 2, .alpha = 3, .b_std = 0.3};
    nn_linear_desc desc = adapted(&adapter);
    nn_params_desc store = {.name = "test",
                            .module = MIMO_DST,
                            .tp_size = 1,
                            .seed = 7,
                            .frozen = true,
                            .runtime = nn_test_runtime()};
    SUCCEEDS(nn_params_create(&f->params, &store));
    make_pair(&f->p, f->params, &desc);
    nn_test_fill(f->x, ROWS * IN, "x");
    nn_test_fill(f->y, ROWS * OUT, "y");
    f->x_sent = nn_test_sent(f->x, ROWS * IN);
    f->y_room = nn_test_sent(f->y, ROWS * OUT);
}

static void release_frozen(frozen_layer *f)
{
    release_pair(&f->p);
    nn_params_destroy(f->params);
}

Test(nn_lora, of_a_frozen_layer_it_alone_is_trained)
{
    frozen_layer f;
    const mimo_gradient_bucket *buckets;
    int n;
    nn_real before[OUT * IN], after[OUT * IN], factor[2 * IN];
    make_frozen(&f);
    SUCCEEDS(nn_params_buckets(f.params, &buckets, &n));
    int64_t trained = 0;
    for (int i = 0; i < n; i++)
        trained += buckets[i].count;
    cr_assert_eq(trained, 2 * IN + OUT * 2, "the factors, and nothing else");
    FAILS(nn_params_read(f.params, f.p.layer.weight, NN_GRAD, before), MIMO_ERR_STATE,
          "\"up.weight\" is frozen");
    SUCCEEDS(nn_params_read(f.params, f.p.layer.weight, NN_VALUE, before));
    nn_adamw rule = NN_ADAMW_INIT;
    for (int step = 0; step < 5; step++) {
        SUCCEEDS(nn_params_zero_grad(f.params));
        SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, f.x_sent, ROWS, 1));
        SUCCEEDS(nn_linear_backward(&f.p.layer, &f.p.saved, NULL, f.y_room));
        SUCCEEDS(nn_adamw_step(&rule, f.params, 1));
    }
    SUCCEEDS(nn_params_read(f.params, f.p.layer.weight, NN_VALUE, after));
    EXPECT_BITS(bits_of(after, before, sizeof before, sizeof *after, 0), "after");
    SUCCEEDS(nn_params_read(f.params, f.p.layer.lora.a, NN_VALUE, factor));
    cr_assert_neq(factor[0], (nn_real)(nn_uniform(7, "up.lora_A.weight", 0) / sqrt(IN)));
    cr_assert(nn_params_trainable(f.params));
    release_frozen(&f);
}

Test(nn_lora, starts_as_nothing)
{
    nn_real y[ROWS * OUT], adapted_y[ROWS * OUT], x[ROWS * IN], da[2 * IN], db[OUT * 2];
    nn_lora_desc adapter = {.rank = 2, .alpha = 16};
    nn_test_fill(x, ROWS * IN, "x");
    const nn_real *x_sent = nn_test_sent(x, ROWS * IN);
    for (int with = 0; with < 2; with++) {
        nn_params *params = nn_test_store(0, 1);
        nn_linear_desc desc = adapted(with ? &adapter : NULL);
        linear_pair p;
        make_pair(&p, params, &desc);
        nn_real *room = nn_test_room(ROWS * OUT);
        SUCCEEDS(nn_linear_forward(&p.layer, &p.saved, room, x_sent, ROWS, 1));
        SUCCEEDS(nn_linear_backward(&p.layer, &p.saved, NULL, room));
        nn_test_read(with ? adapted_y : y, room, ROWS * OUT);
        if (with) {
            SUCCEEDS(nn_params_read(params, p.layer.lora.a, NN_GRAD, da));
            SUCCEEDS(nn_params_read(params, p.layer.lora.b, NN_GRAD, db));
        }
        release_pair(&p);
        nn_params_destroy(params);
    }
    EXPECT_BITS(bits_of(adapted_y, y, sizeof y, sizeof *adapted_y, 0), "adapted_y");
    for (int i = 0; i < 2 * IN; i++)
        cr_assert_eq(da[i], 0, "B is 0, and with it the gradient of A");
    for (int i = 0; i < OUT * 2; i++)
        cr_assert_neq(db[i], 0, "B learns from the first step on");
}

Test(nn_lora, merging_can_be_undone)
{
    frozen_layer f;
    nn_real before[OUT * IN], after[OUT * IN], y[ROWS * OUT], merged[ROWS * OUT];
    make_frozen(&f);
    SUCCEEDS(nn_params_read(f.params, f.p.layer.weight, NN_VALUE, before));
    SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, f.x_sent, ROWS, 1));
    nn_test_read(y, f.y_room, ROWS * OUT);
    FAILS(nn_linear_visit(&f.p.layer, nn_lora_unmerge), MIMO_ERR_STATE, "not merged");
    SUCCEEDS(nn_linear_visit(&f.p.layer, nn_lora_merge));
    FAILS(nn_linear_visit(&f.p.layer, nn_lora_merge), MIMO_ERR_STATE, "merged already");
    SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, f.x_sent, ROWS, 1));
    nn_test_read(merged, f.y_room, ROWS * OUT);
    double difference = 0, scale = 0;
    for (int i = 0; i < ROWS * OUT; i++) {
        difference += pow((double)(merged[i] - y[i]), 2);
        scale += pow((double)y[i], 2);
    }
    cr_assert(difference <= 1e-12 * scale, "relative L2 %g", sqrt(difference / scale));
    FAILS(nn_linear_backward(&f.p.layer, &f.p.saved, NULL, f.y_room), MIMO_ERR_STATE,
          "up: the adapter is merged into the weight: unmerge before training");
    FAILS(nn_linear_backward_input(&f.p.layer, &f.p.saved, NULL, f.y_room), MIMO_ERR_STATE,
          "is merged");
    FAILS(nn_linear_backward_params(&f.p.layer, &f.p.saved), MIMO_ERR_STATE, "before the input's");
    nn_adamw rule = NN_ADAMW_INIT;
    FAILS(nn_adamw_step(&rule, f.params, 1), MIMO_ERR_STATE,
          "optimizer: adapters are merged into the weights (1): unmerge first");
    cr_assert_eq(nn_params_steps(f.params), 0);
    FAILS(nn_params_reset(f.params), MIMO_ERR_STATE, "reset: adapters are merged");
    FAILS(nn_params_write(f.params, f.p.layer.weight, NN_VALUE, before), MIMO_ERR_STATE,
          "up.weight: adapters are merged");
    nn_owners owners;
    SUCCEEDS(nn_owners_init(&owners, &(nn_owners_desc){.params = f.params}));
    const nn_param_part weight = {&owners, f.p.layer.weight, NN_VALUE};
    FAILS(nn_params_distribute(&weight, before, 0), MIMO_ERR_STATE, "distribute: adapters are");
    nn_owners_release(&owners);
    SUCCEEDS(nn_linear_visit(&f.p.layer, nn_lora_unmerge));
    SUCCEEDS(nn_params_read(f.params, f.p.layer.weight, NN_VALUE, after));
    EXPECT_BITS(bits_of(after, before, sizeof before, sizeof *after, 0), "after");
    SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, f.x_sent, ROWS, 1));
    SUCCEEDS(nn_linear_backward(&f.p.layer, &f.p.saved, NULL, f.y_room));
    SUCCEEDS(nn_adamw_step(&rule, f.params, 1));
    release_frozen(&f);
}

/* Forward leaves no z while merged: that of an earlier forward would give another gradient of B. */
Test(nn_lora, backward_takes_the_last_forward)
{
    frozen_layer f;
    nn_real other[ROWS * IN], expected[OUT * 2], db[OUT * 2];
    make_frozen(&f);
    nn_test_fill(other, ROWS * IN, "other");
    const nn_real *other_sent = nn_test_sent(other, ROWS * IN);
    nn_real *dy = nn_test_sent(f.y, ROWS * OUT);
    SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, f.x_sent, ROWS, 1));
    SUCCEEDS(nn_linear_visit(&f.p.layer, nn_lora_merge));
    SUCCEEDS(nn_linear_visit(&f.p.layer, nn_lora_unmerge));
    SUCCEEDS(nn_linear_backward(&f.p.layer, &f.p.saved, NULL, dy));
    SUCCEEDS(nn_params_read(f.params, f.p.layer.lora.b, NN_GRAD, expected));
    SUCCEEDS(nn_linear_visit(&f.p.layer, nn_lora_merge));
    SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, other_sent, ROWS, 1));
    SUCCEEDS(nn_linear_visit(&f.p.layer, nn_lora_unmerge));
    FAILS(nn_linear_backward(&f.p.layer, &f.p.saved, NULL, dy), MIMO_ERR_STATE,
          "up: the adapter was merged in the last forward: backward needs another one");
    SUCCEEDS(nn_params_read(f.params, f.p.layer.lora.b, NN_GRAD, db));
    EXPECT_BITS(bits_of(db, expected, sizeof db, sizeof *db, 0), "dB after the refusal");
    SUCCEEDS(nn_params_zero_grad(f.params));
    SUCCEEDS(nn_linear_forward(&f.p.layer, &f.p.saved, f.y_room, f.x_sent, ROWS, 1));
    SUCCEEDS(nn_linear_backward(&f.p.layer, &f.p.saved, NULL, dy));
    SUCCEEDS(nn_params_read(f.params, f.p.layer.lora.b, NN_GRAD, db));
    EXPECT_BITS(bits_of(db, expected, sizeof db, sizeof *db, 0), "dB");
    release_frozen(&f);
}

Test(nn_lora, is_chosen_by_the_end_of_a_name)
{
    const char *const targets[] = {"out", "mlp.up"};
    nn_lora_selection choice = {
        .adapter = {.rank = 1, .alpha = 1}, .targets = targets, .n_targets = 2};
    cr_assert(nn_lora_for(&choice, "llm.block0.attention.out"));
    cr_assert(nn_lora_for(&choice, "out"));
    cr_assert(nn_lora_for(&choice, "llm.block0.mlp.up"));
    cr_assert_null(nn_lora_for(&choice, "llm.block0.mlp.about"));
    cr_assert_null(nn_lora_for(&choice, "up"));
    choice.targets = NULL;
    cr_assert(nn_lora_for(&choice, "up"), "no targets: every layer");
    cr_assert_null(nn_lora_for(NULL, "up"));
}

Test(nn_lora, refuses)
{
    nn_params *params = nn_test_store(0, 1);
    nn_linear layer;
    nn_lora_desc adapter = {.rank = 0, .alpha = 1};
    nn_linear_desc desc = adapted(&adapter);
    FAILS(nn_linear_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT, "rank is 0");
    adapter.rank = 2;
    adapter.alpha = NAN;
    desc.name = "second";
    FAILS(nn_linear_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT, "alpha is nan");
    for (int i = 0; i < 2; i++) { /* all would be NaN; all would stay as it is */
        desc.name = i == 0 ? "large" : "small";
        adapter.rank = 1;
        adapter.alpha = i == 0 ? 1e39 : 1e-39;
        FAILS(nn_linear_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT,
              i == 0 ? "scale is 1e+39, of alpha 1e+39 and rank 1" : "scale is 1e-39, of alpha");
    }
    adapter.rank = 2;
    adapter.alpha = 1;
    adapter.b_std = -1;
    desc.name = "third";
    FAILS(nn_linear_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT, "b_std is -1");
    adapter.b_std = 0;
    desc.name = "fourth";
    desc.max_rows = 0;
    FAILS(nn_linear_init(&layer, params, NULL, &desc), MIMO_ERR_ARGUMENT, "max_rows");
    desc.name = "fifth";
    desc.max_rows = 2;
    SUCCEEDS(nn_linear_init(&layer, params, NULL, &desc));
    SUCCEEDS(nn_params_seal(params));
    nn_real *room = NULL;
    nn_linear_saved saved = {0};
    FAILS(nn_linear_forward(&layer, &saved, room, room, 3, 1), MIMO_ERR_SHAPE,
          "3 rows, must be 0 to 2");
    nn_linear_release(&layer);
    nn_params_destroy(params);
}
