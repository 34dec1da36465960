#define _GNU_SOURCE /* sigtimedwait */
#include "tools/why/why_watch.h"

#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "core/check.h"
#include "core/memory.h"

static sigset_t ends(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    return set;
}

void why_watch_begin(void)
{
    const sigset_t set = ends();
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

static bool is_noted(const why_watch *watch, const mimo_ring_identity *process)
{
    for (int i = 0; i < watch->count; i++)
        if (mimo_ring_same_process(&watch->seen[i], process))
            return true;
    return false;
}

mimo_status why_watch_note(why_watch *watch, const why_rings *rings)
{
    for (int i = 0; i < rings->count; i++) {
        const mimo_ring_identity *owner = &rings->looked[i].now->owner;
        if (is_noted(watch, owner))
            continue;
        MIMO_TRY(mimo_regrow(&watch->seen, watch->count, (int64_t)watch->count + 1,
                             sizeof *watch->seen));
        watch->seen[watch->count++] = *owner;
    }
    return MIMO_OK;
}

bool why_watch_is_over(const why_watch *watch)
{
    mimo_ring_identity self;
    mimo_ring_identify(&self);
    for (int i = 0; i < watch->count; i++)
        if (mimo_ring_life_of(&watch->seen[i], &self) != MIMO_RING_GONE)
            return false;
    return watch->count > 0;
}

bool why_watch_wait(double seconds)
{
    const sigset_t set = ends();
    const struct timespec gap = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    return sigtimedwait(&set, NULL, &gap) < 0; /* it has passed, or another signal came */
}

void why_watch_release(why_watch *watch)
{
    mimo_release(watch->seen);
    *watch = (why_watch){NULL, 0};
}
