/*
 * Buffers of the NCCL backend. One window holds a buffer's data and, behind it, the page of flags;
 * around memory of the caller's the flags have a window of their own.
 */
#include "comm/nccl/nccl_buffer.h"

#include <inttypes.h>
#include <string.h>

#include "comm/nccl/nccl_hosts.h"
#include "comm/nccl/nccl_peers.h"
#include "core/memory.h"

/* A window, and memory of ours where it lies in that. */
typedef struct part {
    void *room; /* of ncclMemAlloc; NULL: the caller's */
    ncclWindow_t window;
} part;

typedef struct nccl_buffer {
    part data, flags;     /* flags: empty where they lie behind the data */
    mimo_push_note *note; /* mapped host memory */
    mimo_push_note *note_on_device;
    cudaStream_t stream; /* of the last call into the buffer, */
    bool used;           /* where there was one; */
    cudaEvent_t last;    /* its place there, for a call on another stream */
    mimo_nccl_reach reach;
} nccl_buffer;

/* The ranks whose memory this one may reach. Windows are theirs: NCCL registers none for ranks of
 * several hosts, but where it can drive their network from inside a device. */
static nccl_comm *neighbours(const mimo_buffer *buffer)
{
    return ((nccl_comm *)buffer->comm)->on_host;
}

/* NULL: this rank is alone, and has no window. */
static nccl_team *team_of(const mimo_buffer *buffer)
{
    return ((nccl_comm *)buffer->comm)->windows;
}

static int64_t page_bytes(const mimo_buffer *buffer)
{
    return buffer->comm->size * (int64_t)sizeof(mimo_flags);
}

/* ---------------------------------------- windows ----------------------------------------- */

/* What this rank can do alone: memory. */
static mimo_status take_memory(mimo_buffer *buffer, nccl_buffer *own)
{
    int64_t data = buffer->given ? 0 : mimo_buffer_room(buffer);
    part *flags = buffer->given ? &own->flags : &own->data;
    int64_t bytes = data + page_bytes(buffer);
    ncclResult_t code = ncclMemAlloc(&flags->room, (size_t)bytes);
    MIMO_CHECK(code == ncclSuccess, MIMO_ERR_MEMORY, /* NCCL calls it a CUDA error */
               "out of device memory that ranks share, allocating %" PRId64 " bytes: %s", bytes,
               ncclGetErrorString(code));
    MIMO_TRY_CUDA(cudaMemset((char *)flags->room + data, 0, (size_t)page_bytes(buffer)));
    MIMO_TRY_CUDA(cudaHostAlloc((void **)&own->note, sizeof *own->note, cudaHostAllocMapped));
    memset(own->note, 0, sizeof *own->note);
    MIMO_TRY_CUDA(cudaHostGetDevicePointer((void **)&own->note_on_device, own->note, 0));
    buffer->refusal = &own->note->refusal;
    MIMO_TRY_CUDA(cudaEventCreateWithFlags(&own->last, cudaEventDisableTiming));
    MIMO_TRY_CUDA(cudaDeviceSynchronize()); /* the flags are 0 before any peer hears of them */
    return MIMO_OK;
}

/* Wait for what NCCL does behind such a call. */
static mimo_status settle(const mimo_buffer *buffer, ncclResult_t code, const char *call)
{
    nccl_team *team = team_of(buffer);
    team->busy = true;
    mimo_status status = mimo_nccl_settle(code, neighbours(buffer), team->handle, call);
    team->busy = team->handle == NULL; /* given up meanwhile: for good */
    return status;
}

static mimo_status open_window(mimo_buffer *buffer, part *it, void *at, int64_t bytes)
{
    nccl_team *team = team_of(buffer);
    it->window = NULL;
    if (!team || bytes == 0)
        return MIMO_OK;
    ncclResult_t code = ncclCommWindowRegister(team->handle, at, (size_t)bytes, &it->window,
                                               NCCL_WIN_COLL_SYMMETRIC);
    return settle(buffer, code, "ncclCommWindowRegister");
}

