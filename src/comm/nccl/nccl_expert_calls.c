#include "comm/nccl/nccl_expert_calls.h"

#include <inttypes.h>

#include "comm/nccl/nccl_buffer.h"
#include "comm/nccl/nccl_experts.h"
#include "comm/nccl/nccl_launches.h"
#include "comm/nccl/nccl_moves_kernel.h"
#include "comm/nccl/nccl_residency.h"

/* ------------------------------------- preparation ---------------------------------- */

/* A call alone has to fit the device. Where ranks share it, a limit above this rank's part is that
 * part, as for bridges. */
static mimo_status check_budget(const mimo_comm *comm, int ctas)
{
    int64_t most, all;
    MIMO_TRY(mimo_nccl_block_budget(&most, &all, comm->device_number));
    most = mimo_residency_whole(all);
    MIMO_CHECK(
        ctas <= most, MIMO_ERR_ARGUMENT,
        "dispatch: %d thread blocks, and kernels that wait for other ranks may occupy %" PRId64
        " of this device's %" PRId64 " multiprocessors",
        ctas, most, all);
    return MIMO_OK;
}

/* The kernel of a route has its `route` thread blocks whatever the limit of moves is. */
static mimo_status enter_lane(mimo_comm *comm, mimo_lane *lane, const mimo_expert_limit *limit,
                              int route)
{
    int blocks = limit->ctas > 0 && limit->ctas < route ? route : limit->ctas;
    if (limit->reserves)
        return mimo_nccl_reserve_blocks(comm, lane, blocks);
    MIMO_TRY(mimo_nccl_share_blocks(comm->device_number, lane, blocks));
    MIMO_CHECK(lane->blocks >= route, MIMO_ERR_ARGUMENT,
               "a route takes %d thread blocks, and others have left %" PRId64, route,
               lane->blocks);
    return MIMO_OK;
}

mimo_status mimo_nccl_experts_prepare(mimo_comm *comm, const mimo_expert_shape *shape,
                                      const mimo_expert_limit *limit, mimo_lane *lane)
{
    int blocks;
    MIMO_TRY(check_budget(comm, limit->ctas));
    cudaError_t loaded = mimo_route_kernels_load(&blocks, shape);
    MIMO_CHECK(loaded != cudaErrorInvalidValue, MIMO_ERR_UNSUPPORTED,
               "dispatch: %" PRId32
               " experts, and a thread block of this device has too little memory for their counts",
               shape->experts);
    MIMO_TRY(mimo_cuda_status(loaded, "kernels of a route"));
    MIMO_TRY_CUDA(mimo_rows_load());
    MIMO_TRY_CUDA(mimo_combine_load());
    int64_t pairs = (int64_t)shape->max_tokens * shape->top_k;
    MIMO_CHECK(pairs <= (int64_t)blocks * MIMO_ROUTE_BLOCK_PAIRS, MIMO_ERR_UNSUPPORTED,
               "dispatch: %" PRId32 " tokens, top_k %" PRId32
               ", and kernels of this device place at most %d pairs of a rank",
               shape->max_tokens, shape->top_k, blocks * MIMO_ROUTE_BLOCK_PAIRS);
    mimo_status status = enter_lane(comm, lane, limit, blocks);
    return status == MIMO_OK ? status : mimo_fail_prefix(status, "dispatch: ");
}

/* --------------------------------------- calls -------------------------------------- */

/* Order the call after the last one of the dispatch. */
static mimo_status enter(mimo_comm *comm, const mimo_expert_call *call, cudaStream_t stream)
{
    nccl_comm *own = (nccl_comm *)comm;
    MIMO_TRY(mimo_buffer_check(call->memory->buffer));
    MIMO_TRY(mimo_nccl_check(own, own->shared));
    return mimo_nccl_buffer_enter(call->memory->buffer, stream);
}

static mimo_expert_group group_of(const mimo_expert_call *call)
{
    const mimo_expert_memory *memory = call->memory;
    const mimo_buffer *buffer = memory->buffer;
    const mimo_nccl_addresses there = mimo_nccl_buffer_addresses(buffer);
    char *own = mimo_buffer_data(buffer);
    return (mimo_expert_group){.shape = memory->shape,
                               .at = memory->at,
                               .rank = buffer->comm->rank,
                               .memory = there.data,
                               .flags = there.flags,
                               .counters = (void *)(own + memory->at.counters),
                               .note = mimo_nccl_buffer_note(buffer),
                               .words = mimo_nccl_launches_on_device(buffer),
                               .signature = call->signature};
}

