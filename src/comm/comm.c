/* The public calls of every communicator: checks, an agreement, then the backend's nonblocking call
 * and a wait for it. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "comm/recorder.h"
#include "core/address.h"
#include "core/check.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/dtype_kind.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/profile.h"

MIMO_DEFINE_INIT(mimo_bootstrap, MIMO_BOOTSTRAP_INIT)

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

/* What a rank has made of a split, with the ranks of its group in the family. */
typedef struct made_split {
    mimo_comm *comm; /* NULL: this rank is in none, or it failed */
    int *ranks;
} made_split;

static mimo_status make_split(made_split *out, mimo_comm *parent, int color, int key)
{
    MIMO_TRY(parent->backend->split(&out->comm, parent, color, key));
    if (!out->comm || !parent->backend->family_ranks)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&out->ranks, out->comm->size, sizeof *out->ranks));
    parent->backend->family_ranks(out->comm, out->ranks);
    return MIMO_OK;
}

static void identify_split(const made_split *made, const mimo_comm *parent, int color)
{
    mimo_comm *comm = made->comm;
    comm->id = mimo_hash_int(mimo_hash_int(parent->id, (int64_t)parent->calls), color);
    comm->device = parent->device;
    comm->device_number = parent->device_number;
    if (made->ranks)
        mimo_recorder_add(comm, made->ranks);
}

mimo_status mimo_comm_split(mimo_comm **out, mimo_comm *parent, int color, int key)
{
    MIMO_RANGE();
    MIMO_CHECK(parent, MIMO_ERR_ARGUMENT, "split: parent is NULL");
    MIMO_ENTER(parent, "split");
    MIMO_TRY(mimo_agree_as(parent, MIMO_AGREE_CREATE, split_check(out, color),
                           signature_of(MIMO_CALL_COMM_SPLIT, 0, 0, 0), "comm split"));
    /* A rank can still fail alone, for lack of memory. Then all ranks fail and release what they
     * made. */
    made_split made = {NULL, NULL};
    mimo_status status =
        mimo_agree_as(parent, MIMO_AGREE_ALWAYS, make_split(&made, parent, color, key),
                      mimo_signature_start(MIMO_CALL_COMM_SPLIT), "comm split");
    if (made.comm)
        identify_split(&made, parent, color);
    mimo_release(made.ranks);
    if (status == MIMO_OK)
        *out = made.comm;
    else
        mimo_comm_destroy(made.comm);
    return status;
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

/* Whether numbers can be combined so, and the bytes of `count` of them. */
static mimo_status combination_check(int64_t *bytes, const char *call, int64_t count,
                                     mimo_dtype dtype, mimo_reduce op)
{
    MIMO_CHECK(count >= 0, MIMO_ERR_ARGUMENT, "%s: count %" PRId64 " is negative", call, count);
    MIMO_CHECK(mimo_dtype_size(dtype) > 0, MIMO_ERR_ARGUMENT, "%s: unknown dtype %d", call,
               (int)dtype);
    MIMO_CHECK(mimo_dtype_can_add(dtype), MIMO_ERR_UNSUPPORTED,
               "%s: %s can be moved, not combined (count %" PRId64 ")", call,
               mimo_dtype_name(dtype), count);
    MIMO_CHECK(op == MIMO_SUM || op == MIMO_MAX, MIMO_ERR_ARGUMENT, "%s: unknown op %d", call,
               (int)op);
    return mimo_mul(bytes, count, (int64_t)mimo_dtype_size(dtype));
}

static mimo_status allreduce_check(const void *data, int64_t count, mimo_dtype dtype,
                                   mimo_reduce op)
{
    int64_t bytes;
    MIMO_TRY(combination_check(&bytes, "allreduce", count, dtype, op));
    MIMO_CHECK(data || count == 0, MIMO_ERR_ARGUMENT, "allreduce: data is NULL, count %" PRId64,
               count);
    return mimo_check_address("allreduce: data", data, count, dtype);
}

mimo_status mimo_comm_allreduce(mimo_comm *comm, void *data, int64_t count, mimo_dtype dtype,
                                mimo_reduce op, mimo_stream stream)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "allreduce: comm is NULL");
    MIMO_ENTER(comm, "allreduce");
    snprintf(call, sizeof call, "allreduce %s %s[%" PRId64 "]", op == MIMO_MAX ? "MAX" : "SUM",
             mimo_dtype_name(dtype), count);
    const mimo_reduction reduction = {
        .data = data, .count = count, .dtype = dtype, .op = op, .guarded = mimo_is_guarding(comm)};
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

