/* Other threads than the one that made a communicator: they take turns, abort a call of another
 * one, and are refused where MPI does not allow them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge_types.h"
#include "comm/buffer_state.h"
#include "late_bed.h"
#include "mpi_callers.h"
#include "mpi_test.h"

/* What each test asks MPI for. */
int mpi_test_level(void)
{
    static const struct {
        const char *test;
        int level;
    } levels[] = {{"below_serialized", MPI_THREAD_FUNNELED},
                  {"abort_of_any_call", MPI_THREAD_FUNNELED},
                  {"take_turns", MPI_THREAD_SERIALIZED},
                  {"second_is_refused", MPI_THREAD_SERIALIZED},
                  {"abort_while_no_call_waits", MPI_THREAD_SERIALIZED},
                  {"at_once", MPI_THREAD_MULTIPLE},
                  {"bridges_at_once", MPI_THREAD_MULTIPLE},
                  {"forwards_at_once", MPI_THREAD_MULTIPLE},
                  {"abort_tells_at_once", MPI_THREAD_MULTIPLE},
                  {"aborts_at_any_time", MPI_THREAD_MULTIPLE}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(mpi_test_running()->name, levels[i].test) == 0)
            return levels[i].level;
    abort();
}

static void run(void *(*thread)(void *), void *of)
{
    pthread_t started;
    MPI_EXPECT(pthread_create(&started, NULL, thread, of) == 0, "no thread");
    pthread_join(started, NULL);
}

/* ---------------------------------- one after the other --------------------------------- */

static void *call_all(void *of)
{
    fault_bed *bed = of;
    mimo_comm *comm = NULL;
    mpi_callers_forbid();
    for (const fault_call *call = fault_calls; call->name; call++) {
        mimo_status status = call->act(bed);
        MPI_EXPECT(status == MIMO_ERR_STATE, "%s: %s (%s)", call->name, mimo_status_name(status),
                   mimo_last_error());
        MPI_EXPECT_SENTENCE("MPI was initialised with MPI_THREAD_FUNNELED (level 1)");
    }
    MPI_FAILS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_STATE,
              "mimo_comm_create_mpi: MPI was initialised with MPI_THREAD_FUNNELED");
    MPI_EXPECT_STATUS(mimo_comm_synchronize(bed->comm, NULL), MIMO_ERR_STATE);
    MPI_EXPECT_OK(mimo_comm_state(bed->comm));
    MPI_EXPECT_OK(mimo_comm_set_deadline(bed->comm, 0));
    return NULL;
}

/* Destroying in such a thread frees memory alone. */
static void *destroy_some(void *of)
{
    fault_bed *bed = of;
    mpi_callers_forbid();
    mimo_gradient_destroy(bed->gradient);
    mimo_bridge_destroy(bed->bridge);
    bed->gradient = NULL;
    bed->bridge = NULL;
    return NULL;
}

MPI_TEST(threads, below_serialized)
{
    fault_bed bed;
    late_bed_open(&bed, EXECUTOR_ROUTED);
    run(call_all, &bed);
    MPI_EXPECT_OK(fault_forward(&bed));
    MPI_EXPECT(fault_wrong_shard(&bed, bed.shard) == 0, "a wrong shard");
    MPI_EXPECT_OK(fault_gradient_step(&bed));
    run(destroy_some, &bed);
    MPI_EXPECT_OK(mimo_comm_barrier(bed.comm));
    MPI_EXPECT(mpi_callers_wrong() == 0, "%d calls of MPI", mpi_callers_wrong());
    late_bed_close(&bed);
}

static void *use(void *of)
{
    fault_bed *bed = of;
    MPI_EXPECT_OK(fault_forward(bed));
    MPI_EXPECT(fault_wrong_shard(bed, bed->shard) == 0, "a wrong shard");
    MPI_EXPECT_OK(fault_backward(bed));
    MPI_EXPECT(fault_wrong_full(bed) == 0, "a wrong gradient");
    MPI_EXPECT_OK(fault_gradient_step(bed));
    return NULL;
}

