/*
 * A reduce-scatter is one MPI_Ireduce_scatter_block. Open MPI counts the elements of all blocks in
 * an int there, and reductions do not work on nested types. So past mimo_mpi_elements_per_sum
 * elements in all, each block is reduced by itself, with its rank as the root. (On 8 ranks of one
 * host that took 2 to 10 times as long for up to 2^18 elements a block.)
 */
#include "comm/mpi/mpi_reduce_scatter.h"

#include <string.h>

#include "comm/mpi/mpi_operators.h"
#include "comm/mpi/mpi_types.h"

static bool is_one_call(const mimo_comm *comm, int64_t count)
{
    return count <= mimo_mpi_elements_per_sum() / comm->size;
}

int64_t mimo_mpi_block_sums(const mimo_comm *comm, int64_t count)
{
    return is_one_call(comm, count) ? 1 : comm->size * mimo_mpi_sums(count);
}

static int64_t block_bytes(const mimo_block_reduction *it)
{
    return it->count * (int64_t)mimo_dtype_size(it->dtype);
}

int64_t mimo_mpi_block_bytes(const mimo_comm *comm, const mimo_block_reduction *it)
{
    return it->guarded ? ((int64_t)comm->size + 1) * block_bytes(it) : 0;
}

/* The blocks and the result, as MPI gets them: a guarded call has copies of both. */
static mimo_block_reduction ends_of(mimo_request *request, const mimo_comm *comm,
                                    const mimo_block_reduction *it)
{
    mimo_block_reduction ends = *it;
    int64_t bytes = block_bytes(it), all = comm->size * bytes;
    if (!it->guarded)
        return ends;
    memcpy(request->memory, it->from, (size_t)all);
    mimo_mpi_request_copy_back(request, it->to, bytes, all);
    ends.from = request->memory;
    ends.to = request->memory + all;
    return ends;
}

/* `ends.to` matters on the root alone. */
static mimo_status reduce_block(MPI_Request *out, const mimo_block_reduction *ends, int root,
                                MPI_Comm handle, const mimo_mpi_combination *how)
{
    int64_t element = (int64_t)mimo_dtype_size(ends->dtype);
    const char *from = (const char *)ends->from + root * block_bytes(ends);
    for (int64_t i = 0; i < mimo_mpi_sums(ends->count); i++) {
        int64_t first = i * mimo_mpi_elements_per_sum() * element;
        MIMO_TRY_MPI(MPI_Ireduce(from + first, (char *)ends->to + first,
                                 mimo_mpi_sum_length(ends->count, i), how->type, how->op, root,
                                 handle, &out[i]));
    }
    return MIMO_OK;
}

mimo_status mimo_mpi_reduce_blocks_start(mimo_request *request, const mimo_comm *comm,
                                         MPI_Comm handle, const mimo_block_reduction *it,
                                         const mimo_mpi_combination *how)
{
    const mimo_block_reduction ends = ends_of(request, comm, it);
    if (is_one_call(comm, it->count)) {
        MIMO_TRY_MPI(MPI_Ireduce_scatter_block(ends.from, ends.to, (int)it->count, how->type,
                                               how->op, handle, request->mpi));
        return MIMO_OK;
    }
    int64_t sums = mimo_mpi_sums(it->count);
    for (int root = 0; root < comm->size; root++)
        MIMO_TRY(reduce_block(request->mpi + root * sums, &ends, root, handle, how));
    return MIMO_OK;
}
