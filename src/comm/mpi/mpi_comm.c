/*
 * The MPI backend: host memory, nonblocking collectives on a duplicate of the caller's
 * communicator. Splits are the exception: MPI 3.1 has no nonblocking one. So comm.c agrees first,
 * and every rank is known to arrive.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <mimo/mpi.h>

#include "comm/agreement.h"
#include "comm/comm_backend.h"
#include "comm/host/host_buffer.h"
#include "comm/mpi/mpi_alltoall.h"
#include "comm/mpi/mpi_closing.h"
#include "comm/mpi/mpi_exchange.h"
#include "comm/mpi/mpi_gather.h"
#include "comm/mpi/mpi_launcher.h"
#include "comm/mpi/mpi_request.h"
#include "comm/mpi/mpi_family.h"
#include "comm/mpi/mpi_operators.h"
#include "comm/mpi/mpi_reduce_scatter.h"
#include "comm/mpi/mpi_split.h"
#include "comm/mpi/mpi_survivors.h"
#include "comm/mpi/mpi_types.h"
#include "comm/recorder.h"
#include "comm/waiter.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/letters.h"
#include "core/memory.h"

typedef struct mpi_comm {
    mimo_comm base;
    mimo_mpi_family *family;
    MPI_Comm handle;
    mimo_mpi_closing *closing; /* of a handle of its own; NULL: the handle is the family's */
    uint64_t value;            /* of the MAX at creation, when there is no request yet */
    mimo_mpi_operators operators;
    mimo_mpi_request_pool requests;
    mimo_mpi_survivor_mail *mail; /* of its recovery; NULL: none was tried */
} mpi_comm;

static const mimo_comm_backend mpi_backend;

static mimo_status comm_survivors(mimo_comm **out, mimo_comm *ended, mimo_survivors_terms *terms);

static MPI_Comm handle_of(mimo_comm *comm)
{
    return ((mpi_comm *)comm)->handle;
}

/* ------------------------------------ requests ------------------------------------ */

/* A request of this communicator for `count` MPI requests, with `bytes` bytes of memory. */
static mimo_status take(mimo_request **out, mimo_comm *comm, int64_t count, int64_t bytes)
{
    return mimo_mpi_request_take(out, &((mpi_comm *)comm)->requests, count, bytes);
}

/* Hand a started request to the caller, or release it where starting failed. `moving` are the bytes
 * of tensors that it moves. */
static mimo_status hand_over_rows(mimo_request **out, mimo_request *request, int64_t moving,
                                  mimo_status started)
{
    request->moving = moving;
    if (started == MIMO_OK)
        *out = request;
    else
        mimo_mpi_request_release(request);
    return started;
}

static mimo_status hand_over(mimo_request **out, mimo_request *request, mimo_status started)
{
    return hand_over_rows(out, request, 0, started);
}

/* ----------------------------------- host values ---------------------------------- */

static mimo_status host_max_start(mimo_request **out, mimo_comm *comm, uint64_t *values, int count)
{
    mimo_request *request;
    int64_t bytes = count * (int64_t)sizeof *values;
    MIMO_TRY(take(&request, comm, 1, bytes));
    mimo_mpi_request_load(request, values, bytes);
    int code = MPI_Iallreduce(MPI_IN_PLACE, request->memory, count, MPI_UINT64_T, MPI_MAX,
                              handle_of(comm), request->mpi);
    return hand_over(out, request, mimo_mpi_status(code, "MPI_Iallreduce"));
}

static mimo_status host_broadcast_start(mimo_request **out, mimo_comm *comm, void *data, int bytes,
                                        int root)
{
    mimo_request *request;
    MIMO_TRY(take(&request, comm, 1, bytes));
    mimo_mpi_request_load(request, data, bytes);
    int code = MPI_Ibcast(request->memory, bytes, MPI_BYTE, root, handle_of(comm), request->mpi);
    return hand_over(out, request, mimo_mpi_status(code, "MPI_Ibcast"));
}

