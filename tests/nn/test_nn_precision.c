/* Built against nn and against nn_f64. Both reproduce numbers that nn_f64 gave, each to its
 * precision. This is the only test of what only the f32 build has (its exp, its BLAS calls). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/nn/host/nn_math.h"
#include "block_model.h"
#include "nn_gradient_check.h"

enum { S = 12, B = 2, HIDDEN = 16, HEADS = 4, V = 24, N = S * B };

#ifdef NN_REAL_F64
static const double tolerance = 1e-12;
#else
static const double tolerance = 2e-6;
#endif

static void make(model *m)
{
    const model_parts parts = {.params = nn_test_store(0, 1),
                               .sequence = {NULL, true, S, B, NULL, nn_test_runtime(), 0},
                               .block = {.name = "block",
                                         .hidden = HIDDEN,
                                         .heads = HEADS,
                                         .inner = 64,
                                         .max_rows = S,
                                         .max_batch = B,
                                         .std = 0.3,
                                         .out_std = 0.3},
                               .head = {.name = "head",
                                        .in = HIDDEN,
                                        .out = V,
                                        .split = NN_SPLIT_COLUMNS,
                                        .bias = true,
                                        .std = 0.3}};
    model_make(m, &parts);
}

/* The norm of the gradient over all parameters. */
static double norm_of(const nn_params *params)
{
    static nn_real grad[64 * HIDDEN];
    double squares = 0;
    for (int i = 0; i < nn_params_count(params); i++) {
        SUCCEEDS(nn_params_read(params, i, NN_GRAD, grad));
        squares += nn_sum_deviations(grad, 0, nn_params_at(params, i)->count);
    }
    return sqrt(squares);
}

/* Loss, and the gradient's norm, after one AdamW step. */
static void step(model *m, double *sum, double *norm)
{
    static nn_real numbers[N * HIDDEN];
    int64_t labels[N], tokens;
    nn_test_fill(numbers, N * HIDDEN, "x");
    for (int i = 0; i < N; i++)
        labels[i] = i % 3 ? (i * 7) % V : NN_IGNORE;
    nn_real *x = nn_test_sent(numbers, N * HIDDEN), *y = nn_test_room(N * HIDDEN);
    nn_real *logits = nn_test_room(N * V), *d = nn_test_room(N * HIDDEN);
    SUCCEEDS(nn_block_forward(&m->block, &m->block_saved, y, x, &m->sequence));
    SUCCEEDS(nn_linear_forward(&m->head, &m->head_saved, logits, y, N, 1));
    SUCCEEDS(nn_loss_forward(&m->loss, &m->loss_saved, logits, labels, N));
    SUCCEEDS(nn_loss_read(&m->loss, sum, &tokens));
    SUCCEEDS(nn_loss_backward_input(&m->loss, &m->loss_saved, logits));
    SUCCEEDS(nn_params_zero_grad(m->params));
    SUCCEEDS(nn_linear_backward(&m->head, &m->head_saved, d, logits));
    SUCCEEDS(nn_block_backward_input(&m->block, &m->block_saved, x, d));
    SUCCEEDS(nn_block_backward_params(&m->block, &m->block_saved));
    *norm = norm_of(m->params);
    nn_adamw rule = NN_ADAMW_INIT;
    SUCCEEDS(nn_adamw_step(&rule, m->params, *norm));
    nn_test_free_rooms();
}

Test(nn_precision, both_builds_train_alike)
{
    static const double losses[] = {80.199650720473798, 76.362709238044673, 72.634884126786659};
    static const double norms[] = {91.09246154798052, 88.580734365774703, 86.106214272885623};
    model m;
    make(&m);
    for (int t = 0; t < 3; t++) {
        double sum, norm;
        step(&m, &sum, &norm);
        cr_assert(fabs(sum - losses[t]) <= tolerance * losses[t], "step %d: loss %.17g, not %.17g",
                  t, sum, losses[t]);
        cr_assert(fabs(norm - norms[t]) <= 10 * tolerance * norms[t],
                  "step %d: norm %.17g, not %.17g", t, norm, norms[t]);
    }
    model_release(&m);
}

Test(nn_precision, exp_is_within_its_bound)
{
    for (int i = -60000; i <= 60000; i += 7) {
        double x = (double)(nn_real)(i * 1e-3), exact = exp(x);
        double error = fabs((double)nn_exp((nn_real)x) - exact) / exact;
        cr_assert(error < 2.5e-7, "exp(%g): relative error %g", x, error);
    }
    cr_assert_eq((double)nn_exp(0), 1.0);
    cr_assert((double)nn_exp((nn_real)-1e30) < 1e-26, "%g", (double)nn_exp((nn_real)-1e30));
    cr_assert(isnan((double)nn_exp((nn_real)NAN)));
}
