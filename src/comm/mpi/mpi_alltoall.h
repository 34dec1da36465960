/* A part from each rank to each rank. */
#ifndef MIMO_COMM_MPI_ALLTOALL_H
#define MIMO_COMM_MPI_ALLTOALL_H

#include "comm/mpi/mpi_request.h"

/* Bytes of the request's memory. It takes one MPI request. */
int64_t mimo_mpi_alltoall_bytes(const mimo_comm *comm, const mimo_alltoall *it);
mimo_status mimo_mpi_alltoall_start(mimo_request *request, const mimo_comm *comm, MPI_Comm handle,
                                    const mimo_alltoall *it);

#endif