/* This rank's own bytes lie before those of all ranks. */
static mimo_status host_allgather_start(mimo_request **out, mimo_comm *comm, void *to,
                                        const void *from, int bytes)
{
    mimo_request *request;
    int64_t all = (int64_t)bytes * comm->size;
    MIMO_TRY(take(&request, comm, 1, bytes + all));
    memcpy(request->memory, from, (size_t)bytes);
    mimo_mpi_request_copy_back(request, to, all, bytes);
    int code = MPI_Iallgather(request->memory, bytes, MPI_BYTE, request->memory + bytes, bytes,
                              MPI_BYTE, handle_of(comm), request->mpi);
    return hand_over(out, request, mimo_mpi_status(code, "MPI_Iallgather"));
}

static mimo_status host_allgather_prepare(mimo_comm *comm, int bytes)
{
    return mimo_mpi_pool_prepare(&((mpi_comm *)comm)->requests, (int64_t)bytes * (comm->size + 1));
}

/* -------------------------------------- data -------------------------------------- */

/* The memory of a guarded all-gather also holds the list of its targets. */
static mimo_status guard_prepare(mimo_comm *comm, int64_t bytes)
{
    int64_t all;
    MIMO_TRY(mimo_add(&all, bytes, comm->size * (int64_t)sizeof(mimo_rows)));
    return mimo_mpi_pool_prepare(&((mpi_comm *)comm)->requests, all);
}

/* Where MPI finds data[bytes]: in the request's memory where it is guarded, otherwise at `data`. */
static void *memory_for(mimo_request *request, void *data, int64_t bytes, bool guarded)
{
    if (guarded)
        mimo_mpi_request_load(request, data, bytes);
    return guarded ? request->memory : data;
}

static mimo_status allreduce_start(mimo_request **out, mimo_comm *comm,
                                   const mimo_reduction *reduction, mimo_stream stream)
{
    mimo_request *request;
    MPI_Datatype type;
    MPI_Op op;
    mimo_status status = MIMO_OK;
    (void)stream;
    int64_t count = reduction->count, bytes = (int64_t)mimo_dtype_size(reduction->dtype);
    int64_t sums = mimo_mpi_sums(count);
    MIMO_TRY(take(&request, comm, sums, reduction->guarded ? count * bytes : 0));
    char *data = memory_for(request, reduction->data, count * bytes, reduction->guarded);
    mimo_mpi_operators_pick(&((mpi_comm *)comm)->operators, reduction->dtype, reduction->op, &type,
                            &op);
    for (int64_t i = 0; i < sums && status == MIMO_OK; i++) {
        int64_t first = i * mimo_mpi_elements_per_sum();
        int code = MPI_Iallreduce(MPI_IN_PLACE, data + first * bytes, mimo_mpi_sum_length(count, i),
                                  type, op, handle_of(comm), &request->mpi[i]);
        status = mimo_mpi_status(code, "MPI_Iallreduce");
    }
    return hand_over_rows(out, request, count * bytes, status);
}

static mimo_status broadcast_bytes(mimo_request *request, mimo_comm *comm, const mimo_broadcast *it)
{
    void *data = memory_for(request, it->data, it->bytes, it->guarded);
    MIMO_TRY(mimo_mpi_bytes_type(&request->types[0], it->bytes));
    MIMO_TRY_MPI(MPI_Ibcast(data, 1, request->types[0], it->root, handle_of(comm), request->mpi));
    return MIMO_OK;
}

static mimo_status broadcast_start(mimo_request **out, mimo_comm *comm,
                                   const mimo_broadcast *broadcast, mimo_stream stream)
{
    mimo_request *request;
    (void)stream;
    MIMO_TRY(take(&request, comm, 1, broadcast->guarded ? broadcast->bytes : 0));
    return hand_over_rows(out, request, broadcast->bytes,
                          broadcast_bytes(request, comm, broadcast));
}

