#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <mimo/env.h>

#include "comm/comm_backend.h"
#include "comm/places.h"
#include "comm/recorder.h"
#include "core/check.h"
#include "core/descriptor.h"
#include "core/forks.h"
#include "core/letters.h"
#include "core/logging.h"

/* The time between two checks counts for at most this fraction of the deadline, and of the time
 * after which a wait says that it lasts. A host that was busy elsewhere, or stopped, must test its
 * requests again before it gives its peers up. */
enum { CHECKS_PER_DEADLINE = 8 };

/* Peers that wait answer within this fraction of the deadline. So a call ends well before twice the
 * deadline. */
enum { PATIENCE_FRACTION = 4 };

static const int64_t MILLISECOND = 1000000;

int64_t mimo_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * MILLISECOND + now.tv_nsec + 1;
}

const void *mimo_this_thread(void)
{
    static _Thread_local char here;
    return &here;
}

static mimo_status check_policy(const mimo_comm_desc *desc)
{
    MIMO_CHECK(desc->agree >= MIMO_FROM_ENV && desc->agree <= 1, MIMO_ERR_ARGUMENT,
               "communicator: agree = %d is neither 0 nor 1 nor MIMO_FROM_ENV", desc->agree);
    MIMO_CHECK(desc->checks >= MIMO_FROM_ENV && desc->checks <= MIMO_CHECK_ALL, MIMO_ERR_ARGUMENT,
               "communicator: checks = %d has other bits than %d, and is not MIMO_FROM_ENV",
               desc->checks, MIMO_CHECK_ALL);
    return MIMO_OK;
}

static mimo_status choose_deadline(int64_t *out, const mimo_comm_desc *desc)
{
    bool given = desc->deadline != MIMO_FROM_ENV;
    *out = desc->deadline;
    if (!given)
        MIMO_TRY(mimo_env_get(out, MIMO_ENV_DEADLINE));
    MIMO_CHECK(*out >= 0 && *out <= MIMO_DEADLINE_MOST, MIMO_ERR_ARGUMENT,
               "%s=%" PRId64 " is not in [0, %" PRId64 "]",
               given ? "communicator: deadline" : "environment MIMO_DEADLINE_MS", *out,
               (int64_t)MIMO_DEADLINE_MOST);
    return MIMO_OK;
}

/* What a designated initialiser leaves: nobody who means it sets all three. */
static void warn_of_zeros(const mimo_comm_desc *desc)
{
    if (desc->agree == 0 && desc->checks == 0 && desc->deadline == 0)
        mimo_log_unasked(
            "communicator: agree, checks and deadline of the descriptor are all 0, so ranks do "
            "not agree on calls, and wait for ever; MIMO_COMM_DESC_INIT has the defaults");
}

static mimo_status choose_stall(int64_t *out, const mimo_comm_desc *desc)
{
    bool given = desc->stall != MIMO_FROM_ENV;
    int64_t stall = desc->stall;
    if (!given)
        MIMO_TRY(mimo_env_get(&stall, MIMO_ENV_STALL));
    MIMO_CHECK(stall >= 0 && stall <= MIMO_DEADLINE_MOST, MIMO_ERR_ARGUMENT,
               "%s=%" PRId64 " is not in [0, %" PRId64 "]",
               given ? "communicator: stall" : "environment MIMO_STALL_MS", stall,
               (int64_t)MIMO_DEADLINE_MOST);
    *out = stall * MILLISECOND;
    return MIMO_OK;
}

/* The log reads MIMO_LOG when it has a line, and can return no error. */
static mimo_status check_log(void)
{
    int64_t levels;
    return mimo_env_get(&levels, MIMO_ENV_LOG);
}

static mimo_status choose_wait(mimo_family *family)
{
    int64_t ways;
    MIMO_TRY(mimo_env_get(&ways, MIMO_ENV_WAIT));
    MIMO_CHECK(ways != (MIMO_WAIT_POLL | MIMO_WAIT_SLEEP), MIMO_ERR_ARGUMENT,
               "environment MIMO_WAIT has both poll and sleep");
    family->sleeps = ways == MIMO_WAIT_SLEEP;
    family->if_crowded = ways == 0;
    return MIMO_OK;
}

