/* Updates of a bridge: the micro-batches of the calls to come, and which of them the next calls
 * move. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bridge/batch/bridge_sides.h"
#include "bridge/batch/given_batches.h"
#include "bridge/bridge_executors.h"
#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/profile.h"
#include "partition/packed_rule.h"

MIMO_DEFINE_INIT(mimo_batch_desc, MIMO_BATCH_DESC_INIT)

/* ------------------------------------------ check ------------------------------------------- */

static bool gives_rows(const mimo_batch_desc *desc)
{
    return desc->src_rows >= 0;
}

/* A rank without a role on a side holds no rows there. */
static mimo_status check_rows(const mimo_bridge *bridge, const mimo_batch_desc *desc)
{
    const int64_t rows[] = {desc->src_rows, desc->dst_rows};
    MIMO_CHECK((rows[0] >= 0 && rows[1] >= 0) || (rows[0] == -1 && rows[1] == -1),
               MIMO_ERR_ARGUMENT,
               "%" PRId64 " src rows and %" PRId64 " dst rows: give both, or neither by -1",
               rows[0], rows[1]);
    MIMO_CHECK(!gives_rows(desc) || !desc->ragged, MIMO_ERR_ARGUMENT,
               "%" PRId64 " src rows are given, and the spans of a ragged batch say these",
               rows[0]);
    for (int side = MIMO_SRC; gives_rows(desc) && side <= MIMO_DST; side++) {
        mimo_cell cell;
        bool holds = mimo_layout_cell(&cell, bridge->sides->roles[side], bridge->rank);
        MIMO_CHECK(holds || rows[side] == 0, MIMO_ERR_SHAPE,
                   "this rank gives %" PRId64 " %s rows, and it has no role on that side",
                   rows[side], mimo_side_names[side]);
    }
    return MIMO_OK;
}

static mimo_status check_desc(const mimo_bridge *bridge, const mimo_batch_desc *desc)
{
    const mimo_bridge_sides *own = bridge->sides;
    MIMO_CHECK(desc->batch >= -1, MIMO_ERR_ARGUMENT, "a batch of %" PRId64, desc->batch);
    MIMO_CHECK(desc->span_count >= 0 && (desc->spans || desc->span_count == 0), MIMO_ERR_ARGUMENT,
               "%" PRId64 " spans%s", desc->span_count, desc->spans ? "" : ", NULL");
    MIMO_CHECK(desc->ragged || desc->span_count == 0, MIMO_ERR_ARGUMENT,
               "%" PRId64 " spans, and the batch is not ragged", desc->span_count);
    MIMO_CHECK(desc->ragged || !desc->items, MIMO_ERR_ARGUMENT,
               "items, and the batch is not ragged");
    MIMO_CHECK(!desc->ragged || desc->batch >= 0, MIMO_ERR_ARGUMENT,
               "a ragged batch must say how many samples it has");
    MIMO_CHECK(!desc->ragged || (!own->layouts[MIMO_SRC].partition &&
                                 !mimo_rule_is_packed(own->layouts[MIMO_DST].partition)),
               MIMO_ERR_UNSUPPORTED,
               "a ragged batch takes no src partition and no thd partition (spans of packs: "
               "mimo_spans_pack, under an sbhd one)");
    MIMO_CHECK(
        !gives_rows(desc) ||
            !(own->layouts[MIMO_SRC].partition || own->layouts[MIMO_DST].partition),
        MIMO_ERR_UNSUPPORTED,
        "rows are given for calls of flat tiles alone, and a bridge with a partition has none");
    return check_rows(bridge, desc);
}

/* ------------------------------------------- read ------------------------------------------- */

/* The update of one bridge, in making. */
typedef struct update_maker {
    mimo_bridge *bridge;
    mimo_given_batches given;
} update_maker;

/* The updates of one call. */
typedef struct joint_update {
    update_maker *list; /* list[count] */
    int count;
    int64_t batches; /* of all of them */
    char call[MIMO_CALL_TEXT];
} joint_update;

static mimo_status read_descs(update_maker *it, const mimo_batch_desc *descs, int n)
{
    mimo_given_batches *given = &it->given;
    MIMO_TRY(mimo_reserve(&given->descs, given->count, sizeof *given->descs));
    given->descs[0] = (mimo_batch_desc)MIMO_BATCH_DESC_INIT;
    given->descs[0].batch = it->bridge->first_batch;
    for (int i = 0; i < n; i++) {
        given->descs[i] = (mimo_batch_desc)MIMO_BATCH_DESC_INIT;
        mimo_status status =
            mimo_read_element(&given->descs[i], sizeof *given->descs, descs, i, "batch");
        if (status == MIMO_OK)
            status = check_desc(it->bridge, &given->descs[i]);
        MIMO_TRY(mimo_given_batches_prefix_error(given, i, status));
    }
    return MIMO_OK;
}

