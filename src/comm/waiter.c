#include "comm/waiter.h"

#include <sched.h>
#include <time.h>

#include "comm/recorder.h"
#include "core/check.h"

/* Steps between two checks: one takes less than a microsecond on an idle core. */
enum { POLLS_PER_CHECK = 16 };

/* Nanoseconds. */
static const int64_t MILLISECOND = 1000000;
/* Between two questions to the caller. */
static const int64_t QUESTION_GAP = 50000000;
/* Between two counts of messages that have arrived. */
static const int64_t COUNT_GAP = 20000000;
/* Of the time waited so far, the part that a nap takes. */
static const int64_t NAP_SHARE = 64;
/* How much longer than asked for Linux may sleep on an idle processor. */
static const int64_t TIMER_SLACK = 50000;

int64_t mimo_nap_after(int64_t still, int64_t moving)
{
    int64_t share = still / NAP_SHARE;
    if (share <= TIMER_SLACK || still / MIMO_RING_SLOW_BYTE < moving)
        return 0;
    return (share < MILLISECOND ? share : MILLISECOND) - TIMER_SLACK;
}

/* The nap that is due now. What ended since the last one begins the time anew. */
static int64_t next_nap(mimo_waiter *waiter)
{
    const mimo_comm *comm = waiter->comm;
    if (!waiter->still || waiter->ended != comm->ended) {
        waiter->still = waiter->clock.last_check;
        waiter->ended = comm->ended;
    }
    return mimo_nap_after(waiter->clock.last_check - waiter->still,
                          mimo_bytes_moving(waiter->comm, waiter->request));
}

/* Ranks may outnumber cores, so each step yields or sleeps. */
static void rest(int64_t nap)
{
    const struct timespec time = {0, (long)nap};
    if (nap > 0)
        (void)nanosleep(&time, NULL); /* a signal may end it early */
    else
        sched_yield();
}

/* Ask the caller whether it is interrupted; for the first time when the wait has lasted a while. */
static bool is_interrupted(mimo_waiter *waiter)
{
    const mimo_family *family = waiter->comm->family;
    int64_t now = waiter->clock.last_check;
    if (!family->interrupted || now - waiter->asked < QUESTION_GAP)
        return false;
    bool first = waiter->asked == 0;
    waiter->asked = now;
    return !first && family->interrupted(family->context) != 0;
}

/* For those that read the ring. Each message is asked, so not at each look. */
static void count_arrived(mimo_waiter *waiter)
{
    const mimo_comm_backend *backend = waiter->comm->backend;
    int64_t now = waiter->clock.last_check;
    if (!waiter->request || !backend->arrived || now - waiter->counted < COUNT_GAP)
        return;
    waiter->counted = now;
    waiter->arrived = backend->arrived(waiter->request);
}

mimo_status mimo_waiter_check(mimo_waiter *waiter)
{
    count_arrived(waiter);
    mimo_record_wait(waiter);
    MIMO_TRY(mimo_check_termination(waiter->comm, &waiter->clock, waiter->call));
    mimo_stall_look(&waiter->stall, waiter->comm, &waiter->clock, waiter->call);
    if (!is_interrupted(waiter))
        return MIMO_OK;
    mimo_family_ask_end(waiter->comm->family, "its wait was interrupted", false);
    return mimo_check_termination(waiter->comm, &waiter->clock, waiter->call);
}

bool mimo_waiter_is_due(const mimo_waiter *waiter)
{
    return waiter->comm && (waiter->slept || (waiter->polls + 1) % POLLS_PER_CHECK == 0);
}

mimo_status mimo_waiter_pause(mimo_waiter *waiter)
{
    bool due = mimo_waiter_is_due(waiter);
    waiter->polls++;
    if (!due) {
        rest(0);
        return MIMO_OK;
    }
    MIMO_TRY(mimo_waiter_check(waiter));
    int64_t nap = waiter->comm->family->sleeps ? next_nap(waiter) : 0;
    waiter->slept = nap > 0;
    rest(nap);
    return MIMO_OK;
}

mimo_status mimo_waiter_step(mimo_waiter *waiter, mimo_comm *parent)
{
    MIMO_TRY(mimo_waiter_pause(waiter));
    mimo_progress_callback *callback = *mimo_callbacks_of(parent);
    for (; callback; callback = callback->next)
        callback->progress(callback->context);
    return MIMO_OK;
}
