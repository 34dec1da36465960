/*
 * What layers do with elements. Each kind of memory has one table of operations, so every layer is
 * written once. The layer validates; an operation trusts its arguments. Pointers point into the
 * runtime's memory. On the host an operation is done on return. With a stream it only enqueues.
 *
 * Counts may be 0. Outputs overlap inputs only where an operation says so. The same call gives the
 * same bits every time: only the sizes decide the order of a sum.
 */
#ifndef MIMO_NN_NN_OPS_H
#define MIMO_NN_NN_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "train/nn/ops/nn_real.h"
#include "train/nn/ops/nn_runtime.h"

MIMO_BEGIN_DECLS

/* A matrix [rows, columns], row-major, with `stride` elements from row to row. Where `transposed`
 * is set, memory holds [columns, rows]. Matrix i of a batch starts i * step elements after
 * `data`. */
typedef struct nn_matrix {
    const nn_real *data;
    int64_t rows, columns, stride, step;
    bool transposed;
} nn_matrix;

/* Factors [a.rows, k] and [k, b.columns] with which the chains of a product go on, after those of
 * the product itself. Those of part i begin i * a_part and i * b_part elements after those of part
 * 0. */
typedef struct nn_factors {
    nn_real alpha;
    nn_matrix a, b;
    int64_t a_part, b_part;
} nn_factors;

/* c = beta c + alpha a b, for each matrix of a batch of `count`. c is [a.rows, b.columns] and never
 * transposed. Where beta is 0, c is not read. Every size fits an int.
 *
 * In the fixed order (nn_order.h) each element is a chain: it begins with beta c, and for k
 * ascending becomes fma(alpha a, b, chain) with alpha a rounded first; beta is 0 or 1. Three things
 * more can be asked for there, and only there:
 *   - k is cut into `parts`. A part is a chain from 0, and c is the balanced binary tree over the
 *     parts. Then beta is 0.
 *   - the chain of each part goes on with the factors `then`.
 *   - every chain is added to `sums` in fixed point. Then c is not used, beta is 0, and matrices of
 *     a batch may share their sums (step 0). */
typedef struct nn_product {
    nn_real *c;
    int64_t stride, step; /* of c, or of sums */
    nn_real alpha, beta;
    nn_matrix a, b;
    int64_t count;
    int64_t parts;          /* a power of two up to NN_MOST_PARTS that divides k; 0 counts as 1 */
    bool folded;            /* parts are of two pieces (nn_order_piece); not with `then` */
    const nn_factors *then; /* NULL: none */
    int64_t *sums;          /* [a.rows, b.columns] */
} nn_product;

/* The first `most` rows of a tile, or *end of them where that is less. `end` lies in the runtime's
 * memory, so on a device the host need not know it; NULL: all. */
typedef struct nn_rows {
    int64_t most;
    const int32_t *end;
} nn_rows;

/* The rows of a tile in groups, such as those of a rank's experts. Group g has the rows
 *
 *   [ends[g - 1], ends[g]),    the first one those from 0 on
 *
 * without those beyond the tile. `ends` and the lists of pointers of a call on groups lie
 *   in the fixed order   in the runtime's memory: on a device the host waits for no end
 *   in the fast order    in host memory: BLAS takes its sizes from there */
typedef struct nn_groups {
    const int32_t *ends; /* [count], ascending */
    int64_t count, rows; /* rows: of the tile. count >= 1 */
} nn_groups;

/* Factors [rows, k], of all groups, and of each group [k, columns]. Both are contiguous. */
typedef struct nn_group_factors {
    nn_real alpha;
    const nn_real *a;        /* [rows, k] */
    const nn_real *const *b; /* [count]; NULL in it: the group has no such product */
    int64_t k;
    bool transposed; /* memory holds b as [columns, k] */
} nn_group_factors;

/* c = beta c + alpha a b in the rows of each group, and with the factors `then`, if any,
 *
 *   in the fixed order   the chains go on with these
 *   in the fast order    they are a product of their own, which is added
 *
 * c is [rows, columns], contiguous. Rows of no group, and of one without the first b, stay as they
 * are. In the fixed order beta is 0 or 1. Bits are those of a product for each group. */