static mimo_status allgather_start(mimo_request **out, mimo_comm *comm, const mimo_gather *gather,
                                   mimo_stream stream)
{
    mimo_request *request;
    const mimo_rows own = mimo_mpi_gather_target(gather, comm->rank);
    MIMO_TRY(
        take(&request, comm, mimo_mpi_gather_count(comm), mimo_mpi_gather_bytes(comm, gather)));
    mimo_status status = mimo_mpi_gather_start(request, comm, handle_of(comm), gather);
    if (status == MIMO_OK && gather->from.base)
        status = comm->device->copy_rows(&own, &gather->from, stream);
    return hand_over_rows(out, request, comm->size * mimo_rows_bytes(&gather->to), status);
}

static mimo_status reduce_scatter_start(mimo_request **out, mimo_comm *comm,
                                        const mimo_block_reduction *reduction, mimo_stream stream)
{
    mimo_request *request;
    mimo_mpi_combination how;
    (void)stream;
    MIMO_TRY(take(&request, comm, mimo_mpi_block_sums(comm, reduction->count),
                  mimo_mpi_block_bytes(comm, reduction)));
    mimo_mpi_operators_pick(&((mpi_comm *)comm)->operators, reduction->dtype, reduction->op,
                            &how.type, &how.op);
    mimo_status started =
        mimo_mpi_reduce_blocks_start(request, comm, handle_of(comm), reduction, &how);
    return hand_over_rows(
        out, request, comm->size * reduction->count * (int64_t)mimo_dtype_size(reduction->dtype),
        started);
}

static mimo_status alltoall_start(mimo_request **out, mimo_comm *comm,
                                  const mimo_alltoall *alltoall, mimo_stream stream)
{
    mimo_request *request;
    (void)stream;
    MIMO_TRY(take(&request, comm, 1, mimo_mpi_alltoall_bytes(comm, alltoall)));
    return hand_over_rows(out, request, comm->size * alltoall->bytes,
                          mimo_mpi_alltoall_start(request, comm, handle_of(comm), alltoall));
}

static mimo_status exchange_create(mimo_exchange **out, mimo_comm *comm,
                                   const mimo_messages *messages)
{
    mimo_exchange *exchange;
    MIMO_TRY(mimo_mpi_exchange_create(&exchange, comm, handle_of(comm), messages));
    mimo_status status = MIMO_OK;
    if (messages->guarded)
        status = guard_prepare(comm, mimo_mpi_exchange_bytes(exchange));
    if (status == MIMO_OK)
        *out = exchange;
    else
        mimo_mpi_exchange_destroy(exchange);
    return status;
}

static mimo_status exchange_start(mimo_request **out, mimo_comm *comm, mimo_exchange *exchange,
                                  mimo_stream stream)
{
    mimo_request *request;
    (void)stream;
    MIMO_TRY(
        take(&request, comm, mimo_mpi_exchange_count(exchange), mimo_mpi_exchange_bytes(exchange)));
    return hand_over_rows(out, request, mimo_mpi_exchange_moving(exchange),
                          mimo_mpi_exchange_start(exchange, request));
}

/* --------------------------------- life of a comm --------------------------------- */

/* Make a communicator without its handle; the family gets a user. Local. */
static mimo_status comm_create(mpi_comm **out, mimo_mpi_family *family, int rank, int size)
{
    mpi_comm *comm;
    MIMO_TRY(mimo_reserve(&comm, 1, sizeof *comm));
    mimo_status status = mimo_mpi_operators_create(&comm->operators);
    if (status == MIMO_OK)
        status = mimo_mpi_pool_create(&comm->requests, &family->base, size);
    if (status != MIMO_OK) {
        mimo_mpi_operators_release(&comm->operators);
        mimo_release(comm);
        return status;
    }
    comm->base = (mimo_comm){.backend = &mpi_backend,
                             .device = &mimo_device_host,
                             .memory = MIMO_MEMORY_HOST,
                             .rank = rank,
                             .size = size,
                             .family = &family->base,
                             .holders = 1};
    comm->handle = MPI_COMM_NULL;
    comm->family = family;
    mimo_family_retain(&family->base);
    *out = comm;
    return MIMO_OK;
}

