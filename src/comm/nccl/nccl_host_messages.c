/*
 * Host values over NCCL. They are copied to device memory, moved by a collective and copied back to
 * host memory, all on the family's host stream. An event shows when they have arrived. A request
 * has pinned host memory and device memory of its own, and stays with the communicator for the next
 * use.
 *
 * Where a rank gives up, an abort ends the kernels that wait in it. Before they end they pass on
 * what they have, so the kernel of a third rank may end early, with values that no rank sent. So
 * values travel with a mark: the number of the call and its complement. A result without it is
 * none, and its request goes on until the deadline. (In a MAX zeros hide behind this rank's own
 * mark: they are what NCCL's memory holds before its first use.)
 */
#include <string.h>

#include "comm/agreement.h"
#include "comm/nccl/nccl_state.h"
#include "core/memory.h"

struct mimo_request {
    mimo_free_item item; /* in the communicator's list of free requests; holds the capacity */
    nccl_comm *comm;
    nccl_shared_comm *shared; /* that carries it; NULL: one rank */
    char *host, *device;      /* [item.bytes] each */
    cudaEvent_t event;
    /* Once they have arrived, `count` times `bytes` bytes are copied to `to`. In `host` each has a
     * mark behind it. */
    void *to;
    int64_t count, bytes;
    uint64_t number; /* of the call */
};

static void destroy(mimo_request *request)
{
    if (request->event)
        (void)cudaEventDestroy(request->event);
    (void)cudaFreeHost(request->host);
    (void)cudaFree(request->device);
    mimo_release(request);
}

static mimo_status create(mimo_request **out, nccl_comm *comm, int64_t bytes)
{
    mimo_request *made;
    void *host, *device;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->comm = comm;
    MIMO_TRY_GOTO(status, fail,
                  mimo_cuda_status(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming),
                                   "cudaEventCreateWithFlags"));
    MIMO_TRY_GOTO(status, fail,
                  mimo_cuda_status(cudaMallocHost(&host, (size_t)bytes), "cudaMallocHost"));
    made->host = host;
    MIMO_TRY_GOTO(status, fail, mimo_cuda_status(cudaMalloc(&device, (size_t)bytes), "cudaMalloc"));
    made->device = device;
    made->item.bytes = bytes;
    *out = made;
    return MIMO_OK;
fail:
    destroy(made);
    return status;
}

static mimo_status take(mimo_request **out, mimo_comm *base, int64_t bytes)
{
    nccl_comm *comm = (nccl_comm *)base;
    mimo_request *found = mimo_free_list_take(&comm->free_requests, 0, bytes);
    if (!found)
        return create(out, comm, bytes);
    *out = found;
    return MIMO_OK;
}

/* ----------------------------------------- marks ------------------------------------------ */

enum { MARK = 2 * sizeof(uint64_t) };

/* Bytes with the mark behind them. */
static int64_t marked(int64_t bytes)
{
    return bytes + MARK;
}

static void put_mark(const mimo_request *request, int64_t bytes)
{
    const uint64_t mark[2] = {request->number, ~request->number};
    memcpy(request->host + bytes, mark, MARK);
}

/* Whether what has arrived is what the ranks sent. */
static bool has_marks(const mimo_request *request)
{
    const uint64_t mark[2] = {request->number, ~request->number};
    for (int64_t i = 0; i < request->count; i++)
        if (memcmp(request->host + (i + 1) * marked(request->bytes) - MARK, mark, MARK) != 0)
            return false;
    return true;
}

/* ---------------------------------------- requests ---------------------------------------- */

static mimo_status prepare(mimo_comm *comm, int64_t bytes)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, bytes));
    mimo_nccl_request_release(request);
    return MIMO_OK;
}

mimo_status mimo_nccl_requests_prepare(nccl_comm *comm)
{
    return prepare(&comm->base, comm->base.size * marked(sizeof(mimo_call_report)));
}

mimo_status mimo_nccl_host_allgather_prepare(mimo_comm *comm, int bytes)
{
    return prepare(comm, marked(bytes) * (comm->size + 1));
}

void mimo_nccl_requests_free(nccl_comm *comm)
{
    for (mimo_request *request; (request = mimo_free_list_take(&comm->free_requests, 0, 0));)
        destroy(request);
}

static cudaStream_t stream_of(const mimo_request *request)
{
    return request->comm->family->host_stream;
}

