#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include <mimo/env.h>

#include "comm/comm_backend.h"
#include "core/check.h"

/* The time between two checks counts for at most this fraction of the deadline. A host that was
 * busy elsewhere, or stopped, must test its requests again before it gives its peers up. */
enum { CHECKS_PER_DEADLINE = 8 };

/* Peers that wait answer within this fraction of the deadline. So a call ends well before twice the
 * deadline. */
enum { PATIENCE_FRACTION = 4 };

/* Iterations of a waiting loop between two checks: one takes less than a microsecond on an idle
 * core. */
enum { POLLS_PER_CHECK = 16 };

static const int64_t MILLISECOND = 1000000;

int64_t mimo_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * MILLISECOND + now.tv_nsec + 1;
}

mimo_status mimo_family_init(mimo_family *family)
{
    int64_t deadline;
    MIMO_TRY(mimo_env_get(&deadline, MIMO_ENV_DEADLINE));
    MIMO_CHECK(deadline >= 0 && deadline <= MIMO_DEADLINE_MOST, MIMO_ERR_ARGUMENT,
               "environment MIMO_DEADLINE_MS=%" PRId64 " is not in [0, %" PRId64 "]", deadline,
               (int64_t)MIMO_DEADLINE_MOST);
    family->deadline = deadline;
    return MIMO_OK;
}

/* In nanoseconds. */
static int64_t deadline_of(const mimo_family *family)
{
    return __atomic_load_n(&family->deadline, __ATOMIC_RELAXED) * MILLISECOND;
}

/* -------------------------------------- the end ----------------------------------------- */

mimo_status mimo_comm_check(const mimo_comm *comm)
{
    mimo_status end = mimo_family_status(comm->family);
    return end == MIMO_OK ? MIMO_OK : mimo_fail(end, "%s", comm->family->sentence);
}

/* Why the family ends: a peer's farewell, an abort of this rank, or a deadline that has passed. */
typedef struct reason {
    mimo_status status;
    const mimo_farewell *received; /* NULL: the reason is this rank's own */
    int64_t waited;                /* nanoseconds */
} reason;

/* This rank's farewell: the call that it gives up, or which rank aborted and why. */
static mimo_farewell farewell_of(const mimo_comm *comm, const char *call, const reason *why)
{
    bool passed_on = why->received && why->status == MIMO_ERR_ABORTED;
    mimo_farewell it = {.status = (int32_t)why->status,
                        .origin = passed_on ? why->received->origin : -1,
                        .comm = comm->id,
                        .calls = comm->calls};
    snprintf(it.text, sizeof it.text, "%s", passed_on ? why->received->text : call);
    return it;
}

static void write_sentence(char *text, size_t capacity, const char *call, const reason *why,
                           const char *missing)
{
    const mimo_farewell *received = why->received;
    if (!received && why->status == MIMO_ERR_ABORTED)
        snprintf(text, capacity, "the communicator was aborted here: %s", call);
    else if (!received)
        snprintf(text, capacity, "%s: given up after %" PRId64 " ms%s", call,
                 why->waited / MILLISECOND, missing);
    else if (received->status == MIMO_ERR_ABORTED)
        snprintf(text, capacity, "%s: rank %d aborted: %s", call, (int)received->origin,
                 received->text);
    else
        snprintf(text, capacity, "%s: rank %d gave up %s%s", call, (int)received->rank,
                 received->text, missing);
}

/* End the family, once: send a farewell to the peers, and receive theirs. */
static mimo_status end_family(mimo_comm *comm, const char *call, const reason *why)
{
    mimo_family *family = comm->family;
    char missing[MIMO_SENTENCE_TEXT / 2] = "";
    if (__atomic_test_and_set(&family->ending, __ATOMIC_ACQ_REL)) /* another thread ends it */
        return mimo_fail(why->status, "%s: given up, as another call was", call);
    const mimo_farewell mine = farewell_of(comm, call, why);
    int64_t patience = deadline_of(family) / PATIENCE_FRACTION;
    if (why->status == MIMO_ERR_ABORTED)
        patience = 0;
    if (comm->backend->end)
        comm->backend->end(comm, &mine, patience, missing, sizeof missing);
    write_sentence(family->sentence, sizeof family->sentence, call, why, missing);
    __atomic_store_n(&family->end, (int)why->status, __ATOMIC_RELEASE);
    return mimo_comm_check(comm);
}

/* -------------------------------------- checks ------------------------------------------ */

static mimo_status receive_farewell(mimo_comm *comm, const char *call)
{
    mimo_farewell received;
    comm->last_receive = mimo_now();
    if (!comm->backend->receive_farewell || !comm->backend->receive_farewell(comm, &received))
        return MIMO_OK;
    const reason why = {(mimo_status)received.status, &received, 0};
    return end_family(comm, call, &why);
}

mimo_status mimo_comm_enter(mimo_comm *comm, const char *call)
{
    MIMO_TRY(mimo_comm_check(comm));
    return deadline_of(comm->family) > 0 ? receive_farewell(comm, call) : MIMO_OK;
}

mimo_status mimo_check_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call)
{
    MIMO_TRY(mimo_comm_check(comm));
    int64_t now = mimo_now();
    int64_t deadline = deadline_of(comm->family);
    int64_t gap = clock->last_check > 0 ? now - clock->last_check : 0;
    int64_t most = deadline / CHECKS_PER_DEADLINE;
    clock->last_check = now;
    clock->waited += gap < most ? gap : most;
    if (now - comm->last_receive > MILLISECOND)
        MIMO_TRY(receive_farewell(comm, call));
    if (deadline == 0 || clock->waited < deadline)
        return MIMO_OK;
    const reason why = {MIMO_ERR_TIMEOUT, NULL, clock->waited};
    return end_family(comm, call, &why);
}

mimo_status mimo_poll_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call)
{
    return ++clock->polls % POLLS_PER_CHECK == 0 ? mimo_check_termination(comm, clock, call)
                                                 : MIMO_OK;
}

/* -------------------------------------- public ------------------------------------------ */

mimo_status mimo_comm_set_deadline(mimo_comm *comm, int64_t milliseconds)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_set_deadline: comm is NULL");
    MIMO_CHECK(milliseconds >= 0 && milliseconds <= MIMO_DEADLINE_MOST, MIMO_ERR_ARGUMENT,
               "a deadline of %" PRId64 " ms is not in [0, %" PRId64 "]", milliseconds,
               (int64_t)MIMO_DEADLINE_MOST);
    __atomic_store_n(&comm->family->deadline, milliseconds, __ATOMIC_RELAXED);
    return MIMO_OK;
}

int64_t mimo_comm_deadline(const mimo_comm *comm)
{
    return deadline_of(comm->family) / MILLISECOND;
}

mimo_status mimo_comm_abort(mimo_comm *comm, const char *why)
{
    char text[MIMO_SENTENCE_TEXT];
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_abort: comm is NULL");
    snprintf(text, sizeof text, "%s", why ? why : "no reason given");
    const reason own = {MIMO_ERR_ABORTED, NULL, 0};
    if (mimo_family_status(comm->family) == MIMO_OK)
        (void)end_family(comm, text, &own);
    return MIMO_OK;
}

mimo_status mimo_comm_state(const mimo_comm *comm)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_state: comm is NULL");
    return mimo_comm_check(comm);
}
