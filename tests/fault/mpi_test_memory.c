/* Every allocation of every collective call fails in turn, on one rank. All ranks of the call get
 * that error, none waits for ever, nothing is written, and the same call succeeds afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_backend.h"
#include "core/memory.h"
#include "fault_bed.h"
#include "mpi_test.h"

enum { POISON = 0x5a };

/* Whether a call of the rank `failing` is also this rank's: the tp groups are {0, 1} and {2, 3}. */
static bool shares(const fault_bed *bed, const fault_call *call, int failing)
{
    return strcmp(call->name, "adjoint") != 0 || bed->rank / 2 == failing / 2;
}

/* ------------------------------------ destinations ------------------------------------ */

static void poison(fault_bed *bed)
{
    memset(bed->full, POISON, sizeof bed->full);
    memset(bed->shard, POISON, sizeof bed->shard);
    memset(bed->second, POISON, sizeof bed->second);
    memset(bed->tile, POISON, sizeof bed->tile);
    memset(bed->tokens, POISON, sizeof bed->tokens);
}

static bool is_poison(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t same = 0;
    while (same < bytes && at[same] == POISON)
        same++;
    return same == bytes;
}

/* What the calls that move rows wrote, or left alone. */
static void expect_rows(fault_bed *bed, const fault_call *call, bool moved)
{
    if (strcmp(call->name, "forward") == 0 || strcmp(call->name, "chunks") == 0)
        MPI_EXPECT(moved ? fault_wrong_shard(bed, bed->shard) == 0
                         : is_poison(bed->shard, sizeof bed->shard),
                   "%s: the shard is wrong", call->name);
    if (strcmp(call->name, "backward") == 0)
        MPI_EXPECT(moved ? fault_wrong_full(bed) == 0 : is_poison(bed->full, sizeof bed->full),
                   "backward: the gradient is wrong");
    if (strcmp(call->name, "rows") == 0)
        MPI_EXPECT(moved ? fault_wrong_tile(bed) == 0 : is_poison(bed->tile, sizeof bed->tile),
                   "rows: the tile is wrong");
    if (strcmp(call->name, "combine") == 0)
        MPI_EXPECT(moved ? fault_wrong_tokens(bed) == 0
                         : is_poison(bed->tokens, sizeof bed->tokens),
                   "combine: the sums are wrong");
}

/* A failed call does not hinder the other one. */
static mimo_status two_forwards(fault_bed *bed)
{
    mimo_op *ops[2] = {NULL, NULL};
    mimo_status status[2];
    mimo_tensor from = fault_full_view(bed);
    mimo_tensor to[] = {fault_shard_view(bed->shard), fault_shard_view(bed->second)};
    fault_fill_full(bed);
    for (int i = 0; i < 2; i++)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&ops[i], bed->bridge, &to[i], &from, 1, NULL));
    for (int i = 1; i >= 0; i--) {
        status[i] = mimo_op_wait(&ops[i]);
        if (status[i] == MIMO_OK)
            MPI_EXPECT(fault_wrong_shard(bed, i == 0 ? bed->shard : bed->second) == 0,
                       "forward %d of two: the shard is wrong", i);
    }
    MPI_EXPECT(status[0] == MIMO_OK || status[1] == MIMO_OK, "both failed");
    return status[0] == MIMO_OK ? status[1] : status[0];
}

static const fault_call two_in_flight = {"two forwards", two_forwards, NULL, FAULT_BRIDGE};

/* -------------------------------------- calls ------------------------------------------ */

/* Where and how allocations fail. */
typedef struct trial {
    fault_bed *bed;
    executor_id executor;
    int failing; /* the rank on which they fail */
    bool traced; /* MIMO_CHECK=samples: a call may have moved its rows before it fails */
    bool slow;   /* the call takes long when it succeeds, so it succeeds once for ten failures */
} trial;