typedef struct nn_group_product {
    nn_groups groups;
    nn_real *c;
    int64_t columns;
    nn_real beta;
    nn_group_factors first;
    const nn_group_factors *then; /* NULL: none */
} nn_group_product;

/* Sums over the rows of each group, [out, in]: to += scale dy^T x. In the fixed order each row has
 * a chain of its own, whose product is added in fixed point. */
typedef struct nn_group_sums {
    nn_groups groups;
    nn_real scale;
    const nn_real *dy; /* [rows, out] */
    const nn_real *x;  /* [rows, in]; NULL: ones, in is 1, and so is scale */
    int64_t out, in;
    void *const *to; /* [count], of nn_real, in the fixed order of int64_t; NULL in it: nothing */
} nn_group_sums;

#define NN_NORM_EPSILON 1e-5

/* Rows under layer norm. */
typedef struct nn_norm_rows {
    const nn_real *x; /* [rows, width] */
    int64_t rows, width;
    const nn_real *scale, *shift; /* [width] */
    nn_real *mean, *rstd;         /* [rows]: forward writes them, backward reads them */
} nn_norm_rows;

typedef struct nn_norm_gradients {
    const nn_real *dy;                /* [rows, width] */
    const nn_real *residual;          /* [rows, width], added to dx; NULL: zeros */
    nn_real *dx;                      /* [rows, width]; may be dy, residual or x */
    nn_real *d_scale, *d_shift;       /* [width], added to; both NULL: frozen, or in fixed point */
    int64_t *scale_sums, *shift_sums; /* [width], added to term by term; both NULL otherwise */
} nn_norm_gradients;

/* Attention scores [panels, rows, width]. In every panel, row i sees the columns where row i of the
 * mask is 1. */
typedef struct nn_scores {
    nn_real *data;
    const nn_real *mask; /* [rows, width] of 0 and 1, a 1 in every row; NULL: all ones */
    int64_t panels, rows, width;
} nn_scores;

/* Row i * repeat + j, j < repeat, takes entry ids[i] of a table. */
typedef struct nn_lookup {
    const nn_real *table; /* [entries, width] */
    const int64_t *ids;   /* [n] */
    int64_t n, repeat, width;
} nn_lookup;

/* The uses of each entry: entry[k], k < count, is ids[i] for i = order[begin[k]], ...,
 * order[begin[k + 1] - 1], ascending. */
typedef struct nn_uses {
    const int64_t *entry, *begin, *order;
    int64_t count;
} nn_uses;

enum { NN_IGNORE = -100 };

/* Logits [rows, width] of the ids [first, first + width). Rows whose label is NN_IGNORE do not
 * count, and are not read. The layer reduces maxima and sums over tp between the operations. */
typedef struct nn_token_rows {
    const nn_real *logits;
    const int64_t *labels; /* [rows] global ids */
    int64_t rows, width, first;
    double *maxima; /* [rows] */
    double *sums;   /* [2, rows]: sum of exp(logit - max); logit of the label - max */
    int64_t *exps;  /* [rows]: the first of these sums in fixed point; NULL: the fast order */
} nn_token_rows;

/* How logits become scores s, and the scores of the chosen their weights: scale * s / sum. */
typedef enum nn_router_scores {
    NN_SCORES_CHOSEN = 0,  /* s = exp(logit), the sum over the chosen */
    NN_SCORES_ALL = 1,     /* s = exp(logit), the sum over all experts */
    NN_SCORES_SIGMOID = 2, /* s = 1 / (1 + exp(-logit)), the sum over the chosen and 1e-20; with one
                              choice the sum is 1 */
} nn_router_scores;

/* Rows that each choose top_k of `experts`: those of the largest logits, or of the largest
 * s + bias with NN_SCORES_SIGMOID, in descending order; of equals the lower id. A row with a NaN
 * chooses 0, ..., top_k - 1, and its weights are NaN. A masked row gets no expert: its ids are -1,
 * with weight 0. */
typedef struct nn_choices {
    nn_router_scores scores;
    const nn_real *logits; /* [rows, experts] */
    const nn_real *bias;   /* [experts]; NULL: zeros */
    const int32_t *forced; /* [rows, top_k]: the ids to take in place of those chosen; -1: none,
                              with weight 0; NULL: those chosen */
    const uint8_t *masked; /* [rows]: 1: the row is no token; NULL: all are */
    int64_t rows, experts, top_k;
    nn_real scale;
    int32_t *chosen;  /* [rows, top_k], also where ids are forced or rows masked */
    int32_t *ids;     /* [rows, top_k] */
    nn_real *weights; /* [rows, top_k], of ids */
} nn_choices;

