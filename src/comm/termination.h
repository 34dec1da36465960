/*
 * A family is a communicator that a backend made, and all communicators that were split from it. It
 * has one deadline, and it ends as a whole: once a rank has given up a call, ranks no longer know
 * which calls they have in common. So every later call of the family fails at once, with the
 * reason.
 *
 * A rank that gives up sends a farewell to all others. A rank that waits and receives it gives up
 * as well and sends its own. In the end every rank that waited has a farewell from every other rank
 * that waited, and knows which ranks are missing. While all goes well nothing is sent.
 */
#ifndef MIMO_COMM_TERMINATION_H
#define MIMO_COMM_TERMINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/comm.h>

#include "core/backend_api.h"

enum { MIMO_CALL_TEXT = 192, MIMO_SENTENCE_TEXT = 768 };

/* All fields except the sentence are read and written as atomics: threads may use different
 * communicators of a family. (By the compiler's functions: kernels include this header as well.) */
typedef struct mimo_family {
    int64_t deadline; /* milliseconds that the host waits in one call; 0: for ever */
    int agree;        /* of mimo_comm_desc, as it was given at creation */
    int checks;       /* likewise */
    int end;          /* MIMO_OK while it lives; afterwards the status of every call */
    bool ending;      /* set by the thread that ends it */
    char sentence[MIMO_SENTENCE_TEXT];
} mimo_family;

/* What a rank that gives up sends to the others. */
typedef struct mimo_farewell {
    int32_t status;
    int32_t rank;              /* in the family's first communicator */
    int32_t origin;            /* the rank that aborted; -1: `rank` itself */
    uint64_t comm;             /* the id of the communicator whose call was given up */
    uint64_t calls;            /* the number of that call */
    char text[MIMO_CALL_TEXT]; /* the call; the reason where it was aborted */
} mimo_farewell;

/* How long a call has waited so far. It begins as zeros. */
typedef struct mimo_wait_clock {
    int64_t last_check; /* mimo_now; 0: none yet */
    int64_t waited;     /* nanoseconds */
    unsigned polls;     /* of mimo_poll_termination */
} mimo_wait_clock;

/* Read the descriptor of a family's first communicator; NULL: all as the environment says.
 * MIMO_ERR_ARGUMENT where a field, or a deadline of the environment, is outside its range. */
MIMO_BACKEND_API mimo_status mimo_family_init(mimo_family *family, const mimo_comm_desc *desc);

/* MIMO_OK while the family lives, and then the status that it ended with. */
static inline mimo_status mimo_family_status(const mimo_family *family)
{
    return (mimo_status)__atomic_load_n(&family->end, __ATOMIC_ACQUIRE);
}

/* mimo_family_status of the communicator's family, with its sentence. */
mimo_status mimo_comm_check(const mimo_comm *comm);

/* mimo_comm_check at the beginning of a call. It also ends the family where a peer's farewell has
 * arrived. */
mimo_status mimo_comm_enter(mimo_comm *comm, const char *call);

/* To be called each time the host finds that `call` is not done. Ends the family where the deadline
 * has passed or a peer's farewell has arrived; afterwards it always returns that error. */
mimo_status mimo_check_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call);

/* mimo_check_termination for a loop that does nothing else: most calls do not read the clock. */
MIMO_BACKEND_API mimo_status mimo_poll_termination(mimo_comm *comm, mimo_wait_clock *clock,
                                                   const char *call);

/* Nanoseconds on the monotonic clock; never 0. */
MIMO_BACKEND_API int64_t mimo_now(void);

#endif
