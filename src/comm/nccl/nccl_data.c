/* Collectives on tensors: enqueued on the caller's stream, with staging of the communicator. */
#include "comm/nccl/nccl_state.h"
#include "core/checked.h"
#include "core/dtype_kind.h"
#include "device/cuda_kernels.h"

static const nccl_shared_comm *shared_of(const mimo_comm *comm)
{
    return ((const nccl_comm *)comm)->shared;
}

static mimo_status get_staging(void **out, mimo_comm *comm, mimo_stream stream,
                               mimo_staging_use use, int64_t bytes)
{
    const mimo_staging_key key = {comm->device, stream, use};
    return mimo_staging_get(out, &comm->staging, &key, bytes);
}

static ncclDataType_t type_of(mimo_dtype dtype)
{
    switch (dtype) {
    case MIMO_F32:
        return ncclFloat32;
    case MIMO_F16:
        return ncclFloat16;
    case MIMO_BF16:
        return ncclBfloat16;
    case MIMO_F64:
        return ncclFloat64;
    case MIMO_I32:
        return ncclInt32;
    case MIMO_I64:
        return ncclInt64;
    case MIMO_F8: /* no caller combines it */
        break;
    }
    return ncclNumTypes; /* which NCCL refuses */
}

/* ------------------------------------ all-reduce ----------------------------------- */

static mimo_status reduce(mimo_comm *comm, const mimo_reduction *reduction, mimo_stream stream)
{
    nccl_comm *own = (nccl_comm *)comm;
    ncclRedOp_t op = reduction->op == MIMO_MAX ? ncclMax : ncclSum;
    MIMO_TRY_NCCL(own, ncclAllReduce(reduction->data, reduction->data, (size_t)reduction->count,
                                     type_of(reduction->dtype), op, own->shared->handle, stream));
    return MIMO_OK;
}

/* NCCL rounds 16-bit floats at every step, so they are summed in f32. */
static mimo_status reduce_wide(mimo_comm *comm, const mimo_reduction *reduction, mimo_stream stream)
{
    void *staging;
    int64_t bytes, count = reduction->count;
    MIMO_TRY(mimo_mul(&bytes, count, (int64_t)sizeof(float)));
    MIMO_TRY(get_staging(&staging, comm, stream, MIMO_STAGING_PACKED, bytes));
    MIMO_TRY_CUDA(mimo_cuda_widen(staging, reduction->data, count, reduction->dtype, stream));
    const mimo_reduction wide = {
        .data = staging, .count = count, .dtype = MIMO_F32, .op = reduction->op};
    MIMO_TRY(reduce(comm, &wide, stream));
    MIMO_TRY_CUDA(mimo_cuda_narrow(reduction->data, staging, count, reduction->dtype, stream));
    return MIMO_OK;
}

static bool rounds_at_each_step(mimo_dtype dtype, mimo_reduce op)
{
    return mimo_dtype_is_half(dtype) && op == MIMO_SUM;
}

mimo_status mimo_nccl_allreduce_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_reduction *reduction, mimo_stream stream)
{
    const nccl_shared_comm *shared = shared_of(comm);
    bool rounds = rounds_at_each_step(reduction->dtype, reduction->op) && !reduction->single_term;
    *out = NULL;
    if (!shared || reduction->count == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared));
    return rounds ? reduce_wide(comm, reduction, stream) : reduce(comm, reduction, stream);
}

/* ---------------------------------- reduce-scatter --------------------------------- */

static mimo_status reduce_blocks(mimo_comm *comm, const mimo_block_reduction *it,
                                 mimo_stream stream)
{
    nccl_comm *own = (nccl_comm *)comm;
    ncclRedOp_t op = it->op == MIMO_MAX ? ncclMax : ncclSum;
    MIMO_TRY_NCCL(own, ncclReduceScatter(it->from, it->to, (size_t)it->count, type_of(it->dtype),
                                         op, own->shared->handle, stream));
    return MIMO_OK;
}

