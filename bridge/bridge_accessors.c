/* Accessors: the pairing, gather groups, slices, samples and spans of a bridge, and its
 * executors. */
#include <inttypes.h>

#include "bridge/bridge_executors.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "grid/grid_types.h"

mimo_status mimo_bridge_pairing(mimo_pairing *out, const mimo_bridge *bridge)
{
    MIMO_CHECK(out && bridge, MIMO_ERR_ARGUMENT, "mimo_bridge_pairing: %s is NULL",
               out ? "bridge" : "out");
    return mimo_write_descriptor(out, &bridge->pairing, sizeof bridge->pairing, "pairing");
}

mimo_status mimo_bridge_gather_group(int64_t *ranks, int64_t *slot, const mimo_bridge *bridge)
{
    int64_t index;
    MIMO_CHECK(bridge && ranks && slot, MIMO_ERR_ARGUMENT, "mimo_bridge_gather_group: %s is NULL",
               !bridge ? "bridge" : (ranks ? "slot" : "ranks"));
    MIMO_TRY(mimo_pairing_slot(&index, NULL, bridge->src, bridge->dst, bridge->rank));
    if (index >= 0)
        MIMO_TRY(mimo_pairing_group(ranks, bridge->src, bridge->dst, index));
    *slot = bridge->slot;
    return MIMO_OK;
}

mimo_status mimo_bridge_slot_samples(int64_t *start, int64_t *length, const mimo_bridge *bridge,
                                     int64_t batch)
{
    MIMO_CHECK(bridge && start && length, MIMO_ERR_ARGUMENT, "mimo_bridge_slot_samples: %s is NULL",
               !bridge ? "bridge" : (start ? "length" : "start"));
    int64_t k = bridge->pairing.scale;
    MIMO_CHECK(k > 0, MIMO_ERR_GRID, "slice: the grids do not pair, so there are no slices");
    /* Grids that pair have the same ranks. */
    MIMO_TRY(mimo_grid_check_rank(bridge->src, bridge->rank));
    MIMO_CHECK(batch >= 0 && batch % k == 0, MIMO_ERR_SHAPE,
               "slice: scale %" PRId64 " does not divide a batch of %" PRId64, k, batch);
    *start = bridge->slot * (batch / k);
    *length = batch / k;
    return MIMO_OK;
}

mimo_status mimo_bridge_samples(int64_t *first, int64_t *count, const mimo_bridge *bridge,
                                mimo_side side, int64_t batch)
{
    MIMO_CHECK(bridge && first && count, MIMO_ERR_ARGUMENT, "mimo_bridge_samples: %s is NULL",
               !bridge ? "bridge" : (first ? "count" : "first"));
    MIMO_CHECK(side == MIMO_SRC || side == MIMO_DST, MIMO_ERR_ARGUMENT, "samples: unknown side %d",
               (int)side);
    return mimo_bridge_stricter_executor(bridge)->samples(bridge, side, batch, first, count);
}

mimo_status mimo_bridge_spans(int64_t *count, mimo_span *spans, int64_t capacity,
                              const mimo_bridge *bridge)
{
    int64_t first, samples, held = 0;
    MIMO_CHECK(bridge && count && (spans || capacity == 0), MIMO_ERR_ARGUMENT,
               "mimo_bridge_spans: %s is NULL", !bridge ? "bridge" : (count ? "spans" : "count"));
    MIMO_CHECK(capacity >= 0, MIMO_ERR_ARGUMENT, "mimo_bridge_spans: capacity is %" PRId64,
               capacity);
    const mimo_executor_table *table = mimo_bridge_stricter_executor(bridge);
    const mimo_layout_desc layout = table->side_layout(bridge, MIMO_DST);
    MIMO_CHECK(layout.ragged == MIMO_RAGGED_PLACED, MIMO_ERR_STATE, "%s: spans: micro-batch %d %s",
               bridge->mover.title, bridge->selected,
               layout.ragged ? "has dst tiles without positions" : "is not ragged");
    MIMO_TRY(table->samples(bridge, MIMO_DST, bridge->batch, &first, &samples));
    for (int64_t i = 0; i < layout.span_count; i++) {
        const mimo_span *span = &layout.spans[i];
        if (span->sample < first || span->sample >= first + samples)
            continue;
        if (held < capacity)
            spans[held] = *span;
        held++;
    }
    *count = held;
    return MIMO_OK;
}

mimo_executor mimo_bridge_executor(const mimo_bridge *bridge, bool backward)
{
    return bridge->executor[backward];
}