static mimo_status choose_keep(mimo_family *family)
{
    int64_t keep;
    MIMO_TRY(mimo_env_get(&keep, MIMO_ENV_RING_KEEP));
    MIMO_CHECK(keep == 0 || keep == 1, MIMO_ERR_ARGUMENT,
               "environment MIMO_RING_KEEP=%" PRId64 " is neither 0 nor 1", keep);
    family->ring_stays = keep == 1;
    return MIMO_OK;
}

static mimo_status choose_ring(mimo_family *family, const mimo_comm_desc *desc)
{
    int64_t ways = desc->ring;
    const char *folder = desc->ring_folder;
    MIMO_TRY(choose_keep(family));
    if (ways == MIMO_FROM_ENV)
        MIMO_TRY(mimo_env_get(&ways, MIMO_ENV_RING));
    if (!folder)
        MIMO_TRY(mimo_env_text(&folder, MIMO_ENV_RING_FOLDER));
    MIMO_CHECK(ways == 0 || ways == MIMO_RING_OFF || ways == MIMO_RING_MEMORY ||
                   ways == MIMO_RING_FILE,
               MIMO_ERR_ARGUMENT,
               "communicator: ring = %" PRId64 " is not one of off, memory, file", ways);
    MIMO_CHECK(ways != MIMO_RING_FILE || folder[0], MIMO_ERR_ARGUMENT,
               "communicator: its ring is to be a file, and MIMO_RING_FOLDER names no folder");
    family->ring_ways = (int)ways;
    family->ring_folder = folder;
    return MIMO_OK;
}

void mimo_family_set_sharers(mimo_family *family, int ranks)
{
    if (family->if_crowded)
        family->sleeps = ranks > mimo_processors();
}

MIMO_DEFINE_INIT(mimo_comm_desc, MIMO_COMM_DESC_INIT)

mimo_status mimo_family_init(mimo_family *family, const mimo_comm_backend *backend,
                             const mimo_comm_desc *desc)
{
    mimo_comm_desc own = MIMO_COMM_DESC_INIT;
    if (desc)
        MIMO_TRY(mimo_read_descriptor(&own, sizeof own, desc, "communicator"));
    MIMO_TRY(check_policy(&own));
    MIMO_TRY(choose_deadline(&family->deadline, &own));
    MIMO_TRY(choose_stall(&family->stall, &own));
    MIMO_TRY(choose_wait(family));
    MIMO_TRY(choose_ring(family, &own));
    MIMO_TRY(check_log());
    warn_of_zeros(&own);
    MIMO_TRY(mimo_forks_count());
    MIMO_CHECK(pthread_mutex_init(&family->lock, NULL) == 0, MIMO_ERR_MEMORY,
               "out of memory for the lock of a communicator");
    family->agree = own.agree;
    family->checks = own.checks;
    family->interrupted = own.interrupted;
    family->context = own.context;
    family->backend = backend;
    family->forks = mimo_forks();
    family->maker = family->caller = mimo_this_thread();
    return MIMO_OK;
}

void mimo_family_retain(mimo_family *family)
{
    __atomic_fetch_add(&family->users, 1, __ATOMIC_RELAXED);
}