/* Whether `own` is this rank's place among the parts of all ranks, of `bytes` bytes each. */
static bool is_in_place(const mimo_comm *comm, const void *all, const void *own, int64_t bytes)
{
    return (uintptr_t)own == (uintptr_t)all + (uintptr_t)(comm->rank * bytes);
}

/* A rank's own part may lie in its place among all parts. Anywhere else among them, parts would be
 * overwritten while they are read. The bytes of all fit 64 bits. */
static mimo_status check_place(const mimo_comm *comm, const char *call, const void *all,
                               const void *own, int64_t bytes)
{
    int64_t total = comm->size * bytes;
    uintptr_t first = (uintptr_t)all, at = (uintptr_t)own;
    bool apart = at + (uintptr_t)bytes <= first || first + (uintptr_t)total <= at;
    MIMO_CHECK(apart || is_in_place(comm, all, own, bytes), MIMO_ERR_ARGUMENT,
               "%s: the %" PRId64 " bytes at %p lie at byte %" PRId64 " of the %" PRId64
               " at %p of all ranks, and this rank's place is byte %" PRId64,
               call, bytes, own, (int64_t)(at - first), total, all, comm->rank * bytes);
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
    return bytes > 0 ? check_place(comm, "allgather", to, from, bytes) : MIMO_OK;
}

mimo_status mimo_comm_allgather(mimo_comm *comm, void *to, const void *from, int64_t bytes,
                                mimo_stream stream)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "allgather: comm is NULL");
    MIMO_ENTER(comm, "allgather");
    snprintf(call, sizeof call, "allgather of %" PRId64 " bytes a rank", bytes);
    bool guarded = mimo_is_guarding(comm);
    mimo_status local = allgather_check(comm, to, from, bytes);
    if (local == MIMO_OK)
        local = mimo_guard_prepare(comm, guarded, comm->size, bytes);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_DATA, local,
                           signature_of(MIMO_CALL_COMM_ALLGATHER, bytes, 0, 0), call));
    if (bytes == 0)
        return MIMO_OK;
    bool in_place = is_in_place(comm, to, from, bytes);
    const mimo_gather gather = {.to = mimo_one_row(to, bytes),
                                .from = mimo_one_row(in_place ? NULL : from, bytes),
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
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "broadcast: comm is NULL");
    MIMO_ENTER(comm, "broadcast");
    snprintf(call, sizeof call, "broadcast of %" PRId64 " bytes from rank %d", bytes, root);
    const mimo_broadcast broadcast = {
        .data = data, .bytes = bytes, .root = root, .guarded = mimo_is_guarding(comm)};
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

/* A call of one rank: its part is all there is. */
static mimo_status keep_part(const mimo_comm *comm, void *to, const void *from, int64_t bytes,
                             mimo_stream stream)
{
    const mimo_rows target = mimo_one_row(to, bytes);
    const mimo_rows source = mimo_one_row(from, bytes);
    return to == from ? MIMO_OK : comm->device->copy_rows(&target, &source, stream);
}

/* MPI takes no result among what it reads. So a call in place is guarded: its result goes through
 * memory of the library. */
static bool is_guarding_blocks(const mimo_comm *comm, const mimo_block_reduction *it, int64_t bytes)
{
    bool stages = comm->backend->guard_prepare && comm->size > 1;
    return mimo_is_guarding(comm) || (stages && is_in_place(comm, it->from, it->to, bytes));
}

/* Writes the bytes of a block, and whether the call is guarded. */
static mimo_status reduce_scatter_check(mimo_block_reduction *it, int64_t *bytes,
                                        const mimo_comm *comm)
{
    const char *call = "reduce_scatter";
    int64_t total;
    MIMO_TRY(combination_check(bytes, call, it->count, it->dtype, it->op));
    MIMO_TRY(mimo_mul(&total, *bytes, comm->size));
    if (it->count == 0)
        return MIMO_OK;
    MIMO_CHECK(it->to && it->from, MIMO_ERR_ARGUMENT, "%s: %s is NULL, count %" PRId64 " a rank",
               call, it->to ? "from" : "to", it->count);
    MIMO_TRY(mimo_check_address("reduce_scatter: to", it->to, it->count, it->dtype));
    MIMO_TRY(mimo_check_address("reduce_scatter: from", it->from, it->count, it->dtype));
    MIMO_TRY(check_place(comm, call, it->from, it->to, *bytes));
    it->guarded = is_guarding_blocks(comm, it, *bytes);
    return MIMO_OK;
}