/* Every other turn is of a thread of its own, which leaves an operation in flight to the next. */
MPI_TEST(threads, take_turns)
{
    enum { TURNS = 8 };
    fault_bed bed;
    late_bed_open(&bed, EXECUTOR_ROUTED);
    mimo_tensor from = fault_full_view(&bed), to = fault_shard_view(bed.second);
    for (int turn = 0; turn < TURNS; turn++) {
        mimo_op *op = NULL;
        fault_fill_full(&bed);
        MPI_EXPECT_OK(mimo_bridge_forward_start(&op, bed.bridge, &to, &from, 1, NULL));
        if (turn % 2)
            run(use, &bed);
        else
            (void)use(&bed);
        MPI_EXPECT_OK(mimo_op_wait(&op));
        MPI_EXPECT(fault_wrong_shard(&bed, bed.second) == 0, "a wrong second shard");
    }
    late_bed_close(&bed);
}

/* ------------------------------------- at the same time --------------------------------- */

static bool is_inside(const mimo_comm *comm)
{
    return __atomic_load_n(&comm->family->inside, __ATOMIC_ACQUIRE) > 0;
}

static void expect_refused(const char *call, mimo_status status)
{
    MPI_EXPECT(status == MIMO_ERR_STATE, "%s: %s", call, mimo_status_name(status));
    MPI_EXPECT_SENTENCE(": another thread of this rank is inside a call of the same family");
}

/* Calls and ends of a thread that finds another one inside. `other` has the same objects. */
static void meet(fault_bed *other, mimo_buffer *buffer)
{
    while (!is_inside(other->comm))
        sched_yield();
    for (const fault_call *call = fault_calls; call->name; call++) {
        expect_refused(call->name, call->act(other));
        MPI_EXPECT_SENTENCE("This call did not begin, and the other ranks still wait for it");
    }
    MPI_EXPECT_OK(mimo_comm_state(other->comm));
    MPI_EXPECT_OK(mimo_comm_set_deadline(other->comm, mimo_comm_deadline(other->comm)));
    mimo_bridge_destroy(other->bridge);
    expect_refused("bridge destroy", MIMO_ERR_STATE);
    mimo_buffer_destroy(buffer);
    expect_refused("buffer destroy", MIMO_ERR_STATE);
    mimo_comm_destroy(other->comm);
    expect_refused("communicator destroy", MIMO_ERR_STATE);
    MPI_EXPECT_SENTENCE("Nothing was released");
}

static void *forward_once(void *of)
{
    MPI_EXPECT_OK(fault_forward(of));
    return NULL;
}

/* One thread of rank 0 waits for the late rank, and another one calls meanwhile. Rank 0 tells the
 * late rank through shared memory, as the first thread has MPI. */
MPI_TEST(threads, second_is_refused)
{
    fault_bed bed;
    pthread_t thread;
    mimo_buffer *buffer = NULL;
    late_bed_open(&bed, EXECUTOR_ROUTED);
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, bed.comm, 8));
    char *met = buffer->data[LATE];
    MPI_Barrier(MPI_COMM_WORLD);
    if (bed.rank == 0) {
        fault_bed other = bed;
        MPI_EXPECT(pthread_create(&thread, NULL, forward_once, &bed) == 0, "no thread");
        meet(&other, buffer);
        __atomic_store_n(met, 1, __ATOMIC_RELEASE);
        pthread_join(thread, NULL);
    } else {
        while (bed.rank == LATE && !__atomic_load_n(met, __ATOMIC_ACQUIRE))
            sched_yield();
        MPI_EXPECT_OK(fault_forward(&bed));
    }
    MPI_EXPECT(fault_wrong_shard(&bed, bed.shard) == 0, "a wrong shard");
    (void)use(&bed);
    mimo_buffer_destroy(buffer);
    late_bed_close(&bed);
}

static void *many_sums(void *of)
{
    enum { SUMS = 300 };
    mimo_comm *comm = of;
    for (int i = 0; i < SUMS; i++) {
        int64_t sum = mimo_comm_rank(comm) + i;
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, &sum, 1, MIMO_I64, MIMO_SUM, NULL));
        int64_t size = mimo_comm_size(comm), expected = size * (size - 1) / 2 + size * i;
        MPI_EXPECT(sum == expected, "sum %d is %ld", i, (long)sum);
    }
    return NULL;
}

