/*
 * Buffers of the NCCL backend. One window holds a buffer's data, and the page of flags after them.
 * Where the data are the caller's memory, the flags have a window of their own.
 */
#include "comm/nccl/nccl_buffer.h"

#include <inttypes.h>
#include <string.h>

#include "comm/nccl/nccl_same_host.h"
#include "comm/nccl/nccl_peer_memory.h"
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
    bool used;           /* there was a call into the buffer, and its stream has not finished */
    cudaStream_t stream; /* of the last call */
    cudaEvent_t last;    /* orders a call on another stream after it */
    mimo_nccl_reach reach;
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

/* ---------------------------------------- windows ----------------------------------------- */

/* Allocate what this rank can allocate alone. */
static mimo_status take_memory(mimo_buffer *buffer, nccl_buffer *own)
{
    int64_t data = buffer->given ? 0 : mimo_buffer_flags_offset(buffer);
    windowed *flags = buffer->given ? &own->flags : &own->data;
    int64_t bytes = data + page_bytes(buffer);
    ncclResult_t code = ncclMemAlloc(&flags->memory, (size_t)bytes);
    MIMO_CHECK(code == ncclSuccess, MIMO_ERR_MEMORY, /* NCCL calls it a CUDA error */
               "out of device memory that ranks share, allocating %" PRId64 " bytes: %s", bytes,
               ncclGetErrorString(code));
    MIMO_TRY_CUDA(cudaMemset((char *)flags->memory + data, 0, (size_t)page_bytes(buffer)));
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

/* Write where a window begins on each of `count` ranks into at[count]. */
static mimo_status find(mimo_buffer *buffer, void **at, const windowed *it, int count)
{
    const mimo_device *device = buffer->comm->device;
    void *scratch = NULL;
    MIMO_TRY(device->reserve(&scratch, count * (int64_t)sizeof *at));
    mimo_status status = mimo_cuda_status(mimo_nccl_peer_pointers(at, scratch, it->window, count),
                                          "mimo_nccl_peer_pointers");
    device->release(scratch);
    return status;
}

/* The neighbours [first, first + count). */
static mimo_status find_peers(mimo_buffer *buffer, const nccl_buffer *own, int first, int count)
{
    void **data = NULL, **flags = NULL;
    mimo_status status = mimo_reserve(&data, count, sizeof *data);
    MIMO_KEEP_FIRST(status, mimo_reserve(&flags, count, sizeof *flags));
    if (status == MIMO_OK)
        status = find(buffer, data, &own->data, count);
    if (status == MIMO_OK && buffer->given)
        status = find(buffer, flags, &own->flags, count);
    for (int i = 0; i < count && status == MIMO_OK; i++) {
        void *page = buffer->given ? flags[i] : (char *)data[i] + mimo_buffer_flags_offset(buffer);
        int peer = mimo_nccl_same_host_rank((nccl_comm *)buffer->comm, first + i);
        buffer->data[peer] = data[i];
        buffer->flags[peer] = page;
    }
    mimo_release(data);
    mimo_release(flags);
    return status;
}

/* All neighbours find the same ranks in reach: NCCL decides it, and a MAX compares whether windows
 * are symmetric. */
static mimo_status reach_peers(mimo_buffer *buffer, nccl_buffer *own)
{
    int first = 0, count = 1;
    nccl_comm *near = neighbours(buffer);
    const nccl_shared_comm *shared = window_comm_of(buffer);
    if (!shared)
        return MIMO_OK;
    bool symmetric = own->data.window && (!buffer->given || own->flags.window);
    ncclResult_t code = mimo_nccl_reach_start(&own->reach, shared->handle);
    mimo_status status = MIMO_OK;
    if (settle(buffer, code, "ncclDevCommCreate") == MIMO_OK) {
        code = mimo_nccl_reach_finish(&own->reach, shared->handle, &first, &count);
        status = mimo_nccl_status(code, near, shared->handle, "ncclDevCommDestroy");
    }
    MIMO_TRY(mimo_comm_check(&near->base)); /* it may have ended while NCCL was waited for */
    uint64_t alone[1] = {status != MIMO_OK || !symmetric || count <= 1};
    mimo_request *request = NULL;
    MIMO_TRY(mimo_nccl_host_max_start(&request, &near->base, alone, 1));
    MIMO_TRY(mimo_wait(&near->base, &request, "buffer create"));
    if (!alone[0])
        status = find_peers(buffer, own, first, count);
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
    MIMO_TRY(mimo_comm_agree(buffer->comm, status));
    MIMO_TRY(mimo_nccl_connect_same_host((nccl_comm *)buffer->comm));
    set_own(buffer, own);
    MIMO_TRY(mimo_comm_agree(buffer->comm, open_windows(buffer, own)));
    return reach_peers(buffer, own);
}

void mimo_nccl_buffer_close(mimo_buffer *buffer)
{
    nccl_buffer *own = buffer->own;
    const nccl_shared_comm *shared = window_comm_of(buffer);
    buffer->own = NULL;
    if (!own || (shared && shared->busy))
        return;
    (void)cudaDeviceSynchronize();
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

void mimo_nccl_buffer_stream_finished(const mimo_buffer *buffer, cudaStream_t stream)
{
    nccl_buffer *own = buffer->own;
    own->used = own->used && own->stream != stream;
}

void mimo_nccl_buffer_abort(const mimo_buffer *buffer)
{
    ((const nccl_buffer *)buffer->own)->note->abort = 1;
}
