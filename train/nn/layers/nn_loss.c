#include "train/nn/layers/nn_loss.h"

#include <string.h>

#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

static nn_exchange tp_of(nn_loss *loss)
{
    return (nn_exchange){.comm = loss->tp, .runtime = loss->runtime, .counts = &loss->exchanged};
}

static mimo_status reserve_rooms(nn_loss *made)
{
    const nn_runtime *runtime = made->runtime;
    MIMO_TRY(nn_runtime_reserve(runtime, &made->best, 2 * made->max_rows, sizeof *made->best));
    return nn_runtime_reserve(runtime, &made->total, 1, sizeof *made->total);
}

mimo_status nn_loss_init(nn_loss *loss, const nn_runtime *runtime, mimo_comm *tp,
                         int64_t vocabulary, int64_t max_rows)
{
    nn_loss made = {.tp = tp, .vocabulary = vocabulary, .max_rows = max_rows};
    made.runtime = nn_runtime_or_host(runtime);
    MIMO_TRY(nn_check_size("loss", "vocabulary", vocabulary));
    MIMO_TRY(nn_check_size("loss", "max_rows", max_rows));
    MIMO_TRY(nn_check_divides("loss", "vocabulary", vocabulary, nn_comm_size(tp)));
    nn_exchange exchange = tp_of(&made);
    MIMO_TRY(nn_exchange_check(&exchange, "loss"));
    made.local = vocabulary / nn_comm_size(tp);
    made.first = MIMO_MUTATED("vocabulary-offset") ? 0 : nn_comm_rank(tp) * made.local;
    mimo_status status = reserve_rooms(&made);
    if (status != MIMO_OK) {
        nn_loss_release(&made);
        return status;
    }
    *loss = made;
    return MIMO_OK;
}

void nn_loss_release(nn_loss *loss)
{
    nn_runtime_free(loss->runtime, loss->best);
    nn_runtime_free(loss->runtime, loss->total);
    memset(loss, 0, sizeof *loss);
}