/* Communicators of one family, and of two. */
MPI_TEST(threads, at_once)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    mimo_comm *comms[THREADS] = {mpi_test_comm_new(), NULL, mpi_test_comm_new()};
    MPI_EXPECT_OK(mimo_comm_split(&comms[1], comms[0], 0, 0));
    for (int i = 0; i < THREADS; i++)
        MPI_EXPECT(pthread_create(&threads[i], NULL, many_sums, comms[i]) == 0, "no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        mimo_comm_destroy(comms[i]);
}

/* Forwards of a thread; more where no call has met another one yet. */
enum { FORWARDS = 20000, MOST_FORWARDS = 50 * FORWARDS };

/* A bridge of one rank, and what became of its forwards in one thread. */
typedef struct lone_bridge {
    mimo_bridge *bridge;
    bool *met; /* of both threads */
    int from, to, calls, moved, refused;
} lone_bridge;

static void *many_forwards(void *of)
{
    lone_bridge *it = of;
    const mimo_tensor to = mimo_tensor_2d(&it->to, MIMO_I32, "bh", 1, 1);
    const mimo_tensor from = mimo_tensor_2d(&it->from, MIMO_I32, "bh", 1, 1);
    while (it->calls < FORWARDS ||
           (!__atomic_load_n(it->met, __ATOMIC_RELAXED) && it->calls < MOST_FORWARDS)) {
        it->from = ++it->calls;
        mimo_status status = mimo_bridge_forward(it->bridge, &to, &from, 1, NULL);
        it->moved += status == MIMO_OK && it->to == it->calls;
        it->refused += status == MIMO_ERR_STATE;
        if (status == MIMO_ERR_STATE)
            __atomic_store_n(it->met, true, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Two threads use one communicator. Each call moves its row or is refused, and leaves no operation
 * behind. A communicator of one rank, as no peer waits there for a call that was refused. */
MPI_TEST(threads, forwards_at_once)
{
    pthread_t threads[2];
    bool met = false;
    lone_bridge lone[2] = {{.met = &met}, {.met = &met}};
    mimo_comm *comm = NULL;
    mimo_grid *grid = mpi_test_grid("tp=1,dp=1", 0);
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_SELF, NULL));
    desc.src = desc.dst = grid;
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK(mimo_bridge_create(&lone[i].bridge, comm, &desc));
    for (int i = 0; i < 2; i++)
        MPI_EXPECT(pthread_create(&threads[i], NULL, many_forwards, &lone[i]) == 0, "no thread");
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        MPI_EXPECT(lone[i].moved + lone[i].refused == lone[i].calls,
                   "of %d, %d moved, and %d were refused", lone[i].calls, lone[i].moved,
                   lone[i].refused);
        MPI_EXPECT(lone[i].bridge->mover.unwaited == 0, "%d operations are left",
                   lone[i].bridge->mover.unwaited);
    }
    MPI_EXPECT(met, "no call met another one");
    for (int i = 0; i < 2; i++)
        mimo_bridge_destroy(lone[i].bridge);
    mimo_comm_destroy(comm);
}

static void *live_and_end(void *of)
{
    enum { LIVES = 3, ROUNDS = 20 };
    mimo_comm *comm = of;
    for (int life = 0; life < LIVES; life++) {
        fault_bed bed;
        MPI_EXPECT_OK(fault_bed_begin(&bed, comm, EXECUTOR_ROUTED));
        MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
        for (int i = 0; i < ROUNDS; i++)
            (void)use(&bed);
        fault_bed_end(&bed);
    }
    return NULL;
}

/* Each thread has a communicator of the same family. */
MPI_TEST(threads, bridges_at_once)
{
    pthread_t threads[2];
    mimo_comm *comms[2] = {mpi_test_comm_new(), NULL};
    MPI_EXPECT_OK(mimo_comm_split(&comms[1], comms[0], 0, 0));
    for (int i = 0; i < 2; i++)
        MPI_EXPECT(pthread_create(&threads[i], NULL, live_and_end, comms[i]) == 0, "no thread");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        mimo_comm_destroy(comms[i]);
}

/* ----------------------------------------- aborts --------------------------------------- */

