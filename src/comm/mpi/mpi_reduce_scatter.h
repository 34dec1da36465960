/* Reduce-scatter: of each rank's blocks, the sum of its own. */
#ifndef MIMO_COMM_MPI_REDUCE_SCATTER_H
#define MIMO_COMM_MPI_REDUCE_SCATTER_H

#include "comm/mpi/mpi_request.h"

/* How MPI combines elements. */
typedef struct mimo_mpi_combination {
    MPI_Datatype type;
    MPI_Op op;
} mimo_mpi_combination;

/* MPI requests, and bytes of the request's memory, of a reduce-scatter. */
int64_t mimo_mpi_block_sums(const mimo_comm *comm, int64_t count);
int64_t mimo_mpi_block_bytes(const mimo_comm *comm, const mimo_block_reduction *it);
mimo_status mimo_mpi_reduce_blocks_start(mimo_request *request, const mimo_comm *comm,
                                         MPI_Comm handle, const mimo_block_reduction *it,
                                         const mimo_mpi_combination *how);

#endif
