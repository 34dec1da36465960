/* What the host does while it waits: when it sleeps, and how long. */
#include <criterion/criterion.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_backend.h"
#include "comm/places.h"
#include "comm/waiter.h"

static const int64_t MICROSECOND = 1000, MILLISECOND = 1000000, SECOND = 1000000000;

Test(waiter, naps, .timeout = 60)
{
    for (int64_t still = 0; still < MILLISECOND; still += 10 * MICROSECOND)
        cr_assert_eq(mimo_nap_after(still, 0), 0, "in the first millisecond, after %ld ns",
                     (long)still);
    for (int64_t still = MILLISECOND; still < 100 * SECOND; still += still / 7) {
        int64_t nap = mimo_nap_after(still, 0);
        cr_assert(nap > 0 && nap <= still / 16 && nap <= MILLISECOND, "%ld ns after %ld ns",
                  (long)nap, (long)still);
    }
}

/* 256 MiB take 4.3 seconds on a way of 64 MB/s, and nobody sleeps meanwhile. */
Test(waiter, naps_while_rows_move, .timeout = 60)
{
    cr_assert_eq(mimo_nap_after(4 * SECOND, 1 << 28), 0, "in the time of a slow way");
    cr_assert_gt(mimo_nap_after(5 * SECOND, 1 << 28), 0, "after the time of a slow way");
    cr_assert_gt(mimo_nap_after(2 * MILLISECOND, 1024), 0, "with a few bytes on their way");
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
    cr_assert_eq(mimo_family_init(&it->family, &no_backend, NULL), MIMO_OK, "%s",
                 mimo_last_error());
    it->family.sleeps = sleeps;
    it->comm = (mimo_comm){.backend = &no_backend, .family = &it->family};
    it->waiter = (mimo_waiter){.comm = &it->comm, .call = "the call"};
}

/* Wait until the wait sleeps, or has lasted for that time. */
static bool sleeps_within(waiting_bed *it, int64_t time)
{
    int64_t began = mimo_now();
    while (!it->waiter.slept && mimo_now() - began < time)
        cr_assert_eq(mimo_waiter_step(&it->waiter, &it->comm), MIMO_OK, "%s", mimo_last_error());
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
        cr_assert_eq(mimo_waiter_step(&it.waiter, &it.comm), MIMO_OK);
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
        cr_assert_eq(mimo_waiter_pause(&waiter), MIMO_OK);
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
        cr_assert_eq(mimo_family_init(&family, &no_backend, NULL), MIMO_OK, "%s",
                     mimo_last_error());
        int processors = mimo_processors();
        cr_assert(processors > 0 && processors < INT_MAX, "%d processors", processors);
        mimo_family_set_sharers(&family, processors + rows[i].crowded);
        cr_assert_eq(family.sleeps, rows[i].sleeps, "MIMO_WAIT='%s', %d ranks on %d", rows[i].wait,
                     processors + rows[i].crowded, processors);
    }
    mimo_family family;
    setenv("MIMO_WAIT", "poll,sleep", 1);
    cr_assert_eq(mimo_family_init(&family, &no_backend, NULL), MIMO_ERR_ARGUMENT);
    cr_assert(strstr(mimo_last_error(), "MIMO_WAIT has both"), "%s", mimo_last_error());
    setenv("MIMO_WAIT", "", 1);
    setenv("MIMO_LOG", "debug", 1);
    cr_assert_eq(mimo_family_init(&family, &no_backend, NULL), MIMO_ERR_ARGUMENT);
    cr_assert(strstr(mimo_last_error(), "'debug' is none of warn,info"), "%s", mimo_last_error());
}
