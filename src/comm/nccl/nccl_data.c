/* Collectives on tensors: enqueued on the caller's stream, staged in the memory of the
 * communicator. */
#include "comm/nccl/nccl_state.h"
#include "core/checked.h"
#include "device/cuda_kernels.h"

static const nccl_team *team_of(const mimo_comm *comm)
{
    return ((const nccl_comm *)comm)->team;
}

static mimo_status room_of(void **out, mimo_comm *comm, mimo_stream stream, mimo_staging_slot slot,
                           int64_t bytes)
{
    const mimo_staging_key key = {comm->device, stream, slot};
    return mimo_staging_get(out, &comm->staging, &key, bytes);
}

/* ------------------------------------ all-reduce ----------------------------------- */

static mimo_status reduce(mimo_comm *comm, const mimo_reduction *reduction, mimo_stream stream)
{
    nccl_comm *own = (nccl_comm *)comm;
    ncclRedOp_t op = reduction->op == MIMO_MAX ? ncclMax : ncclSum;
    MIMO_TRY_NCCL(own,
                  ncclAllReduce(reduction->data, reduction->data, (size_t)reduction->count,
                                mimo_nccl_type(reduction->dtype), op, own->team->handle, stream));
    return MIMO_OK;
}

/* NCCL rounds 16-bit floats at every step, so a real sum of them is made in f32. */
static mimo_status reduce_wide(mimo_comm *comm, const mimo_reduction *reduction, mimo_stream stream)
{
    void *room;
    int64_t bytes, count = reduction->count;
    MIMO_TRY(mimo_mul(&bytes, count, (int64_t)sizeof(float)));
    MIMO_TRY(room_of(&room, comm, stream, MIMO_STAGING_PACKED, bytes));
    MIMO_TRY_CUDA(mimo_cuda_widen(room, reduction->data, count, reduction->dtype, stream));
    const mimo_reduction wide = {room, count, MIMO_F32, reduction->op, reduction->lone, false};
    MIMO_TRY(reduce(comm, &wide, stream));
    MIMO_TRY_CUDA(mimo_cuda_narrow(reduction->data, room, count, reduction->dtype, stream));
    return MIMO_OK;
}

mimo_status mimo_nccl_allreduce_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_reduction *reduction, mimo_stream stream)
{
    const nccl_team *team = team_of(comm);
    bool rounds = (reduction->dtype == MIMO_F16 || reduction->dtype == MIMO_BF16) &&
                  reduction->op == MIMO_SUM && !reduction->lone;
    *out = NULL;
    if (!team || reduction->count == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_nccl_check(team));
    return rounds ? reduce_wide(comm, reduction, stream) : reduce(comm, reduction, stream);
}

/* ------------------------------------ broadcast ------------------------------------ */

mimo_status mimo_nccl_broadcast_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_broadcast *broadcast, mimo_stream stream)
{
    const nccl_team *team = team_of(comm);
    void *data = broadcast->data;
    size_t bytes = (size_t)broadcast->bytes;
    *out = NULL;
    if (!team || bytes == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_nccl_check(team));
    MIMO_TRY_NCCL((nccl_comm *)comm, ncclBroadcast(data, data, bytes, ncclUint8, broadcast->root,
                                                   team->handle, stream));
    return MIMO_OK;
}

/* ------------------------------------ all-gather ----------------------------------- */

/* One all-gather of rows. */
typedef struct gathering {
    mimo_comm *comm;
    const mimo_rows *to; /* rank 0's place */
    int64_t step;
    mimo_rows own; /* this rank's place in `to` */
    const mimo_rows *from;
    int64_t bytes; /* of one rank */
    mimo_stream stream;
} gathering;

/* The ranks' places follow one another: NCCL can gather straight into them. */
static bool lands_in_place(const gathering *it)
{
    return mimo_rows_are_one_run(it->to) && it->step == it->to->n_outer * it->to->n_inner;
}

/* This rank's rows in one piece: where they are, or packed into `room`. */
static mimo_status pack(const void **out, const gathering *it, void *room)
{
    const mimo_rows *from = it->from->base ? it->from : &it->own;
    mimo_rows packed = {room, from->row_bytes, 0, from->n_outer, from->n_inner, from->n_inner, 1};
    *out = mimo_rows_are_one_run(from) ? mimo_rows_begin(from) : room;
    return mimo_rows_are_one_run(from) ? MIMO_OK
                                       : it->comm->device->copy_rows(&packed, from, it->stream);
}

static mimo_status all_gather(const gathering *it, void *to, const void *from)
{
    nccl_comm *comm = (nccl_comm *)it->comm;
    MIMO_TRY_NCCL(comm, ncclAllGather(from, to, (size_t)it->bytes, ncclUint8, comm->team->handle,
                                      it->stream));
    return MIMO_OK;
}

/* From the gathered room to the ranks' places. Where a rank's inner loop is one contiguous run and
 * the ranks' runs stand side by side, one copy with the ranks as its outer loop does it. */
static mimo_status spread(const gathering *it, char *room)
{
    const mimo_rows *to = it->to;
    int64_t run = to->n_inner, ranks = it->comm->size;
    if (to->inner == 1 && it->step == run && to->outer % run == 0 && to->first % run == 0) {
        mimo_rows places = {to->base, to->row_bytes * run, to->first / run, ranks,
                            1,        to->n_outer,         to->outer / run};
        mimo_rows packed = {room, to->row_bytes * run, 0, ranks, to->n_outer, to->n_outer, 1};
        return it->comm->device->copy_rows(&places, &packed, it->stream);
    }
    for (int64_t rank = 0; rank < ranks; rank++) {
        mimo_rows place = *to;
        mimo_rows packed = {room + rank * it->bytes, to->row_bytes, 0, to->n_outer, run, run, 1};
        place.first += rank * it->step;
        MIMO_TRY(it->comm->device->copy_rows(&place, &packed, it->stream));
    }
    return MIMO_OK;
}

mimo_status mimo_nccl_allgather_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_gather *gather, mimo_stream stream)
{
    const mimo_rows *to = &gather->to, *from = &gather->from;
    gathering it = {comm, to, gather->step, *to, from, 0, stream};
    const nccl_team *team = team_of(comm);
    void *packed = NULL, *room;
    const void *own;
    int64_t rows, all;
    *out = NULL;
    it.own.first += comm->rank * gather->step;
    if (!team) /* a group of one */
        return from->base ? comm->device->copy_rows(&it.own, from, stream) : MIMO_OK;
    MIMO_TRY(mimo_nccl_check(team));
    MIMO_TRY(mimo_mul(&rows, to->n_outer, to->n_inner));
    MIMO_TRY(mimo_mul(&it.bytes, rows, to->row_bytes));
    MIMO_TRY(mimo_mul(&all, it.bytes, comm->size));
    if (it.bytes == 0)
        return MIMO_OK;
    if (!mimo_rows_are_one_run(from->base ? from : &it.own))
        MIMO_TRY(room_of(&packed, comm, stream, MIMO_STAGING_PACKED, it.bytes));
    MIMO_TRY(pack(&own, &it, packed));
    if (lands_in_place(&it))
        return all_gather(&it, mimo_rows_begin(to), own);
    MIMO_TRY(room_of(&room, comm, stream, MIMO_STAGING_GATHERED, all));
    MIMO_TRY(all_gather(&it, room, own));
    return spread(&it, room);
}
