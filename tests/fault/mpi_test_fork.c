/* A child that was forked off: each of its calls fails, and none touches the parent's messages. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_bed.h"
#include "mpi_callers.h"
#include "mpi_test.h"

static int wrong; /* in the child */

static void expect_refused(mimo_status status, const char *what)
{
    const char *words = "this process was forked from the one that made the communicator";
    if (status == MIMO_ERR_STATE && strstr(mimo_last_error(), words))
        return;
    fprintf(stderr, "in the child %s: %s (%s)\n", what, mimo_status_name(status),
            mimo_last_error());
    wrong++;
}

static void call_everything(fault_bed *bed, mimo_op **op)
{
    bool done;
    for (const fault_call *call = fault_calls; call->name; call++)
        expect_refused(call->act(bed), call->name);
    expect_refused(mimo_comm_synchronize(bed->comm, NULL), "synchronize");
    expect_refused(mimo_comm_state(bed->comm), "state");
    expect_refused(mimo_comm_set_deadline(bed->comm, 1), "deadline");
    expect_refused(mimo_comm_abort(bed->comm, "by the child"), "abort");
    expect_refused(mimo_op_test(&done, *op), "op test");
    expect_refused(mimo_op_wait(op), "op wait");
}

/* What is local works: grids, and the release of everything. */
static void release_everything(fault_bed *bed, mimo_buffer *buffer)
{
    mimo_comm *comm = bed->comm;
    int64_t size = mimo_grid_size(bed->src);
    wrong += size != FAULT_RANKS || mimo_comm_size(comm) != FAULT_RANKS;
    mimo_comm_forget(bed->tp);
    bed->tp = NULL;
    mimo_buffer_destroy(buffer);
    fault_bed_end(bed);
    mimo_comm_destroy(comm);
}

static void be_a_child(fault_bed *bed, mimo_op **op, mimo_buffer *buffer)
{
    mpi_callers_forbid();
    call_everything(bed, op);
    release_everything(bed, buffer);
    if (mpi_callers_wrong() > 0)
        fprintf(stderr, "the child called MPI %d times\n", mpi_callers_wrong());
    _exit(wrong + mpi_callers_wrong() > 0);
}

static void expect_success_of(pid_t child)
{
    int status = -1;
    MPI_EXPECT(child > 0, "no child");
    MPI_EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "the child ended with %#x", status);
}

static void use(fault_bed *bed)
{
    MPI_EXPECT_OK(fault_forward(bed));
    MPI_EXPECT(fault_wrong_shard(bed, bed->shard) == 0, "a wrong shard");
    MPI_EXPECT_OK(fault_backward(bed));
    MPI_EXPECT(fault_wrong_full(bed) == 0, "a wrong gradient");
    MPI_EXPECT_OK(fault_gradient_step(bed));
    MPI_EXPECT_OK(fault_adjoint(bed));
}

/* All ranks fork while an operation is in flight. The parents go on. */
static void fork_in(executor_id executor)
{
    fault_bed bed;
    mimo_op *op = NULL;
    mimo_buffer *buffer = NULL;
    mimo_comm *comm = mpi_test_comm_new();
    MPI_EXPECT_OK(fault_bed_begin(&bed, comm, executor));
    MPI_EXPECT_OK(fault_bed_create(&bed, FAULT_ALL));
    MPI_EXPECT_OK(mimo_buffer_create(&buffer, comm, 64));
    use(&bed);
    mimo_tensor from = fault_full_view(&bed), to = fault_shard_view(bed.second);
    fault_fill_full(&bed);
    MPI_EXPECT_OK(mimo_bridge_forward_start(&op, bed.bridge, &to, &from, 1, NULL));
    pid_t child = fork();
    if (child == 0)
        be_a_child(&bed, &op, buffer);
    expect_success_of(child);
    MPI_EXPECT_OK(mimo_op_wait(&op));
    MPI_EXPECT(fault_wrong_shard(&bed, bed.second) == 0, "a wrong second shard");
    use(&bed);
    mimo_buffer_destroy(buffer);
    fault_bed_end(&bed);
    mimo_comm_destroy(comm);
}

MPI_TEST(fork, child_is_refused)
{
    fork_in(EXECUTOR_ROUTED);
    fork_in(EXECUTOR_COLLECTIVE);
}
