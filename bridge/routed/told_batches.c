#include "bridge/routed/told_batches.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"

/* The numbers that each rank tells of a micro-batch: rows by mimo_side, then spans. */
enum { SPANS = 2, NUMBERS };

mimo_status mimo_told_batches_prefix_error(const mimo_told_batches *it, int i, mimo_status status)
{
    if (status == MIMO_OK)
        return MIMO_OK;
    if (it->count > 1)
        return mimo_fail_prefix(status, "update, micro-batch %d: ", i);
    return mimo_fail_prefix(status, "update: ");
}

void mimo_told_batches_release(mimo_told_batches *it)
{
    mimo_release(it->own);
    mimo_release(it->numbers);
    mimo_release(it->rows);
    mimo_release(it->padded);
    mimo_release(it->all);
}

/* ----------------------------------------- numbers ------------------------------------------ */

static mimo_status prepare_gather(mimo_comm *comm, int64_t count, size_t size)
{
    int64_t bytes;
    MIMO_TRY(mimo_mul(&bytes, count, (int64_t)size));
    MIMO_CHECK(bytes <= INT_MAX, MIMO_ERR_OVERFLOW, "update: %" PRId64 " bytes from one rank",
               bytes);
    return comm->backend->host_allgather_prepare(comm, (int)bytes);
}

mimo_status mimo_told_batches_reserve(mimo_told_batches *it)
{
    mimo_comm *comm = it->bridge->parent;
    int64_t count = NUMBERS * (int64_t)it->count, all, spans = 0;
    for (int i = 0; i < it->count; i++) {
        it->ragged = it->ragged || it->descs[i].ragged;
        it->counted = it->counted || it->descs[i].src_rows >= 0;
        MIMO_TRY(mimo_add(&spans, spans, it->descs[i].span_count));
    }
    MIMO_CHECK(spans <= INT_MAX / (int64_t)sizeof(mimo_span), MIMO_ERR_OVERFLOW,
               "update: %" PRId64 " spans of one rank", spans);
    if (!it->ragged && !it->counted)
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&all, count, comm->size));
    MIMO_TRY(prepare_gather(comm, count, sizeof *it->own));
    MIMO_TRY(mimo_reserve(&it->own, count, sizeof *it->own));
    MIMO_TRY(mimo_reserve(&it->numbers, all, sizeof *it->numbers));
    MIMO_TRY(mimo_reserve(&it->rows, 2 * (int64_t)comm->size, sizeof *it->rows));
    for (int i = 0; i < it->count; i++) {
        it->own[NUMBERS * i + MIMO_SRC] = it->descs[i].src_rows;
        it->own[NUMBERS * i + MIMO_DST] = it->descs[i].dst_rows;
        it->own[NUMBERS * i + SPANS] = it->descs[i].span_count;
    }
    return MIMO_OK;
}

static int64_t number_of(const mimo_told_batches *it, int rank, int i, int which)
{
    return it->numbers[NUMBERS * ((int64_t)rank * it->count + i) + which];
}

static int64_t spans_of_rank(const mimo_told_batches *it, int rank)
{
    int64_t sum = 0;
    for (int i = 0; i < it->count; i++)
        sum += number_of(it, rank, i, SPANS);
    return sum;
}

/* ------------------------------------------ gather ------------------------------------------ */

static mimo_status gather_from_all(const mimo_told_batches *it, void *to, const void *from,
                                   int64_t bytes)
{
    mimo_comm *comm = it->bridge->parent;
    mimo_request *request = NULL;
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, to, from, (int)bytes));
    return mimo_wait(comm, &request, it->call);
}

static mimo_status reserve_spans(mimo_told_batches *it)
{
    mimo_comm *comm = it->bridge->parent;
    int64_t all, used = 0;
    MIMO_TRY(mimo_mul(&all, it->most, comm->size));
    MIMO_TRY(prepare_gather(comm, it->most, sizeof(mimo_span)));
    MIMO_TRY(mimo_reserve(&it->padded, it->most, sizeof *it->padded));
    MIMO_TRY(mimo_reserve(&it->all, all, sizeof *it->all));
    for (int i = 0; i < it->count; i++) {
        const mimo_batch_desc *desc = &it->descs[i];
        if (desc->span_count > 0)
            memcpy(it->padded + used, desc->spans, (size_t)desc->span_count * sizeof *it->padded);
        used += desc->span_count;
    }
    return MIMO_OK;
}

/* The spans of all ranks: from every rank as many as the rank with the most has. */
static mimo_status gather_spans(mimo_told_batches *it)
{
    mimo_comm *comm = it->bridge->parent;
    for (int r = 0; r < comm->size; r++) {
        int64_t spans = spans_of_rank(it, r);
        it->most = spans > it->most ? spans : it->most;
    }
    MIMO_TRY(mimo_comm_agree(comm, mimo_bridge_prefix_error(it->bridge, reserve_spans(it))));
    if (it->most == 0)
        return MIMO_OK;
    return gather_from_all(it, it->all, it->padded, it->most * (int64_t)sizeof(mimo_span));
}

/* ------------------------------------------ merge ------------------------------------------- */

