/* Built against nn and against nn_f64. Both reproduce numbers that nn_f64 gave, each to its
 * precision. This is the only test of what only the f32 build has (its exp, its BLAS calls). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/nn/host/nn_math.h"
#include "nn_gradient_check.h"

enum { S = 12, B = 2, HIDDEN = 16, HEADS = 4, V = 24, N = S * B };

#ifdef NN_REAL_F64
static const double tolerance = 1e-12;
#else
static const double tolerance = 2e-6;
#endif

typedef struct model {
    nn_params *params;
    nn_sequence sequence;
    nn_block block;
    nn_linear head;
    nn_loss loss;
    nn_block_saved block_saved;
    nn_linear_saved head_saved;
    nn_loss_saved loss_saved;
    nn_room room; /* of the three */
} model;

static mimo_status place(model *m)
{
    mimo_status status = nn_block_saved_take(&m->block_saved, &m->block, &m->room);
    if (status == MIMO_OK)
        status = nn_linear_saved_take(&m->head_saved, &m->head, &m->room);
    return status == MIMO_OK ? nn_loss_saved_take(&m->loss_saved, &m->loss, &m->room) : status;
}

static void make(model *m)
{
    memset(m, 0, sizeof *m);
    m->params = nn_test_store(0, 1);
    nn_sequence_desc sequence = {NULL, true, S, B, NULL, nn_test_runtime(), 0};
    nn_block_desc block = {.name = "block",
                           .hidden = HIDDEN,
                           .heads = HEADS,
                           .inner = 64,
                           .max_rows = S,
                           .max_batch = B,
                           .max_parts = 0,
                           .std = 0.3,
                           .out_std = 0.3};
    nn_linear_desc head = {.name = "head",
                           .in = HIDDEN,
                           .out = V,
                           .split = NN_SPLIT_COLUMNS,
                           .bias = true,
                           .std = 0.3};
    SUCCEEDS(nn_sequence_init(&m->sequence, &sequence));
    SUCCEEDS(nn_block_init(&m->block, m->params, NULL, &block));
    SUCCEEDS(nn_linear_init(&m->head, m->params, NULL, &head));
    SUCCEEDS(nn_loss_init(&m->loss, nn_test_runtime(), NULL, V, N));
    SUCCEEDS(nn_params_seal(m->params));
    NN_TEST_PLACE(m->room, place(m));
}

static void discard(model *m)
{
    nn_sequence_release(&m->sequence);
    nn_block_release(&m->block);
    nn_linear_release(&m->head);
    nn_loss_release(&m->loss);
    nn_room_release(&m->room);
    nn_params_destroy(m->params);
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
    discard(&m);
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
