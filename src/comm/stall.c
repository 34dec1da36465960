/*
 * Who says which ranks are missing. All ranks of a communicator that wait tell the listeners, ranks
 * 0 and 1. The line of rank 0 names the silent ones. Where rank 0 is silent itself, the line of
 * rank 1 names them. Where neither has taken what it was told, every line names these two.
 */
#include "comm/stall.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/logging.h"

static mimo_notice notice_of(const mimo_comm *comm)
{
    return (mimo_notice){.comm = comm->id, .calls = comm->calls};
}

static void tell_listeners(mimo_comm *comm)
{
    const mimo_notice notice = notice_of(comm);
    for (int to = 0; to < MIMO_LISTENERS && to < comm->size && comm->backend->send_notice; to++)
        if (to != comm->rank)
            comm->backend->send_notice(comm, to, &notice);
}

/* No listener has taken this rank's notice. */
static bool is_unheard(mimo_comm *comm)
{
    bool unheard = true;
    for (int to = 0; to < MIMO_LISTENERS; to++)
        unheard = unheard && !comm->backend->took_notice(comm, to);
    return unheard;
}

/* The ranks below this one are those whose silence this rank's line names; 0: none. */
static int names_below(mimo_comm *comm, const mimo_notice *mine)
{
    if (comm->rank == 0)
        return comm->size;
    if (comm->rank < MIMO_LISTENERS)
        return comm->backend->heard_from(comm, 0, mine) ? 0 : comm->size;
    return is_unheard(comm) ? MIMO_LISTENERS : 0;
}

static void warn(mimo_comm *comm, const mimo_stall *stall, const char *call)
{
    char silent[MIMO_SENTENCE_TEXT / 2] = "", process[64] = "";
    const mimo_notice mine = notice_of(comm);
    int below = comm->backend->send_notice ? names_below(comm, &mine) : 0;
    if (below > 0)
        comm->backend->list_silent(comm, &mine, below, silent, sizeof silent);
    if (comm->renumbered)
        snprintf(process, sizeof process, " (rank %d" MIMO_OF_FIRST ")", comm->family->rank);
    mimo_log(MIMO_LOG_WARNING,
             "%s: rank %d of %d%s has waited %g s in communicator %" PRIx64 "%s%s", call,
             comm->rank, comm->size, process, (double)stall->warn_at / 1e9, comm->id, silent,
             comm->renumbered && silent[0] ? MIMO_OF_FIRST : "");
}

/* A rank tells the listeners at half of the time at which it warns. So a listener's line knows of
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
    if (clock->waited >= stall->warn_at) { /* a notice of now would not have been taken */
        warn(comm, stall, call);
        stall->warn_at *= 2;
    }
    if (clock->waited >= stall->tell_at) {
        tell_listeners(comm);
        stall->tell_at *= 2;
    }
}
