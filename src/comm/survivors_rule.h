/*
 * Who goes on after a communicator has ended: the decision, as a rule without clocks, processes and
 * messages. Each rank that is left has one. The caller carries its messages, tells it which
 * processes are gone, and calls mimo_survivors_step now and then.
 *
 *   HERE     to all: this rank takes part in a round
 *   PROPOSE  from the lowest rank that is here, to the ranks that it has heard from: these it is
 *   ACCEPT   to that rank. A rank accepts one proposal in a round
 *   COMMIT   from that rank, once all have accepted
 *   READY    to all ranks, also to those that are left out: this rank goes on with these
 *
 * A rank goes on once all of them are ready, and by then all of them know it. A rank that is left
 * out finds the READY of others. A round that fails on one rank fails on all that are left; they
 * begin the next one. As a rank accepts one proposal in a round, and those that go on begin no
 * further round, two decisions have no rank in common. Where a decision needs more than half of the
 * ranks there is at most one.
 *
 * Times. A rank gives a round up after `limit`. Half of that is for ranks that come late. Where it
 * joins a later round meanwhile it waits for twice the limit at most. From a proposal on each rank
 * counts anew, in parts of limit / 4: acceptances count within half a part, a rank says READY
 * within one, and waits for the others' for two. So a rank that was stopped says READY only while
 * nobody has given up yet, if messages take less than half a part.
 */
#ifndef MIMO_COMM_SURVIVORS_RULE_H
#define MIMO_COMM_SURVIVORS_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/check.h"

typedef enum mimo_survivors_kind {
    MIMO_SURVIVORS_HERE = 1,
    MIMO_SURVIVORS_PROPOSE,
    MIMO_SURVIVORS_ACCEPT,
    MIMO_SURVIVORS_COMMIT,
    MIMO_SURVIVORS_READY,
} mimo_survivors_kind;

/* mimo_survivors_message_bytes(size) bytes. Sets of ranks are bit sets: see mimo_ranks_have. */
typedef struct mimo_survivors_message {
    int32_t kind, from;
    int64_t round;
    int64_t least;      /* HERE: ranks that have to be left, as the sender wants it */
    uint64_t members[]; /* PROPOSE, COMMIT, READY: the ranks that go on */
} mimo_survivors_message;

typedef enum mimo_survivors_phase {
    MIMO_SURVIVORS_GATHERING,
    MIMO_SURVIVORS_PROPOSED,  /* this rank did */
    MIMO_SURVIVORS_ACCEPTED,  /* another rank's proposal */
    MIMO_SURVIVORS_COMMITTED, /* this rank is ready */
    /* The last four end a round. */
    MIMO_SURVIVORS_GO,      /* `members` go on, this rank among them */
    MIMO_SURVIVORS_OUT,     /* `members` went on without this rank */
    MIMO_SURVIVORS_TOO_FEW, /* fewer than `least` are left: `here` */
    MIMO_SURVIVORS_GIVEN_UP /* `missing` gave no sign in time, are gone, or began anew */
} mimo_survivors_phase;

typedef struct mimo_survivors_rule {
    int rank, size, words; /* of the communicator that ended; words of a set of ranks */
    int64_t least;         /* that those that are here want; known once the round has ended */
    int64_t round;         /* of this rank's last attempt; 0: none yet */
    mimo_survivors_phase phase;
    int64_t limit;        /* nanoseconds */
    int64_t entered;      /* when this rank began its attempt, which may join later rounds */
    int64_t began, since; /* when this rank began the round, and saw a proposal: nanoseconds */
    int proposer;
    bool committed;
    int64_t *rounds; /* rounds[size]: the last one that each rank is known to take part in */
    int64_t *leasts; /* leasts[size]: what each wants there */
    /* Sets of ranks. */
    uint64_t *here, *gone, *members, *accepted, *ready, *missing;
    uint64_t *without; /* who went on without this rank, in round `without_round`; 0: nobody */
    int64_t without_round;
    mimo_survivors_message *draft;
} mimo_survivors_rule;

/* How messages leave. A message that can't be sent is lost: the round then fails. */
typedef struct mimo_survivors_mail {
    void (*send)(void *context, int to, const mimo_survivors_message *message);
    void *context;
} mimo_survivors_mail;

static inline int mimo_survivors_words(int size)
{
    return (size + 63) / 64;
}

static inline int64_t mimo_survivors_message_bytes(int size)
{
    return (int64_t)sizeof(mimo_survivors_message) + mimo_survivors_words(size) * 8;
}

/* For a rank of `size`. MIMO_ERR_MEMORY. */
mimo_status mimo_survivors_rule_create(mimo_survivors_rule **out, int rank, int size);
void mimo_survivors_rule_destroy(mimo_survivors_rule *rule); /* NULL is fine */

/* Begin a round at `now`. least: ranks that have to be left, 1 <= least <= size; where ranks want
 * different numbers the largest counts. Processes that are known to be gone were noted before. */
void mimo_survivors_begin(mimo_survivors_rule *rule, int64_t now, int64_t limit, int least,
                          const mimo_survivors_mail *mail);

/* A message has come: of any round, and also of a rank that is gone. One without sense is left.
 * `now` is from before the message was looked for. */
void mimo_survivors_receive(mimo_survivors_rule *rule, int64_t now,
                            const mimo_survivors_message *message, const mimo_survivors_mail *mail);

/* A process is gone for certain. */
void mimo_survivors_note_gone(mimo_survivors_rule *rule, int rank);

/* Draw conclusions. It is called after messages were received, and while none come. */
mimo_survivors_phase mimo_survivors_step(mimo_survivors_rule *rule, int64_t now,
                                         const mimo_survivors_mail *mail);

static inline bool mimo_survivors_has_ended(mimo_survivors_phase phase)
{
    return phase >= MIMO_SURVIVORS_GO;
}

/* ----------------------------------- sets of ranks ---------------------------------- */

static inline bool mimo_ranks_have(const uint64_t *set, int rank)
{
    return set[rank / 64] >> (rank % 64) & 1;
}

static inline void mimo_ranks_add(uint64_t *set, int rank)
{
    set[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline int mimo_ranks_count(const uint64_t *set, int words)
{
    int count = 0;
    for (int i = 0; i < words; i++)
        count += __builtin_popcountll(set[i]);
    return count;
}

#endif