mimo_status mimo_comm_reduce_scatter(mimo_comm *comm, void *to, const void *from, int64_t count,
                                     mimo_dtype dtype, mimo_reduce op, mimo_stream stream)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    int64_t bytes = 0;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "reduce_scatter: comm is NULL");
    MIMO_ENTER(comm, "reduce_scatter");
    snprintf(call, sizeof call, "reduce_scatter %s %s[%" PRId64 "] a rank",
             op == MIMO_MAX ? "MAX" : "SUM", mimo_dtype_name(dtype), count);
    mimo_block_reduction reduction = {
        .to = to, .from = from, .count = count, .dtype = dtype, .op = op};
    mimo_status local = reduce_scatter_check(&reduction, &bytes, comm);
    if (local == MIMO_OK)
        local = mimo_guard_prepare(comm, reduction.guarded, (int64_t)comm->size + 1, bytes);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_DATA, local,
                           signature_of(MIMO_CALL_COMM_REDUCE_SCATTER, count, dtype, op), call));
    if (count == 0)
        return MIMO_OK;
    if (comm->size == 1)
        return keep_part(comm, to, from, bytes, stream);
    MIMO_TRY(comm->backend->reduce_scatter_start(&request, comm, &reduction, stream));
    return mimo_wait(comm, &request, call);
}

static mimo_status alltoall_check(const mimo_comm *comm, const mimo_alltoall *it)
{
    uintptr_t to = (uintptr_t)it->to, from = (uintptr_t)it->from;
    int64_t total;
    MIMO_CHECK(it->bytes >= 0, MIMO_ERR_ARGUMENT, "alltoall: %" PRId64 " bytes", it->bytes);
    MIMO_TRY(mimo_mul(&total, it->bytes, comm->size));
    if (it->bytes == 0)
        return MIMO_OK;
    MIMO_CHECK(it->to && it->from, MIMO_ERR_ARGUMENT,
               "alltoall: %s is NULL, %" PRId64 " bytes a rank", it->to ? "from" : "to", it->bytes);
    MIMO_CHECK(to + (uintptr_t)total <= from || from + (uintptr_t)total <= to, MIMO_ERR_ARGUMENT,
               "alltoall: to and from overlap: %" PRId64 " bytes at %p and at %p", total, it->to,
               it->from);
    return MIMO_OK;
}

mimo_status mimo_comm_alltoall(mimo_comm *comm, void *to, const void *from, int64_t bytes,
                               mimo_stream stream)
{
    MIMO_RANGE();
    char call[MIMO_CALL_TEXT];
    mimo_request *request = NULL;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "alltoall: comm is NULL");
    MIMO_ENTER(comm, "alltoall");
    snprintf(call, sizeof call, "alltoall of %" PRId64 " bytes a rank", bytes);
    const mimo_alltoall alltoall = {
        .to = to, .from = from, .bytes = bytes, .guarded = mimo_is_guarding(comm)};
    mimo_status local = alltoall_check(comm, &alltoall);
    if (local == MIMO_OK)
        local = mimo_guard_prepare(comm, alltoall.guarded, 2 * (int64_t)comm->size, bytes);
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_DATA, local,
                           signature_of(MIMO_CALL_COMM_ALLTOALL, bytes, 0, 0), call));
    if (bytes == 0)
        return MIMO_OK;
    if (comm->size == 1)
        return keep_part(comm, to, from, bytes, stream);
    MIMO_TRY(comm->backend->alltoall_start(&request, comm, &alltoall, stream));
    return mimo_wait(comm, &request, call);
}

/* An agreement is a barrier: its MAX ends on no rank before every rank has begun it. MIMO_AGREE=0
 * does not remove this one. */
mimo_status mimo_comm_barrier(mimo_comm *comm)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "barrier: comm is NULL");
    MIMO_ENTER(comm, "barrier");
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, MIMO_OK,
                         signature_of(MIMO_CALL_COMM_BARRIER, 0, 0, 0), "barrier");
}

mimo_status mimo_comm_synchronize(mimo_comm *comm, mimo_stream stream)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_synchronize: comm is NULL");
    MIMO_ENTER(comm, "mimo_comm_synchronize");
    return mimo_wait_for_stream(comm, stream, "the work on a stream");
}
