/* Rows of logits: the steps of cross-entropy over a vocabulary that is split over ranks, and the
 * greedy choice. */
#include <math.h>
#include <string.h>

#include "nn/host/nn_host.h"
#include "nn/host/nn_math.h"

mimo_status nn_host_token_maxima(const nn_runtime *runtime, const nn_token_rows *tokens)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++)
        tokens->maxima[i] = tokens->labels[i] == NN_IGNORE
                                ? 0
                                : (double)nn_max(tokens->logits + i * tokens->width, tokens->width);
    return MIMO_OK;
}

static void add_row(const nn_token_rows *tokens, int64_t i)
{
    const nn_real *row = tokens->logits + i * tokens->width;
    double *sum = &tokens->sums[i], *target = &tokens->sums[tokens->rows + i];
    *sum = *target = 0;
    if (tokens->labels[i] == NN_IGNORE)
        return;
    nn_real most = (nn_real)tokens->maxima[i];
    for (int64_t j = 0; j < tokens->width; j++)
        *sum += (double)nn_exp(row[j] - most);
    int64_t here = tokens->labels[i] - tokens->first;
    if (here >= 0 && here < tokens->width)
        *target = (double)row[here] - tokens->maxima[i];
}

mimo_status nn_host_token_sums(const nn_runtime *runtime, const nn_token_rows *tokens)
{
    (void)runtime;
    for (int64_t i = 0; i < tokens->rows; i++)
        add_row(tokens, i);
    return MIMO_OK;
}

mimo_status nn_host_token_losses(const nn_runtime *runtime, double *losses, double *total,
                                 const nn_token_rows *tokens)
{
    (void)runtime;
    double sum = 0;
    for (int64_t i = 0; i < tokens->rows; i++) {
        bool counts = tokens->labels[i] != NN_IGNORE;
        losses[i] = counts ? log(tokens->sums[i]) - tokens->sums[tokens->rows + i] : 0;
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

mimo_status nn_host_row_choice(const nn_runtime *runtime, double *negated, const double *value,
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