/* Aborts once another thread is inside a call. */
static void *watch(void *of)
{
    fault_bed *bed = of;
    mpi_callers_forbid();
    while (!is_inside(bed->comm))
        sched_yield();
    MPI_EXPECT_OK(mimo_comm_abort(bed->comm, "the watchdog barks"));
    MPI_FAILS(mimo_comm_state(bed->comm), MIMO_ERR_ABORTED,
              "the communicator was aborted here: the watchdog barks");
    return NULL;
}

/* One rank does not come. A thread of the last rank aborts the call in which all others wait. MPI
 * is called by the thread that waits. */
static void abort_one(const fault_call *call, executor_id executor)
{
    fault_bed bed;
    pthread_t watchdog;
    mimo_status status = MIMO_ERR_ABORTED;
    late_bed_open(&bed, executor);
    bool watched = bed.rank == FAULT_RANKS - 1;
    if (watched)
        MPI_EXPECT(pthread_create(&watchdog, NULL, watch, &bed) == 0, "no thread");
    if (bed.rank != LATE && late_bed_waits(&bed, call))
        status = call->act(&bed);
    MPI_EXPECT(status == MIMO_ERR_ABORTED, "%s: %s (%s)", call->name, mimo_status_name(status),
               mimo_last_error());
    if (watched)
        MPI_EXPECT_SENTENCE("the communicator was aborted here: the watchdog barks");
    else if (bed.rank != LATE && late_bed_waits(&bed, call))
        MPI_EXPECT_SENTENCE("rank 3 aborted: the watchdog barks");
    if (watched)
        pthread_join(watchdog, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT(mpi_callers_wrong() == 0, "%s: %d calls of MPI", call->name, mpi_callers_wrong());
    late_bed_close(&bed);
}

MPI_TEST(threads, abort_of_any_call)
{
    for (const fault_call *call = fault_calls; call->name; call++)
        abort_one(call, EXECUTOR_ROUTED);
}

static void *abort_now(void *of)
{
    MPI_EXPECT_OK(mimo_comm_abort(of, "enough"));
    MPI_EXPECT_STATUS(mimo_comm_state(of), MIMO_ERR_ABORTED);
    return NULL;
}

static void *abort_without_mpi(void *of)
{
    mpi_callers_forbid();
    return abort_now(of);
}

/* Below MPI_THREAD_MULTIPLE the other ranks learn of it at this rank's next call. */
MPI_TEST(threads, abort_while_no_call_waits)
{
    mimo_comm *comm = mpi_test_comm_new();
    if (mpi_test_rank() == 0) {
        run(abort_without_mpi, comm);
        MPI_EXPECT_STATUS(mimo_comm_state(comm), MIMO_ERR_ABORTED);
    }
    MPI_FAILS(mimo_comm_barrier(comm), MIMO_ERR_ABORTED,
              mpi_test_rank() == 0 ? "aborted here: enough" : "rank 0 aborted: enough");
    MPI_EXPECT(mpi_callers_wrong() == 0, "%d calls of MPI", mpi_callers_wrong());
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_comm_destroy(comm);
}

MPI_TEST(threads, abort_tells_at_once)
{
    mimo_comm *comm = mpi_test_comm_new();
    if (mpi_test_rank() == 0)
        run(abort_now, comm);
    else
        MPI_EXPECT_STATUS(mimo_comm_barrier(comm), MIMO_ERR_ABORTED);
    MPI_Barrier(MPI_COMM_WORLD);
    mimo_comm_destroy(comm);
}

/* Aborts that meet a thread before, inside, between and after its calls. */
MPI_TEST(threads, aborts_at_any_time)
{
    enum { ROUNDS = 100 };
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        mimo_status status = MIMO_OK;
        mimo_comm *comm = mpi_test_comm_new();
        int calls = 0;
        if (mpi_test_rank() == round % mpi_test_size())
            MPI_EXPECT(pthread_create(&thread, NULL, abort_now, comm) == 0, "no thread");
        while (status == MIMO_OK && ++calls)
            status = mimo_comm_barrier(comm);
        MPI_EXPECT(status == MIMO_ERR_ABORTED, "round %d, call %d: %s", round, calls,
                   mimo_last_error());
        if (mpi_test_rank() == round % mpi_test_size())
            pthread_join(thread, NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        mimo_comm_destroy(comm);
    }
}
