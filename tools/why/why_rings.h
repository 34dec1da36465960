/* The rings that mimo-why looks at: found, read twice, and what is missing. */
#ifndef MIMO_TOOLS_WHY_WHY_RINGS_H
#define MIMO_TOOLS_WHY_WHY_RINGS_H

#include "ring/ring_verdict.h"

/* A process that a launcher has started and that has no ring, though others of its launch do. */
typedef struct why_missing {
    int rank, size;
    int32_t pid;
} why_missing;

typedef struct why_rings {
    mimo_ring_identity self;
    mimo_ring_memory *memories; /* memories[count] */
    mimo_ring_looked *looked;   /* looked[count] */
    int count;
    why_missing *missing; /* missing[missing_count] */
    int missing_count;
} why_rings;

/* Find rings. places[place_count]: process ids, and folders of files; none: all processes of this
 * user on this host. MIMO_ERR_IO, with the place in the sentence, for one that is neither;
 * `again`: processes that have ended meanwhile are passed over. MIMO_ERR_MEMORY. Release in any
 * case. */
mimo_status why_rings_find(why_rings *out, const char *const *places, int place_count, bool again);

/* Read all, and again `gap` nanoseconds later. MIMO_ERR_MEMORY. */
mimo_status why_rings_look(why_rings *rings, int64_t gap);

void why_rings_release(why_rings *rings);

/* For verdicts. */
mimo_ring_world why_world_of(why_rings *rings);

#endif
