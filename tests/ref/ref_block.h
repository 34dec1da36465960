/* A pre-norm transformer block: a = x + attention(norm1(x)), y = a + down(gelu(up(norm2(a)))),
 * or with a mixture of experts in place of the two layers. */
#ifndef REF_BLOCK_H
#define REF_BLOCK_H

#include "ref_moe.h"

typedef struct ref_block {
    ref_norm norm1, norm2;
    ref_attention attention;
    ref_linear up, down;
    ref_moe moe; /* experts 0: there is none */
    int64_t hidden, inner;
    double *normed1, *middle, *normed2; /* [rows, H] of the last forward */
    double *u, *activated, *d_inner;    /* [rows, inner] */
    double *d_normed, *d_middle;        /* [rows, H] */
} ref_block;

/* Memory for `rows` rows. The caller has set sizes and parameters before. */
void ref_block_reserve(ref_block *block, int64_t rows);
void ref_block_free(ref_block *block);

void ref_block_forward(const ref_block *block, double *y, const double *x, int64_t rows);
/* x is the input of the forward. dx may be dy. */
void ref_block_backward(const ref_block *block, double *dx, const double *dy, const double *x,
                        int64_t rows);

#endif
