/* The most staging that calls of given sizes take on this rank. Local: it builds the plans of this
 * rank, and moves nothing. Each kind of area is as large as the pass that needs more of it. */
#include "bridge/bridge_executors.h"
#include "core/checked.h"

static mimo_status sum_areas(int64_t *out, const mimo_staging_bytes pass[2], bool packs)
{
    const int64_t list[] = {
        mimo_larger(pass[0].full, pass[1].full),
        mimo_larger(pass[0].joined, pass[1].joined),
        mimo_larger(pass[0].contributions, pass[1].contributions),
        packs ? mimo_larger(pass[0].arriving, pass[1].arriving) : 0,
        packs ? mimo_larger(pass[0].leaving, pass[1].leaving) : 0,
    };
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        MIMO_TRY(mimo_add(&sum, sum, list[i]));
    *out = sum;
    return MIMO_OK;
}

/* Collective stages full sequences of flat tiles as well, so their S matters to it. */
static mimo_status read_pass(mimo_staged_pass *it, const mimo_bridge_sizes *given)
{
    mimo_bridge_sizes sizes;
    mimo_tensor view;
    const mimo_bridge *bridge = it->bridge;
    const mimo_executor_table *stricter = mimo_bridge_stricter_executor(bridge);
    MIMO_TRY(mimo_bridge_read_sizes(&sizes, bridge, given));
    it->batch = sizes.batch;
    it->seq = sizes.seq;
    it->rows = mimo_bridge_given_rows(bridge, &sizes);
    it->in_buffer = sizes.in_buffer;
    for (int side = 0; side < 2; side++) {
        MIMO_TRY(mimo_bridge_tile(&view, bridge, (mimo_side)side, given));
        MIMO_TRY(mimo_tile_read(&it->tile[side], &view, stricter->whole_sequences ? it->seq : 1));
    }
    return MIMO_OK;
}

mimo_status mimo_bridge_staging(int64_t *bytes, const mimo_bridge *bridge,
                                const mimo_bridge_sizes *sizes)
{
    mimo_staging_bytes pass[2] = {{0}};
    MIMO_CHECK(bytes && bridge && sizes, MIMO_ERR_ARGUMENT, "mimo_bridge_staging: %s is NULL",
               !bytes ? "bytes" : (!bridge ? "bridge" : "sizes"));
    mimo_staged_pass it = {.bridge = bridge};
    mimo_status status = read_pass(&it, sizes);
    for (int backward = 0; backward < 2 && status == MIMO_OK; backward++) {
        it.backward = backward;
        status = mimo_bridge_executor_of(bridge, backward)->staging(&pass[backward], &it);
    }
    if (status == MIMO_OK)
        status = sum_areas(bytes, pass, bridge->mover.comm->device->enqueues);
    return mimo_mover_prefix_error(&bridge->mover, status);
}
