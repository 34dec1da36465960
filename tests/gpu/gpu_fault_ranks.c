/*
 * Ranks with a GPU each, of which one dies, for test_dead_ranks.py:
 *
 *   gpu_fault_ranks CALL MOMENT END
 *
 * CALL is "barrier", "allreduce", "route", "rows" or "combine" of a dispatch, or the executor of a
 * bridge's forward call. The middle rank ends
 * by END ("kill": SIGKILL, "exit") at the MOMENT "before" the call, or when its "data" is on its
 * stream. The others print the status and the time of each call, and release everything. Then they
 * go on by themselves on a new communicator, say so, and leave without MPI_Finalize, which could
 * wait for the dead rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <mimo/dispatch.h>
#include <mimo/mimo.h>
#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "executors.h"
#include "comm/termination.h"
#include "core/check.h"
#include "dead_rank.h"

enum { DEADLINE = 1000, FIRST_DEADLINE = 10000, SEQ = 1024, HIDDEN = 256, COUNT = 1000 };

typedef struct ranks {
    MPI_Comm mpi;
    mimo_comm *comm;
    cudaStream_t stream;
    const char *call;
    int rank, size, device;
    float *numbers; /* numbers[COUNT] */
    mimo_grid *src, *dst;
    mimo_bridge *bridge;
    mimo_buffer *buffer;
    mimo_tensor from, to;
    mimo_dispatch *dispatch;
    mimo_route *route;
    mimo_route_desc chosen;
    mimo_tensor tokens, rows; /* of the dispatch; `rows` in plain memory */
} ranks;

/* ------------------------------------------ calls ------------------------------------------- */

static bool is(const ranks *it, const char *call)
{
    return strcmp(it->call, call) == 0;
}

static bool dispatches(const ranks *it)
{
    return is(it, "route") || is(it, "rows") || is(it, "combine");
}

static mimo_status dispatch(ranks *it)
{
    if (is(it, "route"))
        return mimo_route_set(it->route, &it->chosen, it->stream);
    if (is(it, "rows"))
        return mimo_dispatch_rows(it->route, &it->rows, &it->tokens, 1, it->stream);
    return mimo_dispatch_combine(it->route, &it->tokens, &it->rows, 1, it->stream);
}

static mimo_status enqueue(ranks *it)
{
    if (dispatches(it))
        return dispatch(it);
    if (strcmp(it->call, "barrier") == 0)
        return mimo_comm_barrier(it->comm);
    if (strcmp(it->call, "allreduce") == 0)
        return mimo_comm_allreduce(it->comm, it->numbers, COUNT, MIMO_F32, MIMO_SUM, it->stream);
    return mimo_bridge_forward(it->bridge, &it->to, &it->from, 1, it->stream);
}

static mimo_status call(ranks *it)
{
    mimo_status status = enqueue(it);
    return status == MIMO_OK ? mimo_comm_synchronize(it->comm, it->stream) : status;
}

static mimo_status next(ranks *it)
{
    return mimo_comm_barrier(it->comm);
}

/* The ranks that are left add up their numbers, on their GPUs. */
static mimo_status go_on(ranks *it)
{
    float sum = (float)it->rank, wanted = 0;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    mimo_comm *comm;
    const int dead = it->size / 2;
    desc.device = it->device; /* not the rank's number among those that are left */
    MIMO_TRY(dead_rank_leave_out(&it->mpi, dead));
    MIMO_TRY(mimo_bootstrap_from_mpi(&bootstrap, &it->mpi));
    MIMO_TRY(mimo_comm_create_nccl(&comm, &bootstrap, &desc));
    MIMO_TRY(mimo_comm_set_deadline(comm, FIRST_DEADLINE));
    for (int rank = 0; rank < it->size; rank++)
        wanted += rank == dead ? 0 : (float)rank;
    cudaMemcpy(it->numbers, &sum, sizeof sum, cudaMemcpyHostToDevice);
    mimo_status status = mimo_comm_allreduce(comm, it->numbers, 1, MIMO_F32, MIMO_SUM, it->stream);
    if (status == MIMO_OK)
        status = mimo_comm_synchronize(comm, it->stream);
    cudaMemcpy(&sum, it->numbers, sizeof sum, cudaMemcpyDeviceToHost);
    mimo_comm_destroy(comm);
    return status == MIMO_OK && sum != wanted ? mimo_fail(MIMO_ERR_INTERNAL, "%g", (double)sum)
                                              : status;
}

static void timed(ranks *it, const char *what, mimo_status (*act)(ranks *it))
{
    int64_t begin = mimo_now();
    mimo_status status = act(it);
    dead_rank_say(it->rank, what, status, begin);
}

/* --------------------------------------- beginnings ----------------------------------------- */

static bool room_for(void **out, int64_t bytes)
{
    return cudaMalloc(out, (size_t)bytes) == cudaSuccess &&
           cudaMemset(*out, 0, (size_t)bytes) == cudaSuccess;
}

static mimo_tensor view(void *data, int64_t seq, int64_t batch)
{
    mimo_tensor tensor = mimo_tensor_3d(data, MIMO_F32, "sbh", seq, batch, HIDDEN);
    tensor.memory = MIMO_MEMORY_CUDA;
    return tensor;
}

static executor_id executor_named(const char *name)
{
    if (strcmp(name, "p2p") == 0)
        return EXECUTOR_P2P;
    return strcmp(name, "collective") == 0 ? EXECUTOR_COLLECTIVE : EXECUTOR_ZERO_COPY;
}

