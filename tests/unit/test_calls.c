/* Threads inside calls of a family, and the end that another thread asks for. The transport here is
 * a number: it counts the ends, and must have one user at a time. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/calls.h"
#include "comm/waiter.h"
#include "expect_failure.h"

typedef struct fake {
    mimo_family base;
    int ends, told;
    long transport; /* no atomic: ThreadSanitizer finds two users */
    bool released;
} fake;

static void fake_end(mimo_family *family, const mimo_last_words *words)
{
    fake *it = (fake *)family;
    it->ends++;
    it->told += words->mine != NULL;
    it->transport++;
}

static void fake_release(mimo_family *family)
{
    ((fake *)family)->released = true;
}

static const mimo_comm_backend fake_backend = {
    .name = "fake", .end = fake_end, .release_family = fake_release};

static mimo_comm comm_of(fake *it, bool any_thread_ends)
{
    memset(it, 0, sizeof *it);
    SUCCEEDS(mimo_family_init(&it->base, &fake_backend, NULL));
    mimo_family_retain(&it->base);
    it->base.any_thread_ends = any_thread_ends;
    return (mimo_comm){
        .backend = &fake_backend, .device = &mimo_device_host, .family = &it->base, .holders = 1};
}

static void *abort_in_thread(void *comm)
{
    (void)mimo_comm_abort(comm, "elsewhere");
    return NULL;
}

static void abort_elsewhere(mimo_comm *comm)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, abort_in_thread, comm), 0, "no thread");
    pthread_join(thread, NULL);
}

static mimo_call_scope entered(mimo_comm *comm)
{
    mimo_call_scope scope;
    SUCCEEDS(mimo_call_enter(&scope, comm, "call"));
    return scope;
}

static void expect_ends(const fake *it, int ends, const char *when)
{
    cr_assert_eq(it->ends, ends, "%d ends, not %d, %s", it->ends, ends, when);
    mimo_status status = mimo_family_status(&it->base);
    cr_assert_eq(status, ends ? MIMO_ERR_ABORTED : MIMO_OK, "status %d %s", (int)status, when);
}

Test(calls, thread_inside_ends_it_when_it_looks, .timeout = 60)
{
    fake it;
    mimo_comm comm = comm_of(&it, true);
    mimo_waiter waiter = {.comm = &comm, .call = "the call"};
    mimo_call_scope scope = entered(&comm);
    abort_elsewhere(&comm);
    expect_ends(&it, 0, "while a thread is inside");
    cr_assert_eq(mimo_comm_state(&comm), MIMO_ERR_ABORTED, "asked for, and not seen");
    cr_assert_eq(mimo_waiter_check(&waiter), MIMO_ERR_ABORTED, "it goes on");
    cr_assert_eq(
        strcmp(mimo_last_error(), "the call: the communicator was aborted here: elsewhere"), 0,
        "%s", mimo_last_error());
    expect_ends(&it, 1, "after a look");
    mimo_call_leave(&scope);
    expect_ends(&it, 1, "at the end");
}

/* A call that does not wait ends the family when it is left, the outermost one of its thread. */
Test(calls, thread_inside_ends_it_when_it_leaves, .timeout = 60)
{
    fake it;
    mimo_comm comm = comm_of(&it, true);
    mimo_call_scope outer = entered(&comm), inner = entered(&comm);
    abort_elsewhere(&comm);
    mimo_call_leave(&inner);
    expect_ends(&it, 0, "inside the outer call");
    (void)mimo_fail(MIMO_ERR_SHAPE, "the call's own sentence");
    mimo_call_leave(&outer);
    expect_ends(&it, 1, "outside");
    cr_assert_eq(strcmp(mimo_last_error(), "the call's own sentence"), 0, "%s", mimo_last_error());
}

/* Where no thread is inside, the one that asks ends it if it may call the transport; otherwise the
 * next call of another thread does. */
Test(calls, nobody_inside, .timeout = 60)
{
    fake it;
    mimo_comm comm = comm_of(&it, true);
    abort_elsewhere(&comm);
    expect_ends(&it, 1, "by the thread that asks");
    comm = comm_of(&it, false);
    abort_elsewhere(&comm);
    expect_ends(&it, 0, "by a thread that may not");
    mimo_call_scope scope = entered(&comm);
    expect_ends(&it, 1, "by the next call");
    cr_assert_eq(it.told, 1, "the peers were not told");
    mimo_call_leave(&scope);
    comm = comm_of(&it, false);
    (void)mimo_comm_abort(&comm, NULL);
    expect_ends(&it, 1, "by the thread that called last");
}

Test(calls, scope_keeps_the_family, .timeout = 60)
{
    fake it;
    mimo_comm comm = comm_of(&it, true);
    mimo_call_scope scope = entered(&comm);
    mimo_family_release(&it.base); /* the last communicator */
    cr_assert_eq(it.released, false, "released under a call");
    mimo_call_leave(&scope);
    cr_assert_eq(it.released, true, "never released");
}

/* ------------------------------------- one at a time ------------------------------------ */

/* What another thread is given, and its sentence. */
typedef struct attempt {
    mimo_comm *comm;
    bool releases;
    mimo_status status;
    char sentence[256];
} attempt;

