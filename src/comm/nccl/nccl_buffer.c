/*
 * Buffers of the NCCL backend. One window holds a buffer's data, and the page of flags after them.
 * Where the data are the caller's memory, the flags have a window of their own.
 */
#include "comm/nccl/nccl_buffer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/nccl/nccl_launches.h"
#include "comm/nccl/nccl_same_host.h"
#include "comm/nccl/nccl_peer_memory.h"
#include "comm/nccl/nccl_runtime.h"
#include "core/memory.h"

/* A window, and the memory that it is in. */
typedef struct windowed {
    void *memory; /* of ncclMemAlloc; NULL: the caller's */
    ncclWindow_t window;
} windowed;

typedef struct nccl_buffer {
    windowed data, flags; /* flags: empty where they lie after the data */
    mimo_push_note *note; /* mapped host memory */
    mimo_push_note *note_on_device;
    char *addresses;     /* device memory: those of the data, [size], then of the flags, [size] */
    uint64_t *launches;  /* device memory: how many of its kernels have ended */
    bool used;           /* there was a call into the buffer, and its stream has not finished */
    cudaStream_t stream; /* of the last call */
    cudaEvent_t last;    /* orders a call on another stream after it */
    mimo_peer_way way;
    mimo_nccl_reach reach;
    char unreached[160];
} nccl_buffer;

/* The ranks of this host, whose memory this rank may reach. Windows are made among them: across
 * hosts NCCL registers windows only where devices can drive the network. */
static nccl_comm *neighbours(const mimo_buffer *buffer)
{
    return ((nccl_comm *)buffer->comm)->same_host;
}

/* NULL: this rank is alone, and has no window. */
static nccl_shared_comm *window_comm_of(const mimo_buffer *buffer)
{
    return ((nccl_comm *)buffer->comm)->windows;
}

static int64_t page_bytes(const mimo_buffer *buffer)
{
    return buffer->comm->size * (int64_t)sizeof(mimo_flags);
}

static int64_t addresses_bytes(const mimo_buffer *buffer)
{
    return buffer->comm->size * (int64_t)sizeof(void *);
}

/* ---------------------------------------- windows ----------------------------------------- */

/* Allocate what this rank can allocate alone. */
static mimo_status take_memory(mimo_buffer *buffer, nccl_buffer *own)
{
    int64_t data = buffer->given ? 0 : mimo_buffer_flags_offset(buffer);
    windowed *flags = buffer->given ? &own->flags : &own->data;
    int64_t end = data + page_bytes(buffer), addresses = 2 * addresses_bytes(buffer);
    int64_t bytes = end + addresses + (int64_t)sizeof *own->launches;
    ncclResult_t code = ncclMemAlloc(&flags->memory, (size_t)bytes);
    MIMO_CHECK(code == ncclSuccess, MIMO_ERR_MEMORY, /* NCCL calls it a CUDA error */
               "out of device memory that ranks share, allocating %" PRId64 " bytes: %s", bytes,
               ncclGetErrorString(code));
    MIMO_TRY_CUDA(cudaMemset(flags->memory, 0, (size_t)bytes)); /* FIFOs have flags in the data */
    own->addresses = (char *)flags->memory + end;
    own->launches = (uint64_t *)(void *)(own->addresses + addresses);
    MIMO_TRY_CUDA(cudaHostAlloc((void **)&own->note, sizeof *own->note, cudaHostAllocMapped));
    memset(own->note, 0, sizeof *own->note);
    MIMO_TRY_CUDA(cudaHostGetDevicePointer((void **)&own->note_on_device, own->note, 0));
    buffer->refusal = &own->note->refusal;
    MIMO_TRY_CUDA(cudaEventCreateWithFlags(&own->last, cudaEventDisableTiming));
    MIMO_TRY_CUDA(cudaDeviceSynchronize()); /* the flags are 0 before any peer can write them */
    return MIMO_OK;
}

