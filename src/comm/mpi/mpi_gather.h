/* All-gathers of rows over MPI: a message from each rank to every other rank. */
#ifndef MIMO_COMM_MPI_GATHER_H
#define MIMO_COMM_MPI_GATHER_H

#include <mpi.h>

#include "comm/mpi/mpi_request.h"

/* What a request for one needs: the number of MPI requests, and the bytes of memory (0 where it is
 * not guarded). */
int64_t mimo_mpi_gather_count(const mimo_comm *comm);
int64_t mimo_mpi_gather_bytes(const mimo_comm *comm, const mimo_gather *gather);

/* Start the messages; `handle` is the communicator's. The caller copies this rank's own rows. */
mimo_status mimo_mpi_gather_start(mimo_request *request, mimo_comm *comm, MPI_Comm handle,
                                  const mimo_gather *gather);

/* Where the rows of `rank` go. */
mimo_rows mimo_mpi_gather_target(const mimo_gather *gather, int rank);

#endif
