#include "comm/waiter.h"

#include <sched.h>

#include "comm/comm_backend.h"
#include "core/check.h"

/* Steps between two checks: one takes less than a microsecond on an idle core. */
enum { POLLS_PER_CHECK = 16 };

mimo_status mimo_waiter_check(mimo_waiter *waiter)
{
    return mimo_check_termination(waiter->comm, &waiter->clock, waiter->call);
}

/* Ranks may outnumber cores, so each step yields. */
mimo_status mimo_waiter_pause(mimo_waiter *waiter)
{
    sched_yield();
    bool checks = waiter->comm && ++waiter->polls % POLLS_PER_CHECK == 0;
    return checks ? mimo_waiter_check(waiter) : MIMO_OK;
}

mimo_status mimo_waiter_step(mimo_waiter *waiter, mimo_comm *moves)
{
    for (mimo_progress_callback *callback = moves->callbacks; callback; callback = callback->next)
        callback->progress(callback->context);
    return mimo_waiter_pause(waiter);
}
