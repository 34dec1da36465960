/* One MPI_Ialltoall of parts of any size. In a guarded call the request's memory is a copy of the
 * parts that this rank sends. Those that it receives follow. */
#include "comm/mpi/mpi_alltoall.h"

#include <string.h>

#include "comm/mpi/mpi_types.h"

int64_t mimo_mpi_alltoall_bytes(const mimo_comm *comm, const mimo_alltoall *it)
{
    return it->guarded ? 2 * comm->size * it->bytes : 0;
}

static mimo_alltoall parts_of(mimo_request *request, const mimo_comm *comm, const mimo_alltoall *it)
{
    mimo_alltoall parts = *it;
    int64_t all = comm->size * it->bytes;
    if (!it->guarded)
        return parts;
    memcpy(request->memory, it->from, (size_t)all);
    mimo_mpi_request_copy_back(request, it->to, all, all);
    parts.from = request->memory;
    parts.to = request->memory + all;
    return parts;
}

mimo_status mimo_mpi_alltoall_start(mimo_request *request, const mimo_comm *comm, MPI_Comm handle,
                                    const mimo_alltoall *it)
{
    const mimo_alltoall parts = parts_of(request, comm, it);
    MIMO_TRY(mimo_mpi_bytes_type(&request->types[0], it->bytes));
    MIMO_TRY_MPI(MPI_Ialltoall(parts.from, 1, request->types[0], parts.to, 1, request->types[0],
                               handle, request->mpi));
    return MIMO_OK;
}
