/*
 * A family is a communicator that a backend made, and all communicators that were split from it. It
 * has one deadline, and it ends as a whole: once a rank has given up a call, ranks no longer know
 * which calls they have in common. So every later call of the family fails at once, with the
 * reason.
 *
 * A rank that gives up sends a farewell to all others. A rank that waits and receives it gives up
 * as well and sends its own. In the end every rank that waited has a farewell from every other rank
 * that waited, and knows which ranks are missing. While all goes well nothing is sent.
 *
 * Any thread may ask a family to end (mimo_family_ask_end). A transport is not called by two
 * threads at once. So where another thread is inside a call of the family, that thread ends it:
 * when it next checks, or when it leaves (comm/calls.h). Otherwise the thread that asks ends it
 * at once.
 */
#ifndef MIMO_COMM_TERMINATION_H
#define MIMO_COMM_TERMINATION_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/comm.h>

#include "core/backend_api.h"
#include "ring/ring_call.h"

enum { MIMO_CALL_TEXT = 192, MIMO_SENTENCE_TEXT = 768 };

/* The thread that is inside calls of a communicator, or of a family (comm/calls.h). */
typedef struct mimo_owner {
    const void *thread; /* mimo_this_thread; NULL: none. An atomic */
    int calls;          /* that it is inside of; no other thread touches it */
    /* What it records (comm/recorder.h). */
    const char *call;           /* the public call that it is inside of */
    struct mimo_comm *recorded; /* whose call `record` is; NULL: none is open */
    uint32_t object;            /* of the next record: a name; 0: none */
    int slot;                   /* of the communicator, or of the family */
    const void *waiter;         /* whose wait is recorded; NULL: none */
    mimo_ring_call record;
} mimo_owner;

/* All fields that change, except the texts, are read and written as atomics: threads may use
 * different communicators of a family. (By the compiler's functions: kernels include this header as
 * well.) */
