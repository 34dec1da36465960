/* A rank that comes late. The others give up within the deadline, the late rank gets the error when
 * it comes, no rank hangs, and the process goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "late_bed.h"

enum { DEADLINE = 150 };

static void begin_under_deadline(fault_bed *bed, executor_id executor)
{
    late_bed_open(bed, executor);
    MPI_EXPECT_OK(mimo_comm_set_deadline(bed->comm, DEADLINE));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All later calls fail at once with the same error, whatever they are made on. */
static void expect_ended(fault_bed *bed, mimo_status status)
{
    char sentence[1024];
    MPI_EXPECT_STATUS(mimo_comm_state(bed->comm), status);
    snprintf(sentence, sizeof sentence, "%s", mimo_last_error());
    MPI_FAILS(mimo_comm_barrier(bed->comm), status, sentence);
    MPI_EXPECT_STATUS(fault_forward(bed), status);
    MPI_EXPECT_STATUS(fault_adjoint(bed), status);
    MPI_EXPECT_STATUS(fault_create_gradient(bed), status);
    MPI_FAILS(mimo_comm_barrier(bed->tp), status, sentence);
}

/* "; no sign of ranks 0, 2": on a busy machine the sentence may name a slow rank beside the late
 * one. */
static bool names_late(const char *sentence)
{
    const char *at = strstr(sentence, "; no sign of rank");
    at = at ? strpbrk(at, "0123456789") : NULL;
    while (at) {
        char *end;
        if (strtol(at, &end, 10) == LATE)
            return true;
        at = strncmp(end, ", ", 2) == 0 ? end + 2 : NULL;
    }
    return false;
}

static void miss_one(const fault_call *call, executor_id executor)
{
    fault_bed bed;
    begin_under_deadline(&bed, executor);
    if (bed.rank == LATE)
        MPI_Barrier(MPI_COMM_WORLD);
    mimo_status status = call->act(&bed);
    if (bed.rank == LATE || late_bed_waits(&bed, call)) {
        MPI_EXPECT(status == MIMO_ERR_TIMEOUT, "%s: %s (%s)", call->name, mimo_status_name(status),
                   mimo_last_error());
        MPI_EXPECT_SENTENCE(call->words);
        if (bed.rank == LATE)
            MPI_EXPECT_SENTENCE(" gave up ");
        else
            MPI_EXPECT(names_late(mimo_last_error()), "%s", mimo_last_error());
    } else { /* it gets the error as well */
        MPI_EXPECT_OK(status);
        MPI_EXPECT_STATUS(mimo_comm_barrier(bed.comm), MIMO_ERR_TIMEOUT);
    }
    if (bed.rank != LATE)
        MPI_Barrier(MPI_COMM_WORLD);
    expect_ended(&bed, MIMO_ERR_TIMEOUT);
    late_bed_close(&bed);
}

/* The same process goes on after all that. */
static void expect_life(executor_id executor)
{
    fault_bed bed;
    late_bed_open(&bed, executor);
    MPI_EXPECT_OK(fault_forward(&bed));
    MPI_EXPECT(fault_wrong_shard(&bed, bed.shard) == 0, "a wrong shard");
    MPI_EXPECT_OK(fault_backward(&bed));
    MPI_EXPECT(fault_wrong_full(&bed) == 0, "a wrong gradient");
    MPI_EXPECT_OK(fault_gradient_step(&bed));
    late_bed_close(&bed);
}

MPI_TEST(deadline, late_for_any_call)
{
    static const executor_id executors[] = {EXECUTOR_COLLECTIVE, EXECUTOR_ROUTED};
    for (int way = 0; way < 2; way++) {
        for (const fault_call *call = fault_calls; call->name; call++)
            if (executors[way] == EXECUTOR_ROUTED || strncmp(call->name, "update", 6) != 0)
                miss_one(call, executors[way]);
        expect_life(executors[way]);
    }
}

/* The environment's deadline applies to creation itself. */
MPI_TEST(deadline, late_for_creation)
{
    mimo_comm *comm = NULL;
    setenv("MIMO_DEADLINE_MS", "150", 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == LATE)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_FAILS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_TIMEOUT,
              "mimo_comm_create_mpi: given up after ");
    MPI_EXPECT(!comm, "a communicator in spite of the error");
    if (mpi_test_rank() != LATE)
        MPI_Barrier(MPI_COMM_WORLD);
    unsetenv("MIMO_DEADLINE_MS");
    MPI_Barrier(MPI_COMM_WORLD);
    expect_life(EXECUTOR_ROUTED);
}

