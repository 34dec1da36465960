/* Counts the exchanges that a communicator creates, by a backend table before the real one. One
 * communicator at a time. */
#ifndef MIMO_TESTS_EXCHANGE_COUNTER_H
#define MIMO_TESTS_EXCHANGE_COUNTER_H

#include "comm/comm_backend.h"

static struct {
    const mimo_comm_backend *real;
    mimo_comm_backend table;
    int created;
} exchange_counter;

static mimo_status count_an_exchange(mimo_exchange **out, mimo_comm *comm,
                                     const mimo_messages *messages)
{
    exchange_counter.created++;
    return exchange_counter.real->exchange_create(out, comm, messages);
}

/* From 0. The table stays until the communicator ends, or its backend is `real` again. */
static inline void count_exchanges(mimo_comm *comm)
{
    exchange_counter.real = comm->backend;
    exchange_counter.table = *comm->backend;
    exchange_counter.table.exchange_create = count_an_exchange;
    exchange_counter.created = 0;
    comm->backend = &exchange_counter.table;
}

#endif