static mimo_status open_windows(mimo_buffer *buffer, nccl_buffer *own)
{
    int64_t page = page_bytes(buffer);
    if (!buffer->given)
        return open_window(buffer, &own->data, own->data.room, mimo_buffer_room(buffer) + page);
    mimo_status status = open_window(buffer, &own->data, buffer->given, buffer->bytes);
    MIMO_KEEP_FIRST(status, open_window(buffer, &own->flags, own->flags.room, page));
    return status;
}

static void close_part(mimo_buffer *buffer, part *it)
{
    nccl_team *team = team_of(buffer);
    if (it->window && team && team->handle)
        (void)ncclCommWindowDeregister(team->handle, it->window);
    if (it->room)
        (void)ncclMemFree(it->room);
}

/* ----------------------------------------- peers ------------------------------------------ */

static void set_own(mimo_buffer *buffer, const nccl_buffer *own)
{
    int rank = buffer->comm->rank;
    char *data = buffer->given ? buffer->given : own->data.room;
    buffer->data[rank] = data;
    buffer->flags[rank] =
        buffer->given ? own->flags.room : (void *)(data + mimo_buffer_room(buffer));
}

/* The beginnings of a window on `count` ranks, into at[count]. */
static mimo_status find(mimo_buffer *buffer, void **at, const part *it, int count)
{
    const mimo_device *device = buffer->comm->device;
    void *room = NULL;
    MIMO_TRY(device->reserve(&room, count * (int64_t)sizeof *at));
    mimo_status status = mimo_cuda_status(mimo_nccl_peer_pointers(at, room, it->window, count),
                                          "mimo_nccl_peer_pointers");
    device->release(room);
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
        void *page = buffer->given ? flags[i] : (char *)data[i] + mimo_buffer_room(buffer);
        int peer = mimo_nccl_rank_of(neighbours(buffer), first + i, (nccl_comm *)buffer->comm);
        buffer->data[peer] = data[i];
        buffer->flags[peer] = page;
    }
    mimo_release(data);
    mimo_release(flags);
    return status;
}

/* Neighbours find the same: reach is NCCL's, and whether windows are symmetric is agreed on. */
static mimo_status reach_peers(mimo_buffer *buffer, nccl_buffer *own)
{
    int first = 0, count = 1;
    nccl_comm *near = neighbours(buffer);
    const nccl_team *team = team_of(buffer);
    if (!team)
        return MIMO_OK;
    bool symmetric = own->data.window && (!buffer->given || own->flags.window);
    ncclResult_t code = mimo_nccl_reach_ask(&own->reach, team->handle);
    mimo_status status = MIMO_OK;
    if (settle(buffer, code, "ncclDevCommCreate") == MIMO_OK) {
        code = mimo_nccl_reach_read(&own->reach, team->handle, &first, &count);
        status = mimo_nccl_status(code, near, team->handle, "ncclDevCommDestroy");
    }
    MIMO_TRY(mimo_comm_check(&near->base)); /* it may have ended while NCCL was waited for */
    uint64_t alone[1] = {status != MIMO_OK || !symmetric || count <= 1};
    mimo_request *request = NULL;
    MIMO_TRY(mimo_nccl_host_max_start(&request, &near->base, alone, 1));
    MIMO_TRY(mimo_wait(&near->base, &request, "buffer create"));
    if (!alone[0])
        status = find_peers(buffer, own, first, count);
    set_own(buffer, own); /* by its own address, which is what callers pass */
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
    MIMO_TRY(mimo_nccl_meet_neighbours((nccl_comm *)buffer->comm));
    set_own(buffer, own);
    MIMO_TRY(mimo_comm_agree(buffer->comm, open_windows(buffer, own)));
    return reach_peers(buffer, own);
}

void mimo_nccl_buffer_close(mimo_buffer *buffer)
{
    nccl_buffer *own = buffer->own;
    const nccl_team *team = team_of(buffer);
    buffer->own = NULL;
    if (!own || (team && team->busy))
        return;
    (void)cudaDeviceSynchronize();
    close_part(buffer, &own->data);
    close_part(buffer, &own->flags);
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

void mimo_nccl_buffer_stream_over(const mimo_buffer *buffer, cudaStream_t stream)
{
    nccl_buffer *own = buffer->own;
    own->used = own->used && own->stream != stream;
}

void mimo_nccl_buffer_abort(const mimo_buffer *buffer)
{
    ((const nccl_buffer *)buffer->own)->note->abort = 1;
}
