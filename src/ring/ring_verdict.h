/*
 * Who waits for whom: a pure function of what rings held at one moment, or at two.
 *
 * A rank *waits* where a thread of it is inside of a call and finds that others are not there yet.
 * Ranks count the calls of a communicator alike. So a rank that has begun fewer of its calls than
 * one that waits is waited for. If that rank waits itself (in the thread that uses the
 * communicator), the question goes on from there. The verdict names where it ends:
 *
 *     a rank that does not wait     it runs outside, or works inside; it is stopped; it is gone
 *     ranks that wait in a circle   they call in different orders
 *     a call that all have begun    data moves, or does not
 *
 * Nothing is guessed: what can't be read is said to be so.
 */
#ifndef MIMO_RING_RING_VERDICT_H
#define MIMO_RING_RING_VERDICT_H

#include "ring/ring_process.h"
#include "ring/ring_sample.h"

/* A ring, as it was now; and, where it was read twice, as it was before. Then only those wait that
 * wait in both, in the same call. */
typedef struct mimo_ring_looked {
    const mimo_ring_sample *now, *before; /* before may be NULL */
} mimo_ring_looked;

/* What the verdict asks beside rings. */
typedef struct mimo_ring_world {
    const mimo_ring_looked *rings; /* rings[count], of any families */
    int count;
    const mimo_ring_identity *self; /* whose host is not named */
    mimo_ring_life (*life)(void *context, const mimo_ring_identity *process);
    void *context;
} mimo_ring_world;

enum { MIMO_RING_VERDICT_RANKS = 8, MIMO_RING_VERDICT_TEXT = 1024 };

typedef struct mimo_ring_verdict {
    bool waits;  /* some rank waits */
    bool stands; /* and no data moves meanwhile, as far as can be seen */
    int count;   /* ranks that are waited for and do not wait, of the first sentence's family */
    int ranks[MIMO_RING_VERDICT_RANKS]; /* the first of them, ascending */
    char text[MIMO_RING_VERDICT_TEXT];  /* sentences, with `separator` between them */
} mimo_ring_verdict;

/* MIMO_ERR_MEMORY. */
mimo_status mimo_ring_judge(mimo_ring_verdict *out, const mimo_ring_world *world,
                            const char *separator);

#endif
