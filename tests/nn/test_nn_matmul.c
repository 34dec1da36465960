/* Products of batches of matrices, in every form that the layers use, against a plain loop. In full
 * precision and in bf16. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/float16.h"
#include "train/nn/ops/nn_ops.h"
#include "nn_gradient_check.h"
#include "test_memory.h"

#ifdef NN_REAL_F64
static const double tolerance = 1e-13;
#else
static const double tolerance = 2e-6;
#endif

enum { CELLS = 4000 };

/* Of a, b or c: the elements between rows, beyond the width; and between matrices, beyond the last
 * row. */
typedef struct gaps {
    int64_t row, matrix;
} gaps;

typedef struct form {
    int64_t m, n, k, count;
    bool ta, tb;
    nn_real alpha, beta;
    gaps a, b, c;
} form;

static nn_matrix matrix_of(const nn_real *data, int64_t rows, int64_t columns, bool transposed,
                           gaps gap)
{
    int64_t lines = transposed ? columns : rows, line = transposed ? rows : columns;
    int64_t stride = line + gap.row;
    return (nn_matrix){data, rows, columns, stride, lines * stride + gap.matrix, transposed};
}

/* Element (i, j) of matrix p, rounded where the runtime rounds. */
static double element(const nn_matrix *a, const nn_real *data, int64_t p, int64_t i, int64_t j,
                      bool rounded)
{
    double x = (double)data[p * a->step + (a->transposed ? j * a->stride + i : i * a->stride + j)];
    return rounded ? (double)mimo_bf16_to(mimo_bf16_from((float)x)) : x;
}

/* The right result in c, and the old value where the product must not write. */
static void multiply_plainly(nn_real *c, const nn_product *p, const nn_real *a, const nn_real *b,
                             bool rounded)
{
    for (int64_t q = 0; q < p->count; q++)
        for (int64_t i = 0; i < p->a.rows; i++)
            for (int64_t j = 0; j < p->b.columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < p->a.columns; k++)
                    sum +=
                        element(&p->a, a, q, i, k, rounded) * element(&p->b, b, q, k, j, rounded);
                nn_real *to = &c[q * p->step + i * p->stride + j];
                double before = p->beta != 0 ? (double)p->beta * (double)*to : 0;
                *to = (nn_real)(before + (double)p->alpha * sum);
            }
}

static void check_form(const nn_runtime *runtime, const form *f)
{
    static nn_real a[CELLS], b[CELLS], c[CELLS], got[CELLS];
    bool rounded = runtime->precision == NN_PRECISION_BF16;
    nn_test_fill(a, CELLS, "a");
    nn_test_fill(b, CELLS, "b");
    nn_test_fill(c, CELLS, "c");
    nn_real *room = nn_test_sent(c, CELLS);
    nn_product p = {.c = room,
                    .stride = f->n + f->c.row,
                    .step = f->m * (f->n + f->c.row) + f->c.matrix,
                    .alpha = f->alpha,
                    .beta = f->beta,
                    .a = matrix_of(nn_test_sent(a, CELLS), f->m, f->k, f->ta, f->a),
                    .b = matrix_of(nn_test_sent(b, CELLS), f->k, f->n, f->tb, f->b),
                    .count = f->count};
    cr_assert(p.count * p.step <= CELLS && p.count * p.a.step <= CELLS &&
              p.count * p.b.step <= CELLS);
    SUCCEEDS(runtime->ops->matmul(runtime, &p));
    nn_test_read(got, room, CELLS);
    multiply_plainly(c, &p, a, b, rounded);
    /* Units for bf16 add in f32, but truncate where they align, instead of rounding. */
    double bound = tolerance * sqrt((double)f->k + 1) * (rounded ? 8 : 1);
    for (int i = 0; i < CELLS; i++)
        cr_assert(fabs((double)(got[i] - c[i])) <= bound * (1 + fabs((double)c[i])),
                  "%d x %d x %d, %d times, transposed %d %d: element %d is %.9g, not %.9g",
                  (int)f->m, (int)f->n, (int)f->k, (int)f->count, f->ta, f->tb, i, (double)got[i],
                  (double)c[i]);
    nn_test_free_rooms();
}

static void check_forms(const nn_runtime *runtime)
{
    static const form forms[] = {
        {5, 7, 3, 1, false, true, 1, 0, {0, 0}, {0, 0}, {0, 0}},  /* x W^T */
        {5, 7, 3, 1, true, false, 1, 1, {0, 0}, {0, 0}, {0, 0}},  /* dy^T x, added */
        {5, 7, 3, 1, false, false, 1, 0, {0, 0}, {0, 0}, {0, 0}}, /* dy W */
        {16, 16, 8, 6, false, true, (nn_real)0.35, 0, {16, 3}, {16, 3}, {16, 0}}, /* q k^T */
        {9, 4, 9, 5, false, false, 1, 1, {9, 0}, {8, 2}, {4, 1}},                 /* w v, added */
        {9, 4, 9, 5, true, false, 1, 0, {9, 0}, {8, 2}, {4, 1}},                  /* w^T dc */
        {33, 17, 65, 1, true, true, 2, -1, {1, 0}, {2, 0}, {3, 0}},
        /* Lines of whole eights, which a device rounds eight at a time. */
        {16, 16, 8, 6, false, true, (nn_real)0.35, 0, {16, 8}, {8, 16}, {16, 0}},
        {8, 16, 24, 3, true, false, 1, 1, {8, 4}, {0, 0}, {0, 0}},
        {1, 1, 1, 3, false, false, 1, 0, {0, 0}, {0, 0}, {0, 0}},
        {4, 5, 0, 1, false, false, 1, 1, {0, 0}, {0, 0}, {0, 0}}, /* no rows to sum */
        {0, 5, 3, 2, false, false, 1, 0, {0, 0}, {0, 0}, {0, 0}}, /* no rows at all */
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        check_form(runtime, &forms[i]);
}

Test(nn_matmul, equals_a_plain_loop)
{
    check_forms(nn_test_runtime());
}

/* Each product twice: rooms for rounded factors grow and are used again. */
Test(nn_matmul, in_bf16_equals_a_plain_loop_over_rounded_factors)
{
    nn_runtime runtime = {0};
    nn_runtime_desc desc = {test_memory(), test_stream(), NN_PRECISION_BF16, NN_ORDER_FAST, 0};
#ifdef NN_REAL_F64
    FAILS(nn_runtime_init(&runtime, &desc), MIMO_ERR_UNSUPPORTED, "need layers in f32");
#else
    SUCCEEDS(nn_runtime_init(&runtime, &desc));
    check_forms(&runtime);
    check_forms(&runtime);
    nn_runtime_release(&runtime);
#endif
}

Test(nn_matmul, the_fixed_order_is_for_layers_in_f32)
{
    nn_runtime runtime = {0};
    nn_runtime_desc desc = {test_memory(), test_stream(), NN_PRECISION_FULL, NN_ORDER_FIXED, 0};
#ifdef NN_REAL_F64
    FAILS(nn_runtime_init(&runtime, &desc), MIMO_ERR_UNSUPPORTED,
          "the fixed order of additions is for layers in f32, these are in f64");
#else
    SUCCEEDS(nn_runtime_init(&runtime, &desc));
    nn_runtime_release(&runtime);
    desc.precision = NN_PRECISION_BF16;
    FAILS(nn_runtime_init(&runtime, &desc), MIMO_ERR_UNSUPPORTED, "products of full precision");
#endif
}
