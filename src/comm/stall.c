#include "comm/stall.h"

#include <inttypes.h>

#include "comm/recorder.h"
#include "core/logging.h"

/* The others of a communicator tell this rank that they wait. Its lines name the silent ones. */
enum { LISTENER = 0 };

static mimo_notice notice_of(const mimo_comm *comm)
{
    return (mimo_notice){.comm = comm->id, .calls = comm->calls};
}

static void tell_listener(mimo_comm *comm)
{
    const mimo_notice notice = notice_of(comm);
    if (comm->rank != LISTENER && comm->backend->send_notice)
        comm->backend->send_notice(comm, LISTENER, &notice);
}

static void warn(mimo_comm *comm, const mimo_stall *stall, const char *call)
{
    char silent[MIMO_SENTENCE_TEXT / 2] = "";
    const mimo_notice mine = notice_of(comm);
    if (comm->rank == LISTENER && comm->backend->list_silent)
        comm->backend->list_silent(comm, &mine, silent, sizeof silent);
    mimo_ring_verdict verdict = {.waits = false};
    (void)mimo_recorder_judge(&verdict, comm->family);
    mimo_log(MIMO_LOG_WARNING,
             "%s: rank %d of %d has waited %g s in communicator %" PRIx64 "%s%s%s", call,
             comm->rank, comm->size, (double)stall->warn_at / 1e9, comm->id, silent,
             verdict.waits ? "; " : "", verdict.waits ? verdict.text : "");
}

/* A rank tells the listener at half of the time at which it warns. So the listener's line knows of
 * all ranks that have waited for at least half as long as itself. */
static void begin(mimo_stall *stall, int64_t first)
{
    *stall = (mimo_stall){.warn_at = first, .tell_at = first / 2};
}

void mimo_stall_look(mimo_stall *stall, mimo_comm *comm, const mimo_wait_clock *clock,
                     const char *call)
{
    int64_t first = comm->family->stall;
    if (first == 0)
        return;
    if (stall->warn_at == 0)
        begin(stall, first);
    if (clock->waited >= stall->tell_at) {
        tell_listener(comm);
        stall->tell_at *= 2;
    }
    if (clock->waited >= stall->warn_at) {
        warn(comm, stall, call);
        stall->warn_at *= 2;
    }
}