/* Wait for what NCCL does in the background of a call. */
static mimo_status settle(const mimo_buffer *buffer, ncclResult_t code, const char *call)
{
    nccl_shared_comm *shared = window_comm_of(buffer);
    shared->busy = true;
    mimo_status status = mimo_nccl_settle(code, neighbours(buffer), shared->handle, call);
    shared->busy = shared->handle == NULL; /* given up meanwhile: it stays busy */
    return status;
}

static mimo_status open_window(mimo_buffer *buffer, windowed *it, void *at, int64_t bytes)
{
    nccl_shared_comm *shared = window_comm_of(buffer);
    it->window = NULL;
    if (!shared || bytes == 0)
        return MIMO_OK;
    ncclResult_t code = ncclCommWindowRegister(shared->handle, at, (size_t)bytes, &it->window,
                                               NCCL_WIN_COLL_SYMMETRIC);
    return settle(buffer, code, "ncclCommWindowRegister");
}

static mimo_status open_windows(mimo_buffer *buffer, nccl_buffer *own)
{
    int64_t page = page_bytes(buffer);
    if (!buffer->given)
        return open_window(buffer, &own->data, own->data.memory,
                           mimo_buffer_flags_offset(buffer) + page);
    mimo_status status = open_window(buffer, &own->data, buffer->given, buffer->bytes);
    MIMO_KEEP_FIRST(status, open_window(buffer, &own->flags, own->flags.memory, page));
    return status;
}

static void close_window(mimo_buffer *buffer, windowed *it)
{
    nccl_shared_comm *shared = window_comm_of(buffer);
    if (it->window && shared && shared->handle)
        (void)ncclCommWindowDeregister(shared->handle, it->window);
    if (it->memory)
        (void)ncclMemFree(it->memory);
}

/* ----------------------------------------- peers ------------------------------------------ */

static void set_own(mimo_buffer *buffer, const nccl_buffer *own)
{
    int rank = buffer->comm->rank;
    char *data = buffer->given ? buffer->given : own->data.memory;
    buffer->data[rank] = data;
    buffer->flags[rank] =
        buffer->given ? own->flags.memory : (void *)(data + mimo_buffer_flags_offset(buffer));
}

/* The neighbours [first, first + count). */
typedef struct reached {
    int first, count;
} reached;

/* Write where a window begins on each of these ranks into at[count]; NULL where out of reach. */
static mimo_status find(mimo_buffer *buffer, void **at, const windowed *it, const reached *ranks)
{
    const mimo_device *device = buffer->comm->device;
    void *scratch = NULL;
    if (((const nccl_buffer *)buffer->own)->way == MIMO_PEERS_BY_HOST)
        return mimo_nccl_status(mimo_nccl_host_pointers(at, it->window, ranks->count),
                                neighbours(buffer), window_comm_of(buffer)->handle,
                                "ncclGetPeerDevicePointer");
    MIMO_TRY(device->reserve(&scratch, ranks->count * (int64_t)sizeof *at));
    mimo_status status = mimo_cuda_status(
        mimo_nccl_peer_pointers(at, scratch, it->window, ranks->count), "mimo_nccl_peer_pointers");
    device->release(scratch);
    return status;
}

static mimo_status find_peers(mimo_buffer *buffer, const nccl_buffer *own, const reached *ranks)
{
    void **data = NULL, **flags = NULL;
    mimo_status status = mimo_reserve(&data, ranks->count, sizeof *data);
    MIMO_KEEP_FIRST(status, mimo_reserve(&flags, ranks->count, sizeof *flags));
    if (status == MIMO_OK)
        status = find(buffer, data, &own->data, ranks);
    if (status == MIMO_OK && buffer->given)
        status = find(buffer, flags, &own->flags, ranks);
    for (int i = 0; i < ranks->count && status == MIMO_OK; i++) {
        int peer = mimo_nccl_same_host_rank((nccl_comm *)buffer->comm, ranks->first + i);
        if (!data[i] || (buffer->given && !flags[i]))
            continue;
        buffer->data[peer] = data[i];
        buffer->flags[peer] =
            buffer->given ? flags[i] : (void *)((char *)data[i] + mimo_buffer_flags_offset(buffer));
    }
    mimo_release(data);
    mimo_release(flags);
    return status;
}

