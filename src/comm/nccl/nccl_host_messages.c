/*
 * Host words over NCCL: into device memory, through a collective, back into host memory, all on the
 * root's own stream; an event tells when they are there. Such a request has pinned host memory and
 * device memory of its own and stays with the communicator for the next use.
 */
#include <string.h>

#include "comm/agreement.h"
#include "comm/nccl/nccl_state.h"
#include "core/memory.h"

struct mimo_request {
    nccl_comm *comm;
    mimo_request *next; /* spare */
    char *host, *device;
    int64_t room; /* bytes of each */
    cudaEvent_t event;
    void *to; /* where the first `bytes` bytes of `host` go in the end */
    int64_t bytes;
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
    made->room = bytes;
    *out = made;
    return MIMO_OK;
fail:
    destroy(made);
    return status;
}

static mimo_status take(mimo_request **out, mimo_comm *base, int64_t bytes)
{
    nccl_comm *comm = (nccl_comm *)base;
    mimo_request **at = &comm->spare;
    while (*at && (*at)->room < bytes)
        at = &(*at)->next;
    if (!*at)
        return create(out, comm, bytes);
    *out = *at;
    *at = (*out)->next;
    return MIMO_OK;
}

static mimo_status prepare(mimo_comm *comm, int64_t bytes)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, bytes));
    mimo_nccl_words_release(request);
    return MIMO_OK;
}

mimo_status mimo_nccl_words_prepare(nccl_comm *comm)
{
    return prepare(&comm->base, (int64_t)comm->base.size * (int64_t)sizeof(mimo_call_report));
}

mimo_status mimo_nccl_host_allgather_prepare(mimo_comm *comm, int bytes)
{
    return prepare(comm, (int64_t)bytes * (comm->size + 1));
}

void mimo_nccl_words_free(nccl_comm *comm)
{
    while (comm->spare) {
        mimo_request *request = comm->spare;
        comm->spare = request->next;
        destroy(request);
    }
}

static mimo_status bring(mimo_request *request, const void *from, int64_t bytes)
{
    memcpy(request->host, from, (size_t)bytes);
    MIMO_TRY_CUDA(cudaMemcpyAsync(request->device, request->host, (size_t)bytes,
                                  cudaMemcpyHostToDevice, request->comm->root->words));
    return MIMO_OK;
}

/* Enqueue the way back, of `bytes` bytes at `offset` of the device room. */
static mimo_status fetch(mimo_request *request, void *to, int64_t bytes, int64_t offset)
{
    cudaStream_t stream = request->comm->root->words;
    request->to = to;
    request->bytes = bytes;
    MIMO_TRY_CUDA(cudaMemcpyAsync(request->host, request->device + offset, (size_t)bytes,
                                  cudaMemcpyDeviceToHost, stream));
    MIMO_TRY_CUDA(cudaEventRecord(request->event, stream));
    return MIMO_OK;
}

static mimo_status vote(mimo_request *request, uint64_t *words, int count)
{
    nccl_comm *comm = request->comm;
    int64_t bytes = count * (int64_t)sizeof *words;
    MIMO_TRY(bring(request, words, bytes));
    if (comm->team)
        MIMO_TRY_NCCL(comm,
                      ncclAllReduce(request->device, request->device, (size_t)count, ncclUint64,
                                    ncclMax, comm->team->handle, comm->root->words));
    return fetch(request, words, bytes, 0);
}

static mimo_status tell(mimo_request *request, void *data, int bytes, int root)
{
    nccl_comm *comm = request->comm;
    MIMO_TRY(bring(request, data, bytes));
    if (comm->team)
        MIMO_TRY_NCCL(comm, ncclBroadcast(request->device, request->device, (size_t)bytes,
                                          ncclUint8, root, comm->team->handle, comm->root->words));
    return fetch(request, data, bytes, 0);
}

/* The own words lie behind the room for all. */
static mimo_status collect(mimo_request *request, void *to, const void *from, int64_t bytes)
{
    nccl_comm *comm = request->comm;
    int64_t all = bytes * comm->base.size;
    MIMO_TRY(bring(request, from, bytes));
    if (!comm->team)
        return fetch(request, to, bytes, 0);
    MIMO_TRY_NCCL(comm, ncclAllGather(request->device, request->device + bytes, (size_t)bytes,
                                      ncclUint8, comm->team->handle, comm->root->words));
    return fetch(request, to, all, bytes);
}

static mimo_status hand_over(mimo_request **out, mimo_request *request, mimo_status started)
{
    if (started == MIMO_OK)
        *out = request;
    else
        mimo_nccl_words_release(request);
    return started;
}

mimo_status mimo_nccl_host_max_start(mimo_request **out, mimo_comm *comm, uint64_t *words,
                                     int count)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, count * (int64_t)sizeof *words));
    return hand_over(out, request, vote(request, words, count));
}

mimo_status mimo_nccl_host_broadcast_start(mimo_request **out, mimo_comm *comm, void *data,
                                           int bytes, int root)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, bytes));
    return hand_over(out, request, tell(request, data, bytes, root));
}

mimo_status mimo_nccl_host_allgather_start(mimo_request **out, mimo_comm *comm, void *to,
                                           const void *from, int bytes)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, (int64_t)bytes * (comm->size + 1)));
    return hand_over(out, request, collect(request, to, from, bytes));
}

mimo_status mimo_nccl_words_test(mimo_request *request, bool *done)
{
    const nccl_team *team = request->comm->team;
    cudaError_t code = cudaEventQuery(request->event);
    *done = code == cudaSuccess;
    if (*done)
        memcpy(request->to, request->host, (size_t)request->bytes);
    if (code == cudaSuccess)
        return MIMO_OK;
    if (code != cudaErrorNotReady)
        return mimo_cuda_status(code, "cudaEventQuery");
    return team ? mimo_nccl_check(team) : MIMO_OK;
}

void mimo_nccl_words_release(mimo_request *request)
{
    if (!request)
        return;
    request->next = request->comm->spare;
    request->comm->spare = request;
}