mimo_status mimo_nccl_route_start(mimo_comm *comm, const mimo_route_call *it, mimo_stream stream)
{
    const mimo_route_launch launch = {.group = group_of(&it->call),
                                      .tables = it->call.tables,
                                      .ids = it->ids,
                                      .wide = it->wide,
                                      .tokens = (int32_t)it->tokens,
                                      .capacity = (int32_t)it->capacity};
    MIMO_TRY(enter(comm, &it->call, stream));
    MIMO_TRY(mimo_cuda_status(mimo_route_kernels(&launch, stream), "kernels of a route"));
    mimo_nccl_launched(it->call.memory->buffer, stream);
    return MIMO_OK;
}

/* --------------------------------------- moves -------------------------------------- */

/* Combine cuts rows where it has fewer of them than about 16 for each of 132 thread blocks. The
 * same on all ranks, whatever their devices. */
enum { FILL = 2048 };

static int64_t flat_bytes(const mimo_expert_memory *memory)
{
    const mimo_expert_shape *shape = &memory->shape;
    return shape->flat_bytes * shape->ranks * shape->max_tokens;
}

/* Tensor i of a call; of `rows` by token also where peers write. */
static mimo_moves_tensor tensor_of(const mimo_expert_move *it, int i)
{
    const mimo_expert_tensor *from = &it->tensors[i];
    const mimo_expert_memory *memory = it->call.memory;
    const bool flat = !from->buffer;
    const mimo_buffer *buffer = flat ? memory->buffer : from->buffer;
    return (mimo_moves_tensor){.from = from->from,
                               .to = from->to,
                               .row_bytes = from->row_bytes,
                               .by_pair = from->by_pair,
                               .dtype = from->dtype,
                               .narrow = from->narrow,
                               .there = mimo_nccl_buffer_addresses(buffer).data,
                               .at = flat ? memory->at.flat + i * flat_bytes(memory) : from->offset,
                               .flat = flat};
}

/* Rows that are written into a buffer are ordered after what was written there before. */
static mimo_status enter_buffers(mimo_comm *comm, const mimo_expert_move *it, cudaStream_t stream)
{
    MIMO_TRY(enter(comm, &it->call, stream));
    for (int i = 0; i < it->count; i++) {
        mimo_buffer *buffer = it->tensors[i].buffer;
        if (buffer)
            MIMO_TRY(mimo_buffer_check(buffer));
        if (buffer)
            MIMO_TRY(mimo_nccl_buffer_enter(buffer, stream));
    }
    return MIMO_OK;
}

static mimo_moves_call launch_of(const mimo_expert_move *it)
{
    mimo_moves_call launch = {.moves = {.group = group_of(&it->call),
                                        .tables = it->call.tables,
                                        .fill = FILL,
                                        .gated = it->call.ctas > 0},
                              .count = it->count};
    for (int i = 0; i < it->count; i++)
        launch.tensors[i] = tensor_of(it, i);
    return launch;
}

mimo_status mimo_nccl_rows_start(mimo_comm *comm, const mimo_expert_move *move, mimo_stream stream)
{
    const mimo_moves_call launch = launch_of(move);
    const int blocks = mimo_moves_blocks(move->call.ctas, (int)move->call.most);
    MIMO_TRY(enter_buffers(comm, move, stream));
    MIMO_TRY(mimo_cuda_status(mimo_rows_launch(&launch, blocks, stream), "kernel of rows"));
    mimo_nccl_launched(move->call.memory->buffer, stream);
    return MIMO_OK;
}

mimo_status mimo_nccl_combine_start(mimo_comm *comm, const mimo_expert_move *move,
                                    mimo_stream stream)
{
    const mimo_moves_call launch = launch_of(move);
    const int blocks = mimo_moves_blocks(move->call.ctas, (int)move->call.most);
    MIMO_TRY(enter_buffers(comm, move, stream));
    MIMO_TRY(mimo_cuda_status(mimo_combine_launch(&launch, blocks, stream), "kernel of a combine"));
    mimo_nccl_launched(move->call.memory->buffer, stream);
    return MIMO_OK;
}