/* Moves each rank's sample to all ranks; each takes its part of the sequence. */
static mimo_status make_bridge(ranks *it)
{
    char src[32], dst[32];
    void *from, *to;
    const int64_t bytes = SEQ * HIDDEN * (int64_t)sizeof(float);
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    snprintf(src, sizeof src, "tp=1,dp=%d", it->size);
    snprintf(dst, sizeof dst, "tp=1,cp=%d,dp=1", it->size);
    MIMO_TRY(mimo_grid_create_text(&it->src, src, 0));
    MIMO_TRY(mimo_grid_create_text(&it->dst, dst, 0));
    desc.src = it->src;
    desc.dst = it->dst;
    desc.partition = &rule;
    desc.executor = executor_of(executor_named(it->call));
    MIMO_TRY(mimo_bridge_create(&it->bridge, it->comm, &desc));
    MIMO_TRY(mimo_buffer_create(&it->buffer, it->comm, bytes));
    to = mimo_buffer_data(it->buffer);
    if (!room_for(&from, bytes))
        return mimo_fail(MIMO_ERR_MEMORY, "no room on the device");
    it->from = view(from, SEQ, 1);
    it->to = view(to, SEQ / it->size, it->size);
    return MIMO_OK;
}

/* Each token has an expert on each rank. */
static mimo_status make_dispatch(ranks *it)
{
    enum { TOKENS = 64 };
    void *ids, *tokens, *rows;
    int32_t chosen[TOKENS * 64];
    const int pairs = TOKENS * it->size;
    mimo_dispatch_desc desc = MIMO_DISPATCH_DESC_INIT;
    desc.experts = desc.top_k = it->size;
    desc.max_tokens = TOKENS;
    desc.hidden = HIDDEN;
    desc.row_bytes = HIDDEN * (int64_t)sizeof(float);
    if (pairs > (int)(sizeof chosen / sizeof *chosen) || it->size > 14)
        return mimo_fail(MIMO_ERR_UNSUPPORTED, "%d ranks", it->size);
    for (int i = 0; i < pairs; i++)
        chosen[i] = i % it->size;
    if (!room_for(&ids, pairs * 4) || !room_for(&tokens, TOKENS * desc.row_bytes) ||
        !room_for(&rows, pairs * desc.row_bytes) ||
        cudaMemcpy(ids, chosen, (size_t)pairs * 4, cudaMemcpyHostToDevice) != cudaSuccess)
        return mimo_fail(MIMO_ERR_MEMORY, "no room on the device");
    MIMO_TRY(mimo_dispatch_create(&it->dispatch, it->comm, &desc));
    MIMO_TRY(mimo_route_create(&it->route, it->dispatch));
    it->chosen = (mimo_route_desc)MIMO_ROUTE_DESC_INIT;
    it->chosen.ids = ids;
    it->chosen.memory = MIMO_MEMORY_CUDA;
    it->chosen.tokens = TOKENS;
    it->chosen.capacity = pairs;
    it->tokens = mimo_tensor_2d(tokens, MIMO_F32, "th", TOKENS, HIDDEN);
    it->rows = mimo_tensor_2d(rows, MIMO_F32, "th", pairs, HIDDEN);
    it->tokens.memory = it->rows.memory = MIMO_MEMORY_CUDA;
    return mimo_route_set(it->route, &it->chosen, it->stream);
}

/* The first calls make connections, inside NCCL and without a deadline. */
static mimo_status begin(ranks *it)
{
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    void *numbers;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    bool plain = strcmp(it->call, "barrier") == 0 || strcmp(it->call, "allreduce") == 0;
    MIMO_TRY(mimo_bootstrap_from_mpi(&bootstrap, &it->mpi));
    MIMO_TRY(mimo_comm_create_nccl(&it->comm, &bootstrap, &desc));
    MIMO_TRY(mimo_nccl_device(&it->device, it->comm));
    if (cudaSetDevice(it->device) != cudaSuccess ||
        cudaStreamCreateWithFlags(&it->stream, cudaStreamNonBlocking) != cudaSuccess ||
        !room_for(&numbers, COUNT * sizeof *it->numbers))
        return mimo_fail(MIMO_ERR_DEVICE, "no stream or no room");
    it->numbers = numbers;
    if (dispatches(it))
        MIMO_TRY(make_dispatch(it));
    else if (!plain)
        MIMO_TRY(make_bridge(it));
    MIMO_TRY(call(it));
    MIMO_TRY(next(it));
    return mimo_comm_set_deadline(it->comm, DEADLINE);
}

int main(int argc, char **argv)
{
    ranks it = {.mpi = MPI_COMM_WORLD};
    if (argc != 4)
        return 2;
    it.call = argv[1];
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &it.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &it.size);
    if (begin(&it) != MIMO_OK) {
        fprintf(stderr, "rank %d: %s\n", it.rank, mimo_last_error());
        _exit(1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (it.rank == it.size / 2) {
        if (strcmp(argv[2], "data") == 0)
            (void)enqueue(&it);
        dead_rank_end(argv[3]);
    }
    timed(&it, "call", call);
    timed(&it, "next", next);
    mimo_route_destroy(it.route);
    mimo_dispatch_destroy(it.dispatch);
    mimo_bridge_destroy(it.bridge);
    mimo_buffer_destroy(it.buffer);
    mimo_grid_destroy(it.dst);
    mimo_grid_destroy(it.src);
    mimo_comm_destroy(it.comm);
    timed(&it, "new", go_on);
    _exit(0);
}
