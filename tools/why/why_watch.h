/* Looking again and again: when the next look is due, and when there is no more to see. */
#ifndef MIMO_TOOLS_WHY_WHY_WATCH_H
#define MIMO_TOOLS_WHY_WHY_WATCH_H

#include "tools/why/why_rings.h"

typedef struct why_watch {
    mimo_ring_identity *seen; /* seen[count]: processes that had a ring in some look */
    int count;
} why_watch;

/* From now on SIGINT and SIGTERM end no look: the wait behind it takes them. */
void why_watch_begin(void);

/* Note whose rings a look has found. MIMO_ERR_MEMORY. */
mimo_status why_watch_note(why_watch *watch, const why_rings *rings);

/* Whether processes had rings, and all of these have ended. Of those on other hosts that is not
 * known, so they have not. */
bool why_watch_is_over(const why_watch *watch);

/* Wait. False: SIGINT or SIGTERM came, also during the look. */
bool why_watch_wait(double seconds);

void why_watch_release(why_watch *watch);

#endif
