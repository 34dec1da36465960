/* What a ring keeps of a call, and of a wait, as the processor reads it. In memory that other
 * processes read these lie in lines (ring/ring_line.h). */
#ifndef MIMO_RING_RING_CALL_H
#define MIMO_RING_RING_CALL_H

#include <stdint.h>

/* Payload of a line. */
enum { MIMO_RING_WORDS = 14, MIMO_RING_PAYLOAD = MIMO_RING_WORDS * 8 };

typedef enum mimo_ring_state {
    MIMO_RING_NONE,   /* there was no call yet */
    MIMO_RING_BEGUN,  /* this rank has begun it */
    MIMO_RING_AGREED, /* all ranks have, and agree on it */
    MIMO_RING_MOVING, /* rows are on their way */
    MIMO_RING_ENDED,
    MIMO_RING_FAILED, /* ended with an error: `status` */
} mimo_ring_state;

/* One call of a communicator. Times are nanoseconds of CLOCK_MONOTONIC; 0: not yet, or not known.
 * `begun` and `ended` are exact, the others those of a coarse clock. */
typedef struct mimo_ring_call {
    uint64_t comm;   /* the communicator's id in its family */
    uint64_t number; /* of the call in its communicator */
    int64_t begun, agreed, moving, ended;
    int64_t bytes;         /* that this rank moves; -1: not known */
    uint64_t thread;       /* that began it: an address of its own */
    uint32_t object, verb; /* places of names; 0: none. "bridge 'image'", "forward" */
    int32_t micro_batch;   /* -1: none */
    int32_t chunks;
    int32_t state;  /* mimo_ring_state */
    int32_t status; /* a mimo_status */
    int64_t spare[3];
} mimo_ring_call;

/* Nanoseconds of a byte on a slow way, 64 MB/s. While faster ones move it, no wait sleeps, and
 * nobody says that it stands. */
enum { MIMO_RING_SLOW_BYTE = 16 };

enum { MIMO_RING_WORDS_TEXT = 80 };

/* What a thread waits for. */
typedef struct mimo_ring_wait {
    int32_t slot;    /* of the communicator; -1: the thread does not wait */
    int32_t any;     /* 1: for work on a stream, which any communicator of the family may have */
    uint64_t calls;  /* calls of the communicator that this rank had begun */
    int64_t since;   /* CLOCK_MONOTONIC */
    uint64_t thread; /* that waits */
    char words[MIMO_RING_WORDS_TEXT]; /* the call, as sentences have it */
} mimo_ring_wait;

#endif
