/* The public calls of every communicator: checks, an agreement, then the backend's nonblocking call
 * and a wait for it. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/agreement.h"
#include "comm/buffer_state.h"
#include "core/address.h"
#include "core/check.h"
#include "core/checked.h"
#include "core/hash.h"

/* Every bridge has a progress callback on the communicator that it was made from. */
static mimo_status check_unused(const mimo_comm *comm)
{
    int bridges = 0, buffers = 0;
    for (const mimo_progress_callback *callback = comm->callbacks; callback;
         callback = callback->next)
        bridges++;
    for (const mimo_buffer *buffer = comm->buffers; buffer; buffer = buffer->next)
        buffers++;
    MIMO_CHECK(bridges + buffers == 0, MIMO_ERR_STATE,
               "a communicator of %d ranks was destroyed before bridges (%d) or buffers (%d) that "
               "were made from it: the last of them releases it",
               comm->size, bridges, buffers);
    return MIMO_OK;
}

void mimo_comm_destroy(mimo_comm *comm)
{
    if (!comm)
        return;
    comm->destroyed = true;
    if (check_unused(comm) == MIMO_OK) {
        mimo_staging_release(&comm->staging);
        comm->backend->destroy(comm);
    }
}

void mimo_comm_release_unused(mimo_comm *comm)
{
    if (comm->destroyed && !comm->callbacks && !comm->buffers)
        mimo_comm_destroy(comm);
}

int mimo_comm_rank(const mimo_comm *comm)
{
    return comm->rank;
}

int mimo_comm_size(const mimo_comm *comm)
{
    return comm->size;
}

mimo_memory mimo_comm_memory(const mimo_comm *comm)
{
    return comm->memory;
}

static uint64_t signature_of(mimo_call_kind call, int64_t a, int64_t b, int64_t c)
{
    uint64_t hash = mimo_signature_start(call);
    return mimo_hash_int(mimo_hash_int(mimo_hash_int(hash, a), b), c);
}

static mimo_status split_check(mimo_comm **out, int color)
{
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "split: out is NULL");
    MIMO_CHECK(color >= -1, MIMO_ERR_ARGUMENT, "split: colour %d is below -1", color);
    return MIMO_OK;
}

mimo_status mimo_comm_split(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    MIMO_CHECK(parent, MIMO_ERR_ARGUMENT, "split: parent is NULL");
    MIMO_TRY(mimo_agree_as(parent, MIMO_AGREE_CREATE, split_check(out, color),
                           signature_of(MIMO_CALL_COMM_SPLIT, 0, 0, 0), "comm split"));
    /* A rank can still fail alone, for lack of memory. Then all ranks fail and release what they
     * made. */
    mimo_comm *made = NULL;
    mimo_status status = mimo_comm_agree(parent, parent->backend->split(&made, parent, color, key));
    if (made)
        made->id = mimo_hash_int(mimo_hash_int(parent->id, (int64_t)parent->calls), color);
    if (status != MIMO_OK) {
        mimo_comm_destroy(made);
        return status;
    }
    *out = made;
    return MIMO_OK;
}

bool mimo_is_guarding(const mimo_comm *comm)
{
    return comm->backend->guard_prepare && comm->size > 1 && mimo_comm_deadline(comm) > 0;
}

mimo_status mimo_guard_prepare(mimo_comm *comm, bool guarded, int64_t copies, int64_t bytes)
{
    int64_t all;
    if (!guarded)
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&all, copies, bytes));
    return comm->backend->guard_prepare(comm, all);
}

static mimo_status allreduce_check(const void *data, int64_t count, mimo_dtype dtype,
                                   mimo_reduce op)
{
    int64_t bytes;
    MIMO_CHECK(count >= 0, MIMO_ERR_ARGUMENT, "allreduce: count %" PRId64 " is negative", count);
    MIMO_CHECK(data || count == 0, MIMO_ERR_ARGUMENT, "allreduce: data is NULL, count %" PRId64,
               count);
    MIMO_CHECK(mimo_dtype_size(dtype) > 0, MIMO_ERR_ARGUMENT, "allreduce: unknown dtype %d",
               (int)dtype);
    MIMO_CHECK(dtype != MIMO_F8, MIMO_ERR_UNSUPPORTED,
               "allreduce: f8 can be moved, not combined (count %" PRId64 ")", count);
    MIMO_CHECK(op == MIMO_SUM || op == MIMO_MAX, MIMO_ERR_ARGUMENT, "allreduce: unknown op %d",
               (int)op);
    MIMO_TRY(mimo_check_address("allreduce: data", data, count, dtype));
    return mimo_mul(&bytes, count, (int64_t)mimo_dtype_size(dtype));
}