/* Rows of a tile "sbh" from row `first` on: row i belongs to sequence (first + i) % batch. */
typedef struct nn_choice_shape {
    int64_t first, rows, batch, experts, top_k;
} nn_choice_shape;

/* Balance: the loss of row i of sequence b is
 *
 *   factor * sum over e of f[b, e] p[i, e],    f = counts of b / their sum,   p = s / sum of all s
 *
 * f has no gradient. A masked row has loss 0; its choices are -1, so no count has it. */
typedef struct nn_balance {
    nn_router_scores scores;
    const nn_real *logits; /* [rows, experts] */
    const int64_t *counts; /* [batch, experts] */
    const uint8_t *masked; /* [rows]; NULL: none is */
    nn_choice_shape shape;
    double factor;
    double *losses; /* [rows] */
} nn_balance;

/* Elements under AdamW, and the factors of one step. */
typedef struct nn_moments {
    nn_real *value, *m, *v;
    const nn_real *grad;
    int64_t count;
} nn_moments;

typedef struct nn_adamw_factors {
    nn_real gradient; /* scale of the gradient: clipping */
    nn_real beta1, beta2;
    nn_real rest1, rest2; /* 1 - beta1, 1 - beta2 */
    nn_real root;         /* 1 / sqrt(1 - beta2^t) */
    nn_real epsilon;
    nn_real rate;  /* lr / (1 - beta1^t) */
    nn_real decay; /* lr * decay; 0 for parameters that do not decay */
} nn_adamw_factors;

