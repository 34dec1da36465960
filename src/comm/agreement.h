/*
 * The agreement that every collective host call begins with: one nonblocking MAX over a few words.
 * Where all is well that is all; else the first failing rank tells its sentence to all, or, where
 * signatures differ, all learn what rank 0 and the first rank that differs from it called. Of a
 * call in parts (tensors, say) that ranks differ in, they first search for the first part that
 * differs. Nothing is allocated on the way, whatever the number of ranks and parts: a rank without
 * memory is told too.
 */
#ifndef MIMO_COMM_AGREEMENT_H
#define MIMO_COMM_AGREEMENT_H

#include "comm/comm_backend.h"

typedef struct mimo_verdict {
    uint64_t signature;
    int32_t status;
    int32_t policy;            /* see policy_words in agreement.c; 0 where it is not compared */
    char call[MIMO_CALL_TEXT]; /* "bridge forward bf16 sbh[577,4,4096]" */
    char sentence[MIMO_SENTENCE_TEXT]; /* mimo_last_error() where status is an error */
} mimo_verdict;

/* A call in parts, which are compared one by one where the call as a whole differs. The context
 * lives as long as the agreement. */
typedef struct mimo_call_parts {
    int64_t count; /* 0: there are none */
    /* Of all that is no part, and of the first k parts, 0 <= k <= count. */
    uint64_t (*hash)(const void *context, int64_t k);
    /* The call in words, with those of one part, 0 <= part < count. */
    void (*words)(char call[MIMO_CALL_TEXT], const void *context, int64_t part);
    const void *context;
} mimo_call_parts;

typedef struct mimo_agreement {
    mimo_comm *comm;
    mimo_request *request;
    uint64_t vote[5];      /* size - rank where this rank fails; signature, ~it; guess, ~it */
    mimo_call_parts parts; /* of this rank's call */
    uint64_t signature;    /* of this rank's call as a whole, */
    uint64_t salt;         /* and what every hash of the call is mixed with */
    int64_t same, other;   /* the first `same` parts do not differ, the first `other` do */
    mimo_verdict mine;     /* after a failure that of the rank which tells */
    mimo_verdict first;    /* rank 0's, where signatures differ */
    enum {
        MIMO_AGREEMENT_VOTE,
        MIMO_AGREEMENT_TELL,   /* a rank failed: its sentence */
        MIMO_AGREEMENT_PARTS,  /* signatures differ: by which part, */
        MIMO_AGREEMENT_FIRST,  /* what rank 0 called, */
        MIMO_AGREEMENT_SEARCH, /* which rank is the first to differ from it, */
        MIMO_AGREEMENT_OTHER,  /* and what that one called */
        MIMO_AGREEMENT_DONE,
    } stage;
    mimo_status result;
    bool same_guess; /* with MIMO_OK: all guessed alike, or nobody was asked */
} mimo_agreement;

/* What an agreement guards. */
typedef enum mimo_agree_kind {
    MIMO_AGREE_ALWAYS, /* the outcome itself is wanted; nothing removes it */
    MIMO_AGREE_CREATE, /* the same for what creates something; the environment that decides over the
                          kinds below is compared as well */
    MIMO_AGREE_CALL,   /* a call that the host waits for: MIMO_AGREE=0 removes it */
    MIMO_AGREE_DATA,   /* a call that moves tensors: on a device the host must not wait, so there
                          only MIMO_CHECK=calls asks for it */
} mimo_agree_kind;

/* What a rank brings to an agreement. */
typedef struct mimo_claim {
    mimo_agree_kind kind;
    mimo_status local; /* its own status; where it is an error, its sentence is mimo_last_error() */
    uint64_t signature; /* a hash of what must be the same on all ranks, */
    const char *call;   /* and the same in words */
    uint64_t guess;     /* what the ranks would like to be the same, and can find out about else */
    mimo_call_parts parts;
} mimo_claim;

/* Whether this kind of agreement is asked for; MIMO_ERR_ARGUMENT where the environment is wrong. */
mimo_status mimo_agreement_wanted(bool *out, const mimo_comm *comm, mimo_agree_kind kind);

/* Begin. Where the agreement is removed, the result is the rank's own status at once. */
void mimo_agreement_begin(mimo_agreement *agreement, mimo_comm *comm, const mimo_claim *claim);

/* Move on without blocking. Returns true when ended: then `result` holds the status that all ranks
 * share, and mimo_last_error() its sentence where it is an error. */
bool mimo_agreement_test(mimo_agreement *agreement);

/* Begin and wait: the form for blocking calls. `local` MIMO_OK and no surprise gives MIMO_OK. */
mimo_status mimo_agree_on(mimo_comm *comm, const mimo_claim *claim);

/* The same for a claim that is nothing but this. */
mimo_status mimo_agree_as(mimo_comm *comm, mimo_agree_kind kind, mimo_status local,
                          uint64_t signature, const char *call);

/* The same as MIMO_AGREE_CALL. */
mimo_status mimo_agree(mimo_comm *comm, mimo_status local, uint64_t signature, const char *call);

#endif