typedef struct mimo_family {
    const struct mimo_comm_backend *backend;
    int rank;                /* of this process in the first communicator */
    unsigned forks;          /* mimo_forks of the process that made it */
    int users;               /* communicators, and threads inside a call; the last releases it */
    int64_t generation;      /* of the decision that made it (survivors_agree.h); 0: none did */
    int64_t deadline;        /* milliseconds that the host waits in one call; 0: for ever */
    int64_t stall;           /* nanoseconds after which a wait says that it lasts; 0: none does */
    int agree;               /* of mimo_comm_desc, as it was given at creation */
    int checks;              /* likewise */
    int end;                 /* MIMO_OK while it lives; afterwards the status of every call */
    bool ending;             /* set by the thread that ends it */
    bool sleeps;             /* waits may sleep: comm/waiter.h */
    bool if_crowded;         /* they do where ranks outnumber processors */
    int ring_ways;           /* of mimo_comm_desc, or the environment: bits of MIMO_ENV_RING */
    const char *ring_folder; /* borrowed, until the ring is made */
    bool ring_stays;         /* a file is not removed */
    struct mimo_recorder *recorder;    /* of its ring (comm/recorder.h); NULL: it has none */
    char sentence[MIMO_SENTENCE_TEXT]; /* of `end` */

    int (*interrupted)(void *context); /* of mimo_comm_desc, and its context */
    void *context;

    const void *maker;    /* the thread that made it (mimo_this_thread) */
    int inside;           /* calls that threads are in; a call inside a call counts as well */
    const void *caller;   /* the thread that entered last */
    bool any_thread_ends; /* a thread that was not the last to enter may call the transport */
    bool parallel;        /* threads may use different communicators of it at once */
    /* Where they may not: the thread that is inside, and what its waits move (comm_backend.h). */
    mimo_owner owner;
    struct mimo_progress_callback *callbacks;

    bool asking, asked; /* some thread asks it to end; `silent` and `why` can be read */
    bool silent;        /* no peer is told */
    char why[MIMO_SENTENCE_TEXT];
    bool forgotten; /* destroying what was made from it calls no transport */

    /* Of its lists of objects, which threads may destroy at the same time once it is forgotten. */
    pthread_mutex_t lock;
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

/* Where ranks of another communicator than the first are named, sentences say whose ranks they are.
 * Ranks of the first one tell processes apart. */
#define MIMO_OF_FIRST " of communicator 0"

/* What a rank that waits for long sends to another one: in which call it waits. */
enum { MIMO_LISTENERS = 2 }; /* ranks 0 and 1 of a communicator: stall.c */

typedef struct mimo_notice {
    uint64_t comm, calls; /* as in mimo_farewell */
} mimo_notice;

/* What the backend gets when the family ends. */
typedef struct mimo_last_words {
    mimo_comm *comm;           /* whose call was given up; NULL: none */
    const mimo_farewell *mine; /* for the peers; NULL: they are not told */
    int64_t patience;          /* nanoseconds to wait for their farewells, at most */
    char *text;                /* text[capacity]: which of the communicator's ranks sent none */
    size_t capacity;
} mimo_last_words;

/* How long a call has waited so far. It begins as zeros. */
typedef struct mimo_wait_clock {
    int64_t last_check; /* mimo_now; 0: none yet */
    int64_t waited;     /* nanoseconds */
} mimo_wait_clock;

/* Begin, without a user, as the descriptor of the family's first communicator says; NULL: all as
 * the environment says. MIMO_ERR_ARGUMENT where a field, or a deadline of the environment, is
 * outside its range. */
MIMO_BACKEND_API mimo_status mimo_family_init(mimo_family *family,
                                              const struct mimo_comm_backend *backend,
                                              const mimo_comm_desc *desc);

/* Say how many ranks of the first communicator may run on the same processors as this one, itself
 * included. Where they outnumber these, waits sleep, unless MIMO_WAIT says something else. */
MIMO_BACKEND_API void mimo_family_set_sharers(mimo_family *family, int ranks);

/* Add a user; take it away. The last one frees the family by the backend's release_family. */
MIMO_BACKEND_API void mimo_family_retain(mimo_family *family);
MIMO_BACKEND_API void mimo_family_release(mimo_family *family);

static inline bool mimo_family_is_forgotten(const mimo_family *family)
{
    return __atomic_load_n(&family->forgotten, __ATOMIC_ACQUIRE);
}

/* An address that no other living thread has. */
const void *mimo_this_thread(void);

/* MIMO_OK while the family lives, and then the status that it ended with. */
static inline mimo_status mimo_family_status(const mimo_family *family)
{
    return (mimo_status)__atomic_load_n(&family->end, __ATOMIC_ACQUIRE);
}

/* mimo_family_status of the communicator's family, with its sentence. */
mimo_status mimo_comm_check(const mimo_comm *comm);

/* mimo_comm_check, also where a thread has asked for the end and none has ended it yet. Calls no
 * transport, so any thread may call it. */
mimo_status mimo_family_state(const mimo_family *family);

/* Ask for the end, with MIMO_ERR_ABORTED; only the first reason counts. Any thread. */
void mimo_family_ask_end(mimo_family *family, const char *why, bool silent);

/* End the family if that was asked for, and the thread that asks does not do it now. Only for a
 * thread that may call the transport. */
void mimo_family_end_asked(mimo_family *family);

/* The same for the thread that asks. It leaves that to others where one is inside a call, or where
 * the transport is another thread's. */
void mimo_family_try_end(mimo_family *family);

/* mimo_comm_check at the beginning of an agreement. It also ends the family where a peer's farewell
 * has arrived. */
mimo_status mimo_check_farewells(mimo_comm *comm, const char *call);

/* To be called now and then while the host finds that `call` is not done (comm/waiter.h). Ends the
 * family where the deadline has passed or a peer's farewell has arrived; afterwards it always
 * returns that error. */
mimo_status mimo_check_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call);

/* End the family with the error that this thread's last sentence tells of, after which the
 * transport moves nothing more. Returns it, or the error that the family had ended with. */
mimo_status mimo_family_fail(mimo_comm *comm, mimo_status status);

/* Nanoseconds on the monotonic clock; never 0. */
MIMO_BACKEND_API int64_t mimo_now(void);

#endif
