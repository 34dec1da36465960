/*
 * Four ranks that go on after MPI_Finalize:
 *
 *   after_finalize LEVEL
 *
 * LEVEL is that of MPI_Init_thread, as a number. Each call that needs other ranks is refused with
 * MIMO_ERR_STATE, and all that was made is destroyed. MPI ends a process that calls it then, so the
 * exit status of each rank counts as well.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/mpi.h>

#include "fault_bed.h"

static int failed;

static void expect(const char *call, mimo_status status, mimo_status expected, const char *words)
{
    if (status == expected && (status == MIMO_OK || strstr(mimo_last_error(), words)))
        return;
    failed++;
    fprintf(stderr, "%s: %s, not %s with '%s': %s\n", call, mimo_status_name(status),
            mimo_status_name(expected), words, mimo_last_error());
}

static void expect_ok(const char *call, mimo_status status)
{
    expect(call, status, MIMO_OK, "");
}

static void expect_refusals(fault_bed *bed)
{
    static const char words[] = "MPI is finalized";
    mimo_comm *comm = NULL;
    for (const fault_call *call = fault_calls; call->name; call++)
        expect(call->name, call->act(bed), MIMO_ERR_STATE, words);
    expect("synchronize", mimo_comm_synchronize(bed->comm, NULL), MIMO_ERR_STATE, words);
    expect("abort", mimo_comm_abort(bed->comm, "too late"), MIMO_ERR_STATE, words);
    expect("create", mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL), MIMO_ERR_STATE, words);
    expect_ok("state", mimo_comm_state(bed->comm));
    expect_ok("deadline", mimo_comm_set_deadline(bed->comm, 1000));
}

static void *abort_elsewhere(void *comm)
{
    expect_ok("abort before the end", mimo_comm_abort(comm, "nobody hears it"));
    return NULL;
}

/* Below MPI_THREAD_MULTIPLE the end that this thread asks for is left to the next call of another
 * one. There is none before MPI_Finalize. */
static mimo_comm *aborted(void)
{
    pthread_t thread;
    mimo_comm *comm = NULL;
    expect_ok("another", mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL));
    if (pthread_create(&thread, NULL, abort_elsewhere, comm) != 0)
        abort();
    pthread_join(thread, NULL);
    return comm;
}

static void make_all(fault_bed *bed, mimo_comm *comm)
{
    mimo_grid *grid;
    expect_ok("begin", fault_bed_begin(bed, comm, EXECUTOR_ROUTED));
    expect_ok("objects", fault_bed_create(bed, FAULT_ALL));
    grid = bed->src;
    expect_ok("group", mimo_grid_create_group(grid, "tp"));
    expect_ok("forward", fault_forward(bed));
    expect_ok("step", fault_gradient_step(bed));
}

int main(int argc, char **argv)
{
    fault_bed bed;
    int level;
    mimo_comm *comm = NULL, *other = NULL, *ended;
    mimo_buffer *buffer = NULL;
    if (argc != 2)
        return 2;
    MPI_Init_thread(NULL, NULL, atoi(argv[1]), &level);
    expect_ok("create", mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL));
    expect_ok("create", mimo_comm_create_mpi(&other, MPI_COMM_WORLD, NULL));
    expect_ok("buffer", mimo_buffer_create(&buffer, comm, 100));
    make_all(&bed, comm);
    ended = aborted();
    MPI_Finalize();
    expect_refusals(&bed);
    mimo_buffer_destroy(buffer);
    fault_bed_end(&bed);
    mimo_comm_destroy(comm);
    mimo_comm_forget(other);
    mimo_comm_forget(ended);
    return failed > 0;
}