/* Of the items of a batch and the spans beside them, which all ranks give alike. */
static uint64_t hash_items(const mimo_batch_desc *desc, const mimo_bridge_batch *batch)
{
    uint64_t hash = mimo_hash_int(MIMO_HASH_START, desc->span_count);
    for (int side = MIMO_SRC; side <= MIMO_DST; side++) {
        const mimo_layout_desc *layout = &batch->layouts[side];
        int64_t dp = mimo_grid_dim_size(layout->grid, "dp");
        hash = mimo_hash_int(hash, layout->ragged);
        for (int64_t d = 0; layout->first_item && d <= dp; d++)
            hash = mimo_hash_int(hash, layout->first_item[d]);
        for (int64_t i = 0; layout->first_item && i < layout->first_item[dp]; i++) {
            hash = mimo_hash_int(hash, layout->items[i].sample);
            hash = mimo_hash_int(hash, layout->items[i].row);
            hash = mimo_hash_int(hash, layout->items[i].rows);
        }
    }
    for (int64_t i = 0; i < desc->span_count; i++) {
        hash = mimo_hash_int(mimo_hash_int(hash, desc->spans[i].sample), desc->spans[i].row);
        hash = mimo_hash_int(mimo_hash_int(hash, desc->spans[i].position), desc->spans[i].length);
    }
    return hash;
}

static mimo_status set_items(mimo_given_batches *given)
{
    MIMO_TRY(mimo_reserve(&given->hashes, given->count, sizeof *given->hashes));
    for (int i = 0; i < given->count; i++) {
        if (!given->descs[i].items)
            continue;
        mimo_status status = mimo_bridge_batch_set_items(&given->batches[i], &given->descs[i]);
        MIMO_TRY(mimo_given_batches_prefix_error(given, i, status));
        given->hashes[i] = hash_items(&given->descs[i], &given->batches[i]);
    }
    return MIMO_OK;
}

/* Into *i: the number of batch k of all among those of its bridge. */
static const update_maker *maker_of(const joint_update *it, int64_t k, int *i)
{
    const update_maker *maker = it->list;
    for (; k >= maker->given.count; maker++)
        k -= maker->given.count;
    *i = (int)k;
    return maker;
}

/* The numbers of spans and rows may differ between ranks, so they are in the words alone. */
static uint64_t hash_batches(const void *context, int64_t k)
{
    const joint_update *it = context;
    uint64_t hash = mimo_signature_start(MIMO_CALL_BRIDGE_UPDATE);
    for (int u = 0; u < it->count; u++)
        hash = mimo_hash_int(mimo_hash_int(hash, (int64_t)it->list[u].bridge->mover.id),
                             it->list[u].given.count);
    for (int64_t b = 0; b < k; b++) {
        int i;
        const mimo_given_batches *given = &maker_of(it, b, &i)->given;
        const mimo_batch_desc *desc = &given->descs[i];
        hash = mimo_hash_int(mimo_hash_int(hash, desc->batch), desc->ragged);
        hash = mimo_hash_int(hash, gives_rows(desc));
        hash = mimo_hash_int(hash, (int64_t)given->hashes[i]);
    }
    return hash;
}

static const char *pass_text(const mimo_bridge *bridge, bool backward)
{
    return bridge->measured[backward] ? "routed, measured against collective"
                                      : mimo_bridge_executor_of(bridge, backward)->name;
}

static bool take_batches(const mimo_bridge *bridge)
{
    const mimo_executor_table *it = NULL;
    while ((it = mimo_bridge_next_executor(bridge, it)))
        if (!it->takes_batches)
            return false;
    return true;
}

/* What this rank can check and take of one bridge by itself. */
static mimo_status read_update(update_maker *it, const mimo_update_desc *update)
{
    mimo_given_batches *given = &it->given;
    MIMO_CHECK(update->n >= 0 && (update->descs || update->n == 0), MIMO_ERR_ARGUMENT,
               "update: %d micro-batches%s", update->n, update->descs ? "" : ", NULL");
    MIMO_CHECK(take_batches(it->bridge), MIMO_ERR_UNSUPPORTED,
               "update: forward is %s; backward is %s; updates take bridges that are routed alone",
               pass_text(it->bridge, false), pass_text(it->bridge, true));
    MIMO_TRY(mimo_mover_check_idle(&it->bridge->mover, "update"));
    given->count = update->n > 0 ? update->n : 1;
    MIMO_TRY(read_descs(it, update->descs, update->n));
    MIMO_TRY(mimo_bridge_batches_create(&given->batches, it->bridge, given->count));
    for (int i = 0; i < given->count; i++)
        given->batches[i].batch = given->descs[i].batch;
    return set_items(given);
}

