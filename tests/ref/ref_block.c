#include "ref_block.h"

#include <stdlib.h>

#include "ref_table.h"

void ref_block_reserve(ref_block *block, int64_t rows)
{
    int64_t hidden = block->hidden, inner = block->inner;
    ref_attention *attention = &block->attention;
    double **wide[] = {&block->u, &block->activated, &block->d_inner};
    double **narrow[] = {&block->normed1,      &block->middle,   &block->normed2,
                         &block->d_normed,     &block->d_middle, &attention->context,
                         &attention->d_context};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = ref_room(rows * inner);
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        *narrow[i] = ref_room(rows * hidden);
    attention->projected = ref_room(rows * 3 * hidden);
    attention->d_projected = ref_room(rows * 3 * hidden);
    attention->weights = ref_room(attention->heads * rows * rows);
}

void ref_block_free(ref_block *block)
{
    ref_attention *attention = &block->attention;
    double *rooms[] = {block->u,
                       block->activated,
                       block->d_inner,
                       block->normed1,
                       block->middle,
                       block->normed2,
                       block->d_normed,
                       block->d_middle,
                       attention->context,
                       attention->weights,
                       attention->d_context,
                       attention->projected,
                       attention->d_projected};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free(rooms[i]);
    ref_moe_free(&block->moe);
}

static void mlp_forward(const ref_block *block, double *y, int64_t rows)
{
    ref_linear_forward(&block->up, block->u, block->normed2, rows);
    for (int64_t i = 0; i < rows * block->inner; i++)
        block->activated[i] = ref_gelu(block->u[i]);
    ref_linear_forward(&block->down, y, block->activated, rows);
}

static void mlp_backward(const ref_block *block, const double *dy, int64_t rows)
{
    ref_linear_backward(&block->down, block->d_inner, dy, block->activated, rows);
    for (int64_t i = 0; i < rows * block->inner; i++)
        block->d_inner[i] *= ref_gelu_slope(block->u[i]);
    ref_linear_backward(&block->up, block->d_normed, block->d_inner, block->normed2, rows);
}

void ref_block_forward(const ref_block *block, double *y, const double *x, int64_t rows)
{
    ref_norm_forward(&block->norm1, block->normed1, x, rows);
    ref_attention_forward(&block->attention, block->middle, block->normed1, rows);
    for (int64_t i = 0; i < rows * block->hidden; i++)
        block->middle[i] += x[i];
    ref_norm_forward(&block->norm2, block->normed2, block->middle, rows);
    if (block->moe.experts > 0)
        ref_moe_forward(&block->moe, y, block->normed2, rows);
    else
        mlp_forward(block, y, rows);
    for (int64_t i = 0; i < rows * block->hidden; i++)
        y[i] += block->middle[i];
}

void ref_block_backward(const ref_block *block, double *dx, const double *dy, const double *x,
                        int64_t rows)
{
    if (block->moe.experts > 0)
        ref_moe_backward(&block->moe, block->d_normed, dy, block->normed2, rows);
    else
        mlp_backward(block, dy, rows);
    ref_norm_backward(&block->norm2, block->d_middle, block->d_normed, block->middle, rows);
    for (int64_t i = 0; i < rows * block->hidden; i++)
        block->d_middle[i] += dy[i];
    ref_attention_backward(&block->attention, block->d_normed, block->d_middle, block->normed1,
                           rows);
    ref_norm_backward(&block->norm1, dx, block->d_normed, x, rows);
    for (int64_t i = 0; i < rows * block->hidden; i++)
        dx[i] += block->d_middle[i];
}
