/* Exchanges over MPI: rows of any number of tensors between pairs of ranks, one message each, sent
 * and received where they lie, or through memory of the library where they are guarded. */
#ifndef MIMO_COMM_MPI_EXCHANGE_H
#define MIMO_COMM_MPI_EXCHANGE_H

#include <mpi.h>

#include "comm/mpi/mpi_request.h"

/* The tag of an exchange's messages: no other message of a communicator bears it. */
enum { MIMO_MPI_EXCHANGE_TAG = 2 };

/* The backend's slots, as comm_backend.h says; `rank` is the caller's in `comm`. */
mimo_status mimo_mpi_exchange_create(mimo_exchange **out, MPI_Comm comm, int rank,
                                     const mimo_messages *messages);
void mimo_mpi_exchange_destroy(mimo_exchange *exchange);

/* The first of messages[count], peers ascending, from which on a rank goes through them, and
 * around: so no rank is everybody's first. */
int mimo_mpi_first_above(int rank, const mimo_message *messages, int count);

/* The messages, receives first, and the words that they take. */
int mimo_mpi_exchange_pieces(const mimo_exchange *exchange);
int64_t mimo_mpi_exchange_words(const mimo_exchange *exchange);

/* Start them all: `request`, of as many pieces and words, can then be tested. The pieces stay the
 * exchange's own where it is not guarded. */
mimo_status mimo_mpi_exchange_start(mimo_exchange *exchange, mimo_request *request);

#endif