/* The spans of one sample in a rank's list: [first, first + count). */
static mimo_range spans_of(const mimo_span *list, int64_t count, int64_t first)
{
    int64_t end = first;
    while (end < count && list[end].sample == list[first].sample)
        end++;
    return (mimo_range){first, end - first};
}

/* Of one micro-batch, by sample: the first rank that gave its spans, and where these are in all
 * that this rank gave. */
typedef struct sample_table {
    const mimo_told_batches *told;
    int64_t *owner;     /* [batch], rank + 1; 0: nobody */
    mimo_range *spans;  /* [batch], in the owner's list */
    int64_t batch, sum; /* spans in all */
} sample_table;

static const mimo_span *list_of(const sample_table *table, int64_t rank)
{
    return table->told->all + rank * table->told->most;
}

static mimo_status take_sample(sample_table *table, int rank, mimo_range range)
{
    const mimo_span *list = list_of(table, rank);
    int64_t sample = list[range.first].sample;
    MIMO_CHECK(sample >= 0 && sample < table->batch, MIMO_ERR_SHAPE,
               "rank %d tells of sample %" PRId64 " of %" PRId64, rank, sample, table->batch);
    int64_t first = table->owner[sample] - 1;
    if (first < 0) {
        table->owner[sample] = rank + 1;
        table->spans[sample] = range;
        table->sum += range.count;
        return MIMO_OK;
    }
    const mimo_span *known = list_of(table, first) + table->spans[sample].first;
    bool same = range.count == table->spans[sample].count &&
                memcmp(known, &list[range.first], (size_t)range.count * sizeof *list) == 0;
    MIMO_CHECK(same, MIMO_ERR_MISMATCH,
               "ranks %" PRId64 " and %d tell different spans of sample %" PRId64
               " (or one of them twice)",
               first, rank, sample);
    return MIMO_OK;
}

/* What a rank gave of micro-batch i lies behind what it gave of those before. */
static mimo_status take_rank(sample_table *table, int rank, int i)
{
    int64_t at = 0;
    for (int before = 0; before < i; before++)
        at += number_of(table->told, rank, before, SPANS);
    for (int64_t end = at + number_of(table->told, rank, i, SPANS); at < end;) {
        mimo_range range = spans_of(list_of(table, rank), end, at);
        MIMO_TRY(take_sample(table, rank, range));
        at += range.count;
    }
    return MIMO_OK;
}

/* All spans, by sample. */
static mimo_status list_spans(mimo_span **out, const sample_table *table)
{
    mimo_span *spans;
    int64_t count = 0;
    MIMO_TRY(mimo_reserve(&spans, table->sum, sizeof *spans));
    for (int64_t b = 0; b < table->batch; b++)
        for (int64_t k = 0; k < table->spans[b].count; k++)
            spans[count++] = list_of(table, table->owner[b] - 1)[table->spans[b].first + k];
    *out = spans;
    return MIMO_OK;
}

static mimo_status merge(mimo_told_batches *it, int i)
{
    mimo_span *spans;
    sample_table table = {.told = it, .batch = it->descs[i].batch};
    mimo_status status = mimo_reserve(&table.owner, table.batch, sizeof *table.owner);
    if (status == MIMO_OK)
        status = mimo_reserve(&table.spans, table.batch, sizeof *table.spans);
    for (int r = 0; status == MIMO_OK && r < it->bridge->parent->size; r++)
        status = take_rank(&table, r, i);
    if (status == MIMO_OK)
        status = list_spans(&spans, &table);
    if (status == MIMO_OK)
        mimo_routed_batch_set_spans(&it->batches[i], spans, table.sum);
    mimo_release(table.owner);
    mimo_release(table.spans);
    return status;
}

/* ------------------------------------------- tell ------------------------------------------- */

static mimo_status count_rows(mimo_told_batches *it, int i)
{
    int ranks = it->bridge->parent->size;
    for (int r = 0; r < ranks; r++)
        for (int side = MIMO_SRC; side <= MIMO_DST; side++)
            it->rows[2 * r + side] = number_of(it, r, i, side);
    return mimo_routed_batch_set_rows(&it->batches[i], it->rows, ranks);
}

static mimo_status tell(mimo_told_batches *it)
{
    for (int i = 0; i < it->count; i++) {
        mimo_status status = MIMO_OK;
        if (it->descs[i].ragged)
            status = merge(it, i);
        else if (it->descs[i].src_rows >= 0)
            status = count_rows(it, i);
        MIMO_TRY(mimo_told_batches_prefix_error(it, i, status));
    }
    return MIMO_OK;
}

mimo_status mimo_told_batches_gather(mimo_told_batches *it)
{
    mimo_comm *comm = it->bridge->parent;
    if (!it->ragged && !it->counted)
        return MIMO_OK;
    MIMO_TRY(gather_from_all(it, it->numbers, it->own,
                             NUMBERS * (int64_t)it->count * (int64_t)sizeof *it->own));
    if (it->ragged)
        MIMO_TRY(gather_spans(it));
    return mimo_comm_agree(comm, mimo_bridge_prefix_error(it->bridge, tell(it)));
}
