/* What the host does while it waits: when it sleeps, and how long. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_backend.h"
#include "comm/places.h"
#include "comm/waiter.h"
#include "expect_failure.h"

#include <mimo/log.h>

static const int64_t MICROSECOND = 1000, MILLISECOND = 1000000, SECOND = 1000000000;

Test(waiter, naps, .timeout = 60)
{
    for (int64_t still = 0; still <= 3200 * MICROSECOND; still += 10 * MICROSECOND)
        cr_assert_eq(mimo_nap_after(still, 0), 0, "in the first 3.2 ms, after %ld ns", (long)still);
    for (int64_t still = 3300 * MICROSECOND; still < 100 * SECOND; still += still / 7) {
        int64_t nap = mimo_nap_after(still, 0);
        cr_assert(nap > 0 && nap <= still / 64 && nap <= MILLISECOND, "%ld ns after %ld ns",
                  (long)nap, (long)still);
    }
}

/* 256 MiB take 4.3 seconds on a way of 64 MB/s, and nobody sleeps meanwhile. */
Test(waiter, naps_while_rows_move, .timeout = 60)
{
    cr_assert_eq(mimo_nap_after(4 * SECOND, 1 << 28), 0, "in the time of a slow way");
    cr_assert_gt(mimo_nap_after(5 * SECOND, 1 << 28), 0, "after the time of a slow way");
    cr_assert_gt(mimo_nap_after(4 * MILLISECOND, 1024), 0, "with a few bytes on their way");
    cr_assert_eq(mimo_nap_after(INT64_MAX / 2, INT64_MAX), 0, "with more bytes than there are");
}

/* ------------------------------------- waits ---------------------------------------- */

typedef struct waiting_bed {
    mimo_family family;
    mimo_comm comm;
    mimo_waiter waiter;
} waiting_bed;

static int64_t moves_for_ever(const mimo_request *request)
{
    (void)request;
    return INT64_MAX;
}

static const mimo_comm_backend no_backend = {.name = "none"},
                               moving_backend = {.name = "slow", .moving = moves_for_ever};

static void begin(waiting_bed *it, bool sleeps)
{
    memset(it, 0, sizeof *it);
    SUCCEEDS(mimo_family_init(&it->family, &no_backend, NULL));
    it->family.sleeps = sleeps;
    it->comm = (mimo_comm){.backend = &no_backend, .family = &it->family};
    it->waiter = (mimo_waiter){.comm = &it->comm, .call = "the call"};
}

/* Wait until the wait sleeps, or has lasted for that time. */
static bool sleeps_within(waiting_bed *it, int64_t time)
{
    int64_t began = mimo_now();
    while (!it->waiter.slept && mimo_now() - began < time)
        SUCCEEDS(mimo_waiter_step(&it->waiter, &it->comm));
    return it->waiter.slept;
}

/* Each end of a request begins the time anew: the next step does not sleep. */
Test(waiter, begins_anew_when_something_ends, .timeout = 60)
{
    waiting_bed it;
    begin(&it, true);
    for (int round = 0; round < 3; round++) {
        int64_t began = mimo_now();
        cr_assert(sleeps_within(&it, 30 * SECOND), "round %d: it never sleeps", round);
        cr_assert_geq(mimo_now() - began, MILLISECOND, "round %d: it sleeps at once", round);
        it.comm.ended++;
        SUCCEEDS(mimo_waiter_step(&it.waiter, &it.comm));
        cr_assert(!it.waiter.slept, "round %d: it sleeps on", round);
    }
}

Test(waiter, polls_where_it_may_not_sleep, .timeout = 60)
{
    waiting_bed it;
    begin(&it, false);
    cr_assert(!sleeps_within(&it, 50 * MILLISECOND), "it sleeps");
    begin(&it, true);
    it.comm.backend = &moving_backend;
    it.waiter.request = (const mimo_request *)&it;
    cr_assert(!sleeps_within(&it, 50 * MILLISECOND), "it sleeps while rows move");
}