void mimo_family_release(mimo_family *family)
{
    if (__atomic_sub_fetch(&family->users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    pthread_mutex_destroy(&family->lock);
    mimo_recorder_end(family, family->ring_stays || mimo_family_status(family) != MIMO_OK);
    family->backend->release_family(family);
}

/* In nanoseconds. */
static int64_t deadline_of(const mimo_family *family)
{
    return __atomic_load_n(&family->deadline, __ATOMIC_RELAXED) * MILLISECOND;
}

/* -------------------------------------- the end ----------------------------------------- */

static mimo_status check(const mimo_family *family)
{
    mimo_status end = mimo_family_status(family);
    return end == MIMO_OK ? MIMO_OK : mimo_fail(end, "%s", family->sentence);
}

mimo_status mimo_comm_check(const mimo_comm *comm)
{
    return check(comm->family);
}

/* Why the family ends: a peer's farewell, an abort of this rank, an error of the transport, or a
 * deadline that has passed. */
typedef struct reason {
    mimo_status status;
    const char *error;             /* the transport's sentence; NULL: it has met none */
    const mimo_farewell *received; /* NULL: the reason is this rank's own */
    int64_t waited;                /* nanoseconds */
    const char *inside; /* an abort that a thread finds in its call: that call; NULL: in none */
    bool silent;
} reason;

/* This rank's farewell: the call that it gives up, or which rank aborted and why. `comm` is the
 * call's, or NULL. */
static mimo_farewell farewell_of(const mimo_comm *comm, const char *call, const reason *why)
{
    bool passed_on = why->received && why->status == MIMO_ERR_ABORTED;
    mimo_farewell it = {.status = (int32_t)why->status,
                        .origin = passed_on ? why->received->origin : -1,
                        .comm = comm ? comm->id : 0,
                        .calls = comm ? comm->calls : 0};
    mimo_copy_text(it.text, sizeof it.text, passed_on ? why->received->text : call);
    return it;
}

static void write_sentence(char *text, size_t capacity, const mimo_comm *comm, const char *call,
                           const reason *why, const char *missing)
{
    const mimo_farewell *received = why->received;
    const char *whose = comm && comm->renumbered ? MIMO_OF_FIRST : "";
    if (why->error)
        mimo_copy_text(text, capacity, why->error);
    else if (!received && why->status == MIMO_ERR_ABORTED)
        snprintf(text, capacity, "%s%sthe communicator was aborted here: %s",
                 why->inside ? why->inside : "", why->inside ? ": " : "", call);
    else if (!received)
        snprintf(text, capacity, "%s: given up after %" PRId64 " ms%s", call,
                 why->waited / MILLISECOND, missing);
    else if (received->status == MIMO_ERR_ABORTED)
        snprintf(text, capacity, "%s: rank %d%s aborted: %s", call, (int)received->origin, whose,
                 received->text);
    else
        snprintf(text, capacity, "%s: rank %d%s gave up %s%s", call, (int)received->rank, whose,
                 received->text, missing);
}

static void await_end(const mimo_family *family)
{
    while (mimo_family_status(family) == MIMO_OK)
        sched_yield();
}

/* What the rings of this host say, behind what the backend knows. It is asked while this rank still
 * waits. A transport's error may have a cause that no ring knows: there the verdict counts where it
 * names a rank, as one that is gone. */
static void judge(mimo_family *family, const reason *why)
{
    mimo_recorder *recorder = family->recorder;
    if (!recorder || (why->status != MIMO_ERR_TIMEOUT && !why->error))
        return;
    recorder->judged = mimo_recorder_judge(&recorder->verdict, family) && recorder->verdict.waits &&
                       (!why->error || recorder->verdict.count > 0);
}

static void append_verdict(mimo_family *family)
{
    const mimo_recorder *recorder = family->recorder;
    if (!recorder || !recorder->judged)
        return;
    size_t used = strlen(family->sentence), space = sizeof family->sentence - used;
    int wanted = snprintf(family->sentence + used, space, "; %s", recorder->verdict.text);
    mimo_end_with_letter(family->sentence + used, space, wanted);
}

/* End the family, once: send a farewell to the peers, and receive theirs. `comm` is NULL where no
 * call is given up. */
static void end_family(mimo_family *family, mimo_comm *comm, const char *call, const reason *why)
{
    char missing[MIMO_SENTENCE_TEXT / 2] = "";
    if (__atomic_test_and_set(&family->ending, __ATOMIC_ACQ_REL)) { /* another thread ends it */
        await_end(family);
        return;
    }
    judge(family, why);
    const mimo_farewell mine = farewell_of(comm, call, why);
    int64_t patience = deadline_of(family) / PATIENCE_FRACTION;
    if (why->status == MIMO_ERR_ABORTED)
        patience = 0;
    const mimo_last_words words = {comm, why->silent ? NULL : &mine, patience, missing,
                                   sizeof missing};
    if (family->backend->end)
        family->backend->end(family, &words);
    write_sentence(family->sentence, sizeof family->sentence, comm, call, why, missing);
    append_verdict(family);
    __atomic_store_n(&family->end, (int)why->status, __ATOMIC_RELEASE);
    if (family->recorder && family->recorder->ring)
        mimo_ring_store(&family->recorder->ring->head->end, (uint64_t)why->status);
    mimo_log(MIMO_LOG_WARNING, "%s", family->sentence);
}

mimo_status mimo_family_fail(mimo_comm *comm, mimo_status status)
{
    char error[MIMO_SENTENCE_TEXT];
    const reason why = {.status = status, .error = error};
    mimo_copy_text(error, sizeof error, mimo_last_error());
    end_family(comm->family, comm, error, &why);
    return mimo_comm_check(comm);
}

/* --------------------------------- an end that was asked for ------------------------------ */

void mimo_family_ask_end(mimo_family *family, const char *why, bool silent)
{
    if (__atomic_test_and_set(&family->asking, __ATOMIC_ACQ_REL))
        return;
    family->silent = silent;
    mimo_copy_text(family->why, sizeof family->why, why);
    __atomic_store_n(&family->asked, true, __ATOMIC_SEQ_CST);
}

static bool was_asked(const mimo_family *family)
{
    return __atomic_load_n(&family->asked, __ATOMIC_SEQ_CST);
}

static bool is_caller(const mimo_family *family)
{
    return __atomic_load_n(&family->caller, __ATOMIC_RELAXED) == mimo_this_thread();
}

/* A family that is forgotten may end in a thread that can't tell the peers. */
static void end_as_asked(mimo_family *family, const char *call)
{
    const reason own = {.status = MIMO_ERR_ABORTED,
                        .inside = call,
                        .silent =
                            family->silent || !(is_caller(family) || family->any_thread_ends)};
    if (mimo_family_status(family) == MIMO_OK)
        end_family(family, NULL, family->why, &own);
}

void mimo_family_end_asked(mimo_family *family)
{
    if (was_asked(family))
        end_as_asked(family, NULL);
}

/* A thread that enters counts itself first and then looks whether the end was asked for. Here it is
 * the other way round, so at least one of the two sees the other. */
void mimo_family_try_end(mimo_family *family)
{
    bool may = is_caller(family) || family->any_thread_ends || mimo_family_is_forgotten(family);
    if (may && was_asked(family) && __atomic_load_n(&family->inside, __ATOMIC_SEQ_CST) == 0)
        end_as_asked(family, NULL);
}

mimo_status mimo_family_state(const mimo_family *family)
{
    MIMO_TRY(check(family));
    MIMO_CHECK(!was_asked(family), MIMO_ERR_ABORTED, "the communicator was aborted here: %s",
               family->why);
    return MIMO_OK;
}

/* -------------------------------------- checks ------------------------------------------ */

static mimo_status receive_farewell(mimo_comm *comm, const char *call)
{
    mimo_farewell received;
    comm->last_receive = mimo_now();
    if (!comm->backend->receive_farewell || !comm->backend->receive_farewell(comm, &received))
        return MIMO_OK;
    const reason why = {.status = (mimo_status)received.status, .received = &received};
    end_family(comm->family, comm, call, &why);
    return mimo_comm_check(comm);
}

mimo_status mimo_check_farewells(mimo_comm *comm, const char *call)
{
    MIMO_TRY(mimo_comm_check(comm));
    return deadline_of(comm->family) > 0 ? receive_farewell(comm, call) : MIMO_OK;
}

/* How much of the time between two checks counts: nothing where no limit is set. */
static int64_t counted_gap(const mimo_family *family, int64_t gap)
{
    int64_t deadline = deadline_of(family), limit = family->stall;
    if (limit == 0 || (deadline > 0 && deadline < limit))
        limit = deadline;
    int64_t most = limit / CHECKS_PER_DEADLINE;
    return gap < most ? gap : most;
}

mimo_status mimo_check_termination(mimo_comm *comm, mimo_wait_clock *clock, const char *call)
{
    if (was_asked(comm->family))
        end_as_asked(comm->family, call);
    MIMO_TRY(mimo_comm_check(comm));
    int64_t now = mimo_now();
    int64_t deadline = deadline_of(comm->family);
    clock->waited += counted_gap(comm->family, clock->last_check > 0 ? now - clock->last_check : 0);
    clock->last_check = now;
    if (now - comm->last_receive > MILLISECOND)
        MIMO_TRY(receive_farewell(comm, call));
    if (deadline == 0 || clock->waited < deadline)
        return MIMO_OK;
    const reason why = {.status = MIMO_ERR_TIMEOUT, .waited = clock->waited};
    end_family(comm->family, comm, call, &why);
    return mimo_comm_check(comm);
}
