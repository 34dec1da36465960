/* The view that a side of a call has on this rank. Local: the layouts and the batch that the bridge
 * was given say it. */
#include <inttypes.h>
#include <string.h>

#include "bridge/batch/bridge_batch.h"
#include "bridge/batch/bridge_sides.h"
#include "bridge/bridge_executors.h"
#include "layout/layout_types.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "partition/packed_rule.h"

/* A question about one side. */
typedef struct tile_question {
    const mimo_bridge *bridge;
    mimo_side side;
    mimo_bridge_sizes sizes;
    const char *letters; /* of this side */
    bool flat;
} tile_question;

static bool is_ragged(const mimo_bridge *bridge)
{
    return bridge->batches && mimo_bridge_batch_now(bridge)->ragged;
}

/* Whether a side holds rows of a modality, one after the other. */
static bool packs(const mimo_bridge *bridge, mimo_side side)
{
    return is_ragged(bridge) && mimo_bridge_batch_packs(mimo_bridge_batch_now(bridge), side);
}

static bool is_flat(const char *letters)
{
    return letters && (strcmp(letters, "bh") == 0 || strcmp(letters, "th") == 0);
}

const mimo_batch_split *mimo_bridge_given_rows(const mimo_bridge *bridge,
                                               const mimo_bridge_sizes *sizes)
{
    if (!bridge->batches || !is_flat(sizes->src_letters) || !is_flat(sizes->dst_letters))
        return NULL;
    return mimo_bridge_batch_now(bridge)->rows;
}

static mimo_status read_letters(tile_question *it)
{
    const char *given = it->side == MIMO_SRC ? it->sizes.src_letters : it->sizes.dst_letters;
    const char *usual = packs(it->bridge, it->side) ? "th" : "sbh";
    it->letters = given ? given : usual;
    it->flat = is_flat(it->letters);
    MIMO_CHECK(it->flat || strcmp(it->letters, "sbh") == 0 || strcmp(it->letters, "bsh") == 0,
               MIMO_ERR_ARGUMENT, "tile: letters '%s' of %s are none of sbh, bsh, bh and th",
               it->letters, mimo_side_names[it->side]);
    MIMO_CHECK(!is_ragged(it->bridge) || it->flat == packs(it->bridge, it->side), MIMO_ERR_SHAPE,
               "tile: letters '%s' of %s: of a ragged batch src is th or bh, and dst %s",
               it->letters, mimo_side_names[it->side],
               packs(it->bridge, MIMO_DST) ? "as well" : "sbh or bsh");
    return MIMO_OK;
}

/* The batch of the sizes, or the one that the bridge was given. */
static mimo_status read_batch(mimo_bridge_sizes *sizes, const mimo_bridge *bridge)
{
    MIMO_CHECK(sizes->batch >= 0 || bridge->batch >= 0, MIMO_ERR_ARGUMENT,
               "tile: a batch of %" PRId64 ", and the bridge was given none", sizes->batch);
    MIMO_CHECK(sizes->batch < 0 || bridge->batch < 0 || sizes->batch == bridge->batch,
               MIMO_ERR_SHAPE, "tile: a batch of %" PRId64 ", and the bridge was given %" PRId64,
               sizes->batch, bridge->batch);
    if (sizes->batch < 0)
        sizes->batch = bridge->batch;
    return MIMO_OK;
}

/* S of the sizes, or T of a packing. */
static mimo_status read_sequence(mimo_bridge_sizes *sizes, const mimo_bridge *bridge)
{
    for (int side = 0; bridge->sides && side < 2; side++) {
        const mimo_partition_rule *rule = bridge->sides->layouts[side].partition;
        if (!mimo_rule_is_packed(rule))
            continue;
        int64_t positions = mimo_rule_positions(rule);
        MIMO_CHECK(sizes->seq <= 0 || sizes->seq == positions, MIMO_ERR_SHAPE,
                   "tile: a sequence of %" PRId64 " positions, and the packing has %" PRId64,
                   sizes->seq, positions);
        sizes->seq = positions;
    }
    MIMO_CHECK(sizes->seq >= 0, MIMO_ERR_ARGUMENT, "tile: a sequence of %" PRId64 " positions",
               sizes->seq);
    return MIMO_OK;
}

/* The rows that the ranks gave, in place of samples. */
static mimo_status read_given_rows(mimo_bridge_sizes *sizes, int64_t given)
{
    int64_t rows = given;
    if (sizes->batch >= 0)
        MIMO_TRY(mimo_mul(&rows, sizes->batch, sizes->seq));
    MIMO_CHECK(rows == given, MIMO_ERR_SHAPE,
               "tile: %" PRId64 " samples of %" PRId64 " positions, and the ranks gave %" PRId64
               " rows",
               sizes->batch, sizes->seq, given);
    sizes->batch = given;
    sizes->seq = 1;
    return MIMO_OK;
}