/* As reduce_wide. The result lies in place among the wide blocks. */
static mimo_status reduce_wide_blocks(mimo_comm *comm, const mimo_block_reduction *it,
                                      mimo_stream stream)
{
    void *staging;
    int64_t all = comm->size * it->count, bytes;
    MIMO_TRY(mimo_mul(&bytes, all, (int64_t)sizeof(float)));
    MIMO_TRY(get_staging(&staging, comm, stream, MIMO_STAGING_PACKED, bytes));
    float *own = (float *)staging + comm->rank * it->count;
    MIMO_TRY_CUDA(mimo_cuda_widen(staging, it->from, all, it->dtype, stream));
    const mimo_block_reduction wide = {
        .to = own, .from = staging, .count = it->count, .dtype = MIMO_F32, .op = it->op};
    MIMO_TRY(reduce_blocks(comm, &wide, stream));
    MIMO_TRY_CUDA(mimo_cuda_narrow(it->to, own, it->count, it->dtype, stream));
    return MIMO_OK;
}

mimo_status mimo_nccl_reduce_scatter_start(mimo_request **out, mimo_comm *comm,
                                           const mimo_block_reduction *reduction,
                                           mimo_stream stream)
{
    *out = NULL;
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared_of(comm)));
    return rounds_at_each_step(reduction->dtype, reduction->op)
               ? reduce_wide_blocks(comm, reduction, stream)
               : reduce_blocks(comm, reduction, stream);
}

/* ------------------------------------ broadcast ------------------------------------ */

mimo_status mimo_nccl_broadcast_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_broadcast *broadcast, mimo_stream stream)
{
    const nccl_shared_comm *shared = shared_of(comm);
    void *data = broadcast->data;
    size_t bytes = (size_t)broadcast->bytes;
    *out = NULL;
    if (!shared || bytes == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared));
    MIMO_TRY_NCCL((nccl_comm *)comm, ncclBroadcast(data, data, bytes, ncclUint8, broadcast->root,
                                                   shared->handle, stream));
    return MIMO_OK;
}

/* ------------------------------------ all-to-all ----------------------------------- */

/* Each rank goes through its peers from the next one above itself on (comm/peer_order.h), so they
 * do not all begin with the same one. ncclAlltoAll is of 2.28, and an older NCCL may run. */
static ncclResult_t swap_parts(const mimo_comm *comm, const mimo_alltoall *it, mimo_stream stream)
{
    ncclComm_t handle = shared_of(comm)->handle;
    size_t bytes = (size_t)it->bytes;
    ncclResult_t code = ncclSuccess;
    for (int distance = 1; distance < comm->size && code == ncclSuccess; distance++) {
        int to = (comm->rank + distance) % comm->size;
        int from = (comm->rank - distance + comm->size) % comm->size;
        code =
            ncclSend((const char *)it->from + to * it->bytes, bytes, ncclUint8, to, handle, stream);
        if (code == ncclSuccess)
            code =
                ncclRecv((char *)it->to + from * it->bytes, bytes, ncclUint8, from, handle, stream);
    }
    return code;
}

mimo_status mimo_nccl_alltoall_start(mimo_request **out, mimo_comm *comm,
                                     const mimo_alltoall *alltoall, mimo_stream stream)
{
    int64_t bytes = alltoall->bytes, own = comm->rank * bytes;
    const mimo_rows to = mimo_one_row((char *)alltoall->to + own, bytes);
    const mimo_rows from = mimo_one_row((const char *)alltoall->from + own, bytes);
    *out = NULL;
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared_of(comm)));
    MIMO_TRY(comm->device->copy_rows(&to, &from, stream));
    MIMO_TRY_NCCL((nccl_comm *)comm, ncclGroupStart());
    return mimo_nccl_end_group((nccl_comm *)comm, swap_parts(comm, alltoall, stream));
}

/* ------------------------------------ all-gather ----------------------------------- */

/* One all-gather of rows. */
typedef struct gathering {
    mimo_comm *comm;
    const mimo_rows *to; /* where rank 0's rows go */
    int64_t step;
    mimo_rows own; /* where this rank's rows go */
    const mimo_rows *from;
    int64_t bytes; /* of one rank */
    mimo_stream stream;
} gathering;