mimo_status mimo_comm_allreduce(mimo_comm *comm, void *data, int64_t count, mimo_dtype dtype,
                                mimo_reduce op, mimo_stream stream)
{
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "allreduce: comm is NULL");
    snprintf(call, sizeof call, "allreduce %s %s[%" PRId64 "]", op == MIMO_MAX ? "MAX" : "SUM",
             mimo_dtype_name(dtype), count);
    const mimo_reduction reduction = {data, count, dtype, op, false, mimo_is_guarding(comm)};
    mimo_status local = allreduce_check(data, count, dtype, op);
    if (local == MIMO_OK)
        local = mimo_guard_prepare(comm, reduction.guarded, count, (int64_t)mimo_dtype_size(dtype));
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_DATA, local,
                           signature_of(MIMO_CALL_COMM_ALLREDUCE, count, dtype, op), call));
    if (count == 0 || comm->size == 1)
        return MIMO_OK;
    MIMO_TRY(comm->backend->allreduce_start(&request, comm, &reduction, stream));
    return mimo_wait(comm, &request, call);
}

/* A rank's own rows may lie where they go in `to`. Anywhere else in it, rows of other ranks would
 * overwrite them while they are read. */
static mimo_status check_own_rows(const mimo_comm *comm, const void *to, const void *from,
                                  int64_t bytes, int64_t total)
{
    int64_t offset = comm->rank * bytes;
    uintptr_t all = (uintptr_t)to, own = (uintptr_t)from;
    bool apart = own + (uintptr_t)bytes <= all || all + (uintptr_t)total <= own;
    MIMO_CHECK(apart || own == all + (uintptr_t)offset, MIMO_ERR_ARGUMENT,
               "allgather: the %" PRId64 " bytes at %p lie at byte %" PRId64 " of the %" PRId64
               " at %p that they are gathered into, and this rank's place is byte %" PRId64,
               bytes, from, (int64_t)(own - all), total, to, offset);
    return MIMO_OK;
}

static mimo_status allgather_check(const mimo_comm *comm, const void *to, const void *from,
                                   int64_t bytes)
{
    int64_t total;
    MIMO_CHECK(bytes >= 0, MIMO_ERR_ARGUMENT, "allgather: %" PRId64 " bytes", bytes);
    MIMO_CHECK((to && from) || bytes == 0, MIMO_ERR_ARGUMENT,
               "allgather: %s is NULL, %" PRId64 " bytes a rank", to ? "from" : "to", bytes);
    MIMO_TRY(mimo_mul(&total, bytes, comm->size));
    return bytes > 0 ? check_own_rows(comm, to, from, bytes, total) : MIMO_OK;
}

mimo_status mimo_comm_allgather(mimo_comm *comm, void *to, const void *from, int64_t bytes,
                                mimo_stream stream)
{
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "allgather: comm is NULL");
    snprintf(call, sizeof call, "allgather of %" PRId64 " bytes a rank", bytes);
    bool guarded = mimo_is_guarding(comm);
    mimo_status local = allgather_check(comm, to, from, bytes);
    if (local == MIMO_OK)
        local = mimo_guard_prepare(comm, guarded, comm->size, bytes);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_DATA, local,
                           signature_of(MIMO_CALL_COMM_ALLGATHER, bytes, 0, 0), call));
    if (bytes == 0)
        return MIMO_OK;
    bool in_place = from == (const char *)to + comm->rank * bytes;
    const mimo_gather gather = {.to = {to, bytes, 0, 1, 1, 1, 1},
                                .from = {in_place ? NULL : (void *)from, bytes, 0, 1, 1, 1, 1},
                                .step = 1,
                                .guarded = guarded};
    MIMO_TRY(comm->backend->allgather_start(&request, comm, &gather, stream));
    return mimo_wait(comm, &request, call);
}

