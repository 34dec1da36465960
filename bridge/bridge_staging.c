/* The most staging that calls of given sizes take on this rank. Local: it builds the plans of this
 * rank, and moves nothing. Each kind of area is as large as the pass that needs more of it. */
#include "bridge/bridge_types.h"
#include "bridge/collective/collective_types.h"
#include "bridge/layout/layout_types.h"
#include "bridge/routed/routed_types.h"
#include "core/checked.h"
#include "core/descriptor.h"

enum { MESSAGE_ALIGNMENT = 16, AREA_ALIGNMENT = 64 };

/* Bytes of the areas of one pass. */
typedef struct areas {
    int64_t full, joined, contributions;
    int64_t arriving, leaving; /* the backend's: rows of messages and gathers, packed */
} areas;

/* One pass of a tensor. */
typedef struct staged_pass {
    const mimo_bridge *bridge;
    bool backward;
    mimo_tile tile[2]; /* of this rank, by mimo_side */
    int64_t batch, seq;
    const mimo_batch_split *rows; /* in place of an even batch; NULL: not told */
    bool in_buffer;
} staged_pass;

/* ---------------------------------------- routed ------------------------------------------ */

/* The rows that one route moves in messages. Rows of class 0 are pushed where they can be. */
static mimo_status add_messages(areas *out, const mimo_plan *plan, int64_t row_bytes, bool pushes)
{
    int64_t *sums[] = {[MIMO_RECV] = &out->arriving, [MIMO_SEND] = &out->leaving};
    for (int kind = MIMO_RECV; kind <= MIMO_SEND; kind++) {
        int64_t count, bytes, all = 0;
        const mimo_block *blocks = mimo_plan_blocks(&count, plan, (mimo_block_kind)kind);
        for (int64_t i = 0; i < count; i++) {
            if (pushes && blocks[i].klass == 0)
                continue;
            MIMO_TRY(mimo_mul(&bytes, blocks[i].nb * blocks[i].ns, row_bytes));
            MIMO_TRY(mimo_add(&all, all, bytes));
            MIMO_TRY(mimo_add(&all, all, MESSAGE_ALIGNMENT)); /* at most one message a block */
        }
        *sums[kind] = all > *sums[kind] ? all : *sums[kind];
    }
    return MIMO_OK;
}

static mimo_status add_area(int64_t *sum, int64_t bytes)
{
    MIMO_TRY(mimo_add(&bytes, bytes, AREA_ALIGNMENT - 1));
    return mimo_add(sum, *sum, bytes / AREA_ALIGNMENT * AREA_ALIGNMENT);
}

static mimo_status make_layout(mimo_layout **out, const staged_pass *it, mimo_endpoint end)
{
    mimo_side side = end == MIMO_AT_SRC ? MIMO_SRC : MIMO_DST;
    mimo_layout_desc desc = mimo_routed_batch_now(it->bridge)->layouts[end];
    desc.order = it->tile[side].view.letters[0] == 's' ? MIMO_ROWS_SBH : MIMO_ROWS_BSH;
    desc.batch = it->batch;
    desc.seq = it->seq;
    if (it->rows)
        desc.samples = it->rows->samples[side];
    return mimo_layout_create(out, &desc);
}

static mimo_status make_plan(mimo_plan **out, const staged_pass *it, mimo_endpoint from,
                             mimo_endpoint to)
{
    mimo_layout *source = NULL, *target = NULL;
    mimo_status status = make_layout(&source, it, from);
    if (status == MIMO_OK)
        status = make_layout(&target, it, to);
    if (status == MIMO_OK)
        status = mimo_plan_create(out, source, target, it->bridge->rank);
    mimo_layout_destroy(source);
    mimo_layout_destroy(target);
    return status;
}

/* One exchange, and staging for the classes that are added to its target of `bytes` bytes. */
static mimo_status add_route(areas *out, const staged_pass *it, mimo_endpoint from,
                             mimo_endpoint to)
{
    mimo_plan *plan;
    const mimo_bridge *bridge = it->bridge;
    const mimo_tile *tile = &it->tile[to == MIMO_AT_SRC ? MIMO_SRC : MIMO_DST];
    int64_t bytes = mimo_tile_bytes(tile), area;
    bool pushes = it->in_buffer && to != MIMO_AT_SHARDS &&
                  mimo_executor_pushes(bridge->executor[it->backward]);
    if (to == MIMO_AT_SHARDS)
        bytes /= bridge->routed->shards;
    MIMO_TRY(make_plan(&plan, it, from, to));
    mimo_status status = mimo_mul(&area, mimo_plan_classes(plan) - 1, bytes);
    if (status == MIMO_OK)
        status = add_area(&out->contributions, area);
    if (status == MIMO_OK && to == MIMO_AT_SHARDS)
        status = add_area(&out->contributions, bytes); /* the sums themselves */
    if (status == MIMO_OK)
        status = add_messages(out, plan, tile->row_bytes, pushes);
    mimo_plan_destroy(plan);
    return status;
}

