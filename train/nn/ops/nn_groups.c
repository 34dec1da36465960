#include "train/nn/ops/nn_groups.h"

#include "core/check.h"

/* Rows [begin, begin + rows) of a tile: those of one group. */
typedef struct group_rows {
    int64_t index, begin, rows;
} group_rows;

static group_rows rows_of(const nn_groups *groups, int64_t g)
{
    int64_t begin = nn_group_begin(groups, g);
    return (group_rows){g, begin, nn_group_end(groups, g) - begin};
}

static nn_factors factors_of(const nn_group_factors *it, const group_rows *at, int64_t columns)
{
    return (nn_factors){.alpha = it->alpha,
                        .a = {it->a + at->begin * it->k, at->rows, it->k, it->k, 0, false},
                        .b = {it->b[at->index], it->k, columns, it->transposed ? it->k : columns, 0,
                              it->transposed}};
}

static mimo_status multiply(const nn_runtime *runtime, nn_real *c, const nn_factors *factors,
                            nn_real beta, const nn_factors *then)
{
    const nn_product product = {.c = c,
                                .stride = factors->b.columns,
                                .alpha = factors->alpha,
                                .beta = beta,
                                .a = factors->a,
                                .b = factors->b,
                                .count = 1,
                                .then = then};
    return runtime->ops->matmul(runtime, &product);
}

static mimo_status multiply_group(const nn_runtime *runtime, const nn_group_product *p,
                                  const group_rows *at)
{
    const nn_factors first = factors_of(&p->first, at, p->columns);
    const bool goes_on = p->then && p->then->b[at->index], fixed = runtime->order == NN_ORDER_FIXED;
    nn_real *c = p->c + at->begin * p->columns;
    if (!goes_on)
        return multiply(runtime, c, &first, p->beta, NULL);
    const nn_factors then = factors_of(p->then, at, p->columns);
    MIMO_TRY(multiply(runtime, c, &first, p->beta, fixed ? &then : NULL));
    return fixed ? MIMO_OK : multiply(runtime, c, &then, 1, NULL);
}

mimo_status nn_loop_multiply(const nn_runtime *runtime, const nn_group_product *product)
{
    for (int64_t g = 0; g < product->groups.count; g++) {
        const group_rows at = rows_of(&product->groups, g);
        if (product->first.b[g] && at.rows > 0)
            MIMO_TRY(multiply_group(runtime, product, &at));
    }
    return MIMO_OK;
}

/* x is ones. */
static mimo_status sum_rows(const nn_runtime *runtime, const nn_group_sums *sums,
                            const group_rows *at)
{
    const nn_real *dy = sums->dy + at->begin * sums->out;
    if (runtime->order == NN_ORDER_FIXED)
        return runtime->ops->add_columns_fixed(runtime, sums->to[at->index], dy, at->rows,
                                               sums->out);
    return runtime->ops->add_columns(runtime, sums->to[at->index], dy, at->rows, sums->out);
}

/* In the fixed order the rows are a batch of products, each of one row, with one sum. */
static mimo_status sum_products(const nn_runtime *runtime, const nn_group_sums *sums,
                                const group_rows *at)
{
    const bool fixed = runtime->order == NN_ORDER_FIXED;
    const int64_t k = fixed ? 1 : at->rows;
    const nn_product product = {
        .c = fixed ? NULL : sums->to[at->index],
        .sums = fixed ? sums->to[at->index] : NULL,
        .stride = sums->in,
        .alpha = sums->scale,
        .beta = fixed ? 0 : 1,
        .a = {sums->dy + at->begin * sums->out, sums->out, k, sums->out, sums->out, true},
        .b = {sums->x + at->begin * sums->in, k, sums->in, sums->in, sums->in, false},
        .count = fixed ? at->rows : 1};
    return runtime->ops->matmul(runtime, &product);
}

mimo_status nn_loop_sum(const nn_runtime *runtime, const nn_group_sums *sums)
{
    for (int64_t g = 0; g < sums->groups.count; g++) {
        const group_rows at = rows_of(&sums->groups, g);
        if (sums->to[g] && at.rows > 0)
            MIMO_TRY(sums->x ? sum_products(runtime, sums, &at) : sum_rows(runtime, sums, &at));
    }
    return MIMO_OK;
}

mimo_status nn_loop_add_bias(const nn_runtime *runtime, nn_real *y, const nn_groups *groups,
                             const nn_real *const *biases, int64_t width)
{
    for (int64_t g = 0; g < groups->count; g++) {
        const group_rows at = rows_of(groups, g);
        if (biases[g] && at.rows > 0)
            MIMO_TRY(
                runtime->ops->add_bias(runtime, y + at.begin * width, biases[g], at.rows, width));
    }
    return MIMO_OK;
}