/* The MAX of a value over the neighbours. */
static mimo_status max_of_neighbours(uint64_t *value, nccl_comm *near, int count)
{
    mimo_request *request = NULL;
    MIMO_TRY(mimo_nccl_host_max_start(&request, &near->base, value, count));
    return mimo_wait(&near->base, &request, "buffer create");
}

/* Ranks may run libraries that were compiled against different versions. Then they look for no
 * peer: one of the ways is collective. */
static mimo_status choose_way(mimo_buffer *buffer, nccl_buffer *own)
{
    const mimo_nccl_versions versions = mimo_nccl_read_versions();
    mimo_peer_way way = mimo_nccl_peer_way(&versions);
    uint64_t all[2] = {(uint64_t)way, ~(uint64_t)way};
    MIMO_TRY(max_of_neighbours(all, neighbours(buffer), 2));
    own->way = all[0] == ~all[1] ? way : MIMO_PEERS_NOT_FOUND;
    if (own->way != MIMO_PEERS_NOT_FOUND)
        return MIMO_OK;
    if (way == MIMO_PEERS_NOT_FOUND)
        mimo_nccl_versions_text(own->unreached, sizeof own->unreached, &versions);
    else
        snprintf(own->unreached, sizeof own->unreached,
                 "ranks have libraries for different versions of NCCL");
    buffer->unreached = own->unreached;
    return MIMO_OK;
}

/* Ask NCCL which neighbours load and store each other's memory. From 2.29 on it says so with the
 * addresses. */
static mimo_status ask_device_api(mimo_buffer *buffer, nccl_buffer *own, reached *ranks)
{
    ncclComm_t handle = window_comm_of(buffer)->handle;
    MIMO_TRY(settle(buffer, mimo_nccl_reach_start(&own->reach, handle), "ncclDevCommCreate"));
    return mimo_nccl_status(
        mimo_nccl_reach_finish(&own->reach, handle, &ranks->first, &ranks->count),
        neighbours(buffer), handle, "ncclDevCommDestroy");
}

/* For kernels that take no list of peers. */
static mimo_status tell_device(const mimo_buffer *buffer, const nccl_buffer *own)
{
    const size_t bytes = (size_t)addresses_bytes(buffer);
    MIMO_TRY_CUDA(cudaMemcpy(own->addresses, buffer->data, bytes, cudaMemcpyHostToDevice));
    MIMO_TRY_CUDA(cudaMemcpy(own->addresses + bytes, buffer->flags, bytes, cudaMemcpyHostToDevice));
    MIMO_TRY_CUDA(cudaDeviceSynchronize()); /* before work on a stream that waits for no other */
    return MIMO_OK;
}

/* All neighbours find the same ranks in reach: NCCL decides it, and a MAX compares whether windows
 * are symmetric. */
static mimo_status reach_peers(mimo_buffer *buffer, nccl_buffer *own)
{
    nccl_comm *near = neighbours(buffer);
    reached ranks = {0, near->base.size};
    if (!window_comm_of(buffer))
        return MIMO_OK;
    MIMO_TRY(choose_way(buffer, own));
    bool symmetric = own->data.window && (!buffer->given || own->flags.window);
    mimo_status status = MIMO_OK;
    if (own->way == MIMO_PEERS_BY_DEVICE)
        status = ask_device_api(buffer, own, &ranks);
    MIMO_TRY(mimo_comm_check(&near->base)); /* it may have ended while NCCL was waited for */
    uint64_t alone[1] = {own->way == MIMO_PEERS_NOT_FOUND || status != MIMO_OK || !symmetric ||
                         ranks.count <= 1};
    MIMO_TRY(max_of_neighbours(alone, near, 1));
    status = alone[0] ? MIMO_OK : find_peers(buffer, own, &ranks);
    set_own(buffer, own); /* at the address that callers pass, not at the window's */
    return status;
}