static mimo_status stage_routed(areas *out, const staged_pass *it)
{
    const mimo_bridge *bridge = it->bridge;
    if (!it->backward)
        return add_route(out, it, MIMO_AT_SRC, MIMO_AT_DST);
    bool flat = mimo_tile_is_flat(&it->tile[0].view) && mimo_tile_is_flat(&it->tile[1].view);
    if (!mimo_routed_two_phases(bridge, mimo_routed_batch_now(bridge), true, flat ? 1 : it->seq))
        return add_route(out, it, MIMO_AT_DST, MIMO_AT_SRC);
    MIMO_TRY(add_route(out, it, MIMO_AT_DST, MIMO_AT_SHARDS));
    return add_route(out, it, MIMO_AT_SHARDS, MIMO_AT_SRC);
}

/* -------------------------------------- collective ---------------------------------------- */

/* An all-gather of `bytes` bytes a rank, packed at this end and unpacked there. */
static mimo_status add_gather(areas *out, const mimo_comm *comm, int64_t bytes)
{
    int64_t all;
    MIMO_TRY(mimo_mul(&all, bytes, comm->size));
    MIMO_TRY(mimo_add(&out->leaving, out->leaving, bytes));
    return mimo_add(&out->arriving, out->arriving, all);
}

static mimo_status stage_collective_forward(areas *out, const staged_pass *it)
{
    const mimo_collective *own = it->bridge->collective;
    int64_t bytes = mimo_tile_bytes(&it->tile[MIMO_SRC]);
    if (it->bridge->pairing.fan != MIMO_FAN_IN)
        return MIMO_OK;
    return own->partition ? mimo_mul(&out->full, bytes, own->gather->size)
                          : add_gather(out, own->gather, bytes);
}

static mimo_status stage_collective_backward(areas *out, const staged_pass *it)
{
    const mimo_collective *own = it->bridge->collective;
    const mimo_tile *dst = &it->tile[MIMO_DST];
    mimo_tile full = mimo_tile_like(dst, NULL, it->seq);
    if (own->partition || own->cp_sum)
        out->full = mimo_tile_bytes(&full);
    if (own->sp_join) {
        MIMO_TRY(mimo_mul(&out->joined, mimo_tile_bytes(dst), own->sp_join->size));
        MIMO_TRY(add_gather(out, own->sp_join, mimo_tile_bytes(dst)));
    }
    return it->bridge->pairing.fan == MIMO_FAN_OUT
               ? add_gather(out, own->gather, mimo_tile_bytes(&full))
               : MIMO_OK;
}

/* ----------------------------------------- both ------------------------------------------- */

static mimo_status stage_pass(areas *out, const staged_pass *it)
{
    if (mimo_bridge_executor_of(it->bridge, it->backward) == &mimo_routed_executor)
        return stage_routed(out, it);
    return (it->backward ? stage_collective_backward : stage_collective_forward)(out, it);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static mimo_status sum_areas(int64_t *out, const areas pass[2], bool packs)
{
    const int64_t list[] = {
        larger(pass[0].full, pass[1].full),
        larger(pass[0].joined, pass[1].joined),
        larger(pass[0].contributions, pass[1].contributions),
        packs ? larger(pass[0].arriving, pass[1].arriving) : 0,
        packs ? larger(pass[0].leaving, pass[1].leaving) : 0,
    };
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        MIMO_TRY(mimo_add(&sum, sum, list[i]));
    *out = sum;
    return MIMO_OK;
}

static mimo_status read_pass(staged_pass *it, const mimo_bridge_sizes *given)
{
    mimo_bridge_sizes sizes;
    mimo_tensor view;
    const mimo_bridge *bridge = it->bridge;
    MIMO_TRY(mimo_bridge_read_sizes(&sizes, bridge, given));
    it->batch = sizes.batch;
    it->seq = sizes.seq;
    it->rows = mimo_bridge_told_rows(bridge, &sizes);
    it->in_buffer = sizes.in_buffer;
    for (int side = 0; side < 2; side++) {
        MIMO_TRY(mimo_bridge_tile(&view, bridge, (mimo_side)side, given));
        MIMO_TRY(mimo_tile_read(&it->tile[side], &view, bridge->collective ? it->seq : 1));
    }
    return MIMO_OK;
}

mimo_status mimo_bridge_staging(int64_t *bytes, const mimo_bridge *bridge,
                                const mimo_bridge_sizes *sizes)
{
    areas pass[2] = {{0}};
    MIMO_CHECK(bytes && bridge && sizes, MIMO_ERR_ARGUMENT, "mimo_bridge_staging: %s is NULL",
               !bytes ? "bytes" : (!bridge ? "bridge" : "sizes"));
    staged_pass it = {.bridge = bridge};
    mimo_status status = read_pass(&it, sizes);
    for (int backward = 0; backward < 2 && status == MIMO_OK; backward++) {
        it.backward = backward;
        status = stage_pass(&pass[backward], &it);
    }
    if (status == MIMO_OK)
        status = sum_areas(bytes, pass, bridge->comm->device->enqueues);
    return mimo_bridge_prefix_error(bridge, status);
}