/* A call of NCCL on what carries the request. */
#define TRY_MOVE(request, call) \
    MIMO_TRY(mimo_nccl_status((call), (request)->comm, (request)->shared->handle, #call))

mimo_status mimo_nccl_part_host_values(mimo_comm *base)
{
    nccl_comm *comm = (nccl_comm *)base;
    return comm->values ? MIMO_OK
                        : mimo_nccl_shared_comm_make(&comm->values, comm, comm, NCCL_HOST_VALUES);
}

static mimo_status upload(mimo_request *request, const void *from, int64_t bytes)
{
    nccl_comm *comm = request->comm;
    request->shared = comm->values ? comm->values : comm->shared;
    request->number = comm->host_calls++;
    memcpy(request->host, from, (size_t)bytes);
    put_mark(request, bytes);
    MIMO_TRY_CUDA(cudaMemcpyAsync(request->device, request->host, (size_t)marked(bytes),
                                  cudaMemcpyHostToDevice, stream_of(request)));
    return MIMO_OK;
}

/* Enqueue the copy back of the request's values, from `offset` of its device memory. */
static mimo_status download(mimo_request *request, int64_t offset)
{
    size_t bytes = (size_t)(request->count * marked(request->bytes));
    MIMO_TRY_CUDA(cudaMemcpyAsync(request->host, request->device + offset, bytes,
                                  cudaMemcpyDeviceToHost, stream_of(request)));
    MIMO_TRY_CUDA(cudaEventRecord(request->event, stream_of(request)));
    return MIMO_OK;
}

static void expect(mimo_request *request, void *to, int64_t count, int64_t bytes)
{
    request->to = to;
    request->count = count;
    request->bytes = bytes;
}

/* The mark is the same everywhere, so it is its own maximum. */
static mimo_status start_max(mimo_request *request, uint64_t *values, int count)
{
    int64_t bytes = count * (int64_t)sizeof *values;
    size_t words = (size_t)marked(bytes) / sizeof *values;
    expect(request, values, 1, bytes);
    MIMO_TRY(upload(request, values, bytes));
    if (request->shared)
        TRY_MOVE(request, ncclAllReduce(request->device, request->device, words, ncclUint64,
                                        ncclMax, request->shared->handle, stream_of(request)));
    return download(request, 0);
}

static mimo_status start_broadcast(mimo_request *request, void *data, int bytes, int root)
{
    expect(request, data, 1, bytes);
    MIMO_TRY(upload(request, data, bytes));
    if (request->shared)
        TRY_MOVE(request,
                 ncclBroadcast(request->device, request->device, (size_t)marked(bytes), ncclUint8,
                               root, request->shared->handle, stream_of(request)));
    return download(request, 0);
}

/* This rank's own bytes come first, then those of all ranks. */
static mimo_status start_allgather(mimo_request *request, void *to, const void *from, int64_t bytes)
{
    expect(request, to, request->comm->base.size, bytes);
    MIMO_TRY(upload(request, from, bytes));
    if (!request->shared)
        return download(request, 0);
    TRY_MOVE(request,
             ncclAllGather(request->device, request->device + marked(bytes), (size_t)marked(bytes),
                           ncclUint8, request->shared->handle, stream_of(request)));
    return download(request, marked(bytes));
}

static mimo_status hand_over(mimo_request **out, mimo_request *request, mimo_status started)
{
    if (started == MIMO_OK)
        *out = request;
    else
        mimo_nccl_request_release(request);
    return started;
}

mimo_status mimo_nccl_host_max_start(mimo_request **out, mimo_comm *comm, uint64_t *values,
                                     int count)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, marked(count * (int64_t)sizeof *values)));
    return hand_over(out, request, start_max(request, values, count));
}

mimo_status mimo_nccl_host_broadcast_start(mimo_request **out, mimo_comm *comm, void *data,
                                           int bytes, int root)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, marked(bytes)));
    return hand_over(out, request, start_broadcast(request, data, bytes, root));
}

mimo_status mimo_nccl_host_allgather_start(mimo_request **out, mimo_comm *comm, void *to,
                                           const void *from, int bytes)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, marked(bytes) * (comm->size + 1)));
    return hand_over(out, request, start_allgather(request, to, from, bytes));
}

static void hand_out(const mimo_request *request)
{
    for (int64_t i = 0; i < request->count; i++)
        memcpy((char *)request->to + i * request->bytes, request->host + i * marked(request->bytes),
               (size_t)request->bytes);
}

mimo_status mimo_nccl_request_test(mimo_request *request, bool *done)
{
    cudaError_t code = cudaEventQuery(request->event);
    *done = code == cudaSuccess && has_marks(request);
    if (*done) {
        hand_out(request);
        return MIMO_OK;
    }
    if (code != cudaSuccess && code != cudaErrorNotReady)
        return mimo_cuda_status(code, "cudaEventQuery");
    return mimo_nccl_check(request->comm, request->shared);
}

void mimo_nccl_request_release(mimo_request *request)
{
    if (!request)
        return;
    mimo_free_list_put(&request->comm->free_requests, &request->item);
}
