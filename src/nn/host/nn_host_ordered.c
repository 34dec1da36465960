#include "nn/host/nn_host_ordered.h"

#include <math.h>

#include "nn/nn_fixed.h"

static nn_real at(const nn_matrix *x, int64_t i, int64_t j)
{
    return x->data[x->transposed ? j * x->stride + i : i * x->stride + j];
}

static nn_real chain(nn_real sum, nn_real alpha, const nn_matrix *a, const nn_matrix *b, nn_piece k,
                     int64_t i, int64_t j)
{
    for (int64_t l = k.first; l < k.first + k.count; l++)
        sum = (nn_real)fmaf((float)(alpha * at(a, i, l)), (float)at(b, l, j), (float)sum);
    return sum;
}

static nn_real part_of(const nn_product *p, const nn_matrix *a, const nn_matrix *b, int64_t i,
                       int64_t j, int64_t part, int64_t matrix)
{
    nn_real sum = p->beta != 0 && !p->sums ? p->c[matrix * p->step + i * p->stride + j] : 0;
    int64_t parts = p->parts > 0 ? p->parts : 1;
    for (int piece = 0; piece < 2; piece++)
        sum = chain(sum, p->alpha, a, b, nn_order_piece(a->columns, parts, p->folded, part, piece),
                    i, j);
    if (!p->then)
        return sum;
    nn_matrix a2 = p->then->a, b2 = p->then->b;
    a2.data += part * p->then->a_part + matrix * a2.step;
    b2.data += part * p->then->b_part + matrix * b2.step;
    return chain(sum, p->then->alpha, &a2, &b2, (nn_piece){0, a2.columns}, i, j);
}

static void element(const nn_product *p, const nn_matrix *a, const nn_matrix *b, int64_t i,
                    int64_t j, int64_t matrix)
{
    int64_t parts = p->parts > 0 ? p->parts : 1;
    nn_real sums[NN_MOST_PARTS];
    int64_t at = matrix * p->step + i * p->stride + j;
    for (int64_t part = 0; part < parts; part++) {
        sums[part] = part_of(p, a, b, i, j, part, matrix);
        if (p->sums)
            p->sums[at] = nn_fixed_sum(p->sums[at], (double)sums[part]);
    }
    if (p->sums)
        return;
    for (int64_t distance = 1; distance < parts; distance *= 2)
        for (int64_t part = 0; part < parts; part += 2 * distance)
            sums[part] += sums[part + distance];
    p->c[at] = sums[0];
}

mimo_status nn_host_matmul_ordered(const nn_product *product)
{
    for (int64_t m = 0; m < product->count; m++) {
        nn_matrix a = product->a, b = product->b;
        a.data += m * a.step;
        b.data += m * b.step;
        for (int64_t i = 0; i < a.rows; i++)
            for (int64_t j = 0; j < b.columns; j++)
                element(product, &a, &b, i, j, m);
    }
    return MIMO_OK;
}