static void *enter_and_leave(void *of)
{
    attempt *it = of;
    MIMO_CALL_SCOPE(scope);
    it->status = MIMO_OK;
    if (it->releases)
        it->status = mimo_release_enter(&scope, it->comm) ? MIMO_OK : MIMO_ERR_STATE;
    else
        it->status = mimo_call_enter(&scope, it->comm, "barrier");
    snprintf(it->sentence, sizeof it->sentence, "%s", it->status ? mimo_last_error() : "");
    return NULL;
}

static attempt attempted_elsewhere(mimo_comm *comm, bool releases)
{
    pthread_t thread;
    attempt it = {.comm = comm, .releases = releases};
    cr_assert_eq(pthread_create(&thread, NULL, enter_and_leave, &it), 0, "no thread");
    pthread_join(thread, NULL);
    return it;
}

static void expect_refused(mimo_comm *comm, bool releases, const char *sentence)
{
    const attempt it = attempted_elsewhere(comm, releases);
    cr_assert_eq(it.status, MIMO_ERR_STATE, "two threads at once");
    cr_assert_eq(strcmp(it.sentence, sentence), 0, "%s", it.sentence);
}

static void expect_let_in(mimo_comm *comm, const char *when)
{
    for (int releases = 0; releases < 2; releases++) {
        const attempt it = attempted_elsewhere(comm, releases);
        cr_assert_eq(it.status, MIMO_OK, "%s: %s", when, it.sentence);
    }
}

#define INSIDE "another thread of this rank is inside a call of the same "
#define ONE_AT_A_TIME ", and one at a time may be. "

/* From the first call that this thread enters to the last one that it leaves. */
Test(calls, second_thread_is_refused, .timeout = 60)
{
    fake it;
    mimo_comm comm = comm_of(&it, true);
    it.base.parallel = true;
    mimo_call_scope outer = entered(&comm), inner = entered(&comm);
    mimo_call_leave(&inner);
    expect_refused(&comm, false,
                   "barrier: " INSIDE "communicator" ONE_AT_A_TIME
                   "This call did not begin, and the other ranks still wait for it");
    expect_refused(&comm, true,
                   "destroy: " INSIDE "communicator" ONE_AT_A_TIME "Nothing was released");
    cr_assert_eq(it.base.inside, 1, "%d inside", it.base.inside);
    cr_assert_eq(comm.holders, 2, "%d holders", comm.holders);
    mimo_call_leave(&outer);
    expect_let_in(&comm, "once the first one has left");
}

/* Two communicators of a family, and one that is used with the first. */
Test(calls, what_one_thread_has, .timeout = 60)
{
    fake it;
    mimo_comm first = comm_of(&it, true), second = first, of_bridge = first;
    of_bridge.used_with = &first;
    mimo_call_scope scope = entered(&of_bridge);
    expect_refused(&first, true,
                   "destroy: " INSIDE "family of communicators" ONE_AT_A_TIME
                   "Nothing was released");
    expect_refused(&second, true,
                   "destroy: " INSIDE "family of communicators" ONE_AT_A_TIME
                   "Nothing was released");
    mimo_call_leave(&scope);
    expect_let_in(&second, "once the first one has left");
    it.base.parallel = true;
    scope = entered(&of_bridge);
    expect_refused(&first, true,
                   "destroy: " INSIDE "communicator" ONE_AT_A_TIME "Nothing was released");
    expect_let_in(&second, "another communicator");
    mimo_call_leave(&scope);
    expect_let_in(&first, "once the first one has left");
}

Test(calls, any_thread_where_all_is_forgotten, .timeout = 60)
{
    fake it;
    mimo_comm comm = comm_of(&it, true);
    mimo_call_scope scope = entered(&comm);
    it.base.forgotten = true;
    expect_let_in(&comm, "forgotten");
    mimo_call_leave(&scope);
    expect_let_in(&comm, "forgotten, and left");
    it.base.forgotten = false;
    expect_let_in(&comm, "as before");
}

/* ---------------------------------------- races ----------------------------------------- */

/* Uses the transport inside calls until the family has ended; looks in some calls only. */
static void *use(void *of)
{
    mimo_comm *comm = of;
    fake *it = (fake *)comm->family;
    for (int i = 0; mimo_family_status(comm->family) == MIMO_OK; i++) {
        mimo_call_scope scope = entered(comm);
        if (mimo_family_status(comm->family) == MIMO_OK)
            it->transport++;
        if (i % 3 == 0)
            sched_yield();
        mimo_call_leave(&scope);
    }
    return NULL;
}

Test(calls, transport_has_one_user, .timeout = 60)
{
    enum { ROUNDS = 2000 };
    int met = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fake it;
        pthread_t user;
        mimo_comm comm = comm_of(&it, true);
        cr_assert_eq(pthread_create(&user, NULL, use, &comm), 0, "no thread");
        for (int i = 0; i < round % 7; i++)
            sched_yield();
        met += __atomic_load_n(&it.base.inside, __ATOMIC_RELAXED) > 0;
        (void)mimo_comm_abort(&comm, "now");
        pthread_join(user, NULL);
        expect_ends(&it, 1, "in the race");
    }
    cr_assert_gt(met, 0, "no abort met a call in %d rounds", ROUNDS);
}
