/* Rows of logits: the steps of cross-entropy over a vocabulary that is split over ranks, and the
 * greedy choice. */
#include <math.h>
#include <string.h>

#include "core/mutation.h"
#include "train/nn/host/nn_host.h"
#include "train/nn/host/nn_math.h"
#include "train/nn/ops/nn_fixed.h"

mimo_status nn_host_token_maxima(const nn_runtime *runtime, const nn_token_rows *tokens)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++)
        tokens->maxima[i] = tokens->labels[i] == NN_IGNORE
                                ? 0
                                : (double)nn_max(tokens->logits + i * tokens->width, tokens->width);
    return MIMO_OK;
}

static double sum_exps(const nn_real *row, int64_t width, nn_real most)
{
    double sum = 0;
    for (int64_t j = 0; j < width; j++)
        sum += (double)nn_exp(row[j] - most);
    return sum;
}

static int64_t sum_fixed_exps(const nn_real *row, int64_t width, nn_real most)
{
    int64_t sum = 0;
    if (MIMO_MUTATED("exp-float"))
        return nn_fixed_sum(0, sum_exps(row, width, most));
    for (int64_t j = 0; j < width; j++)
        sum = nn_fixed_sum(sum, (double)nn_exp(row[j] - most));
    return sum;
}

static void add_row(const nn_token_rows *tokens, int64_t i)
{
    const nn_real *row = tokens->logits + i * tokens->width;
    double *sum = &tokens->sums[i], *target = &tokens->sums[tokens->rows + i];
    *sum = *target = 0;
    if (tokens->exps)
        tokens->exps[i] = 0;
    if (tokens->labels[i] == NN_IGNORE)
        return;
    nn_real most = (nn_real)tokens->maxima[i];
    if (tokens->exps)
        tokens->exps[i] = sum_fixed_exps(row, tokens->width, most);
    else
        *sum = sum_exps(row, tokens->width, most);
    int64_t here = tokens->labels[i] - tokens->first;
    if (here >= 0 && here < tokens->width)
        *target = (double)row[here] - tokens->maxima[i];
    if (tokens->exps && tokens->exps[i] == NN_FIXED_BROKEN)
        *target = (double)NAN;
}

mimo_status nn_host_token_sums(const nn_runtime *runtime, const nn_token_rows *tokens)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++)
        add_row(tokens, i);
    return MIMO_OK;
}

/* In the fixed order a multiple of 2^-24: such numbers add exactly up to 2^29. Where the second sum
 * is NaN, so is the first: NN_FIXED_BROKEN of two ranks adds up to 0. */
static double token_loss(const nn_token_rows *tokens, int64_t i)
{
    double target = tokens->sums[tokens->rows + i];
    if (tokens->exps)
        tokens->sums[i] = isnan(target) ? target : (double)tokens->exps[i] / NN_FIXED_ONE;
    double loss = log(tokens->sums[i]) - target;
    bool rounded = tokens->exps && !MIMO_MUTATED("loss-float");
    return rounded ? rint(loss * NN_LOSS_ONE) / NN_LOSS_ONE : loss;
}

mimo_status nn_host_token_losses(const nn_runtime *runtime, double *losses, double *total,
                                 const nn_token_rows *tokens)
{
    (void)runtime;
    double sum = 0;
    for (int64_t i = 0; i < tokens->rows; i++) {
        bool counts = tokens->labels[i] != NN_IGNORE;
        losses[i] = counts ? token_loss(tokens, i) : 0;
        sum += losses[i];
    }
    *total += sum;
    return MIMO_OK;
}

static void row_gradient(const nn_token_rows *tokens, nn_real *d, int64_t i)
{
    const nn_real *row = tokens->logits + i * tokens->width;
    nn_real most = (nn_real)tokens->maxima[i], scale = (nn_real)(1.0 / tokens->sums[i]);
    for (int64_t j = 0; j < tokens->width; j++)
        d[j] = nn_exp(row[j] - most) * scale;
    int64_t here = tokens->labels[i] - tokens->first;
    if (here >= 0 && here < tokens->width)
        d[here] -= 1;
}

mimo_status nn_host_token_gradients(const nn_runtime *runtime, nn_real *d,
                                    const nn_token_rows *tokens)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++, d += tokens->width) {
        if (tokens->labels[i] == NN_IGNORE)
            memset(d, 0, (size_t)tokens->width * sizeof *d);
        else
            row_gradient(tokens, d, i);
    }
    return MIMO_OK;
}

static int64_t largest(const nn_real *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (row[j] > row[best])
            best = j;
    return best;
}

mimo_status nn_host_row_largest(const nn_runtime *runtime, double *value,
                                const nn_token_rows *tokens)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++) {
        const nn_real *row = tokens->logits + i * tokens->width;
        value[i] = (double)row[largest(row, tokens->width)];
    }
    return MIMO_OK;
}

mimo_status nn_host_row_argmax(const nn_runtime *runtime, double *negated, const double *value,
                               const nn_token_rows *tokens, int64_t absent)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++) {
        const nn_real *row = tokens->logits + i * tokens->width;
        int64_t best = largest(row, tokens->width);
        bool here = (double)row[best] >= value[i];
        negated[i] = -(double)(here ? tokens->first + best : absent);
    }
    return MIMO_OK;
}
