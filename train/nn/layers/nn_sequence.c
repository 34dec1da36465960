#include "train/nn/layers/nn_sequence.h"

#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "train/nn/params/nn_support.h"

static mimo_status check_desc(const nn_sequence_desc *desc)
{
    MIMO_TRY(nn_check_size("sequence", "rows", desc->rows));
    MIMO_TRY(nn_check_size("sequence", "batch", desc->batch));
    MIMO_TRY(nn_check_size("sequence", "rows over cp", desc->rows * nn_comm_size(desc->cp)));
    MIMO_CHECK(desc->positions || nn_comm_size(desc->cp) == 1, MIMO_ERR_ARGUMENT,
               "sequence: cp is %d and no positions are given", nn_comm_size(desc->cp));
    for (int64_t i = 0; desc->positions && i < desc->rows; i++)
        MIMO_CHECK(desc->positions[i] >= 0, MIMO_ERR_ARGUMENT,
                   "sequence: positions[%" PRId64 "] is %" PRId64 ", must not be negative", i,
                   desc->positions[i]);
    return MIMO_OK;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static mimo_status check_distinct(const int64_t *positions, int64_t n)
{
    int64_t *sorted;
    MIMO_TRY(mimo_reserve(&sorted, n, sizeof *sorted));
    memcpy(sorted, positions, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    mimo_status status = MIMO_OK;
    for (int64_t i = 1; i < n && status == MIMO_OK; i++)
        if (sorted[i] == sorted[i - 1])
            status = mimo_fail(MIMO_ERR_ARGUMENT,
                               "sequence: position %" PRId64 " appears twice among %" PRId64
                               " rows over cp",
                               sorted[i], n);
    mimo_release(sorted);
    return status;
}

static mimo_status check_fixed(const nn_sequence *made, const nn_sequence_desc *desc)
{
    int64_t pairs = desc->pairs > 0 ? desc->pairs : 1;
    MIMO_TRY(nn_order_check_parts("C", pairs));
    MIMO_TRY(nn_order_check_ranks("cp", made->parts, pairs));
    return nn_order_check_positions(made->positions + made->part * made->rows, made->rows,
                                    (int)made->part, (int)made->parts, pairs);
}

/* `room` is memory of the runtime for the all-gather of the positions. */
static mimo_status reserve(nn_sequence *made, int64_t **room, const nn_sequence_desc *desc)
{
    int64_t all, cells;
    MIMO_TRY(check_desc(desc));
    nn_exchange cp = {.comm = desc->cp, .runtime = made->runtime};
    MIMO_TRY(nn_exchange_check(&cp, "sequence"));
    made->cp = desc->cp;
    made->causal = desc->causal;
    made->rows = desc->rows;
    made->batch = desc->batch;
    made->parts = nn_comm_size(desc->cp);
    made->part = nn_comm_rank(desc->cp);
    MIMO_TRY(mimo_mul(&all, made->parts, made->rows));
    MIMO_TRY(mimo_mul(&cells, made->rows, all));
    MIMO_TRY(mimo_reserve(&made->positions, all, sizeof *made->positions));
    if (made->parts > 1)
        MIMO_TRY(nn_runtime_reserve(made->runtime, room, all, sizeof **room));
    if (desc->causal)
        MIMO_TRY(nn_runtime_reserve(made->runtime, &made->mask, cells, sizeof *made->mask));
    int64_t *own = made->positions + made->part * made->rows;
    for (int64_t i = 0; i < made->rows; i++)
        own[i] = desc->positions ? desc->positions[i] : i;
    return made->runtime->order == NN_ORDER_FIXED ? check_fixed(made, desc) : MIMO_OK;
}

static mimo_status gather_positions(nn_sequence *made, int64_t *room)
{
    const nn_runtime *runtime = made->runtime;
    int64_t first = made->part * made->rows, bytes = made->rows * (int64_t)sizeof *room;
    MIMO_TRY(nn_runtime_write(runtime, room + first, made->positions + first, bytes));
    nn_exchange cp = {.comm = made->cp, .runtime = runtime}; /* before training: not counted */
    MIMO_TRY(nn_exchange_gather(&cp, room, room + first, bytes));
    return nn_runtime_read(runtime, made->positions, room, made->parts * bytes);
}

/* The position of column j of the mask. */
static int64_t key_position(const nn_sequence *made, int64_t j)
{
    bool sorted = made->runtime->order == NN_ORDER_FIXED && !MIMO_MUTATED("key-order");
    return sorted ? j : made->positions[j];
}

static mimo_status fill_mask(nn_sequence *made)
{
    int64_t all = made->parts * made->rows;
    const int64_t *own = made->positions + made->part * made->rows;
    nn_real *mask;
    MIMO_TRY(mimo_reserve(&mask, made->rows * all, sizeof *mask));
    for (int64_t i = 0; i < made->rows; i++)
        for (int64_t j = 0; j < all; j++)
            mask[i * all + j] = MIMO_MUTATED("local-causal")
                                    ? (nn_real)(j % made->rows <= i)
                                    : (nn_real)(key_position(made, j) <= own[i]);
    mimo_status status =
        nn_runtime_write(made->runtime, made->mask, mask, made->rows * all * (int64_t)sizeof *mask);
    mimo_release(mask);
    return status;
}

mimo_status nn_sequence_init(nn_sequence *sequence, const nn_sequence_desc *desc)
{
    MIMO_CHECK(sequence && desc, MIMO_ERR_ARGUMENT, "sequence: NULL struct or descriptor");
    nn_sequence made = {.runtime = nn_runtime_or_host(desc->runtime)};
    int64_t *room = NULL;
    mimo_status status = reserve(&made, &room, desc);
    /* Wrong arguments on one rank must not strand the others. */
    status = nn_exchange_agree(&(nn_exchange){.comm = desc->cp}, status);
    if (status != MIMO_OK)
        goto fail;
    if (made.parts > 1)
        MIMO_TRY_GOTO(status, fail, gather_positions(&made, room));
    MIMO_TRY_GOTO(status, fail, check_distinct(made.positions, made.parts * made.rows));
    if (made.mask)
        MIMO_TRY_GOTO(status, fail, fill_mask(&made));
    nn_runtime_free(made.runtime, room);
    *sequence = made;
    return MIMO_OK;
fail:
    nn_runtime_free(made.runtime, room);
    nn_sequence_release(&made);
    return status;
}

void nn_sequence_release(nn_sequence *sequence)
{
    mimo_release(sequence->positions);
    nn_runtime_free(sequence->runtime, sequence->mask);
    memset(sequence, 0, sizeof *sequence);
}

nn_sequence nn_sequence_masked(const nn_sequence *sequence, const uint8_t *masked)
{
    nn_sequence one = *sequence;
    one.masked = masked;
    return one;
}