/* After the family's end, operations that MPI can't cancel may still use handle and operators. */
static void comm_destroy(mimo_comm *base)
{
    mpi_comm *comm = (mpi_comm *)base;
    mimo_family *family = base->family;
    if (mimo_family_status(family) == MIMO_OK && mimo_mpi_family_may_call(family)) {
        mimo_mpi_operators_release(&comm->operators);
        if (comm->closing && comm->handle != MPI_COMM_NULL) {
            mimo_mpi_close(comm->closing, comm->handle, NULL);
            comm->closing = NULL;
        }
    }
    mimo_mpi_survivor_mail_release(comm->mail, mimo_mpi_family_may_call(family));
    mimo_release(comm->closing);
    mimo_mpi_pool_release(&comm->requests);
    mimo_release(comm);
    mimo_family_release(family);
}

static mimo_status rank_in(MPI_Comm handle, int *rank, int *size)
{
    MIMO_TRY_MPI(MPI_Comm_rank(handle, rank));
    MIMO_TRY_MPI(MPI_Comm_size(handle, size));
    return MIMO_OK;
}

/* Wait under the deadline of a communicator. NULL: this rank had no memory for the one that is
 * being made, and waits without a deadline. */
static mimo_status wait_for(MPI_Request *request, mpi_comm *comm, const char *call)
{
    mimo_waiter waiter = {.comm = comm ? &comm->base : NULL, .call = call};
    int done = 0;
    for (;;) {
        MIMO_TRY(mimo_mpi_status(MPI_Test(request, &done, MPI_STATUS_IGNORE), call));
        if (done)
            return MIMO_OK;
        MIMO_TRY(mimo_waiter_pause(&waiter));
    }
}

/* All that a group's communicator needs, except its handle; NULL where this rank is in no group.
 * Without a closing the handle would never be freed: the other ranks wait for this one's word. */
static mimo_status group_create(mpi_comm **out, mimo_mpi_family *family,
                                const mimo_mpi_group *group)
{
    *out = NULL;
    if (group->size == 0)
        return MIMO_OK;
    MIMO_TRY(comm_create(out, family, group->rank, group->size));
    return mimo_mpi_closing_create(&(*out)->closing);
}

/* Make the handle. MPI returns errors on it as codes. */
static mimo_status group_connect(mpi_comm *made, mpi_comm *parent, const mimo_mpi_group *group)
{
    MPI_Comm handle = MPI_COMM_NULL;
    MPI_Request request;
    if (group->kind == MIMO_MPI_WHOLE) {
        MIMO_TRY_MPI(MPI_Comm_idup(parent->handle, &made->handle, &request));
        MIMO_TRY(wait_for(&request, parent, "comm split"));
    } else {
        MIMO_TRY(mimo_mpi_group_split(&handle, parent->handle, group));
        if (made)
            made->handle = handle;
    }
    return made ? mimo_mpi_status(MPI_Comm_set_errhandler(made->handle, MPI_ERRORS_RETURN),
                                  "MPI_Comm_set_errhandler")
                : MIMO_OK;
}

/* MPI may still write the handle where a duplication was given up. */
static void group_discard(mpi_comm *made, const mimo_mpi_group *group)
{
    if (!made)
        return;
    if (group->kind == MIMO_MPI_WHOLE && mimo_family_status(&made->family->base) != MIMO_OK)
        mimo_abandon(made);
    else
        comm_destroy(&made->base);
}

/* All that can fail on one rank comes before the agreement. */
static mimo_status comm_split(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    mpi_comm *made;
    mimo_mpi_group group;
    *out = NULL;
    mimo_mpi_close_rest();
    MIMO_TRY(mimo_mpi_group_find(&group, parent, color, key));
    mimo_status status = group_create(&made, ((mpi_comm *)parent)->family, &group);
    status = mimo_agree_as(parent, MIMO_AGREE_ALWAYS, status,
                           mimo_signature_start(MIMO_CALL_COMM_SPLIT), "comm split");
    if (status == MIMO_OK)
        status = group_connect(made, (mpi_comm *)parent, &group);
    if (made)
        made->base.renumbered = parent->renumbered || group.kind != MIMO_MPI_WHOLE;
    if (status == MIMO_OK && made)
        *out = &made->base;
    else
        group_discard(made, &group);
    return status;
}

