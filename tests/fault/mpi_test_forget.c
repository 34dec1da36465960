/* Families that are forgotten: no rank waits, no peer is told, MPI is not called, and what was made
 * from them is destroyed in any order and by any thread. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_backend.h"
#include "fault_bed.h"
#include "mpi_callers.h"
#include "mpi_test.h"

enum { LATE = 2, DEADLINE = 150, OBJECTS = 9, MORE = 4 };

/* Where the level allows threads to call MPI, it is the family's end that keeps them from it. */
int mpi_test_level(void)
{
    return strcmp(mpi_test_running()->name, "by_many_threads") == 0 ? MPI_THREAD_MULTIPLE
                                                                    : MPI_THREAD_SINGLE;
}

/* All kinds of objects that are made from a communicator, with an operation in flight. */
typedef struct crowd {
    fault_bed bed;
    mimo_comm *comm;
    mimo_buffer *buffer;
    mimo_op *op; /* NULL: none */
    mimo_bridge *more_bridges[MORE];
    mimo_buffer *more_buffers[MORE];
} crowd;

/* MPI may write into a crowd's tensors for as long as the process lives. So none is freed, and all
 * stay reachable for leak checkers. */
static crowd *new_crowd(void)
{
    static crowd *kept[64];
    static int count;
    kept[count] = malloc(sizeof **kept);
    return kept[count++];
}

static void begin(crowd *it, executor_id executor)
{
    memset(it, 0, sizeof *it);
    it->comm = mpi_test_comm_new();
    MPI_EXPECT_OK(fault_bed_begin(&it->bed, it->comm, executor));
    MPI_EXPECT_OK(fault_bed_create(&it->bed, FAULT_ALL));
    MPI_EXPECT_OK(mimo_grid_create_group(it->bed.src, "dp"));
    MPI_EXPECT_OK(mimo_buffer_create(&it->buffer, it->comm, 4096));
    MPI_EXPECT_OK(fault_gradient_step(&it->bed));
    MPI_EXPECT_OK(fault_forward(&it->bed));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The late rank does not take part, so this operation does not end. */
static void start(crowd *it)
{
    mimo_tensor from = fault_full_view(&it->bed);
    mimo_tensor to = fault_shard_view(it->bed.second);
    if (it->bed.rank != LATE)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&it->op, it->bed.bridge, &to, &from, 1, NULL));
}

static void destroy_one(crowd *it, int object)
{
    switch (object) {
    case 0:
        mimo_comm_forget(it->comm);
        return;
    case 1:
        mimo_bridge_destroy(it->bed.bridge);
        return;
    case 2:
        mimo_buffer_destroy(it->buffer);
        return;
    case 3:
        mimo_gradient_destroy(it->bed.gradient);
        return;
    case 4:
        mimo_grid_destroy(it->bed.src);
        return;
    case 5:
        mimo_comm_destroy(it->bed.tp);
        return;
    case 6:
        mimo_grid_destroy(it->bed.dst);
        return;
    case 7:
        mimo_dispatch_destroy(it->bed.dispatch);
        mimo_route_destroy(it->bed.route);
        return;
    default:
        if (it->op)
            MPI_EXPECT_STATUS(mimo_op_wait(&it->op), MIMO_ERR_ABORTED);
        mimo_partition_destroy(it->bed.partition);
        return;
    }
}

/* A different permutation for each rank and round; `first` comes first. */
static void shuffle(int objects[OBJECTS], int seed, int first)
{
    for (int i = 0; i < OBJECTS; i++)
        objects[i] = (i + first) % OBJECTS;
    for (int i = OBJECTS - 1; i > 1; i--) {
        int at = 1 + seed % i, other = objects[at];
        seed = seed / i + 7 * seed;
        objects[at] = objects[i];
        objects[i] = other;
    }
}

/* In one thread, below MPI_THREAD_SERIALIZED. No rank waits for the late one, and MPI is not
 * called. */
static void *one_order(void *of)
{
    crowd *it = of;
    int objects[OBJECTS];
    static int round;
    mpi_callers_forbid();
    shuffle(objects, 11 * it->bed.rank + 101 * round++, 0);
    for (int i = 0; i < OBJECTS; i++)
        destroy_one(it, objects[i]);
    return NULL;
}

static void run(void *(*thread)(void *), void *of)
{
    pthread_t started;
    MPI_EXPECT(pthread_create(&started, NULL, thread, of) == 0, "no thread");
    pthread_join(started, NULL);
}

