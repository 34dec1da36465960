/* Exchanges over MPI: rows of any number of tensors between pairs of ranks, one message each, sent
 * and received where they lie. */
#ifndef MIMO_COMM_MPI_EXCHANGE_H
#define MIMO_COMM_MPI_EXCHANGE_H

#include <mpi.h>

#include "comm/comm_backend.h"

/* The tag of an exchange's messages: no other message of a communicator bears it. */
enum { MIMO_MPI_EXCHANGE_TAG = 2 };

/* The backend's slots, as comm_backend.h says; `rank` is the caller's in `comm`. */
mimo_status mimo_mpi_exchange_create(mimo_exchange **out, MPI_Comm comm, int rank,
                                     const mimo_messages *messages);
void mimo_mpi_exchange_destroy(mimo_exchange *exchange);

/* Start every message: the requests to test go into piece[mimo_mpi_exchange_pieces(exchange)]. They
 * stay the exchange's own. */
int mimo_mpi_exchange_pieces(const mimo_exchange *exchange);
mimo_status mimo_mpi_exchange_start(mimo_exchange *exchange, MPI_Request *piece);

#endif