static void family_ranks(const mimo_comm *comm, int *ranks)
{
    const mpi_comm *it = (const mpi_comm *)comm;
    mimo_mpi_family_ranks(it->family, it->handle, ranks);
}

static void family_end(mimo_family *family, const mimo_last_words *words)
{
    mimo_mpi_family_end((mimo_mpi_family *)family,
                        words->comm ? handle_of(words->comm) : MPI_COMM_NULL, words);
}

static bool comm_receive_farewell(mimo_comm *comm, mimo_farewell *out)
{
    mimo_mpi_family *family = ((mpi_comm *)comm)->family;
    if (family->owned)
        (void)mimo_mpi_notices_receive(family->notices, family->handle);
    return mimo_mpi_family_receive(family, out);
}

static void comm_send_notice(mimo_comm *comm, int to, const mimo_notice *notice)
{
    mimo_mpi_family_send_notice(((mpi_comm *)comm)->family, handle_of(comm), to, notice);
}

static bool comm_took_notice(mimo_comm *comm, int to)
{
    return mimo_mpi_family_took_notice(((mpi_comm *)comm)->family, to);
}

static bool comm_heard_from(mimo_comm *comm, int rank, const mimo_notice *call)
{
    return mimo_mpi_family_heard_from(((mpi_comm *)comm)->family, handle_of(comm), rank, call);
}

static void comm_list_silent(mimo_comm *comm, const mimo_notice *call, int below, char *text,
                             size_t capacity)
{
    mimo_mpi_family_list_silent(((mpi_comm *)comm)->family, handle_of(comm), call, below, text,
                                capacity);
}

/* After the family's end MPI may still receive into this rank's memory: rows that were sent, not
 * pushed. So it stays mapped, as other tensors of such calls stay the library's. */
static void buffer_close(mimo_buffer *buffer)
{
    bool ended = mimo_family_status(buffer->comm->family) != MIMO_OK;
    mimo_host_buffer_close(buffer, ended && !mimo_mpi_is_finalized());
}

static const mimo_comm_backend mpi_backend = {
    .name = "mpi",
    .split = comm_split,
    .destroy = comm_destroy,
    .family_ranks = family_ranks,
    .host_max_start = host_max_start,
    .host_broadcast_start = host_broadcast_start,
    .host_allgather_prepare = host_allgather_prepare,
    .host_allgather_start = host_allgather_start,
    .guard_prepare = guard_prepare,
    .allreduce_start = allreduce_start,
    .broadcast_start = broadcast_start,
    .allgather_start = allgather_start,
    .reduce_scatter_start = reduce_scatter_start,
    .alltoall_start = alltoall_start,
    .exchange_create = exchange_create,
    .exchange_bind = mimo_mpi_exchange_bind,
    .exchange_start = exchange_start,
    .exchange_destroy = mimo_mpi_exchange_destroy,
    .buffer_open = mimo_host_buffer_open,
    .buffer_close = buffer_close,
    .test = mimo_mpi_request_test,
    .moving = mimo_mpi_request_moving,
    .arrived = mimo_mpi_request_arrived,
    .release = mimo_mpi_request_release,
    .end = family_end,
    .receive_farewell = comm_receive_farewell,
    .send_notice = comm_send_notice,
    .took_notice = comm_took_notice,
    .heard_from = comm_heard_from,
    .list_silent = comm_list_silent,
    .survivors = comm_survivors,
    .release_family = mimo_mpi_family_release,
    .check_open = mimo_mpi_family_check_open,
    .check_thread = mimo_mpi_family_check_thread,
};

/* ----------------------------------- <mimo/mpi.h> --------------------------------- */

