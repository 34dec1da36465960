/*
 * A rank that waits for long tells so to the listeners, the lowest ranks of the communicator, by
 * notices on the family's handle. Nobody waits for a notice: a listener receives it while it waits
 * itself, or when it releases the handle. A rank has at most one on its way to each listener. So a
 * rank that comes late, or never, finds few of each peer.
 */
#ifndef MIMO_COMM_MPI_NOTICES_H
#define MIMO_COMM_MPI_NOTICES_H

#include <mpi.h>

#include "comm/termination.h"

typedef struct mimo_mpi_notices mimo_mpi_notices;

/* For a handle of `size` ranks. Local. */
mimo_status mimo_mpi_notices_create(mimo_mpi_notices **out, int size);

/* Send one to a listener, which is rank `to` of the handle, unless the last one to such a listener
 * has not been received. */
void mimo_mpi_notices_send(mimo_mpi_notices *notices, MPI_Comm handle, int listener, int to,
                           const mimo_notice *notice);

/* Whether the last one to such a listener was received, or there was none. */
bool mimo_mpi_notices_were_taken(mimo_mpi_notices *notices, int listener);

/* Receive what has come. Returns the number. */
int mimo_mpi_notices_receive(mimo_mpi_notices *notices, MPI_Comm handle);

/* Whether a rank of the handle has told that it waits in this call, or in a later one of that
 * communicator. */
bool mimo_mpi_notices_have(mimo_mpi_notices *notices, int rank, const mimo_notice *call);

/* Whether MPI still reads a notice of this rank. */
bool mimo_mpi_notices_are_moving(mimo_mpi_notices *notices);

/* Free them. Where MPI may still read one, the memory is left to it. NULL is fine. */
void mimo_mpi_notices_release(mimo_mpi_notices *notices, bool may_call_mpi);

#endif
