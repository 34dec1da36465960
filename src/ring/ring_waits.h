/* All waits that rings show, by what they wait for, and which ranks each of them lacks. */
#ifndef MIMO_RING_RING_WAITS_H
#define MIMO_RING_RING_WAITS_H

#include "ring/ring_verdict.h"

/* A rank has left a call that it has begun when it has not looked for this long, in nanoseconds. */
static const int64_t MIMO_RING_LEFT_AFTER = 1000000000;

/* Why a rank is waited for. */
typedef enum mimo_ring_lack {
    MIMO_RING_BEHIND, /* it has not begun the call */
    MIMO_RING_LEFT,   /* it has, and no thread of it is inside: its part does not move on */
    MIMO_RING_DOWN,   /* it has, and is stopped or gone */
    MIMO_RING_UNREAD, /* its ring can't be read */
} mimo_ring_lack;

typedef struct mimo_ring_blocker {
    int rank;
    mimo_ring_lack lack;
    mimo_ring_life life;
    const mimo_ring_identity *process;
    const mimo_ring_sample *ring; /* NULL: none can be read */
    bool waits;                   /* itself, so it is no root */
} mimo_ring_blocker;

/* Ranks of a communicator that wait in one call of it. */
typedef struct mimo_ring_group {
    uint64_t family, comm;
    uint64_t calls;               /* that a rank has begun which is in it */
    bool any;                     /* they wait for work on a stream: see mimo_ring_wait */
    const mimo_ring_sample *ring; /* of the first that waits */
    const mimo_ring_seen *where;  /* the communicator there */
    const char *words;            /* the call, as that rank has it */
    const mimo_ring_looked **waiters;
    uint64_t *threads; /* of the waiters */
    int waiter_count;
    mimo_ring_blocker *blockers;
    int blocker_count, unread;
    bool ends; /* the question who is waited for has an end here, or leads to one */
} mimo_ring_group;

typedef struct mimo_ring_waits {
    mimo_ring_group *groups;
    int count;
} mimo_ring_waits;

/* Find them. MIMO_ERR_MEMORY; release in any case. */
mimo_status mimo_ring_waits_find(mimo_ring_waits *out, const mimo_ring_world *world);
void mimo_ring_waits_release(mimo_ring_waits *waits);

/* The id of a ring's family. One without an id can be compared with no other ring: it gets one of
 * its own. */
uint64_t mimo_ring_family_of(const mimo_ring_sample *ring);

/* Whether the communicator's call has not ended. */
bool mimo_ring_is_open(const mimo_ring_seen *comm);

/* The thread that has used a communicator last, and so is taken for the one that will; 0: any. */
uint64_t mimo_ring_thread_of(const mimo_ring_sample *ring, uint64_t comm);

/* Whether the group of a communicator's call has a waiter that keeps this rank from beginning
 * others. */
bool mimo_ring_keeps(const mimo_ring_group *group, const mimo_ring_blocker *blocker, uint64_t comm);

#endif