/* Read all updates, and take memory for what their ranks gather. */
static mimo_status prepare(joint_update *it, const mimo_update_desc *updates)
{
    for (int u = 0; u < it->count; u++) {
        update_maker *maker = &it->list[u];
        MIMO_TRY(mimo_mover_prefix_error(&maker->bridge->mover, read_update(maker, &updates[u])));
        it->batches += maker->given.count;
    }
    uint64_t signature = hash_batches(it, it->batches);
    for (int u = 0; u < it->count; u++) {
        update_maker *maker = &it->list[u];
        maker->given.signature = signature;
        MIMO_TRY(mimo_mover_prefix_error(&maker->bridge->mover,
                                         mimo_given_batches_reserve(&maker->given)));
    }
    return MIMO_OK;
}

/* ------------------------------------------ agree ------------------------------------------- */

static void describe_batch(char call[MIMO_CALL_TEXT], const void *context, int64_t k)
{
    int i;
    const update_maker *it = maker_of(context, k, &i);
    const mimo_batch_desc *desc = &it->given.descs[i];
    snprintf(call, MIMO_CALL_TEXT, "%s update", it->bridge->mover.title);
    if (it->given.count > 1)
        mimo_call_append(call, " to %d micro-batches, %d", it->given.count, i);
    if (desc->ragged)
        mimo_call_append(call, " to a ragged batch of %" PRId64 " with %" PRId64 " spans",
                         desc->batch, desc->span_count);
    else if (desc->batch >= 0)
        mimo_call_append(call, " to a batch of %" PRId64, desc->batch);
    else
        mimo_call_append(call, " to a batch that is not given");
    if (desc->items)
        mimo_call_append(call, " and items whose hash is %016" PRIx64, it->given.hashes[i]);
    if (gives_rows(desc))
        mimo_call_append(call, " with %" PRId64 " src and %" PRId64 " dst rows", desc->src_rows,
                         desc->dst_rows);
}

static void describe_call(joint_update *it, int64_t count)
{
    if (count == 1) {
        describe_batch(it->call, it, 0);
        return;
    }
    snprintf(it->call, sizeof it->call, "%s update", it->list[0].bridge->mover.title);
    if (it->count > 1)
        mimo_call_append(it->call, " with %d more", it->count - 1);
    mimo_call_append(it->call, " to %d micro-batches", it->list[0].given.count);
}

static mimo_status agree(joint_update *it, mimo_status local)
{
    int64_t count = local == MIMO_OK ? it->batches : 0;
    const mimo_call_items items = {count, hash_batches, describe_batch, it};
    describe_call(it, count);
    const mimo_claim claim = {.kind = MIMO_AGREE_CALL,
                              .local = local,
                              .signature = hash_batches(it, count),
                              .call = it->call,
                              .items = items};
    return mimo_agree_on(it->list[0].bridge->mover.parent, &claim);
}

/* ------------------------------------------ update ------------------------------------------ */

static void select_batch(mimo_bridge *bridge, int i)
{
    bridge->selected = i;
    bridge->batch = bridge->batches[i].batch;
}

/* Calls move by these batches from now on. What was prepared by the last ones is released. */
static void take(mimo_bridge *bridge, mimo_given_batches *given)
{
    mimo_bridge_batches_destroy(bridge, bridge->batches, bridge->batch_count);
    bridge->batches = given->batches;
    bridge->batch_count = given->count;
    given->batches = NULL;
    select_batch(bridge, 0);
}

static void release_update(update_maker *it)
{
    mimo_given_batches *given = &it->given;
    mimo_bridge_batches_destroy(it->bridge, given->batches, given->count);
    mimo_given_batches_release(given);
    mimo_release(given->descs);
    mimo_release(given->hashes);
}

/* All bridges are given their batches, or none. `local`: of what came before. */
static mimo_status update_all(joint_update *it, const mimo_update_desc *updates, mimo_status local)
{
    for (int u = 0; u < it->count; u++)
        it->list[u] = (update_maker){.bridge = updates[u].bridge,
                                     .given = {.bridge = updates[u].bridge, .call = it->call}};
    mimo_status status = agree(it, local == MIMO_OK ? prepare(it, updates) : local);
    for (int u = 0; u < it->count && status == MIMO_OK; u++)
        status = mimo_given_batches_gather(&it->list[u].given);
    for (int u = 0; u < it->count; u++) {
        if (status == MIMO_OK)
            take(it->list[u].bridge, &it->list[u].given);
        release_update(&it->list[u]);
    }
    return status;
}