/* The n-th allocation of the call fails on one rank. False where the call has fewer. */
static bool nth_fails(const trial *it, const fault_call *call, int n)
{
    fault_bed *bed = it->bed;
    MPI_EXPECT_OK(fault_bed_begin(bed, mpi_test_comm(), it->executor));
    MPI_EXPECT_OK(fault_bed_create(bed, call->needs));
    if (strcmp(call->name, "step") == 0) /* each call of a step needs the one before it */
        MPI_EXPECT_OK(fault_gradient_step(bed));
    poison(bed);
    if (bed->rank == it->failing)
        mimo_fail_allocation(n);
    mimo_status status = call->act(bed);
    int failed = bed->rank == it->failing && mimo_fail_allocation(0) == 0;
    MPI_Bcast(&failed, 1, MPI_INT, it->failing, MPI_COMM_WORLD);
    bool expected = failed && shares(bed, call, it->failing);
    MPI_EXPECT(status == (expected ? MIMO_ERR_MEMORY : MIMO_OK), "%s, allocation %d: %s (%s)",
               call->name, n, mimo_status_name(status), mimo_last_error());
    if (expected)
        MPI_EXPECT_SENTENCE(": out of memory allocating ");
    if (!failed || !it->traced)
        expect_rows(bed, call, !failed);
    if (failed && (!it->slow || n % 10 == 1)) {
        MPI_EXPECT(call->act(bed) == MIMO_OK, "%s after allocation %d: %s", call->name, n,
                   mimo_last_error());
        expect_rows(bed, call, true);
    }
    MPI_EXPECT_OK(mimo_comm_barrier(bed->comm));
    fault_bed_end(bed);
    return failed;
}

static int count_failures(const trial *it, const fault_call *call)
{
    int n = 1;
    while (nth_fails(it, call, n))
        n++;
    return n - 1;
}

/* Whether the executor has the call, and MIMO_CHECK=samples has rows to trace. "fastest" has a test
 * of its own: it takes long, and does not depend on the bed's executor. */
static bool concerns(const trial *it, const fault_call *call)
{
    if (it->traced)
        return strcmp(call->name, "forward") == 0 || strcmp(call->name, "backward") == 0;
    if (strcmp(call->name, "fastest") == 0)
        return false;
    return it->executor != EXECUTOR_COLLECTIVE || strncmp(call->name, "update", 6) != 0;
}

/* Some calls allocate nothing, or allocate only once. All calls together make at least `least`
 * allocations. */
static void each_fails(trial it, int least)
{
    int found = 0;
    for (int traced = 0; traced < 2; traced++) {
        it.traced = traced;
        mpi_test_guard(mpi_test_comm(), traced);
        setenv("MIMO_CHECK", traced ? "samples" : "replicas,calls", 1);
        for (const fault_call *call = fault_calls; call->name; call++)
            if (concerns(&it, call))
                found += count_failures(&it, call);
        found += traced ? 0 : count_failures(&it, &two_in_flight);
    }
    MPI_EXPECT(found >= least, "only %d allocations", found);
}

/* A second call allocates nothing: the first one has made all that it needs. */
static void again(executor_id executor, const fault_call *call)
{
    fault_bed *bed;
    mimo_buffer *buffer = NULL;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), sizeof *bed));
    bed = mimo_buffer_data(buffer);
    MPI_EXPECT_OK(fault_bed_begin(bed, mpi_test_comm(), executor));
    MPI_EXPECT_OK(fault_bed_create(bed, call->needs));
    MPI_EXPECT_OK(call->act(bed));
    mimo_fail_allocation(1);
    MPI_EXPECT_OK(call->act(bed));
    MPI_EXPECT(mimo_fail_allocation(0) == 1, "executor %d: another %s allocates", (int)executor,
               call->name);
    fault_bed_end(bed);
    mimo_buffer_destroy(buffer);
}

/* A guarded call is the first of its size, and one rank has no memory for it. */
static void guarded_call_fails(mimo_status (*act)(mimo_comm *comm, char *data, int64_t bytes))
{
    enum { BYTES = 1 << 20, FAILING = 1 };
    mimo_comm *comm = mpi_test_comm_new();
    char *data = calloc((size_t)comm->size, BYTES);
    mpi_test_guard(comm, true);
    mimo_fail_allocation(mpi_test_rank() == FAILING);
    MPI_FAILS(act(comm, data, BYTES), MIMO_ERR_MEMORY, "rank 1: out of memory allocating ");
    MPI_EXPECT(mimo_fail_allocation(0) == 0, "rank 1 allocated nothing");
    mimo_fail_allocation(2);
    MPI_EXPECT_OK(act(comm, data, BYTES));
    MPI_EXPECT(mimo_fail_allocation(1) > 0, "a first call allocates more than once");
    MPI_EXPECT_OK(act(comm, data, BYTES));
    MPI_EXPECT(mimo_fail_allocation(0) == 1, "another call allocates");
    mimo_comm_destroy(comm);
    free(data);
}