MPI_TEST(forget, ends_in_any_order)
{
    enum { ROUNDS = 12 };
    for (int round = 0; round < ROUNDS; round++) {
        crowd *it = new_crowd();
        begin(it, round % 2 ? EXECUTOR_ROUTED : EXECUTOR_COLLECTIVE);
        start(it);
        run(one_order, it);
        MPI_EXPECT(mpi_callers_wrong() == 0, "round %d: %d calls of MPI", round,
                   mpi_callers_wrong());
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* ------------------------------------ many threads -------------------------------------- */

typedef struct share {
    crowd *it;
    int first;
} share;

/* Bridges and buffers beside those of the bed. */
static void make_more(crowd *it)
{
    mimo_bridge *first = it->bed.bridge;
    for (int i = 0; i < MORE; i++) {
        MPI_EXPECT_OK(fault_create_bridge(&it->bed));
        MPI_EXPECT_OK(fault_forward(&it->bed));
        it->more_bridges[i] = it->bed.bridge;
        MPI_EXPECT_OK(mimo_buffer_create(&it->more_buffers[i], it->comm, 64));
    }
    it->bed.bridge = first;
}

static void *destroy_share(void *of)
{
    const share *mine = of;
    mpi_callers_forbid();
    mimo_bridge_destroy(mine->it->more_bridges[mine->first % MORE]);
    mimo_buffer_destroy(mine->it->more_buffers[mine->first % MORE]);
    for (int object = mine->first; object < OBJECTS; object += 4)
        destroy_one(mine->it, object);
    return NULL;
}

/* Four threads destroy at once what one of them has forgotten before. */
MPI_TEST(forget, by_many_threads)
{
    enum { ROUNDS = 10, THREADS = 4 };
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        share shares[THREADS];
        crowd *it = new_crowd();
        begin(it, round % 2 ? EXECUTOR_STAGED : EXECUTOR_ROUTED);
        make_more(it);
        start(it);
        mimo_comm_forget(it->comm);
        MPI_EXPECT(mimo_comm_state(it->bed.tp) == MIMO_ERR_ABORTED, "it lives");
        for (int i = 0; i < THREADS; i++) {
            shares[i] = (share){it, i == 0 ? 4 : i};
            pthread_create(&threads[i], NULL, destroy_share, &shares[i]);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        MPI_EXPECT(mpi_callers_wrong() == 0, "%d calls of MPI", mpi_callers_wrong());
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Once the main thread is inside a call. */
static void *forget_inside(void *of)
{
    mimo_comm *comm = of;
    mpi_callers_forbid();
    while (__atomic_load_n(&comm->family->inside, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    mimo_comm_forget(comm);
    return NULL;
}

/* The communicator lives until the call on it has ended. */
MPI_TEST(forget, while_a_thread_waits)
{
    enum { ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        mimo_comm *comm = mpi_test_comm_new();
        MPI_Barrier(MPI_COMM_WORLD);
        if (mpi_test_rank() == LATE) {
            mimo_comm_forget(comm);
        } else {
            MPI_EXPECT(pthread_create(&thread, NULL, forget_inside, comm) == 0, "no thread");
            MPI_FAILS(mimo_comm_barrier(comm), MIMO_ERR_ABORTED,
                      "the communicator was aborted here: it was forgotten");
            pthread_join(thread, NULL);
        }
        MPI_EXPECT(mpi_callers_wrong() == 0, "%d calls of MPI", mpi_callers_wrong());
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* ---------------------------------------- peers ----------------------------------------- */

/* Nobody is told: a rank that waits for it waits until its deadline. */
MPI_TEST(forget, peers_are_not_told)
{
    mimo_comm *comm = mpi_test_comm_new();
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == LATE) {
        mimo_comm_forget(comm);
    } else {
        MPI_FAILS(mimo_comm_barrier(comm), MIMO_ERR_TIMEOUT, "barrier: ");
        MPI_EXPECT(!strstr(mimo_last_error(), "aborted"), "%s", mimo_last_error());
        mimo_comm_destroy(comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A rank may forget as soon as its last call has ended. The others finish theirs. */
MPI_TEST(forget, after_the_last_call)
{
    enum { ROUNDS = 50 };
    for (int round = 0; round < ROUNDS; round++) {
        mimo_comm *comm = mpi_test_comm_new();
        int64_t sum = mpi_test_rank();
        MPI_EXPECT_OK(mimo_comm_allreduce(comm, &sum, 1, MIMO_I64, MIMO_SUM, NULL));
        if (mpi_test_rank() == round % mpi_test_size())
            mimo_comm_forget(comm);
        else
            mimo_comm_destroy(comm);
        MPI_EXPECT(sum == mpi_test_size() * (mpi_test_size() - 1) / 2, "%ld", (long)sum);
    }
    mimo_comm_forget(NULL);
}

/* After an abort the peers are told, and this rank forgets. Other families live. */
MPI_TEST(forget, after_an_abort)
{
    crowd *it = new_crowd();
    begin(it, EXECUTOR_ROUTED);
    if (it->bed.rank == LATE) {
        MPI_EXPECT_OK(mimo_comm_abort(it->comm, "the disk is full"));
    } else {
        MPI_FAILS(mimo_comm_barrier(it->comm), MIMO_ERR_ABORTED,
                  "rank 2 aborted: the disk is full");
    }
    run(one_order, it);
    MPI_EXPECT(mpi_callers_wrong() == 0, "%d calls of MPI", mpi_callers_wrong());
    begin(it, EXECUTOR_ROUTED);
    MPI_EXPECT(fault_wrong_shard(&it->bed, it->bed.shard) == 0, "a wrong shard");
    mimo_comm *comm = it->comm;
    mimo_buffer_destroy(it->buffer);
    fault_bed_end(&it->bed);
    mimo_comm_destroy(comm);
}
