/*
 * mimo_comm_survivors, except what a backend does: it asks the rule (survivors_rule.h), and has the
 * clock, the signs of life of this host's processes, and sentences. The backend carries messages.
 */
#ifndef MIMO_COMM_SURVIVORS_AGREE_H
#define MIMO_COMM_SURVIVORS_AGREE_H

#include <mimo/survivors.h>

#include "comm/comm_backend.h"
#include "comm/survivors_rule.h"

/* What this rank knows of the recovery of a communicator, from its first attempt on. */
typedef struct mimo_survivors mimo_survivors;

/* What a caller wants, and what was decided. */
typedef struct mimo_survivors_terms {
    int least;
    int64_t limit; /* nanoseconds */
    mimo_comm_desc common;
    const mimo_bootstrap *bootstrap; /* NULL: none was given */
    /* The decision. */
    int *ranks; /* ranks[count], ascending: of the communicator that ended; it has space for all */
    int count;
    int64_t round, generation; /* attempts of this communicator so far; of all of its past */
} mimo_survivors_terms;

/* How a backend carries messages between ranks of the communicator. `receive` never blocks; true
 * where a message has come, of at most `bytes` bytes. */
typedef struct mimo_survivors_carrier {
    mimo_survivors_mail mail;
    bool (*receive)(void *context, mimo_survivors_message *out, int64_t bytes);
} mimo_survivors_carrier;

/* Agree who goes on, and fill the decision. Blocking, under the limit. */
MIMO_BACKEND_API mimo_status mimo_survivors_agree(mimo_survivors_terms *terms, mimo_comm *ended,
                                                  const mimo_survivors_carrier *carrier);

/* The processes of those that go on are those of `ended`: `made` knows them, also where it ends
 * before its ranks have told each other. */
MIMO_BACKEND_API mimo_status mimo_survivors_introduce(mimo_comm *made, const mimo_comm *ended,
                                                      const mimo_survivors_terms *terms);

void mimo_survivors_release(mimo_survivors *it); /* NULL is fine */

/* Write a set of `size` ranks in words, "ranks 0, 1, 3", as far as they fit. */
void mimo_survivors_write_ranks(char *text, size_t capacity, const uint64_t *set, int size);

#endif
