/* Updates of a routed bridge: the batch of the calls to come, and the positions of its rows. Each
 * rank gives the spans that it knows; all end with the same table of all spans. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "bridge/routed/routed_types.h"
#include "comm/device_visit.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"

/* ------------------------------------------ check ------------------------------------------- */

static mimo_status read_desc(mimo_batch_desc *own, const mimo_batch_desc *desc)
{
    if (desc)
        MIMO_TRY(mimo_read_descriptor(own, sizeof *own, desc, "update"));
    MIMO_CHECK(own->batch >= -1, MIMO_ERR_ARGUMENT, "update: a batch of %" PRId64, own->batch);
    MIMO_CHECK(own->span_count >= 0 && (own->spans || own->span_count == 0), MIMO_ERR_ARGUMENT,
               "update: %" PRId64 " spans%s", own->span_count, own->spans ? "" : ", NULL");
    MIMO_CHECK(own->ragged || own->span_count == 0, MIMO_ERR_ARGUMENT,
               "update: %" PRId64 " spans, and the batch is not ragged", own->span_count);
    MIMO_CHECK(!own->ragged || own->batch >= 0, MIMO_ERR_ARGUMENT,
               "update: a ragged batch must say how many samples it has");
    return MIMO_OK;
}

static mimo_status check_bridge(const mimo_bridge *bridge, bool ragged)
{
    const mimo_routed *own = bridge->routed;
    MIMO_CHECK(!bridge->collective, MIMO_ERR_UNSUPPORTED,
               "update: the executor is collective, and must be routed");
    MIMO_TRY(mimo_bridge_check_idle(bridge, "update"));
    MIMO_CHECK(!ragged || (!own->layouts[MIMO_AT_SRC].partition &&
                           !mimo_rule_is_packed(own->layouts[MIMO_AT_DST].partition)),
               MIMO_ERR_UNSUPPORTED,
               "update: a ragged batch takes no src partition and no thd partition");
    return MIMO_OK;
}

/* ------------------------------------------ gather ------------------------------------------ */

/* The spans of all ranks. */
typedef struct gathered {
    const mimo_bridge *bridge;
    const char *call;  /* in words */
    int64_t most;      /* spans of one rank */
    int64_t *counts;   /* [ranks] */
    mimo_span *padded; /* this rank's, [most] */
    mimo_span *all;    /* [ranks][most] */
} gathered;

static void release_gathered(gathered *it)
{
    mimo_release(it->counts);
    mimo_release(it->padded);
    mimo_release(it->all);
}

static mimo_status gather_from_all(const gathered *it, void *to, const void *from, int64_t bytes)
{
    mimo_comm *comm = it->bridge->parent;
    mimo_request *request = NULL;
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, to, from, (int)bytes));
    return mimo_wait(comm, &request, it->call);
}

static mimo_status reserve_spans(gathered *it, mimo_comm *comm, const mimo_batch_desc *desc)
{
    int64_t all, bytes;
    MIMO_TRY(mimo_mul(&bytes, it->most, (int64_t)sizeof(mimo_span)));
    MIMO_CHECK(bytes <= INT_MAX, MIMO_ERR_OVERFLOW, "update: %" PRId64 " spans of one rank",
               it->most);
    MIMO_TRY(mimo_mul(&all, it->most, comm->size));
    MIMO_TRY(comm->backend->host_allgather_prepare(comm, (int)bytes));
    MIMO_TRY(mimo_reserve(&it->padded, it->most, sizeof *it->padded));
    MIMO_TRY(mimo_reserve(&it->all, all, sizeof *it->all));
    if (desc->span_count > 0)
        memcpy(it->padded, desc->spans, (size_t)desc->span_count * sizeof *it->padded);
    return MIMO_OK;
}

/* First the counts. Then the spans: from every rank as many as the rank with the most has. */
static mimo_status gather_spans(gathered *it, const mimo_batch_desc *desc)
{
    mimo_comm *comm = it->bridge->parent;
    MIMO_TRY(gather_from_all(it, it->counts, &desc->span_count, (int64_t)sizeof *it->counts));
    for (int r = 0; r < comm->size; r++)
        it->most = it->counts[r] > it->most ? it->counts[r] : it->most;
    MIMO_TRY(
        mimo_comm_agree(comm, mimo_bridge_prefix_error(it->bridge, reserve_spans(it, comm, desc))));
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

/* By sample: the first rank that gave its spans, and where these are in its list. */
typedef struct sample_table {
    int64_t *owner;     /* [batch], rank + 1; 0: nobody */
    mimo_range *spans;  /* [batch], in the owner's list */
    int64_t batch, sum; /* spans in all */
} sample_table;

static mimo_status take_sample(sample_table *table, const gathered *it, int rank, mimo_range range)
{
    const mimo_span *list = it->all + rank * it->most;
    int64_t sample = list[range.first].sample;
    MIMO_CHECK(sample >= 0 && sample < table->batch, MIMO_ERR_SHAPE,
               "update: rank %d tells of sample %" PRId64 " of %" PRId64, rank, sample,
               table->batch);
    int64_t first = table->owner[sample] - 1;
    if (first < 0) {
        table->owner[sample] = rank + 1;
        table->spans[sample] = range;
        table->sum += range.count;
        return MIMO_OK;
    }
    const mimo_span *known = it->all + first * it->most + table->spans[sample].first;
    bool same = range.count == table->spans[sample].count &&
                memcmp(known, &list[range.first], (size_t)range.count * sizeof *list) == 0;
    MIMO_CHECK(same, MIMO_ERR_MISMATCH,
               "update: ranks %" PRId64 " and %d tell different spans of sample %" PRId64
               " (or one of them twice)",
               first, rank, sample);
    return MIMO_OK;
}

static mimo_status take_all(sample_table *table, const gathered *it, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < it->counts[r];) {
            mimo_range range = spans_of(it->all + r * it->most, it->counts[r], i);
            MIMO_TRY(take_sample(table, it, r, range));
            i += range.count;
        }
    return MIMO_OK;
}

