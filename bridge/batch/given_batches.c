#include "bridge/batch/given_batches.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"

/*
 * What a rank gives, in one record: the head; three numbers of each micro-batch, its rows by
 * mimo_side and its number of spans; the spans of all micro-batches, one after the other.
 *
 * All ranks gather records of the same size. A bridge remembers the size that sufficed last time. A
 * rank that has more to give says so in its head. Then all gather again, with larger records.
 */
typedef struct given_head {
    int64_t needs; /* bytes of the record with all that the rank has to give */
    uint64_t signature;
} given_head;

enum { SPANS = 2, NUMBERS };

/* Of a record at first: some twenty spans of a rank. */
enum { FIRST_BYTES = 512 };

mimo_status mimo_given_batches_prefix_error(const mimo_given_batches *it, int i, mimo_status status)
{
    if (status == MIMO_OK)
        return MIMO_OK;
    if (it->count > 1)
        return mimo_fail_prefix(status, "update, micro-batch %d: ", i);
    return mimo_fail_prefix(status, "update: ");
}

/* Spans that this rank adds to those of others. Beside items every rank has all of them. */
static int64_t spans_to_gather(const mimo_batch_desc *desc)
{
    return desc->items ? 0 : desc->span_count;
}

static bool is_gathered(const mimo_batch_desc *desc)
{
    return desc->ragged && !desc->items;
}

static void release_records(mimo_given_batches *it)
{
    for (int i = 0; i < it->count && it->merged; i++)
        mimo_release(it->merged[i]);
    mimo_release(it->merged);
    mimo_release(it->own);
    mimo_release(it->all);
    it->own = it->all = NULL;
    it->merged = NULL;
}

void mimo_given_batches_release(mimo_given_batches *it)
{
    release_records(it);
    mimo_release(it->rows);
    mimo_release(it->samples);
}

/* ----------------------------------------- records ------------------------------------------ */

static const given_head *head_of(const mimo_given_batches *it, int64_t rank)
{
    return (const given_head *)(const void *)(it->all + rank * it->bytes);
}

static int64_t number_of(const mimo_given_batches *it, int64_t rank, int i, int which)
{
    return ((const int64_t *)(head_of(it, rank) + 1))[NUMBERS * i + which];
}

static const mimo_span *list_of(const mimo_given_batches *it, int64_t rank)
{
    const int64_t *numbers = (const int64_t *)(head_of(it, rank) + 1);
    return (const mimo_span *)(numbers + NUMBERS * (int64_t)it->count);
}

/* What this rank has to give, where it fits. */
static void write_record(const mimo_given_batches *it)
{
    given_head *head = (given_head *)(void *)it->own;
    int64_t *numbers = (int64_t *)(head + 1);
    mimo_span *spans = (mimo_span *)(numbers + NUMBERS * (int64_t)it->count);
    *head = (given_head){it->needs, it->signature};
    for (int i = 0; i < it->count && it->needs <= it->bytes; i++) {
        const mimo_batch_desc *desc = &it->descs[i];
        numbers[NUMBERS * i + MIMO_SRC] = desc->src_rows;
        numbers[NUMBERS * i + MIMO_DST] = desc->dst_rows;
        int64_t count = numbers[NUMBERS * i + SPANS] = spans_to_gather(desc);
        if (count > 0)
            memcpy(spans, desc->spans, (size_t)count * sizeof *spans);
        spans += count;
    }
}

/* Memory for records of `bytes` bytes, and for all spans that these can hold. After that a rank
 * cannot fail alone. */
static mimo_status reserve_records(mimo_given_batches *it, int64_t bytes)
{
    int64_t all;
    mimo_comm *comm = it->bridge->mover.parent;
    release_records(it);
    MIMO_CHECK(bytes <= INT_MAX, MIMO_ERR_OVERFLOW, "update: %" PRId64 " bytes from one rank",
               bytes);
    MIMO_TRY(mimo_mul(&all, bytes, comm->size));
    it->bytes = bytes;
    MIMO_TRY(comm->backend->host_allgather_prepare(comm, (int)bytes));
    MIMO_TRY(mimo_reserve(&it->own, bytes, 1));
    MIMO_TRY(mimo_reserve(&it->all, all, 1));
    MIMO_TRY(mimo_reserve(&it->merged, it->count, sizeof *it->merged));
    for (int i = 0; i < it->count; i++)
        if (is_gathered(&it->descs[i]))
            MIMO_TRY(
                mimo_reserve(&it->merged[i], all / (int64_t)sizeof(mimo_span), sizeof(mimo_span)));
    write_record(it);
    return MIMO_OK;
}