typedef struct nn_ops {
    /* Make and release runtime->context. It holds what the operations need: a BLAS handle and
     * workspaces. Workspaces grow on the first call of a shape. Nothing else allocates. */
    mimo_status (*open)(nn_runtime *runtime);
    void (*close)(nn_runtime *runtime); /* also after an open that failed */

    mimo_status (*matmul)(const nn_runtime *runtime, const nn_product *product);
    mimo_status (*multiply_groups)(const nn_runtime *runtime, const nn_group_product *product);
    mimo_status (*sum_groups)(const nn_runtime *runtime, const nn_group_sums *sums);
    /* y[i, j] += bias[j] of the group of row i; biases [count] as those of nn_group_factors;
     * y [rows, width] */
    mimo_status (*add_group_bias)(const nn_runtime *runtime, nn_real *y, const nn_groups *groups,
                                  const nn_real *const *biases, int64_t width);

    /* to[i] += from[i], i < n */
    mimo_status (*add)(const nn_runtime *runtime, nn_real *to, const nn_real *from, int64_t n);
    /* y[i, j] += bias[j]; y [rows, width] */
    mimo_status (*add_bias)(const nn_runtime *runtime, nn_real *y, const nn_real *bias,
                            int64_t rows, int64_t width);
    /* sums[j] += sum over i of x[i, j]; x [rows, width] */
    mimo_status (*add_columns)(const nn_runtime *runtime, nn_real *sums, const nn_real *x,
                               int64_t rows, int64_t width);

    /* gate = 0.5 (1 + tanh(sqrt(2 / pi) (u + 0.044715 u^3))), y = u * gate; all [rows, width] */
    mimo_status (*gelu)(const nn_runtime *runtime, nn_real *y, nn_real *gate, const nn_real *u,
                        nn_rows rows, int64_t width);
    /* d *= dy/du */
    mimo_status (*gelu_backward)(const nn_runtime *runtime, nn_real *d, const nn_real *u,
                                 const nn_real *gate, nn_rows rows, int64_t width);

    /* y = (x - mean) * rstd * scale + shift, rstd = 1 / sqrt(variance + epsilon), sums in f64 */
    mimo_status (*norm)(const nn_runtime *runtime, nn_real *y, const nn_norm_rows *rows);
    mimo_status (*norm_backward)(const nn_runtime *runtime, const nn_norm_rows *rows,
                                 const nn_norm_gradients *gradients);

    /* Each row becomes its softmax, in place. */
    mimo_status (*softmax)(const nn_runtime *runtime, const nn_scores *scores);
    /* d becomes w * (d - sum(d * w)), row by row; d, w [rows, width] */
    mimo_status (*softmax_backward)(const nn_runtime *runtime, nn_real *d, const nn_real *w,
                                    int64_t rows, int64_t width);

    /* y = the entries, y += the entries; y [n * repeat, width] */
    mimo_status (*lookup)(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup);
    mimo_status (*lookup_add)(const nn_runtime *runtime, nn_real *y, const nn_lookup *lookup);
    /* Add the rows of dy [n * repeat, width] to their entries of grad [entries, width]. It does not
     * use table and ids of `lookup`. */
    mimo_status (*lookup_backward)(const nn_runtime *runtime, nn_real *grad, const nn_real *dy,
                                   const nn_lookup *lookup, const nn_uses *uses);

    /* maxima[i] = the largest logit, 0 where ignored */
    mimo_status (*token_maxima)(const nn_runtime *runtime, const nn_token_rows *tokens);
    /* Both sums of this rank, from the maxima over tp. Where the label's id is on another rank, the
     * second sum is 0. With `exps`, the first sum is there alone; where it is NN_FIXED_BROKEN, the
     * second one is NaN, which sums over tp keep. */
    mimo_status (*token_sums)(const nn_runtime *runtime, const nn_token_rows *tokens);
    /* losses[i] = log(sum) - target, 0 where ignored; *total += their sum. In the fixed order the
     * first sum comes from `exps`, or is NaN as the second one, and losses are multiples of 2^-24,
     * so that they add exactly. */
    mimo_status (*token_losses)(const nn_runtime *runtime, double *losses, double *total,
                                const nn_token_rows *tokens);
    /* d [rows, width] = exp(logit - max) / sum - (1 at the label); d may be the logits */
    mimo_status (*token_gradients)(const nn_runtime *runtime, nn_real *d,
                                   const nn_token_rows *tokens);
    /* value[i] = the largest logit of row i. It does not use labels, maxima and sums. */
    mimo_status (*row_largest)(const nn_runtime *runtime, double *value,
                               const nn_token_rows *tokens);
    /* negated[i] = -(the lowest global id that has the row's largest logit). Where that logit is
     * below value[i], negated[i] = -absent. */
    mimo_status (*row_argmax)(const nn_runtime *runtime, double *negated, const double *value,
                              const nn_token_rows *tokens, int64_t absent);

    /* y[i, j] = x[i, j] * factors[i]; y, x [rows, width]; y may be x */
    mimo_status (*scale_rows)(const nn_runtime *runtime, nn_real *y, const nn_real *x,
                              const nn_real *factors, nn_rows rows, int64_t width);
    /* dots[i] += sum over j of a[i, j] * b[i, j]; a, b [rows, width] */
    mimo_status (*row_dots)(const nn_runtime *runtime, nn_real *dots, const nn_real *a,
                            const nn_real *b, nn_rows rows, int64_t width);

    /* Choose experts, and give the choices weights. */
    mimo_status (*choose)(const nn_runtime *runtime, const nn_choices *choices);
    /* d_logits [rows, experts] from d_weights [rows, top_k] and what `choose` wrote. */
    mimo_status (*choose_backward)(const nn_runtime *runtime, nn_real *d_logits,
                                   const nn_real *d_weights, const nn_choices *choices);
    /* counts[b, e] += how often rows of sequence b have e among ids [rows, top_k]. */
    mimo_status (*count_choices)(const nn_runtime *runtime, int64_t *counts, const int32_t *ids,
                                 const nn_choice_shape *shape);
    /* The losses, and their gradient, which is added to d_logits [rows, experts]. */
    mimo_status (*balance)(const nn_runtime *runtime, const nn_balance *balance);
    mimo_status (*balance_backward)(const nn_runtime *runtime, nn_real *d_logits,
                                    const nn_balance *balance);

    /* g = gradient * grad; m = beta1 m + rest1 g; v = beta2 v + rest2 g^2;
     * value -= rate * m / (sqrt(v) * root + epsilon) + decay * value */
    mimo_status (*adamw)(const nn_runtime *runtime, const nn_moments *moments,
                         const nn_adamw_factors *factors);

    /* Convert n elements to bf16 (ties to even) and back, for tiles that travel in bf16. */
    mimo_status (*to_bf16)(const nn_runtime *runtime, uint16_t *to, const nn_real *from, int64_t n);
    mimo_status (*from_bf16)(const nn_runtime *runtime, nn_real *to, const uint16_t *from,
                             int64_t n);

    /* What the fixed order has in place of a sum (nn_order.h). Sums in fixed point are added to
     * term by term. */
    mimo_status (*add_columns_fixed)(const nn_runtime *runtime, int64_t *sums, const nn_real *x,
                                     int64_t rows, int64_t width);
    mimo_status (*lookup_backward_fixed)(const nn_runtime *runtime, int64_t *sums,
                                         const nn_real *dy, const nn_lookup *lookup,
                                         const nn_uses *uses);
    /* to[i] = the balanced tree over parts[p * n + i], p < count, a power of two; `to` may be
     * `parts`, which is overwritten. */
    mimo_status (*tree)(const nn_runtime *runtime, nn_real *to, nn_real *parts, int64_t count,
                        int64_t n);
    /* *most becomes the largest |sums[i]| as a double, where that is larger. */
    mimo_status (*fixed_largest)(const nn_runtime *runtime, double *most, const int64_t *sums,
                                 int64_t n);
    /* The n sums, times factor, become n nn_real in the first half of the same memory. */
    mimo_status (*settle)(const nn_runtime *runtime, int64_t *sums, int64_t n, double factor);
    /* sums[i] = the sum of the squares of matrix i of a batch x of `count`, in f64, in an order
     * that its rows and columns alone decide. */
    mimo_status (*block_squares)(const nn_runtime *runtime, double *sums, const nn_matrix *x,
                                 int64_t count);
    /* -0 becomes +0. */
    mimo_status (*plain_zeros)(const nn_runtime *runtime, nn_real *x, int64_t n);
    /* to[i] = from[i], by at most `blocks` thread blocks, at least 1: what a copy takes that has no
     * more of a device than that. */
    mimo_status (*copy_narrow)(const nn_runtime *runtime, nn_real *to, const nn_real *from,
                               int64_t n, int blocks);
} nn_ops;

