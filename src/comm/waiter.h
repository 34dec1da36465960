/*
 * How the host waits. A loop looks at what it waits for, and makes a step of a waiter each time it
 * finds that it is not there yet:
 *
 *     mimo_waiter waiter = {.comm = comm, .call = call};
 *     while (!is_there())
 *         MIMO_TRY(mimo_waiter_step(&waiter, comm));
 *
 * What happens meanwhile is decided here alone: other work of the communicator moves, the deadline
 * passes, farewells of peers arrive, and other processes get the processor.
 */
#ifndef MIMO_COMM_WAITER_H
#define MIMO_COMM_WAITER_H

#include "comm/termination.h"

/* One wait. All that follows `call` begins as zeros. */
typedef struct mimo_waiter {
    mimo_comm *comm;  /* whose family's deadline holds; NULL: none does, nothing ends the wait */
    const char *call; /* the call that waits, in words */
    mimo_wait_clock clock;
    unsigned polls;
} mimo_waiter;

/* Between two looks: call the progress callbacks of `moves`, then pause. After an error the family
 * has ended, and every later step returns it. */
mimo_status mimo_waiter_step(mimo_waiter *waiter, mimo_comm *moves);

/* The same without callbacks: for a backend's own loops, inside of which no operation may move. */
MIMO_BACKEND_API mimo_status mimo_waiter_pause(mimo_waiter *waiter);

/* The same without a pause, for a call that looks once and returns. */
mimo_status mimo_waiter_check(mimo_waiter *waiter);

#endif