mimo_status nn_loss_saved_take(nn_loss_saved *saved, const nn_loss *loss, nn_room *room)
{
    int64_t rows = loss->max_rows;
    *saved = (nn_loss_saved){0};
    MIMO_TRY(nn_room_take(room, &saved->maxima, rows, sizeof *saved->maxima));
    MIMO_TRY(nn_room_take(room, &saved->sums, 2 * rows, sizeof *saved->sums));
    if (loss->runtime->order == NN_ORDER_FIXED)
        MIMO_TRY(nn_room_take(room, &saved->exps, rows, sizeof *saved->exps));
    MIMO_TRY(nn_room_take(room, &saved->losses, rows, sizeof *saved->losses));
    return nn_room_take(room, &saved->labels, rows, sizeof *saved->labels);
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

static nn_token_rows tokens_of(const nn_loss *loss, const nn_loss_saved *saved)
{
    return (nn_token_rows){
        .logits = saved->logits,
        .labels = saved->labels,
        .rows = saved->rows,
        .width = loss->local,
        .first = loss->first,
        .maxima = saved->maxima,
        .sums = saved->sums,
        .exps = saved->exps,
    };
}

/* The sums of token_sums over tp. The second one has one term that is not 0, so its order does not
 * matter. */
static mimo_status sum_tokens(nn_loss *loss, const nn_loss_saved *saved)
{
    nn_exchange tp = tp_of(loss);
    int64_t rows = saved->rows;
    if (!saved->exps)
        return nn_exchange_sum_f64(&tp, saved->sums, 2 * rows);
    MIMO_TRY(nn_exchange_sum_i64(&tp, saved->exps, rows));
    return nn_exchange_sum_f64(&tp, saved->sums + rows, rows);
}

static int64_t count_tokens(const int64_t *labels, int64_t rows)
{
    int64_t count = 0;
    if (MIMO_MUTATED("masked-count"))
        return rows;
    for (int64_t i = 0; i < rows; i++)
        count += labels[i] != NN_IGNORE;
    return count;
}

mimo_status nn_loss_forward(nn_loss *loss, nn_loss_saved *saved, const nn_real *logits,
                            const int64_t *labels, int64_t rows)
{
    saved->progress = NN_PROGRESS_NONE;
    MIMO_TRY(check_labels(loss, labels, rows));
    const nn_runtime *runtime = loss->runtime;
    nn_exchange tp = tp_of(loss);
    saved->logits = logits;
    saved->rows = rows;
    nn_token_rows tokens = tokens_of(loss, saved);
    loss->tokens += count_tokens(labels, rows);
    MIMO_TRY(
        nn_runtime_write(runtime, saved->labels, labels, rows * (int64_t)sizeof *saved->labels));
    MIMO_TRY(runtime->ops->token_maxima(runtime, &tokens));
    if (!MIMO_MUTATED("local-maxima"))
        MIMO_TRY(nn_exchange_max_f64(&tp, saved->maxima, rows));
    MIMO_TRY(runtime->ops->token_sums(runtime, &tokens));
    MIMO_TRY(sum_tokens(loss, saved));
    MIMO_TRY(runtime->ops->token_losses(runtime, saved->losses, loss->total, &tokens));
    saved->progress = NN_PROGRESS_FORWARD;
    return MIMO_OK;
}

mimo_status nn_loss_read(nn_loss *loss, double *sum, int64_t *tokens)
{
    MIMO_TRY(nn_runtime_read(loss->runtime, sum, loss->total, sizeof *sum));
    MIMO_TRY(nn_runtime_zero(loss->runtime, loss->total, sizeof *sum));
    *tokens = loss->tokens;
    loss->tokens = 0;
    return MIMO_OK;
}

mimo_status nn_loss_read_rows(const nn_loss *loss, const nn_loss_saved *saved, double *losses)
{
    return nn_runtime_read(loss->runtime, losses, saved->losses,
                           saved->rows * (int64_t)sizeof *losses);
}

mimo_status nn_loss_backward_input(const nn_loss *loss, nn_loss_saved *saved, nn_real *d_logits)
{
    MIMO_CHECK(saved->progress == NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "loss: backward before forward");
    saved->progress = NN_PROGRESS_NONE;
    nn_token_rows tokens = tokens_of(loss, saved);
    return loss->runtime->ops->token_gradients(loss->runtime, d_logits, &tokens);
}

/* First the largest value over tp. Then the largest -id among the ranks that have this value, which
 * gives the lowest id. */
static mimo_status choose(nn_loss *loss, const nn_real *logits, int64_t rows)
{
    const nn_runtime *runtime = loss->runtime;
    nn_token_rows tokens = {
        .logits = logits, .rows = rows, .width = loss->local, .first = loss->first};
    nn_exchange tp = tp_of(loss);
    double *value = loss->best, *negated = value + rows;
    MIMO_TRY(runtime->ops->row_largest(runtime, value, &tokens));
    MIMO_TRY(nn_exchange_max_f64(&tp, value, rows));
    MIMO_TRY(runtime->ops->row_argmax(runtime, negated, value, &tokens, loss->vocabulary));
    return nn_exchange_max_f64(&tp, negated, rows);
}

mimo_status nn_loss_argmax(nn_loss *loss, const nn_real *logits, int64_t rows, int64_t *ids)
{
    double *negated;
    MIMO_TRY(check_rows(loss, rows));
    MIMO_TRY(choose(loss, logits, rows));
    MIMO_TRY(mimo_reserve(&negated, rows, sizeof *negated));
    mimo_status status =
        nn_runtime_read(loss->runtime, negated, loss->best + rows, rows * (int64_t)sizeof *negated);
    for (int64_t i = 0; i < rows && status == MIMO_OK; i++)
        ids[i] = (int64_t)-negated[i];
    mimo_release(negated);
    return status;
}
