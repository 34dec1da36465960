/* Launches of kernels, as a ring has them. Kernels include this header. */
#ifndef MIMO_RING_RING_LAUNCHES_H
#define MIMO_RING_RING_LAUNCHES_H

#include <stdint.h>

enum { MIMO_RING_LAUNCHES = 64 }; /* objects of a ring */

/* Launches of the kernels of one object (a buffer, a dispatch), which follow one another. They are
 * numbered from 1, replays of graphs included, as the device counts them. A kernel stores its
 * number when it begins and when it ends. */
typedef struct mimo_ring_launches {
    uint64_t begun, ended; /* the last ones. The device writes these two, the host all others */
    uint64_t enqueued;     /* by the host, except into graphs */
    uint64_t captured;     /* into graphs: a replay of these adds to `begun` alone */
    uint64_t generation;   /* odd: in use */
    uint64_t comm;         /* the id of the communicator */
    uint64_t title;        /* a name */
    uint64_t alike;        /* 1: all ranks of the communicator make the same launches */
} mimo_ring_launches;

#endif
