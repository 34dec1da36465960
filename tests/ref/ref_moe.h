/* A mixture of experts as a plain loop: a token after the other, each through its experts in the
 * order of its choices.
 *
 *   y = sum over choices of w down(gelu(up(x))),    w = the softmax over the logits of the chosen
 *
 * Experts are chosen by logit; of equals the lower id. */
#ifndef REF_MOE_H
#define REF_MOE_H

#include "ref_layers.h"

typedef struct ref_moe {
    ref_param router;      /* [experts, H] */
    ref_linear *up, *down; /* [experts] */
    int64_t hidden, inner, experts, top_k;
    double *ids, *weights; /* [rows, top_k] of the last forward */
} ref_moe;

/* Memory for `rows` rows. The caller has set sizes before; parameters come after it. */
void ref_moe_reserve(ref_moe *moe, int64_t rows);
void ref_moe_free(ref_moe *moe);

void ref_moe_forward(const ref_moe *moe, double *y, const double *x, int64_t rows);
void ref_moe_backward(const ref_moe *moe, double *dx, const double *dy, const double *x,
                      int64_t rows);

#endif
