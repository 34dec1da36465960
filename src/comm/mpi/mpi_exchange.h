/* Exchanges over MPI: rows of any number of tensors between pairs of ranks, one message each. MPI
 * sends and receives rows where they lie, or in memory of the library where they are guarded. */
#ifndef MIMO_COMM_MPI_EXCHANGE_H
#define MIMO_COMM_MPI_EXCHANGE_H

#include <mpi.h>

#include "comm/mpi/mpi_request.h"

/* The backend's functions, as comm_backend.h says; `handle` is the communicator's. */
mimo_status mimo_mpi_exchange_create(mimo_exchange **out, const mimo_comm *comm, MPI_Comm handle,
                                     const mimo_messages *messages);
mimo_status mimo_mpi_exchange_bind(mimo_exchange *exchange, char *const *bases, uint64_t signature);
void mimo_mpi_exchange_destroy(mimo_exchange *exchange);

/* What a request for it needs: the number of messages, and the bytes of memory (0 where it is not
 * guarded). */
int mimo_mpi_exchange_count(const mimo_exchange *exchange);
int64_t mimo_mpi_exchange_bytes(const mimo_exchange *exchange);

/* Bytes of the tensors that its messages move. */
int64_t mimo_mpi_exchange_moving(const mimo_exchange *exchange);

/* Start all messages. `request` has that count and memory, and can be tested afterwards. Its MPI
 * requests belong to the exchange where it is not guarded. */
mimo_status mimo_mpi_exchange_start(mimo_exchange *exchange, mimo_request *request);

#endif
