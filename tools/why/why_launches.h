/* Processes that launchers have started, by their environment: which ranks have no ring yet. */
#ifndef MIMO_TOOLS_WHY_WHY_LAUNCHES_H
#define MIMO_TOOLS_WHY_WHY_LAUNCHES_H

#include "tools/why/why_rings.h"

typedef struct why_launched {
    uint64_t launch; /* a hash: the same for all processes of one launch */
    int rank, size;
    int32_t pid;
} why_launched;

typedef struct why_launches {
    why_launched *list; /* list[count] */
    int count;
} why_launches;

/* Look at a process. MIMO_ERR_MEMORY. */
mimo_status why_launches_add(why_launches *launches, int32_t pid);

/* Of the launches of which some rank has a ring, or of all where no ring is there: the ranks that
 * have none. MIMO_ERR_MEMORY. */
mimo_status why_launches_missing(why_rings *rings, const why_launches *launches);

#endif