/* The update of one bridge; it takes no memory before the agreement. */
static mimo_status update_one(mimo_bridge *bridge, const mimo_batch_desc *descs, int n,
                              mimo_status local)
{
    update_maker maker;
    joint_update it = {.list = &maker, .count = 1};
    const mimo_update_desc update = {sizeof update, bridge, descs, n};
    return update_all(&it, &update, mimo_mover_prefix_error(&bridge->mover, local));
}

mimo_status mimo_bridge_update(mimo_bridge *bridge, const mimo_batch_desc *descs, int n)
{
    MIMO_RANGE();
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge update: bridge is NULL");
    MIMO_ENTER(bridge->mover.parent, "bridge update");
    return update_one(bridge, descs, n, MIMO_OK);
}

mimo_status mimo_bridge_refuse_update(mimo_bridge *bridge, mimo_status local)
{
    MIMO_RANGE();
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge refuse update: bridge is NULL");
    MIMO_ENTER(bridge->mover.parent, "bridge refuse update");
    return update_one(bridge, NULL, 0, mimo_refused_status(local, "bridge refuse update"));
}

/* ----------------------------------------- several ------------------------------------------ */

MIMO_DEFINE_INIT(mimo_update_desc, MIMO_UPDATE_DESC_INIT)

/* Of the first bridge's communicator, and each once. */
static mimo_status check_bridges(const mimo_update_desc *updates, int count)
{
    for (int u = 0; u < count; u++) {
        const mimo_bridge *bridge = updates[u].bridge;
        MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge update all: bridge %d is NULL", u);
        MIMO_CHECK(bridge->mover.parent == updates[0].bridge->mover.parent, MIMO_ERR_ARGUMENT,
                   "bridge update all: bridges 0 and %d were made from two communicators", u);
        for (int v = 0; v < u; v++)
            MIMO_CHECK(updates[v].bridge != bridge, MIMO_ERR_ARGUMENT,
                       "bridge update all: bridges %d and %d are the same", v, u);
    }
    return MIMO_OK;
}

static mimo_status read_updates(mimo_update_desc **out, const mimo_update_desc *updates, int count)
{
    mimo_update_desc *read;
    MIMO_TRY(mimo_reserve(&read, count, sizeof *read));
    mimo_status status = MIMO_OK;
    for (int u = 0; u < count && status == MIMO_OK; u++) {
        read[u] = (mimo_update_desc)MIMO_UPDATE_DESC_INIT;
        status = mimo_read_element(&read[u], sizeof *read, updates, u, "update");
    }
    if (status == MIMO_OK)
        status = check_bridges(read, count);
    if (status == MIMO_OK)
        *out = read;
    else
        mimo_release(read);
    return status;
}

mimo_status mimo_bridge_update_all(const mimo_update_desc *updates, int count)
{
    MIMO_RANGE();
    MIMO_CHECK(updates && count > 0, MIMO_ERR_ARGUMENT, "bridge update all: %d bridges%s", count,
               updates ? "" : ", NULL");
    MIMO_CHECK(updates->bridge, MIMO_ERR_ARGUMENT, "bridge update all: the first bridge is NULL");
    MIMO_ENTER(updates->bridge->mover.parent, "bridge update all");
    joint_update it = {.count = count};
    mimo_update_desc *read = NULL;
    mimo_status local = read_updates(&read, updates, count);
    if (local == MIMO_OK)
        local = mimo_reserve(&it.list, count, sizeof *it.list);
    mimo_status status = local == MIMO_OK ? update_all(&it, read, MIMO_OK)
                                          : update_one(updates->bridge, NULL, 0, local);
    mimo_release(it.list);
    mimo_release(read);
    return status;
}

mimo_status mimo_bridge_select(mimo_bridge *bridge, int i)
{
    MIMO_RANGE();
    MIMO_CHECK(bridge, MIMO_ERR_ARGUMENT, "bridge select: bridge is NULL");
    MIMO_ENTER(bridge->mover.parent, "bridge select");
    MIMO_CHECK(i >= 0 && i < bridge->batch_count, MIMO_ERR_ARGUMENT,
               "%s: select: no micro-batch %d of %d", bridge->mover.title, i, bridge->batch_count);
    if (bridge->batches)
        select_batch(bridge, i);
    return MIMO_OK;
}