/* Whether the ranks' rows follow one another in `to`, so that NCCL can gather straight into it. */
static bool is_contiguous(const gathering *it)
{
    return mimo_rows_are_one_run(it->to) && it->step == it->to->n_outer * it->to->n_inner;
}

/* This rank's rows as one run: where they are, or packed at `memory`. */
static mimo_status pack(const void **out, const gathering *it, void *memory)
{
    const mimo_rows *from = it->from->base ? it->from : &it->own;
    const mimo_rows packed = mimo_rows_packed(memory, from);
    *out = mimo_rows_are_one_run(from) ? mimo_rows_begin(from) : memory;
    return mimo_rows_are_one_run(from) ? MIMO_OK
                                       : it->comm->device->copy_rows(&packed, from, it->stream);
}

static mimo_status all_gather(const gathering *it, void *to, const void *from)
{
    nccl_comm *comm = (nccl_comm *)it->comm;
    MIMO_TRY_NCCL(comm, ncclAllGather(from, to, (size_t)it->bytes, ncclUint8, comm->shared->handle,
                                      it->stream));
    return MIMO_OK;
}

/* Copy the gathered rows to where they go. One copy is enough where a rank's inner loop is one run
 * and the runs of all ranks lie side by side: its outer loop runs over the ranks. */
static mimo_status unpack(const gathering *it, char *gathered)
{
    const mimo_rows *to = it->to;
    int64_t run = to->n_inner, ranks = it->comm->size;
    if (to->inner == 1 && it->step == run && to->outer % run == 0 && to->first % run == 0) {
        mimo_rows targets = {to->base, to->row_bytes * run, to->first / run, ranks,
                             1,        to->n_outer,         to->outer / run};
        mimo_rows packed = {gathered, to->row_bytes * run, 0, ranks, to->n_outer, to->n_outer, 1};
        return it->comm->device->copy_rows(&targets, &packed, it->stream);
    }
    for (int64_t rank = 0; rank < ranks; rank++) {
        mimo_rows target = *to;
        const mimo_rows packed = mimo_rows_packed(gathered + rank * it->bytes, to);
        target.first += rank * it->step;
        MIMO_TRY(it->comm->device->copy_rows(&target, &packed, it->stream));
    }
    return MIMO_OK;
}

mimo_status mimo_nccl_allgather_start(mimo_request **out, mimo_comm *comm,
                                      const mimo_gather *gather, mimo_stream stream)
{
    const mimo_rows *to = &gather->to, *from = &gather->from;
    gathering it = {comm, to, gather->step, *to, from, 0, stream};
    const nccl_shared_comm *shared = shared_of(comm);
    void *packed = NULL, *gathered;
    const void *own;
    int64_t rows, all;
    *out = NULL;
    it.own.first += comm->rank * gather->step;
    if (!shared) /* one rank */
        return from->base ? comm->device->copy_rows(&it.own, from, stream) : MIMO_OK;
    MIMO_TRY(mimo_nccl_check((nccl_comm *)comm, shared));
    MIMO_TRY(mimo_mul(&rows, to->n_outer, to->n_inner));
    MIMO_TRY(mimo_mul(&it.bytes, rows, to->row_bytes));
    MIMO_TRY(mimo_mul(&all, it.bytes, comm->size));
    if (it.bytes == 0)
        return MIMO_OK;
    if (!mimo_rows_are_one_run(from->base ? from : &it.own))
        MIMO_TRY(get_staging(&packed, comm, stream, MIMO_STAGING_PACKED, it.bytes));
    MIMO_TRY(pack(&own, &it, packed));
    if (is_contiguous(&it))
        return all_gather(&it, mimo_rows_begin(to), own);
    MIMO_TRY(get_staging(&gathered, comm, stream, MIMO_STAGING_GATHERED, all));
    MIMO_TRY(all_gather(&it, gathered, own));
    return unpack(&it, gathered);
}