static mimo_status broadcast_check(const mimo_comm *comm, const void *data, int64_t bytes, int root)
{
    MIMO_CHECK(bytes >= 0, MIMO_ERR_ARGUMENT, "broadcast: %" PRId64 " bytes", bytes);
    MIMO_CHECK(data || bytes == 0, MIMO_ERR_ARGUMENT, "broadcast: data is NULL, %" PRId64 " bytes",
               bytes);
    MIMO_CHECK(root >= 0 && root < comm->size, MIMO_ERR_ARGUMENT,
               "broadcast: root %d is not one of %d ranks", root, comm->size);
    return MIMO_OK;
}

mimo_status mimo_comm_broadcast(mimo_comm *comm, void *data, int64_t bytes, int root,
                                mimo_stream stream)
{
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "broadcast: comm is NULL");
    snprintf(call, sizeof call, "broadcast of %" PRId64 " bytes from rank %d", bytes, root);
    const mimo_broadcast broadcast = {data, bytes, root, mimo_is_guarding(comm)};
    mimo_status local = broadcast_check(comm, data, bytes, root);
    if (local == MIMO_OK)
        local = mimo_guard_prepare(comm, broadcast.guarded, 1, bytes);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_DATA, local,
                           signature_of(MIMO_CALL_COMM_BROADCAST, bytes, root, 0), call));
    if (bytes == 0 || comm->size == 1)
        return MIMO_OK;
    MIMO_TRY(comm->backend->broadcast_start(&request, comm, &broadcast, stream));
    return mimo_wait(comm, &request, call);
}

static mimo_status collect_check(mimo_comm *comm, const void *to, const void *from, int bytes)
{
    MIMO_CHECK(bytes >= 0, MIMO_ERR_ARGUMENT, "collect: %d bytes", bytes);
    MIMO_CHECK((to && from) || bytes == 0, MIMO_ERR_ARGUMENT,
               "collect: %s is NULL, %d bytes a rank", to ? "from" : "to", bytes);
    return comm->backend->host_allgather_prepare(comm, bytes);
}

mimo_status mimo_comm_host_allgather(mimo_comm *comm, void *to, const void *from, int bytes)
{
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "collect: comm is NULL");
    snprintf(call, sizeof call, "collect of %d bytes a rank", bytes);
    MIMO_TRY(mimo_agree(comm, collect_check(comm, to, from, bytes),
                        signature_of(MIMO_CALL_COMM_COLLECT, bytes, 0, 0), call));
    if (bytes == 0)
        return MIMO_OK;
    MIMO_TRY(comm->backend->host_allgather_start(&request, comm, to, from, bytes));
    return mimo_wait(comm, &request, call);
}

/* An agreement is a barrier: its MAX ends on no rank before every rank has begun it. MIMO_AGREE=0
 * does not remove this one. */
mimo_status mimo_comm_barrier(mimo_comm *comm)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "barrier: comm is NULL");
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, MIMO_OK,
                         signature_of(MIMO_CALL_COMM_BARRIER, 0, 0, 0), "barrier");
}

/* The work of a stream is done. MIMO_ERR_MISMATCH where it refused a call into one of the
 * communicator's buffers. */
static mimo_status finish_stream(mimo_comm *comm, mimo_stream stream)
{
    if (comm->backend->stream_finished)
        comm->backend->stream_finished(comm, stream);
    for (const mimo_buffer *buffer = comm->buffers; buffer; buffer = buffer->next)
        MIMO_TRY(mimo_buffer_check(buffer));
    return MIMO_OK;
}

mimo_status mimo_comm_synchronize(mimo_comm *comm, mimo_stream stream)
{
    mimo_wait_clock clock = {0, 0, 0};
    bool done = false;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_synchronize: comm is NULL");
    for (;;) {
        MIMO_TRY(mimo_comm_check(comm));
        MIMO_TRY(comm->device->finished(&done, stream));
        if (done)
            return finish_stream(comm, stream);
        mimo_comm_progress(comm);
        MIMO_TRY(mimo_poll_termination(comm, &clock, "the work on a stream"));
    }
}