static mimo_status check_handle(const void *out, MPI_Comm mpi, const char *call)
{
    int initialized = 0, finalized = 0, level = 0, inter = 0;
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "%s: out is NULL", call);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    MIMO_CHECK(initialized && !finalized, MIMO_ERR_STATE, "%s: MPI is %s", call,
               finalized ? "finalized" : "not initialised");
    MPI_Query_thread(&level);
    MIMO_TRY(mimo_mpi_check_thread(level, call));
    MIMO_CHECK(mpi != (MPI_Comm)0, MIMO_ERR_ARGUMENT,
               "%s: the communicator is a handle that was never set (zeros)", call);
    MIMO_CHECK(mpi != MPI_COMM_NULL, MIMO_ERR_ARGUMENT, "%s: the communicator is MPI_COMM_NULL",
               call);
    MIMO_TRY_MPI(MPI_Comm_test_inter(mpi, &inter));
    MIMO_CHECK(!inter, MIMO_ERR_ARGUMENT, "%s: the communicator is an intercommunicator", call);
    return mimo_mpi_check_launcher(mpi, call);
}

/* Make a family and its first communicator, without a handle. Local. */
static mimo_status first_create(mpi_comm **out, int rank, int size, const mimo_comm_desc *desc)
{
    mimo_mpi_family *family;
    MIMO_TRY(mimo_mpi_family_create(&family, &mpi_backend, rank, size, desc));
    mimo_status status = comm_create(out, family, rank, size);
    mimo_family_release(&family->base); /* the communicator is its user */
    return status;
}

static mimo_status first_create_over(mpi_comm **out, MPI_Comm mpi, const mimo_comm_desc *desc)
{
    int rank, size;
    MIMO_TRY(rank_in(mpi, &rank, &size));
    return first_create(out, rank, size, desc);
}

/* The handle belongs to the family: the last communicator frees it. */
static void set_handle(mpi_comm *comm, MPI_Comm handle, bool owned)
{
    comm->handle = comm->family->handle = handle;
    comm->family->owned = owned;
    mimo_recorder_add(&comm->base, NULL);
}

/* Duplicate the caller's communicator with an error handler that returns codes. The caller's own is
 * restored. MPI writes to *out when all ranks have arrived. */
static mimo_status duplicate(MPI_Comm *out, MPI_Comm mpi, mpi_comm *comm)
{
    MPI_Errhandler handler;
    MPI_Request request;
    MIMO_TRY_MPI(MPI_Comm_get_errhandler(mpi, &handler));
    int code = MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_idup(mpi, out, &request);
        MPI_Comm_set_errhandler(mpi, handler);
    }
    MPI_Errhandler_free(&handler);
    MIMO_TRY(mimo_mpi_status(code, "MPI_Comm_idup"));
    MIMO_TRY(wait_for(&request, comm, "mimo_comm_create_mpi"));
    MIMO_TRY_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return MIMO_OK;
}

/* Every rank fails with the sentence of the failing one. MPI may write to it after a wait that was
 * given up, so then it stays allocated. A rank without memory for it waits without a deadline. */
static mimo_status fail_first(MPI_Comm handle, mpi_comm *comm, int failing, mimo_status status)
{
    char own[MIMO_SENTENCE_TEXT], *text = own;
    MPI_Request request;
    mimo_copy_text(own, sizeof own, mimo_last_error()); /* read on the failing rank alone */
    if (comm && mimo_duplicate(&text, own, sizeof own, 1) != MIMO_OK) {
        text = own;
        comm = NULL;
    }
    mimo_status sent = mimo_mpi_status(
        MPI_Ibcast(text, sizeof own, MPI_CHAR, failing, handle, &request), "MPI_Ibcast");
    if (sent == MIMO_OK)
        sent = wait_for(&request, comm, "mimo_comm_create_mpi");
    if (sent == MIMO_OK)
        mimo_fail(status, "rank %d: %s", failing, text);
    if (text != own)
        (sent == MIMO_OK ? mimo_release : mimo_abandon)(text);
    return sent == MIMO_OK ? status : sent;
}