/* ----------------------------------------- slots ------------------------------------------ */

mimo_status mimo_nccl_buffer_open(mimo_buffer *buffer)
{
    nccl_buffer *own = NULL;
    mimo_status status = mimo_reserve(&own, 1, sizeof *own);
    buffer->own = own;
    if (status == MIMO_OK)
        status = take_memory(buffer, own);
    if (status == MIMO_OK)
        mimo_nccl_launches_take(buffer);
    MIMO_TRY(mimo_comm_agree(buffer->comm, status));
    MIMO_TRY(mimo_nccl_connect_same_host((nccl_comm *)buffer->comm));
    set_own(buffer, own);
    MIMO_TRY(mimo_comm_agree(buffer->comm, open_windows(buffer, own)));
    MIMO_TRY(reach_peers(buffer, own));
    return tell_device(buffer, own);
}

void mimo_nccl_buffer_close(mimo_buffer *buffer)
{
    nccl_buffer *own = buffer->own;
    nccl_shared_comm *shared = window_comm_of(buffer);
    buffer->own = NULL;
    if (own && shared && shared->busy)
        ((nccl_comm *)buffer->comm)->family->launches_stay = true;
    if (!own || (shared && shared->busy))
        return;
    (void)cudaDeviceSynchronize();
    mimo_nccl_launches_give(buffer);
    if (shared)
        mimo_nccl_shared_comm_unmap(((nccl_comm *)buffer->comm)->family, shared);
    close_window(buffer, &own->data);
    close_window(buffer, &own->flags);
    if (own->note)
        (void)cudaFreeHost(own->note);
    if (own->last)
        (void)cudaEventDestroy(own->last);
    mimo_release(own);
}

mimo_status mimo_nccl_buffer_enter(mimo_buffer *buffer, cudaStream_t stream)
{
    nccl_buffer *own = buffer->own;
    const mimo_device *device = buffer->comm->device;
    if ((own->used && own->stream == stream) || device->records(stream))
        return MIMO_OK;
    if (own->used && !device->records(own->stream)) {
        MIMO_TRY_CUDA(cudaEventRecord(own->last, own->stream));
        MIMO_TRY_CUDA(cudaStreamWaitEvent(stream, own->last, 0));
    }
    own->stream = stream;
    own->used = true;
    return MIMO_OK;
}

mimo_push_note *mimo_nccl_buffer_note(const mimo_buffer *buffer)
{
    return ((const nccl_buffer *)buffer->own)->note_on_device;
}

mimo_nccl_addresses mimo_nccl_buffer_addresses(const mimo_buffer *buffer)
{
    char *begin = ((const nccl_buffer *)buffer->own)->addresses;
    return (mimo_nccl_addresses){(char *const *)(void *)begin,
                                 (mimo_flags *const *)(void *)(begin + addresses_bytes(buffer))};
}

mimo_push_progress mimo_nccl_buffer_progress(const mimo_buffer *buffer)
{
    const nccl_buffer *own = buffer->own;
    return (mimo_push_progress){mimo_nccl_launches_on_device(buffer), own->launches};
}

void mimo_nccl_buffer_stream_finished(const mimo_buffer *buffer, cudaStream_t stream)
{
    nccl_buffer *own = buffer->own;
    own->used = own->used && own->stream != stream;
}

void mimo_nccl_buffer_abort(const mimo_buffer *buffer)
{
    ((const nccl_buffer *)buffer->own)->note->abort = 1;
}