static mimo_status sum(mimo_comm *comm, char *data, int64_t bytes)
{
    return mimo_comm_allreduce(comm, data, bytes / 4, MIMO_F32, MIMO_SUM, NULL);
}

static mimo_status gather(mimo_comm *comm, char *data, int64_t bytes)
{
    return mimo_comm_allgather(comm, data, data + comm->rank * bytes, bytes, NULL);
}

static mimo_status broadcast(mimo_comm *comm, char *data, int64_t bytes)
{
    return mimo_comm_broadcast(comm, data, bytes, 0, NULL);
}

static mimo_status reduce_scatter(mimo_comm *comm, char *data, int64_t bytes)
{
    return mimo_comm_reduce_scatter(comm, data + comm->rank * bytes, data, bytes / 4, MIMO_F32,
                                    MIMO_SUM, NULL);
}

static mimo_status alltoall(mimo_comm *comm, char *data, int64_t bytes)
{
    return mimo_comm_alltoall(comm, data, data + comm->size * bytes / 2, bytes / 2, NULL);
}

MPI_TEST(memory, of_second_calls)
{
    guarded_call_fails(sum);
    guarded_call_fails(gather);
    guarded_call_fails(broadcast);
    guarded_call_fails(reduce_scatter);
    guarded_call_fails(alltoall);
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_P2P, EXECUTOR_ZERO_COPY};
    static const char *const names[] = {"forward", "backward", "chunks", "rows", "combine"};
    for (int i = 0; i < 30; i++) {
        mpi_test_guard(mpi_test_comm(), i / 15);
        again(executors[i % 15 / 5], fault_find_call(names[i % 5]));
    }
}

MPI_TEST(memory, of_any_call_collective)
{
    fault_bed bed;
    const trial it = {&bed, EXECUTOR_COLLECTIVE, FAULT_RANKS - 1, false, false};
    each_fails(it, 100);
}

MPI_TEST(memory, of_any_call_routed)
{
    fault_bed bed;
    const trial it = {&bed, EXECUTOR_ROUTED, 0, false, false};
    each_fails(it, 300);
}

MPI_TEST(memory, of_any_call_zero_copy)
{
    mimo_buffer *buffer = NULL;
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, mpi_test_comm(), sizeof(fault_bed)));
    const trial it = {mimo_buffer_data(buffer), EXECUTOR_ZERO_COPY, FAULT_RANKS - 1, false, false};
    each_fails(it, 300);
    mimo_buffer_destroy(buffer);
}

MPI_TEST(memory, of_creation_by_measurement)
{
    fault_bed bed;
    const trial it = {&bed, EXECUTOR_AUTO, 1, false, true};
    int found = count_failures(&it, fault_find_call("fastest"));
    MPI_EXPECT(found >= 150, "only %d allocations", found);
}

/* No communicator exists yet that could agree on the error. */
static bool nth_of_a_communicator_fails(int failing, int n)
{
    char sentence[32];
    mimo_comm *comm = NULL;
    bool here = mpi_test_rank() == failing;
    if (here)
        mimo_fail_allocation(n);
    mimo_status status = mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL);
    int failed = here && mimo_fail_allocation(0) == 0;
    MPI_Bcast(&failed, 1, MPI_INT, failing, MPI_COMM_WORLD);
    MPI_EXPECT(status == (failed ? MIMO_ERR_MEMORY : MIMO_OK), "allocation %d: %s (%s)", n,
               mimo_status_name(status), mimo_last_error());
    snprintf(sentence, sizeof sentence, "rank %d: ", failing);
    if (failed)
        MPI_EXPECT_SENTENCE(sentence);
    MPI_EXPECT(failed == !comm, "allocation %d left a communicator, or none", n);
    mimo_comm_destroy(comm);
    return failed;
}

MPI_TEST(memory, of_a_communicator)
{
    for (int failing = 0; failing < FAULT_RANKS; failing += FAULT_RANKS - 1) {
        int n = 1;
        while (nth_of_a_communicator_fails(failing, n))
            n++;
        MPI_EXPECT(n > 5, "only %d allocations", n - 1);
    }
}