/* Before there is a communicator it only yields. */
Test(waiter, of_no_communicator, .timeout = 60)
{
    mimo_waiter waiter = {.call = "the call"};
    for (int i = 0; i < 1000; i++)
        SUCCEEDS(mimo_waiter_pause(&waiter));
}

Test(waiter, ways, .timeout = 60)
{
    static const struct {
        const char *wait;
        bool crowded, sleeps;
    } rows[] = {{"", false, false},     {"", true, true},      {"poll", true, false},
                {"sleep", false, true}, {"sleep", true, true}, {"poll", false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mimo_family family;
        memset(&family, 0, sizeof family);
        setenv("MIMO_WAIT", rows[i].wait, 1);
        SUCCEEDS(mimo_family_init(&family, &no_backend, NULL));
        int processors = mimo_processors();
        cr_assert(processors > 0 && processors < INT_MAX, "%d processors", processors);
        mimo_family_set_sharers(&family, processors + rows[i].crowded);
        cr_assert_eq(family.sleeps, rows[i].sleeps, "MIMO_WAIT='%s', %d ranks on %d", rows[i].wait,
                     processors + rows[i].crowded, processors);
    }
    mimo_family family;
    setenv("MIMO_WAIT", "poll,sleep", 1);
    FAILS(mimo_family_init(&family, &no_backend, NULL), MIMO_ERR_ARGUMENT, "MIMO_WAIT has both");
    setenv("MIMO_WAIT", "", 1);
    setenv("MIMO_LOG", "debug", 1);
    FAILS(mimo_family_init(&family, &no_backend, NULL), MIMO_ERR_ARGUMENT,
          "'debug' is none of warn,info");
}

/* -------------------------------- waits that last long -------------------------------- */

typedef struct said {
    int lines, told;
    char first[256], last[256];
} said;

static said heard;

static void note_line(void *context, mimo_log_level level, const char *text)
{
    (void)context;
    cr_assert_eq(level, MIMO_LOG_WARNING);
    snprintf(heard.lines == 0 ? heard.first : heard.last, sizeof heard.last, "%s", text);
    heard.lines++;
}

static void note_notice(mimo_comm *comm, int to, const mimo_notice *notice)
{
    cr_assert(to >= 0 && to < 2 && to != comm->rank);
    cr_assert(notice->comm == comm->id && notice->calls == 7);
    heard.told++;
}

/* Listeners from `silent` on wait as well. */
static int silent;

static bool is_taken(mimo_comm *comm, int to)
{
    (void)comm;
    return to >= silent;
}

static bool told_of(mimo_comm *comm, int rank, const mimo_notice *call)
{
    cr_assert(comm->rank == 1 && rank == 0 && call->comm == comm->id && call->calls == 7);
    return silent == 0;
}

static void name_below(mimo_comm *comm, const mimo_notice *call, int below, char *text,
                       size_t capacity)
{
    cr_assert(call->comm == comm->id && call->calls == 7);
    snprintf(text, capacity, "; none below %d", below);
}

static const mimo_comm_backend telling_backend = {.name = "telling",
                                                  .send_notice = note_notice,
                                                  .took_notice = is_taken,
                                                  .heard_from = told_of,
                                                  .list_silent = name_below};

/* Wait for so long that lines are due at 1, 2 and 4 times 20 ms, and none at 8 times. */
static void wait_long(int rank, int64_t stall)
{
    waiting_bed it;
    begin(&it, false);
    heard = (said){0};
    mimo_log_set(note_line, NULL);
    it.family.stall = stall * MILLISECOND;
    it.family.rank = 10 + rank;
    it.comm = (mimo_comm){.backend = &telling_backend,
                          .family = &it.family,
                          .rank = rank,
                          .size = 4,
                          .id = 0xbed,
                          .renumbered = true,
                          .calls = 7};
    while (it.waiter.clock.waited < 5 * stall * MILLISECOND)
        SUCCEEDS(mimo_waiter_step(&it.waiter, &it.comm));
    mimo_log_set(NULL, NULL);
}

/* The lowest rank names the silent ones. The others tell it and rank 1, at half the times, and name
 * nobody, unless rank 0 is silent: then rank 1 does, and where that is silent too, all. */
Test(waiter, says_that_it_lasts, .timeout = 60)
{
    static const struct {
        int rank, silent, told;
        const char *names;
    } rows[] = {
        {0, 0, 4, "; none below 4"},
        {1, 0, 4, ""},
        {1, 1, 4, "; none below 4"},
        {2, 0, 8, ""},
        {2, 1, 8, ""},
        {2, 2, 8, "; none below 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "the call: rank %d of 4 (rank %d of communicator 0) has waited 0.02 s in "
                 "communicator bed%s%s",
                 rows[i].rank, 10 + rows[i].rank, rows[i].names,
                 rows[i].names[0] ? " of communicator 0" : "");
        silent = rows[i].silent;
        wait_long(rows[i].rank, 20);
        cr_assert_eq(heard.lines, 3, "%d lines", heard.lines);
        cr_assert_eq(heard.told, rows[i].told, "told %d", heard.told);
        cr_assert_str_eq(heard.first, expected);
        cr_assert(strstr(heard.last, "has waited 0.08 s in"), "%s", heard.last);
    }
}

Test(waiter, says_nothing_where_nobody_asks, .timeout = 60)
{
    waiting_bed it;
    begin(&it, false);
    it.family.stall = 0;
    heard = (said){0};
    mimo_log_set(note_line, NULL);
    (void)sleeps_within(&it, 50 * MILLISECOND);
    mimo_log_set(NULL, NULL);
    cr_assert_eq(heard.lines, 0, "%s", heard.first);
}

Test(waiter, when_it_says_so, .timeout = 60)
{
    mimo_family family;
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    memset(&family, 0, sizeof family);
    SUCCEEDS(mimo_family_init(&family, &no_backend, &desc));
    cr_assert_eq(family.stall, 60 * SECOND);
    desc.stall = 5;
    SUCCEEDS(mimo_family_init(&family, &no_backend, &desc));
    cr_assert_eq(family.stall, 5 * MILLISECOND);
    desc.stall = -2;
    FAILS(mimo_family_init(&family, &no_backend, &desc), MIMO_ERR_ARGUMENT,
          "communicator: stall=-2 is not in [0, ");
    setenv("MIMO_STALL_MS", "2592000001", 1);
    FAILS(mimo_family_init(&family, &no_backend, NULL), MIMO_ERR_ARGUMENT,
          "MIMO_STALL_MS=2592000001");
}

/* ----------------------------------- interruptions ------------------------------------ */

typedef struct caller {
    int asked, answers_no; /* then it is interrupted */
    int64_t last;
} caller;

static int is_tired(void *context)
{
    caller *it = context;
    int64_t now = mimo_now();
    cr_assert(!it->last || now - it->last >= 50 * MILLISECOND, "asked again after %ld ns",
              (long)(now - it->last));
    it->last = now;
    return it->asked++ >= it->answers_no;
}

Test(waiter, ends_where_the_caller_is_interrupted, .timeout = 60)
{
    waiting_bed it;
    caller person = {.answers_no = 2};
    begin(&it, true);
    it.family.interrupted = is_tired;
    it.family.context = &person;
    mimo_status status = MIMO_OK;
    while (status == MIMO_OK)
        status = mimo_waiter_step(&it.waiter, &it.comm);
    cr_assert_eq(status, MIMO_ERR_ABORTED);
    cr_assert_eq(person.asked, 3, "asked %d times", person.asked);
    cr_assert_str_eq(mimo_last_error(),
                     "the call: the communicator was aborted here: its wait was interrupted");
    cr_assert_eq(mimo_waiter_step(&it.waiter, &it.comm), MIMO_ERR_ABORTED);
    cr_assert_eq(person.asked, 3, "asked after the end");
}