/* One status out of every rank's own, before there is a communicator to agree on. The MAX is over
 *   (size - rank) * 256 + status
 * which is largest on the lowest failing rank. */
static mimo_status agree_first(MPI_Comm handle, mpi_comm *comm, mimo_status local)
{
    int rank, size;
    uint64_t own = 0, *value = comm ? &comm->value : &own;
    MPI_Request request;
    MIMO_TRY(rank_in(handle, &rank, &size));
    *value = local == MIMO_OK ? 0 : (uint64_t)(size - rank) << 8 | (uint64_t)local;
    MIMO_TRY_MPI(MPI_Iallreduce(MPI_IN_PLACE, value, 1, MPI_UINT64_T, MPI_MAX, handle, &request));
    MIMO_TRY(wait_for(&request, comm, "mimo_comm_create_mpi"));
    if (*value == 0)
        return MIMO_OK;
    int failing = size - (int)(*value >> 8);
    mimo_status status = (mimo_status)(*value & 0xff);
    return fail_first(handle, comm, failing, status);
}

/* Release what a failed creation made, except memory that MPI may still write to. */
static void first_destroy(mpi_comm *comm, MPI_Comm handle)
{
    if (comm && mimo_family_status(&comm->family->base) != MIMO_OK) {
        mimo_abandon(comm);
        return;
    }
    if (handle != MPI_COMM_NULL)
        MPI_Comm_free(&handle);
    if (comm)
        mimo_comm_destroy(&comm->base);
}

/* Learn who runs the ranks, and which of them run on the processors of this one. */
static mimo_status meet(mimo_comm *comm, mimo_ring_identity *all, const char *call)
{
    mimo_request *request;
    int sharers = 0;
    mimo_ring_identity own;
    mimo_recorder_identity(&own, comm->family);
    MIMO_TRY(host_allgather_start(&request, comm, all, &own, (int)sizeof own));
    MIMO_TRY(mimo_wait(comm, &request, call));
    for (int i = 0; i < comm->size; i++)
        sharers += all[i].place == own.place;
    mimo_family_set_sharers(comm->family, sharers);
    return mimo_recorder_meet(comm->family, all);
}

/* The last steps of a creation, to which all ranks have come with what they need. */
static mimo_status settle(mimo_comm *comm, mimo_ring_identity *all, const char *call)
{
    return mimo_agree_as(comm, MIMO_AGREE_CREATE, meet(comm, all, call),
                         mimo_signature_start(MIMO_CALL_COMM_CREATE), call);
}

/* What `settle` needs on this rank. */
static mimo_status prepare_settling(mpi_comm *comm, mimo_ring_identity **all)
{
    MIMO_TRY(mimo_reserve(all, comm->base.size, sizeof **all));
    return host_allgather_prepare(&comm->base, sizeof **all);
}

mimo_status mimo_comm_create_mpi(mimo_comm **out, MPI_Comm mpi, const mimo_comm_desc *desc)
{
    mpi_comm *comm = NULL;
    mimo_ring_identity *all = NULL;
    MPI_Comm own = MPI_COMM_NULL;
    MIMO_TRY(check_handle(out, mpi, "mimo_comm_create_mpi"));
    mimo_mpi_close_rest();
    mimo_status local = first_create_over(&comm, mpi, desc);
    if (local == MIMO_OK)
        local = prepare_settling(comm, &all);
    MPI_Comm *handle = comm ? &comm->handle : &own;
    mimo_status status = duplicate(handle, mpi, comm);
    if (status == MIMO_OK)
        status = agree_first(*handle, comm, local);
    if (status != MIMO_OK) {
        first_destroy(comm, *handle);
        mimo_release(all);
        return status;
    }
    set_handle(comm, comm->handle, true);
    status = settle(&comm->base, all, "mimo_comm_create_mpi");
    if (status == MIMO_OK)
        *out = &comm->base;
    else
        mimo_comm_destroy(&comm->base);
    mimo_release(all);
    return status;
}

