/*
 * A family: a communicator that a backend made, and all that was split from it. It has one
 * deadline, and it ends as one: once a rank has given up a call nobody knows any more which calls
 * the ranks have in common, so every later call of the family fails at once, with the reason.
 *
 * A rank that gives up says farewell to the others. Who hears it while waiting gives up too and
 * says so: in the end every rank that waits has a sign of every other that does, and knows who is
 * missing. Nothing is sent, and nobody answers, while all goes well.
 */
#ifndef MIMO_COMM_TERMINATION_H
#define MIMO_COMM_TERMINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/comm.h>

enum { MIMO_CALL_TEXT = 192, MIMO_SENTENCE_TEXT = 768 };

/* Fields but the sentence are read and written as atomics: communicators of a family may be used
 * from different threads. (The compiler's, as kernels include this header too.) */
typedef struct mimo_family {
    int64_t deadline; /* milliseconds that the host waits in one call; 0: for ever */
    int end;          /* MIMO_OK while it lives, else the status of all calls to come */
    bool ending;      /* taken by the one who ends it */
    char sentence[MIMO_SENTENCE_TEXT];
} mimo_family;

/* What a rank that gives up tells the others. */
typedef struct mimo_farewell {
    int32_t status;
    int32_t rank;   /* in the family's first communicator */
    int32_t origin; /* who aborted; -1: the same */
    uint64_t comm;  /* its id, and the number of its call, that was given up */
    uint64_t calls;
    char words[MIMO_CALL_TEXT]; /* the call; the reason where it was aborted */
} mimo_farewell;

/* How long a call has waited so far. Begins as zeros. */
typedef struct mimo_wait_clock {
    int64_t looked; /* nanoseconds on the monotonic clock; 0: not yet */
    int64_t waited; /* nanoseconds */
    unsigned rounds;
} mimo_wait_clock;

/* Begin with the deadline of the environment. MIMO_ERR_ARGUMENT where that is no number. */
mimo_status mimo_family_init(mimo_family *family);

/* MIMO_OK while it lives, else the status that it ended with. */
static inline mimo_status mimo_family_status(const mimo_family *family)
{
    return (mimo_status)__atomic_load_n(&family->end, __ATOMIC_ACQUIRE);
}

/* The same with its sentence. */
mimo_status mimo_comm_check(const mimo_comm *comm);

/* At the begin of a call: the same, and whether a peer has given up waiting for this rank. */
mimo_status mimo_comm_enter(mimo_comm *comm, const char *call);

/* What the host does each time it finds that `call` is not done. Ends the family where the deadline
 * has passed or a peer has given up; then every later look gives the same error. */
mimo_status mimo_check_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call);

/* The same for the rounds of a loop that does nothing else: most of them don't read the clock. */
mimo_status mimo_poll_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call);

/* Nanoseconds on the monotonic clock; never 0. */
int64_t mimo_now(void);

#endif