MPI_TEST(deadline, values)
{
    mimo_comm *comm = NULL, *half = NULL;
    setenv("MIMO_DEADLINE_MS", "5000", 1);
    comm = mpi_test_comm_new();
    MPI_EXPECT(mimo_comm_deadline(comm) == 5000, "%lld", (long long)mimo_comm_deadline(comm));
    MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, 0));
    MPI_EXPECT_OK(mimo_comm_set_deadline(half, 7000));
    MPI_EXPECT(mimo_comm_deadline(comm) == 7000, "%lld", (long long)mimo_comm_deadline(comm));
    MPI_FAILS(mimo_comm_set_deadline(comm, -1), MIMO_ERR_ARGUMENT, "a deadline of -1 ms");
    MPI_EXPECT_OK(mimo_comm_synchronize(comm, NULL));
    mimo_comm_destroy(comm);
    MPI_EXPECT_OK(mimo_comm_barrier(half)); /* a family outlives its first communicator */
    mimo_comm_destroy(half);
    setenv("MIMO_DEADLINE_MS", "soon", 1);
    MPI_FAILS(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_ARGUMENT,
              "MIMO_DEADLINE_MS='soon'");
    setenv("MIMO_DEADLINE_MS", "0", 1);
    comm = mpi_test_comm_new();
    MPI_EXPECT(mimo_comm_deadline(comm) == 0, "%lld", (long long)mimo_comm_deadline(comm));
    mimo_comm_destroy(comm);
}

/* Ranks that wait get the error without a deadline as well. */
MPI_TEST(deadline, abort_on_one_rank)
{
    fault_bed bed;
    late_bed_open(&bed, EXECUTOR_ROUTED);
    if (bed.rank == LATE) {
        MPI_EXPECT_OK(mimo_comm_abort(bed.tp, "the loader has no more samples"));
        MPI_EXPECT_OK(mimo_comm_abort(bed.comm, "this changes nothing"));
        expect_ended(&bed, MIMO_ERR_ABORTED);
        MPI_EXPECT_SENTENCE("aborted here: the loader has no more samples");
    } else {
        MPI_FAILS(fault_forward(&bed), MIMO_ERR_ABORTED, "bridge 1 forward of 1",
                  "rank 2 aborted: the loader has no more samples");
        expect_ended(&bed, MIMO_ERR_ABORTED);
    }
    late_bed_close(&bed);
    MPI_Barrier(MPI_COMM_WORLD);
    expect_life(EXECUTOR_COLLECTIVE);
}

/* Several operations in flight end together. One whose caller polls ends as well. */
MPI_TEST(deadline, operations_in_flight)
{
    fault_bed bed;
    mimo_op *ops[2] = {NULL, NULL};
    bool done = false;
    begin_under_deadline(&bed, EXECUTOR_ROUTED);
    mimo_tensor from = fault_full_view(&bed);
    mimo_tensor to[] = {fault_shard_view(bed.shard), fault_shard_view(bed.second)};
    for (int i = 0; i < 2 && bed.rank != LATE; i++)
        MPI_EXPECT_OK(mimo_bridge_forward_start(&ops[i], bed.bridge, &to[i], &from, 1, NULL));
    mimo_status status = MIMO_OK;
    while (ops[1] && !done)
        status = mimo_op_test(&done, ops[1]);
    MPI_EXPECT(status == (bed.rank == LATE ? MIMO_OK : MIMO_ERR_TIMEOUT), "%s",
               mimo_status_name(status));
    for (int i = 0; i < 2 && bed.rank != LATE; i++)
        MPI_EXPECT_STATUS(mimo_op_wait(&ops[i]), MIMO_ERR_TIMEOUT);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT_STATUS(mimo_comm_barrier(bed.comm), MIMO_ERR_TIMEOUT);
    late_bed_close(&bed);
    expect_life(EXECUTOR_ROUTED);
}

/* A rank that waits in another call is named, with that call. */
MPI_TEST(deadline, waiting_elsewhere)
{
    fault_bed bed;
    begin_under_deadline(&bed, EXECUTOR_COLLECTIVE);
    if (bed.rank == LATE) {
        MPI_EXPECT_STATUS(mimo_comm_barrier(bed.tp), MIMO_ERR_TIMEOUT);
    } else {
        MPI_EXPECT_STATUS(mimo_comm_barrier(bed.comm), MIMO_ERR_TIMEOUT);
        MPI_EXPECT(strstr(mimo_last_error(), "rank 2 waited in barrier") ||
                       strstr(mimo_last_error(), "rank 2 gave up barrier"),
                   "%s", mimo_last_error());
        MPI_EXPECT(!strstr(mimo_last_error(), "no sign"), "%s", mimo_last_error());
    }
    late_bed_close(&bed);
}