/* All spans, by sample. */
static mimo_status list_spans(mimo_span **out, const sample_table *table, const gathered *it)
{
    mimo_span *spans;
    int64_t count = 0;
    MIMO_TRY(mimo_reserve(&spans, table->sum, sizeof *spans));
    for (int64_t b = 0; b < table->batch; b++)
        for (int64_t i = 0; i < table->spans[b].count; i++)
            spans[count++] = it->all[(table->owner[b] - 1) * it->most + table->spans[b].first + i];
    *out = spans;
    return MIMO_OK;
}

static mimo_status merge(mimo_span **out, int64_t *count, const gathered *it, int64_t batch,
                         int ranks)
{
    sample_table table = {.batch = batch};
    mimo_status status = mimo_reserve(&table.owner, batch, sizeof *table.owner);
    if (status == MIMO_OK)
        status = mimo_reserve(&table.spans, batch, sizeof *table.spans);
    if (status == MIMO_OK)
        status = take_all(&table, it, ranks);
    if (status == MIMO_OK)
        status = list_spans(out, &table, it);
    if (status == MIMO_OK)
        *count = table.sum;
    mimo_release(table.owner);
    mimo_release(table.spans);
    return status;
}

/* ------------------------------------------ update ------------------------------------------ */

/* The table of all ranks. Every rank fails, or none. */
static mimo_status make_table(mimo_span **out, int64_t *count, const mimo_bridge *bridge,
                              const mimo_batch_desc *desc, const char *call)
{
    gathered it = {.bridge = bridge, .call = call};
    mimo_comm *comm = bridge->parent;
    mimo_status status =
        mimo_comm_agree(comm, mimo_reserve(&it.counts, comm->size, sizeof *it.counts));
    if (status == MIMO_OK)
        status = gather_spans(&it, desc);
    if (status == MIMO_OK)
        status = mimo_comm_agree(
            comm,
            mimo_bridge_prefix_error(bridge, merge(out, count, &it, desc->batch, comm->size)));
    release_gathered(&it);
    if (status != MIMO_OK) {
        mimo_release(*out);
        *out = NULL;
    }
    return status;
}

/* Calls move by this table from now on. What was prepared by the last one is released. */
static void take_table(mimo_bridge *bridge, const mimo_batch_desc *desc, mimo_span *spans,
                       int64_t count)
{
    mimo_routed *own = bridge->routed;
    mimo_release(own->spans);
    own->spans = spans;
    bridge->batch = desc->batch;
    own->ragged = desc->ragged;
    for (int side = MIMO_AT_SRC; side <= MIMO_AT_DST; side++) {
        mimo_layout_desc *layout = &own->layouts[side];
        layout->ragged = side == MIMO_AT_SRC ? MIMO_RAGGED_PACKED : MIMO_RAGGED_PLACED;
        layout->ragged = desc->ragged ? layout->ragged : MIMO_RAGGED_NOT;
        layout->spans = spans;
        layout->span_count = count;
    }
    mimo_prepared_calls_release(bridge);
    mimo_plan_cache_renew(own->plans, own->layouts);
    mimo_batch_splits_release(
        &own->splits); /* a batch that was given is no guess for one that is not */
}

/* The number of spans may differ between ranks, so it is in the words and not in the signature. */
static uint64_t describe(char call[MIMO_CALL_TEXT], const mimo_bridge *bridge,
                         const mimo_batch_desc *desc)
{
    if (desc->ragged)
        snprintf(call, MIMO_CALL_TEXT,
                 "%s update to a ragged batch of %" PRId64 " with %" PRId64 " spans", bridge->title,
                 desc->batch, desc->span_count);
    else if (desc->batch >= 0)
        snprintf(call, MIMO_CALL_TEXT, "%s update to a batch of %" PRId64, bridge->title,
                 desc->batch);
    else
        snprintf(call, MIMO_CALL_TEXT, "%s update to a batch that is not told", bridge->title);
    uint64_t hash = mimo_hash_int(bridge->id, MIMO_CALL_BRIDGE_UPDATE);
    return mimo_hash_int(mimo_hash_int(hash, desc->batch), desc->ragged);
}

mimo_status mimo_bridge_update(mimo_bridge *bridge, const mimo_batch_desc *desc)
{
    mimo_batch_desc own = MIMO_BATCH_DESC_INIT;
    char call[MIMO_CALL_TEXT];
    mimo_span *spans = NULL;
    int64_t count = 0;
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge update: bridge is NULL");
    MIMO_ON_DEVICE_OF(bridge->comm);
    if (bridge->routed)
        own.batch = bridge->routed->first_batch;
    mimo_status local = read_desc(&own, desc);
    if (local == MIMO_OK)
        local = check_bridge(bridge, own.ragged);
    uint64_t signature = describe(call, bridge, &own);
    MIMO_TRY(mimo_agree(bridge->parent, mimo_bridge_prefix_error(bridge, local), signature, call));
    if (own.ragged)
        MIMO_TRY(make_table(&spans, &count, bridge, &own, call));
    take_table(bridge, &own, spans, count);
    return MIMO_OK;
}