/* Count what this rank has to give. */
static mimo_status count_needs(mimo_given_batches *it, int64_t *batch)
{
    int64_t spans = 0, bytes;
    for (int i = 0; i < it->count; i++) {
        it->ragged = it->ragged || is_gathered(&it->descs[i]);
        it->counted = it->counted || it->descs[i].src_rows >= 0;
        it->listed = it->listed || it->descs[i].items;
        *batch =
            is_gathered(&it->descs[i]) && it->descs[i].batch > *batch ? it->descs[i].batch : *batch;
        MIMO_TRY(mimo_add(&spans, spans, spans_to_gather(&it->descs[i])));
    }
    MIMO_CHECK(spans <= INT_MAX / (int64_t)sizeof(mimo_span), MIMO_ERR_OVERFLOW,
               "update: %" PRId64 " spans of one rank", spans);
    MIMO_TRY(mimo_mul(&bytes, spans, sizeof(mimo_span)));
    return mimo_add(&it->needs, bytes,
                    (int64_t)sizeof(given_head) + NUMBERS * (int64_t)sizeof(int64_t) * it->count);
}

mimo_status mimo_given_batches_reserve(mimo_given_batches *it)
{
    const mimo_bridge *bridge = it->bridge;
    int64_t batch = 0;
    MIMO_TRY(count_needs(it, &batch));
    if (!it->ragged && !it->counted)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&it->rows, 2 * (int64_t)bridge->mover.parent->size, sizeof *it->rows));
    MIMO_TRY(mimo_reserve(&it->samples, batch, sizeof *it->samples));
    return reserve_records(it, bridge->given_bytes > 0 ? bridge->given_bytes : FIRST_BYTES);
}

/* ------------------------------------------ gather ------------------------------------------ */

/* An update comes in every step, and its exchanges would wait for the calls of the step before. */
static mimo_status part_host_values(mimo_comm *comm)
{
    return comm->backend->part_host_values ? comm->backend->part_host_values(comm) : MIMO_OK;
}

static mimo_status gather_records(const mimo_given_batches *it)
{
    mimo_comm *comm = it->bridge->mover.parent;
    mimo_request *request = NULL;
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, it->all, it->own, (int)it->bytes));
    return mimo_wait(comm, &request, it->call);
}

/* The largest record that a rank needs. Where MIMO_AGREE=0 left the agreement out, ranks are
 * compared here. */
static mimo_status compare_heads(int64_t *needs, const mimo_given_batches *it)
{
    *needs = 0;
    for (int r = 0; r < it->bridge->mover.parent->size; r++) {
        const given_head *head = head_of(it, r);
        MIMO_CHECK(head->signature == head_of(it, 0)->signature, MIMO_ERR_MISMATCH,
                   "update: ranks 0 and %d give other numbers of micro-batches or samples", r);
        *needs = head->needs > *needs ? head->needs : *needs;
    }
    return MIMO_OK;
}

/* Where a record does not fit, all ranks gather larger ones: of the smallest power of two times the
 * old size, as a little more may be needed soon. */