mimo_status mimo_comm_borrow_mpi(mimo_comm **out, MPI_Comm mpi, const mimo_comm_desc *desc)
{
    mpi_comm *comm;
    MIMO_TRY(check_handle(out, mpi, "mimo_comm_borrow_mpi"));
    MIMO_TRY(first_create_over(&comm, mpi, desc));
    set_handle(comm, mpi, false);
    *out = &comm->base;
    return MIMO_OK;
}

/* ------------------------------- <mimo/survivors.h> ------------------------------- */

/* The handle of those that go on, and this rank's communicator of it. A rank without memory comes
 * to MPI's call all the same, as the others wait there; afterwards it is missing. */
static mimo_status make_of_survivors(mpi_comm **out, mimo_ring_identity **all, mpi_comm *ended,
                                     const mimo_survivors_terms *terms)
{
    MPI_Comm handle;
    int rank = 0;
    while (terms->ranks[rank] != ended->base.rank)
        rank++;
    mimo_status local = first_create(out, rank, terms->count, &terms->common);
    if (local == MIMO_OK)
        local = mimo_survivors_introduce(&(*out)->base, &ended->base, terms);
    if (local == MIMO_OK)
        local = prepare_settling(*out, all);
    mimo_status made = mimo_mpi_survivor_group(&handle, ended->handle, terms);
    if (made == MIMO_OK && *out)
        set_handle(*out, handle, true);
    return local != MIMO_OK ? local : made;
}

/* A family that ends here is the caller's all the same. It may not have ended on other ranks yet,
 * and all have to recover the same communicator next. */
static mimo_status settle_survivors(mpi_comm *made, mimo_ring_identity *all,
                                    const mimo_survivors_terms *terms)
{
    static const int64_t millisecond = 1000000;
    mimo_family *family = made->base.family;
    int64_t deadline = mimo_comm_deadline(&made->base);
    family->generation = terms->generation;
    MIMO_TRY(mimo_comm_set_deadline(&made->base, terms->limit / millisecond));
    mimo_status status = settle(&made->base, all, "mimo_comm_survivors");
    MIMO_TRY(mimo_comm_set_deadline(&made->base, deadline));
    return mimo_family_status(family) == MIMO_OK ? status : MIMO_OK;
}

static mimo_status comm_survivors(mimo_comm **out, mimo_comm *base, mimo_survivors_terms *terms)
{
    mpi_comm *ended = (mpi_comm *)base, *made = NULL;
    mimo_ring_identity *all = NULL;
    if (!ended->mail)
        MIMO_TRY(mimo_mpi_survivor_mail_create(&ended->mail, ended->handle));
    const mimo_survivors_carrier carrier = mimo_mpi_survivor_carrier(ended->mail);
    MIMO_TRY(mimo_survivors_agree(terms, base, &carrier));
    mimo_status status = make_of_survivors(&made, &all, ended, terms);
    if (status == MIMO_OK)
        status = settle_survivors(made, all, terms);
    if (status == MIMO_OK)
        *out = &made->base;
    else if (made)
        mimo_comm_destroy(&made->base);
    mimo_release(all);
    return status;
}

static int bootstrap_allgather(void *context, void *to, const void *from, size_t bytes)
{
    MPI_Comm *mpi = context;
    if (bytes > INT_MAX)
        return 1;
    return MPI_Allgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, *mpi) != MPI_SUCCESS;
}

mimo_status mimo_bootstrap_from_mpi(mimo_bootstrap *out, MPI_Comm *mpi)
{
    mimo_bootstrap made = MIMO_BOOTSTRAP_INIT;
    MIMO_CHECK(mpi, MIMO_ERR_ARGUMENT, "mimo_bootstrap_from_mpi: mpi is NULL");
    MIMO_TRY(check_handle(out, *mpi, "mimo_bootstrap_from_mpi"));
    MIMO_TRY(rank_in(*mpi, &made.rank, &made.ranks));
    made.allgather = bootstrap_allgather;
    made.context = mpi;
    return mimo_write_descriptor(out, &made, sizeof made, "bootstrap from MPI");
}