/* Apply each(prefix, name) to every operation. A backend names its functions prefix_name.
 * NN_DECLARE declares them with their types. NN_ENTRY puts them into the table. */
/* clang-format off */
#define NN_OPERATIONS(each, prefix)                                                               \
    each(prefix, open) each(prefix, close) each(prefix, matmul)                                   \
    each(prefix, multiply_groups) each(prefix, sum_groups) each(prefix, add_group_bias)           \
    each(prefix, add) each(prefix, add_bias) each(prefix, add_columns)                            \
    each(prefix, gelu) each(prefix, gelu_backward) each(prefix, norm) each(prefix, norm_backward) \
    each(prefix, softmax) each(prefix, softmax_backward)                                          \
    each(prefix, lookup) each(prefix, lookup_add) each(prefix, lookup_backward)                   \
    each(prefix, token_maxima) each(prefix, token_sums) each(prefix, token_losses)                \
    each(prefix, token_gradients) each(prefix, row_largest) each(prefix, row_argmax)              \
    each(prefix, choose) each(prefix, choose_backward) each(prefix, count_choices)                \
    each(prefix, balance) each(prefix, balance_backward)                                          \
    each(prefix, scale_rows) each(prefix, row_dots)                                               \
    each(prefix, adamw) each(prefix, to_bf16) each(prefix, from_bf16)                             \
    each(prefix, add_columns_fixed) each(prefix, lookup_backward_fixed) each(prefix, tree)        \
    each(prefix, fixed_largest) each(prefix, settle) each(prefix, block_squares)                  \
    each(prefix, plain_zeros) each(prefix, copy_narrow)
/* clang-format on */
#define NN_DECLARE(prefix, name) __typeof__(*((nn_ops *)0)->name) prefix##_##name;
#define NN_ENTRY(prefix, name) .name = prefix##_##name,

extern const nn_ops nn_ops_host;
extern const nn_ops nn_ops_cuda; /* only in a build with CUDA */

MIMO_END_DECLS

#endif
