/*
 * How the host waits. A loop looks at what it waits for, and makes a step of a waiter each time it
 * finds that it is not there yet:
 *
 *     mimo_waiter waiter = {.comm = comm, .call = call};
 *     while (!is_there())
 *         MIMO_TRY(mimo_waiter_step(&waiter, comm));
 *
 * What happens meanwhile is decided here alone: other work of the communicator moves, the deadline
 * passes, farewells of peers arrive, a wait that lasts long says so, the caller may end it, and
 * other processes get the processor.
 *
 * A wait polls: it yields the processor and looks again. Where the family's waits may sleep
 * (`sleeps` of mimo_family), it sleeps between two looks once it has waited for a while. Rows of
 * tensors move over some transports only while they are looked at. So the more of them are on their
 * way, the later a wait begins to sleep. A sleep takes at most 1/64 of the time that it has waited
 * so far, and no wait becomes longer by more than that.
 */
#ifndef MIMO_COMM_WAITER_H
#define MIMO_COMM_WAITER_H

#include "comm/stall.h"

/* One wait. All that follows `request` begins as zeros. */
typedef struct mimo_waiter {
    mimo_comm *comm;  /* whose family's deadline holds; NULL: none does, nothing ends the wait */
    const char *call; /* the call that waits, in words */
    const mimo_request *request; /* read while it pauses; NULL: it waits for something else */
    mimo_wait_clock clock;
    mimo_stall stall;
    int64_t asked; /* when the caller was asked last whether it is interrupted; 0: never */
    unsigned polls;
    int64_t still;  /* since when no request of the communicator has ended (mimo_now); 0: unknown */
    uint64_t ended; /* how many had ended then */
    bool slept;     /* the last step did */
    int64_t counted; /* when it counted last how many messages of the request have arrived */
    int arrived;     /* that number */
    bool any; /* it waits for a stream, and any communicator of the family may hold that up */
} mimo_waiter;

/* Whether the next step looks at the deadline, and may read `call`: a loop can write it then. */
bool mimo_waiter_is_due(const mimo_waiter *waiter);

/* Between two looks: pause, then call the progress callbacks of `parent`'s waits. After an error
 * the family has ended, and every later step returns it. */
mimo_status mimo_waiter_step(mimo_waiter *waiter, mimo_comm *parent);

/* The same without callbacks: for a backend's own loops, inside of which no operation may move. */
MIMO_BACKEND_API mimo_status mimo_waiter_pause(mimo_waiter *waiter);

/* The same without a pause, for a call that looks once and returns. */
mimo_status mimo_waiter_check(mimo_waiter *waiter);

/* How long a wait that may sleep sleeps now, in nanoseconds: it has been still for that time, with
 * `moving` bytes on their way. 0: it looks again at once. */
int64_t mimo_nap_after(int64_t still, int64_t moving);

#endif
