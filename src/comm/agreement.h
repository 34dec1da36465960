/*
 * The agreement that every collective host call begins with: one nonblocking MAX over five values.
 * Where all ranks succeed and call the same, that is all.
 *
 * Several agreements may be in flight on one communicator. All ranks begin them in the same order,
 * so the MAX of one rank always meets that of the others' call in this order, whatever that is.
 * What follows after a failure begins at any time. So it has a communicator of its own (`words`),
 * and agreements take turns there: the one that began first explains itself first.
 *
 * Where a rank fails, the lowest failing rank broadcasts its sentence. Where signatures differ, all
 * ranks learn what rank 0 called, and what the first rank that differs from it called. A call can
 * consist of items (tensors, for example): then the ranks first search for the first item that
 * differs. None of this allocates memory, whatever the number of ranks and items. So a rank that
 * has run out of memory takes part as well.
 */
#ifndef MIMO_COMM_AGREEMENT_H
#define MIMO_COMM_AGREEMENT_H

#include "comm/comm_backend.h"
#include "core/hash.h"

/* What a call is. It begins the call's signature, so two calls of different kinds never agree. */
typedef enum mimo_call_kind {
    MIMO_CALL_COMM_SPLIT = 1,
    MIMO_CALL_COMM_ALLREDUCE,
    MIMO_CALL_COMM_ALLGATHER,
    MIMO_CALL_COMM_BROADCAST,
    MIMO_CALL_COMM_REDUCE_SCATTER,
    MIMO_CALL_COMM_ALLTOALL,
    MIMO_CALL_COMM_BARRIER,
    MIMO_CALL_COMM_HOST_ALLGATHER,
    MIMO_CALL_COMM_AGREE,
    MIMO_CALL_COMM_CREATE,
    MIMO_CALL_BUFFER_CREATE,
    MIMO_CALL_BUFFER_BORROW,
    MIMO_CALL_GRID_CONNECT,
    MIMO_CALL_GRID_CREATE_GROUP,
    MIMO_CALL_GRADIENT_CREATE,
    MIMO_CALL_GRADIENT_ADD_GRID,
    MIMO_CALL_GRADIENT_COUNT,
    MIMO_CALL_GRADIENT_PREPARE,
    MIMO_CALL_GRADIENT_FINALIZE,
    MIMO_CALL_GRADIENT_GROUPS, /* the groups that finalize sums over are made */
    MIMO_CALL_GRADIENT_NORM,
    MIMO_CALL_MOVE,
    MIMO_CALL_BRIDGE_UPDATE,
    MIMO_CALL_BRIDGE_SELF_TEST,
    MIMO_CALL_DISPATCH_CREATE,
    MIMO_CALL_ROUTE_SET,
} mimo_call_kind;

/* The signature of a call of this kind that has no arguments. Arguments are hashed into it. */
static inline uint64_t mimo_signature_start(mimo_call_kind kind)
{
    return mimo_hash_int(MIMO_HASH_START, kind);
}

/* What one rank reports about its call, as it travels to the others. */
typedef struct mimo_call_report {
    uint64_t signature;
    int32_t status;
    int32_t policy;                    /* mimo_agreement_policy; 0 where it is not compared */
    char call[MIMO_CALL_TEXT];         /* "bridge 1 forward of 2: bf16 sbh[577,4,64] ..." */
    char sentence[MIMO_SENTENCE_TEXT]; /* mimo_last_error() where status is an error */
} mimo_call_report;

/* The items of a call. They are compared one by one where the calls as a whole differ. The context
 * lives as long as the agreement. */
typedef struct mimo_call_items {
    int64_t count; /* 0: there are none */
    /* A hash of the call without its items, and of its first k items, 0 <= k <= count. */
    uint64_t (*hash)(const void *context, int64_t k);
    /* Write the call with one item, 0 <= item < count, as text; -1: the call as a whole. */
    void (*describe)(char call[MIMO_CALL_TEXT], const void *context, int64_t item);
    const void *context;
} mimo_call_items;

