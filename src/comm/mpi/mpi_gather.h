/* All-gathers of rows over MPI: a message from each rank to each. */
#ifndef MIMO_COMM_MPI_GATHER_H
#define MIMO_COMM_MPI_GATHER_H

#include <mpi.h>

#include "comm/mpi/mpi_request.h"

/* The pieces of a request for one, and the bytes of words: not 0 where it is guarded. */
int64_t mimo_mpi_gather_pieces(const mimo_comm *comm);
int64_t mimo_mpi_gather_words(const mimo_comm *comm, const mimo_gather *gather);

/* Start the messages; `handle` is the communicator's. The own rows are the caller's to copy. */
mimo_status mimo_mpi_gather_start(mimo_request *request, mimo_comm *comm, MPI_Comm handle,
                                  const mimo_gather *gather);

/* This rank's own place. */
mimo_rows mimo_mpi_gather_place(const mimo_gather *gather, int rank);

#endif