mimo_status mimo_bridge_read_sizes(mimo_bridge_sizes *out, const mimo_bridge *bridge,
                                   const mimo_bridge_sizes *given)
{
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    MIMO_TRY(mimo_read_descriptor(&sizes, sizeof sizes, given, "bridge sizes"));
    MIMO_CHECK(sizes.hidden >= 0, MIMO_ERR_ARGUMENT, "tile: rows of %" PRId64 " elements",
               sizes.hidden);
    const mimo_batch_split *rows = mimo_bridge_given_rows(bridge, &sizes);
    if (rows) {
        MIMO_TRY(read_given_rows(&sizes, rows->batch));
    } else {
        MIMO_TRY(read_batch(&sizes, bridge));
        MIMO_TRY(read_sequence(&sizes, bridge));
    }
    *out = sizes;
    return MIMO_OK;
}

/* This rank's samples, and its positions of each. */
static mimo_status count(int64_t *samples, int64_t *positions, const tile_question *it)
{
    int64_t first;
    mimo_layout *layout;
    const mimo_executor_table *executor = mimo_bridge_stricter_executor(it->bridge);
    mimo_layout_desc desc = executor->side_layout(it->bridge, it->side);
    bool cut = desc.partition != NULL;
    MIMO_CHECK(!it->flat || it->side == MIMO_SRC || !cut || !executor->whole_sequences,
               MIMO_ERR_SHAPE, "tile: letters '%s' of dst: with a partition, %s takes sbh and bsh",
               it->letters, executor->name);
    MIMO_CHECK(!it->flat || it->sizes.seq > 0 || it->sizes.batch == 0, MIMO_ERR_SHAPE,
               "tile: letters '%s' of %s, and a sequence of 0 positions: a flat tile without rows "
               "does not say how many of the %" PRId64 " samples it has",
               it->letters, mimo_side_names[it->side], it->sizes.batch);
    desc.batch = it->sizes.batch;
    desc.seq = it->sizes.seq;
    MIMO_TRY(executor->samples(it->bridge, it->side, desc.batch, &first, samples));
    MIMO_TRY(mimo_layout_create(&layout, &desc));
    *positions = layout->shard;
    mimo_layout_destroy(layout);
    return MIMO_OK;
}

static mimo_status answer(mimo_tensor *out, const tile_question *it)
{
    int64_t samples = 0, positions = 0, rows;
    bool along = it->letters[0] == 's';
    mimo_tensor view;
    const mimo_batch_split *given = mimo_bridge_given_rows(it->bridge, &it->sizes);
    if (packs(it->bridge, it->side)) {
        rows = mimo_bridge_batch_now(it->bridge)->tile_rows[it->side];
    } else if (given) {
        rows =
            mimo_batch_splits_samples(&mimo_bridge_batch_now(it->bridge)->splits, given, it->side);
    } else {
        MIMO_TRY(count(&samples, &positions, it));
        MIMO_TRY(mimo_mul(&rows, samples, positions));
    }
    view = it->flat
               ? mimo_tensor_2d(NULL, it->sizes.dtype, it->letters, rows, it->sizes.hidden)
               : mimo_tensor_3d(NULL, it->sizes.dtype, it->letters, along ? positions : samples,
                                along ? samples : positions, it->sizes.hidden);
    view.memory = it->bridge->memory;
    MIMO_TRY(mimo_tensor_extent(NULL, NULL, &view));
    *out = view;
    return MIMO_OK;
}

/* A side is answered where the bridge can cut the sizes on both: a call needs both. Only flat tiles
 * of a ragged batch do not depend on the sizes. */
static mimo_status answer_both(mimo_tensor *out, const mimo_bridge *bridge, mimo_side asked,
                               const mimo_bridge_sizes *sizes)
{
    mimo_tensor views[2];
    tile_question it = {.bridge = bridge};
    MIMO_CHECK(asked == MIMO_SRC || asked == MIMO_DST, MIMO_ERR_ARGUMENT, "tile: unknown side %d",
               (int)asked);
    MIMO_TRY(mimo_bridge_read_sizes(&it.sizes, bridge, sizes));
    for (it.side = MIMO_SRC; it.side <= MIMO_DST; it.side++) {
        if (it.side == MIMO_DST && asked == MIMO_SRC && is_ragged(bridge))
            break;
        MIMO_TRY(read_letters(&it));
        MIMO_TRY(answer(&views[it.side], &it));
    }
    *out = views[asked];
    return MIMO_OK;
}

mimo_status mimo_bridge_tile(mimo_tensor *out, const mimo_bridge *bridge, mimo_side side,
                             const mimo_bridge_sizes *sizes)
{
    MIMO_CHECK(out && bridge && sizes, MIMO_ERR_ARGUMENT, "mimo_bridge_tile: %s is NULL",
               !out ? "out" : (!bridge ? "bridge" : "sizes"));
    return mimo_mover_prefix_error(&bridge->mover, answer_both(out, bridge, side, sizes));
}
