/* The messages of a guarded exchange: they travel between the words of requests, where rows are
 * packed, and MPI has nothing else. */
#ifndef MIMO_COMM_MPI_STAGED_H
#define MIMO_COMM_MPI_STAGED_H

#include <mpi.h>

#include "comm/mpi/mpi_request.h"

typedef struct mimo_mpi_staged mimo_mpi_staged;

/* Copies the lists. `rank` is the caller's in `comm`. Local. */
mimo_status mimo_mpi_staged_create(mimo_mpi_staged **out, MPI_Comm comm, int rank,
                                   const mimo_messages *messages);
void mimo_mpi_staged_destroy(mimo_mpi_staged *staged);

/* The messages, and the bytes of all their rows. */
int mimo_mpi_staged_pieces(const mimo_mpi_staged *staged);
int64_t mimo_mpi_staged_bytes(const mimo_mpi_staged *staged);

/* Start them all in a request of as many pieces and words; its test writes the rows in the end. */
mimo_status mimo_mpi_staged_start(const mimo_mpi_staged *staged, mimo_request *request);

#endif
