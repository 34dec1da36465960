/* Every allocation of every collective call fails in turn, on one rank: that is the error of all
 * ranks that the call concerns, none waits for ever, and the same call succeeds after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "fault_bed.h"
#include "mpi_test.h"

/* Whether a call of the rank `failing` is this rank's too: the tp groups are {0, 1} and {2, 3}. */
static bool shares(const fault_bed *bed, const fault_call *call, int failing)
{
    return strcmp(call->name, "adjoint") != 0 || bed->rank / 2 == failing / 2;
}

/* A bed in which the n-th allocation of the call fails on one rank. False where there are fewer. */
static bool nth_fails(const fault_call *call, mimo_executor executor, int failing, int n)
{
    fault_bed bed;
    MPI_EXPECT_OK(fault_bed_begin(&bed, mpi_test_comm(), executor));
    MPI_EXPECT_OK(fault_bed_create(&bed, call->needs));
    if (strcmp(call->name, "step") == 0) /* the calls of a step go on from one another */
        MPI_EXPECT_OK(fault_gradient_step(&bed));
    if (bed.rank == failing)
        mimo_fail_allocation(n);
    mimo_status status = call->act(&bed);
    int failed = bed.rank == failing && mimo_fail_allocation(0) == 0;
    MPI_Bcast(&failed, 1, MPI_INT, failing, MPI_COMM_WORLD);
    bool expected = failed && shares(&bed, call, failing);
    MPI_EXPECT(status == (expected ? MIMO_ERR_MEMORY : MIMO_OK), "%s, allocation %d: %s (%s)",
               call->name, n, mimo_status_name(status), mimo_last_error());
    if (expected)
        MPI_EXPECT_SENTENCE(": out of memory allocating ");
    if (failed)
        MPI_EXPECT(call->act(&bed) == MIMO_OK, "%s after allocation %d: %s", call->name, n,
                   mimo_last_error());
    MPI_EXPECT_OK(mimo_comm_barrier(bed.comm));
    fault_bed_end(&bed);
    return failed;
}

/* Some calls allocate nothing, or only the first time. */
static void each_fails(mimo_executor executor, int failing)
{
    setenv("MIMO_CHECK", "replicas,calls,samples", 1);
    for (const fault_call *call = fault_calls; call->name; call++) {
        if (executor != MIMO_EXECUTOR_ROUTED && strcmp(call->name, "update") == 0)
            continue;
        int n = 1;
        while (nth_fails(call, executor, failing, n))
            n++;
    }
}

MPI_TEST(memory, of_any_call_collective)
{
    each_fails(MIMO_EXECUTOR_COLLECTIVE, FAULT_RANKS - 1);
}

MPI_TEST(memory, of_any_call_routed)
{
    each_fails(MIMO_EXECUTOR_ROUTED, 0);
}
