/* The executor of devices: kernels find out which rows go where, and write them straight into the
 * memory of peers. Counts never leave the device, so the host neither waits nor decides. */
#include "comm/buffer_state.h"
#include "core/checked.h"
#include "core/memory.h"
#include "dispatch/direct/direct_types.h"
#include "dispatch/dispatch_executor.h"
#include "move/op_types.h"

static bool moves(const mimo_comm *comm)
{
    return comm->device->enqueues && comm->backend->route_start;
}

/* ------------------------------------- creation ------------------------------------- */

/* Rows of f16 and bf16 are half as wide as their sums in f32. */
static mimo_expert_sizes sizes_of(const mimo_dispatch *dispatch)
{
    const mimo_dispatch_desc *desc = &dispatch->desc;
    int64_t row = desc->row_bytes > 0 ? desc->row_bytes : 2 * desc->hidden;
    int64_t sum = (desc->narrow_sums ? 2 : 4) * desc->hidden;
    int64_t tensors = mimo_larger(desc->tensors, 1);
    return (mimo_expert_sizes){.ranks = dispatch->shape.ranks,
                               .etp = dispatch->shape.etp,
                               .experts = desc->experts,
                               .top_k = desc->top_k,
                               .alignment = desc->alignment,
                               .max_tokens = desc->max_tokens,
                               .tensors = 2 * tensors,
                               .sums = tensors,
                               .return_bytes = mimo_larger(row, sum),
                               .flat_bytes = desc->buffers_only ? 0 : row};
}

static mimo_status prepare_memory(mimo_direct *own, mimo_dispatch *dispatch)
{
    int64_t most;
    mimo_comm *comm = dispatch->mover.comm;
    const mimo_expert_sizes sizes = sizes_of(dispatch);
    const mimo_expert_limit limit = {dispatch->desc.ctas, dispatch->reserves};
    MIMO_TRY(mimo_mul(&most, dispatch->desc.hidden, 4)); /* the factor of sizes_of */
    MIMO_CHECK(dispatch->desc.transport != MIMO_TRANSPORT_P2P, MIMO_ERR_UNSUPPORTED,
               "dispatch: p2p; between devices rows are written into the memory of peers");
    mimo_status status = mimo_expert_shape_read(&own->memory.shape, &sizes);
    if (status != MIMO_OK)
        return mimo_fail_prefix(status, "dispatch: ");
    MIMO_TRY(mimo_expert_layout_of(&own->memory.at, &own->memory.shape));
    dispatch->mover.lane_comm = comm;
    return comm->backend->experts_prepare(comm, &own->memory.shape, &limit, &dispatch->mover.lane);
}

static mimo_status check_reach(const mimo_buffer *buffer)
{
    int reach = mimo_buffer_reach(buffer), size = buffer->comm->size;
    MIMO_CHECK(reach == size, MIMO_ERR_UNSUPPORTED,
               "dispatch: rank %d reaches the memory of %d ranks out of %d, itself included; "
               "experts on devices are for ranks within reach of each other%s%s",
               buffer->comm->rank, reach, size, buffer->unreached ? ": " : "",
               buffer->unreached ? buffer->unreached : "");
    return MIMO_OK;
}

static mimo_status connect(mimo_dispatch *dispatch)
{
    mimo_direct *own = NULL;
    mimo_comm *comm = dispatch->mover.comm;
    mimo_status status = mimo_reserve(&own, 1, sizeof *own);
    dispatch->own = own;
    if (status == MIMO_OK)
        status = prepare_memory(own, dispatch);
    MIMO_TRY(mimo_comm_agree(comm, status));
    MIMO_TRY(mimo_buffer_create_internal(&dispatch->flags, comm, own->memory.at.bytes));
    own->memory.buffer = dispatch->flags;
    return check_reach(dispatch->flags);
}

static void disconnect(mimo_dispatch *dispatch)
{
    if (dispatch->own)
        mimo_direct_routes_release(dispatch);
    mimo_release(dispatch->own);
}

/* -------------------------------------- report -------------------------------------- */

/* Sets of the counters since the last report. The device counts replays of graphs as well. The most
 * rows begin anew: behind all work of the stream so far, and before any that follows it, on another
 * stream too. */
static mimo_status report(mimo_dispatch_counts *out, mimo_dispatch *dispatch)
{
    mimo_direct *own = mimo_direct_of(dispatch);
    const mimo_device *device = dispatch->mover.comm->device;
    char *data = mimo_buffer_data(own->memory.buffer);
    mimo_expert_counters *at = (void *)(data + own->memory.at.counters), now;
    const int32_t none = 0;
    MIMO_TRY(mimo_direct_wait(dispatch, own->stream, "mimo_dispatch_report"));
    MIMO_TRY(device->download(&now, at, sizeof now, own->stream));
    MIMO_TRY(device->upload(&at->rows, &none, sizeof none, own->stream));
    MIMO_TRY(mimo_direct_wait(dispatch, own->stream, "mimo_dispatch_report"));
    *out = (mimo_dispatch_counts){.size = out->size,
                                  .routes = now.routes - own->reported.routes,
                                  .rows = now.rows,
                                  .overflows = now.overflows - own->reported.overflows};
    own->reported = now;
    return MIMO_OK;
}

/* ---------------------------------------- table ------------------------------------- */

const mimo_dispatch_executor mimo_direct_executor = {
    .name = "direct",
    .moves = moves,
    .connect = connect,
    .disconnect = disconnect,
    .report = report,
    .route_create = mimo_direct_route_create,
    .route_destroy = mimo_direct_route_destroy,
    .set_prepare = mimo_direct_set_prepare,
    .set = mimo_direct_set_steps,
    .ends = mimo_direct_ends,
    .read = mimo_direct_read,
    .prepare = mimo_direct_move_prepare,
    .rows = mimo_direct_move_steps,
    .combine = mimo_direct_move_steps,
};