static mimo_status gather_all(mimo_given_batches *it)
{
    int64_t needs, bytes = it->bytes;
    MIMO_TRY(gather_records(it));
    MIMO_TRY(mimo_mover_prefix_error(&it->bridge->mover, compare_heads(&needs, it)));
    while (bytes < needs)
        MIMO_TRY(mimo_mul(&bytes, bytes, 2));
    if (bytes == it->bytes)
        return MIMO_OK;
    MIMO_TRY(
        mimo_comm_agree(it->bridge->mover.parent,
                        mimo_mover_prefix_error(&it->bridge->mover, reserve_records(it, bytes))));
    it->bridge->given_bytes = bytes;
    return gather_records(it);
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

/* Of one micro-batch: its samples, and spans in all. */
typedef struct sample_table {
    const mimo_given_batches *given;
    mimo_given_sample *samples; /* samples[batch] */
    int64_t batch, sum;
} sample_table;

static mimo_status take_sample(sample_table *table, int rank, mimo_range range)
{
    const mimo_span *list = list_of(table->given, rank);
    int64_t sample = list[range.first].sample;
    MIMO_CHECK(sample >= 0 && sample < table->batch, MIMO_ERR_SHAPE,
               "rank %d gives sample %" PRId64 " of %" PRId64, rank, sample, table->batch);
    mimo_given_sample *given = &table->samples[sample];
    int64_t first = given->owner - 1;
    if (first < 0) {
        *given = (mimo_given_sample){rank + 1, range};
        table->sum += range.count;
        return MIMO_OK;
    }
    const mimo_span *known = list_of(table->given, first) + given->spans.first;
    bool same = range.count == given->spans.count &&
                memcmp(known, &list[range.first], (size_t)range.count * sizeof *list) == 0;
    MIMO_CHECK(same, MIMO_ERR_MISMATCH,
               "ranks %" PRId64 " and %d give different spans of sample %" PRId64
               " (or one of them twice)",
               first, rank, sample);
    return MIMO_OK;
}

/* What a rank gave of micro-batch i lies behind what it gave of those before. */
static mimo_status take_rank(sample_table *table, int rank, int i)
{
    int64_t at = 0;
    for (int before = 0; before < i; before++)
        at += number_of(table->given, rank, before, SPANS);
    for (int64_t end = at + number_of(table->given, rank, i, SPANS); at < end;) {
        mimo_range range = spans_of(list_of(table->given, rank), end, at);
        MIMO_TRY(take_sample(table, rank, range));
        at += range.count;
    }
    return MIMO_OK;
}

/* All spans, by sample. */
static void list_spans(mimo_span *spans, const sample_table *table)
{
    for (int64_t b = 0; b < table->batch; b++) {
        const mimo_given_sample *given = &table->samples[b];
        for (int64_t k = 0; k < given->spans.count; k++)
            *spans++ = list_of(table->given, given->owner - 1)[given->spans.first + k];
    }
}

static mimo_status merge(mimo_given_batches *it, int i)
{
    sample_table table = {.given = it, .samples = it->samples, .batch = it->descs[i].batch};
    memset(it->samples, 0, (size_t)table.batch * sizeof *it->samples);
    for (int r = 0; r < it->bridge->mover.parent->size; r++)
        MIMO_TRY(take_rank(&table, r, i));
    list_spans(it->merged[i], &table);
    mimo_bridge_batch_set_spans(&it->batches[i], it->merged[i], table.sum);
    it->merged[i] = NULL; /* the batch owns it */
    return MIMO_OK;
}

/* ------------------------------------------- give ------------------------------------------- */

static mimo_status count_rows(mimo_given_batches *it, int i)
{
    int ranks = it->bridge->mover.parent->size;
    for (int r = 0; r < ranks; r++)
        for (int side = MIMO_SRC; side <= MIMO_DST; side++)
            it->rows[2 * r + side] = number_of(it, r, i, side);
    return mimo_bridge_batch_set_rows(&it->batches[i], it->rows, ranks);
}

static mimo_status give(mimo_given_batches *it)
{
    for (int i = 0; i < it->count; i++) {
        mimo_status status = MIMO_OK;
        if (is_gathered(&it->descs[i]))
            status = merge(it, i);
        else if (it->descs[i].src_rows >= 0)
            status = count_rows(it, i);
        MIMO_TRY(mimo_given_batches_prefix_error(it, i, status));
    }
    return MIMO_OK;
}

/* From the same records all ranks come to the same result. Rows take memory: there they agree. */
mimo_status mimo_given_batches_gather(mimo_given_batches *it)
{
    if (it->ragged || it->counted || it->listed)
        MIMO_TRY(part_host_values(it->bridge->mover.parent));
    if (!it->ragged && !it->counted)
        return MIMO_OK;
    MIMO_TRY(gather_all(it));
    mimo_status given = mimo_mover_prefix_error(&it->bridge->mover, give(it));
    return it->counted ? mimo_comm_agree(it->bridge->mover.parent, given) : given;
}
