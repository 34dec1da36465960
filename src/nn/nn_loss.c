#include "nn/nn_loss.h"

#include <string.h>

#include "nn/nn_math.h"
#include "nn/nn_support.h"

mimo_status nn_loss_init(nn_loss *loss, mimo_comm *tp, int64_t vocabulary, int64_t max_rows)
{
    MIMO_TRY(nn_check_size("loss", "vocabulary", vocabulary));
    MIMO_TRY(nn_check_size("loss", "max_rows", max_rows));
    MIMO_TRY(nn_check_divides("loss", "vocabulary", vocabulary, nn_comm_size(tp)));
    nn_loss made = {.tp = tp, .vocabulary = vocabulary, .max_rows = max_rows, .rows = -1};
    made.local = vocabulary / nn_comm_size(tp);
    made.first = nn_comm_rank(tp) * made.local;
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.maxima, max_rows, sizeof(double)));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.sums, 2 * max_rows, sizeof(double)));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.losses, max_rows, sizeof(double)));
    MIMO_TRY_GOTO(status, fail, mimo_reserve(&made.choices, 2 * max_rows, sizeof(double)));
    *loss = made;
    return MIMO_OK;
fail:
    nn_loss_release(&made);
    return status;
}

void nn_loss_release(nn_loss *loss)
{
    mimo_release(loss->maxima);
    mimo_release(loss->sums);
    mimo_release(loss->losses);
    mimo_release(loss->choices);
    memset(loss, 0, sizeof *loss);
}

static mimo_status check_rows(const nn_loss *loss, int64_t rows)
{
    MIMO_CHECK(rows >= 0 && rows <= loss->max_rows, MIMO_ERR_SHAPE,
               "loss: %" PRId64 " rows, must be 0 to %" PRId64, rows, loss->max_rows);
    return MIMO_OK;
}

static mimo_status check_labels(const nn_loss *loss, const int64_t *labels, int64_t rows)
{
    MIMO_TRY(check_rows(loss, rows));
    for (int64_t i = 0; i < rows; i++)
        MIMO_CHECK(labels[i] == NN_IGNORE || (labels[i] >= 0 && labels[i] < loss->vocabulary),
                   MIMO_ERR_ARGUMENT,
                   "loss: labels[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64 " or %d", i,
                   labels[i], loss->vocabulary - 1, NN_IGNORE);
    return MIMO_OK;
}

static mimo_status combine(nn_loss *loss, double *data, int64_t count, mimo_reduce op)
{
    if (nn_comm_size(loss->tp) == 1)
        return MIMO_OK;
    return mimo_comm_allreduce(loss->tp, data, count, MIMO_F64, op, NULL);
}

/* This rank's part of the sum of exp(logit - max), and the label's logit - max where it is here. */
static void add_row(nn_loss *loss, int64_t i)
{
    const nn_real *row = loss->logits + i * loss->local;
    double *sum = &loss->sums[i], *target = &loss->sums[loss->rows + i];
    *sum = *target = 0;
    if (loss->labels[i] == NN_IGNORE)
        return;
    nn_real most = (nn_real)loss->maxima[i];
    for (int64_t j = 0; j < loss->local; j++)
        *sum += (double)nn_exp(row[j] - most);
    int64_t here = loss->labels[i] - loss->first;
    if (here >= 0 && here < loss->local)
        *target = (double)row[here] - loss->maxima[i];
}

static void total(nn_loss *loss, double *sum, int64_t *tokens)
{
    *sum = 0;
    *tokens = 0;
    for (int64_t i = 0; i < loss->rows; i++) {
        bool counts = loss->labels[i] != NN_IGNORE;
        loss->losses[i] = counts ? log(loss->sums[i]) - loss->sums[loss->rows + i] : 0;
        *sum += loss->losses[i];
        *tokens += counts;
    }
}

mimo_status nn_loss_forward(nn_loss *loss, const nn_real *logits, const int64_t *labels,
                            int64_t rows, double *sum, int64_t *tokens)
{
    MIMO_TRY(check_labels(loss, labels, rows));
    loss->logits = logits;
    loss->labels = labels;
    loss->rows = rows;
    for (int64_t i = 0; i < rows; i++)
        loss->maxima[i] =
            labels[i] == NN_IGNORE ? 0 : (double)nn_max(logits + i * loss->local, loss->local);
    MIMO_TRY(combine(loss, loss->maxima, rows, MIMO_MAX));
    for (int64_t i = 0; i < rows; i++)
        add_row(loss, i);
    MIMO_TRY(combine(loss, loss->sums, 2 * rows, MIMO_SUM));
    total(loss, sum, tokens);
    return MIMO_OK;
}

static void row_backward(const nn_loss *loss, nn_real *d, int64_t i)
{
    const nn_real *row = loss->logits + i * loss->local;
    nn_real most = (nn_real)loss->maxima[i], scale = (nn_real)(1.0 / loss->sums[i]);
    for (int64_t j = 0; j < loss->local; j++)
        d[j] = nn_exp(row[j] - most) * scale;
    int64_t here = loss->labels[i] - loss->first;
    if (here >= 0 && here < loss->local)
        d[here] -= 1;
}

mimo_status nn_loss_backward(nn_loss *loss, nn_real *d_logits)
{
    MIMO_CHECK(loss->maxima && loss->rows >= 0, MIMO_ERR_STATE, "loss: backward before forward");
    for (int64_t i = 0; i < loss->rows; i++) {
        nn_real *d = d_logits + i * loss->local;
        if (loss->labels[i] == NN_IGNORE)
            memset(d, 0, (size_t)loss->local * sizeof *d);
        else
            row_backward(loss, d, i);
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

mimo_status nn_loss_argmax(nn_loss *loss, const nn_real *logits, int64_t rows, int64_t *ids)
{
    MIMO_TRY(check_rows(loss, rows));
    double *value = loss->choices, *negated = value + rows; /* largest -id: the lowest id */
    for (int64_t i = 0; i < rows; i++) {
        const nn_real *row = logits + i * loss->local;
        value[i] = (double)row[largest(row, loss->local)];
    }
    MIMO_TRY(combine(loss, value, rows, MIMO_MAX));
    for (int64_t i = 0; i < rows; i++) {
        const nn_real *row = logits + i * loss->local;
        int64_t best = largest(row, loss->local);
        negated[i] =
            -(double)((double)row[best] >= value[i] ? loss->first + best : loss->vocabulary);
    }
    MIMO_TRY(combine(loss, negated, rows, MIMO_MAX));
    for (int64_t i = 0; i < rows; i++)
        ids[i] = (int64_t)-negated[i];
    return MIMO_OK;
}