typedef struct mimo_agreement {
    mimo_comm *comm;
    struct mimo_agreement *next; /* in the list of its communicator */
    mimo_request *request;
    /* The values of the MAX: size - rank where this rank fails, 0 otherwise; the signature and its
     * complement; the guess and its complement. */
    uint64_t values[5];
    mimo_call_items items; /* of this rank's call */
    uint64_t signature;    /* of this rank's call as a whole */
    uint64_t salt;         /* every hash of the call is mixed with it */
    /* The search for the first item that differs lies between these: with its first `equal` items
     * the call is the same on all ranks, with its first `unequal` ones it is not. */
    int64_t equal, unequal;
    mimo_call_report mine;  /* after a failure: the report of the rank that broadcasts */
    mimo_call_report first; /* rank 0's, where signatures differ */
    enum {
        MIMO_AGREEMENT_STATUS,   /* the MAX of all values */
        MIMO_AGREEMENT_TURN,     /* not all is well: those that began before explain it first */
        MIMO_AGREEMENT_SENTENCE, /* a rank failed: its sentence */
        MIMO_AGREEMENT_ITEMS,    /* signatures differ: search for the first item that differs */
        MIMO_AGREEMENT_FIRST,    /* what rank 0 called */
        MIMO_AGREEMENT_SEARCH,   /* search for the first rank that differs from rank 0 */
        MIMO_AGREEMENT_OTHER,    /* what that rank called */
        MIMO_AGREEMENT_DONE,
    } state;
    mimo_status result;
    char sentence[MIMO_SENTENCE_TEXT + MIMO_CALL_TEXT]; /* of `result` */
    bool same_guess; /* with MIMO_OK: all guesses are equal, or the ranks did not communicate */
} mimo_agreement;

/* What an agreement guards. */
typedef enum mimo_agree_kind {
    MIMO_AGREE_ALWAYS, /* the caller wants the outcome itself; nothing removes it */
    MIMO_AGREE_CREATE, /* a creation: nothing removes it, and it also compares the environment that
                          decides over the two kinds below */
    MIMO_AGREE_CALL,   /* a call that the host waits for: MIMO_AGREE=0 removes it */
    MIMO_AGREE_DATA,   /* a call that moves tensors: on a device the host must not wait, so there
                          only MIMO_CHECK=calls asks for it */
} mimo_agree_kind;

/* What a rank brings to an agreement. */
typedef struct mimo_claim {
    mimo_agree_kind kind;
    mimo_status local; /* its own status; where it is an error, its sentence is mimo_last_error() */
    uint64_t signature; /* a hash of what must be the same on all ranks */
    const char *call;   /* the same as text; NULL: items.describe writes it where it is read */
    uint64_t guess;     /* a value that may differ: the agreement says whether it does */
    mimo_call_items items;
} mimo_claim;

/* A caller's status, or MIMO_ERR_ARGUMENT where it is no mimo_status. */
mimo_status mimo_checked_status(mimo_status local, const char *call);

/* The same of a caller that can't make its call: MIMO_ERR_ARGUMENT also where it is MIMO_OK. */
mimo_status mimo_refused_status(mimo_status local, const char *call);

/* The bits of MIMO_CHECK in force: the descriptor's, or the environment's. MIMO_ERR_ARGUMENT where
 * that is wrong. */
mimo_status mimo_comm_checks(int64_t *out, const mimo_comm *comm);

/* Whether this kind of agreement is asked for; MIMO_ERR_ARGUMENT where the environment is wrong. */
mimo_status mimo_agreement_wanted(bool *out, const mimo_comm *comm, mimo_agree_kind kind);

/* Whether MIMO_AGREE=0 is in force: the descriptor's, or the environment's. MIMO_ERR_ARGUMENT where
 * that is wrong. */
mimo_status mimo_agreement_removed(bool *out, const mimo_comm *comm);

/* What was chosen about agreements, as one number: whether MIMO_AGREE=0 removes them, and whether
 * MIMO_CHECK=calls adds some. Creations compare it, because ranks that differ in it would wait for
 * each other in the next call. MIMO_ERR_ARGUMENT as above. */
mimo_status mimo_agreement_policy(int32_t *out, const mimo_comm *comm);

/* Begin. Where the agreement is removed, the result is the rank's own status at once. */
void mimo_agreement_begin(mimo_agreement *agreement, mimo_comm *comm, const mimo_claim *claim);

/* Move on without blocking. Returns true when ended: then `result` holds the status that all ranks
 * share, and mimo_last_error() its sentence where it is an error. */
bool mimo_agreement_test(mimo_agreement *agreement);

/* Begin and wait: the form for blocking calls. MIMO_OK where every rank passed MIMO_OK and the same
 * signature. */
mimo_status mimo_agree_on(mimo_comm *comm, const mimo_claim *claim);

/* mimo_agree_on for a claim that has no guess and no items. */
MIMO_BACKEND_API mimo_status mimo_agree_as(mimo_comm *comm, mimo_agree_kind kind, mimo_status local,
                                           uint64_t signature, const char *call);

#endif
