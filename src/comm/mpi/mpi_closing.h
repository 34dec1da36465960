/*
 * The end of a communicator of MPI that the library made. MPI_Comm_free is collective: a rank that
 * frees one alone, while a peer may still send on it, breaks MPI. Open MPI gives the number of a
 * freed communicator to a later one, and what comes late arrives there: it is lost, is taken for
 * another message, or ends the process. A rank that gives up sends late: its farewell, and parts of
 * the call that it gave up.
 *
 * So a rank that releases a handle says so, and frees it once all its ranks have said so. Before it
 * says so, its own notice must have been received; it receives those of others until the end. No
 * rank waits for that: it is looked at whenever a communicator is made or released. Where a rank
 * never says it (its family has ended, or it is gone), the handle stays on all ranks.
 */
#ifndef MIMO_COMM_MPI_CLOSING_H
#define MIMO_COMM_MPI_CLOSING_H

#include <mpi.h>
#include <stdbool.h>

#include "comm/mpi/mpi_notices.h"

typedef struct mimo_mpi_closing mimo_mpi_closing;

/* What a handle's end will need, to be reserved beforehand: releasing has no error. Where it is not
 * used it is released with mimo_release. */
mimo_status mimo_mpi_closing_create(mimo_mpi_closing **out);

/* Release a handle, on which this rank has nothing in flight except a notice. It takes the closing
 * and the notices of the handle (NULL: none are sent on it). Local. */
void mimo_mpi_close(mimo_mpi_closing *closing, MPI_Comm handle, mimo_mpi_notices *notices);

/* Free the released handles that all ranks have released. Local. */
void mimo_mpi_close_rest(void);

/* Have MPI_Finalize wait a little for the last of these ends. Once is enough. */
void mimo_mpi_watch_finalize(void);

/* Whether MPI is finalized. Then nothing else of it may be called: it would end the process. */
bool mimo_mpi_is_finalized(void);

#endif
