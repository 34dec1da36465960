/* A mixture of experts as a plain loop: a token after the other, each through its experts in the
 * order of its choices.
 *
 *   y = sum over choices of w down(gelu(up(x))),    w = the softmax over the logits of the chosen
 *
 * Experts are chosen by logit; of equals the lower id. Every n-th token may have others forced on
 * it: those that come next in that order.
 *
 * Balance, for each row: c E sum over experts of f p. f is the expert's part of the choices of all
 * rows, and has no gradient. p is its score as a part of all scores. */
#ifndef REF_MOE_H
#define REF_MOE_H

#include "ref_layers.h"

typedef struct ref_moe {
    ref_param router;      /* [experts, H] */
    ref_linear *up, *down; /* [experts] */
    int64_t hidden, inner, experts, top_k;
    double balance;        /* c */
    int64_t others_every;  /* n; 0: every token has those that it chooses */
    int64_t first;         /* the number of the first row's token */
    double *order, *share; /* [experts] */
    /* Of the last forward: */
    double *scores;  /* logits [rows, experts] */
    double *live;    /* [rows, top_k]: the experts of the largest logits, by id */
    double *margins; /* [rows]: by how much the last of them leads, over the largest |logit| */
    double *ids, *weights; /* [rows, top_k]: those in use */
    double *losses;        /* [rows]: of the balance */
    double *activated;     /* [rows, top_k, inner] */
    double *y;             /* [rows, H] */
} ref_moe;

/* Memory for `rows` rows. The caller has set sizes before; parameters come after it. */
void ref_moe_reserve(ref_moe *moe, int64_t rows);
void ref_moe_free(ref_moe *moe);

void ref_moe_forward(const ref_moe *moe, double *y, const double *x, int64_t rows);
void ref_moe_backward(const ref_moe *moe, double *dx, const double *dy, const double *x,
                      int64_t rows);

#endif
