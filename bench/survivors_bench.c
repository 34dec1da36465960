/*
 * How long ranks take to go on after an end: from the error of the call that failed to a new
 * communicator, on the slowest rank.
 *
 *   mpirun -n 8 survivors_bench [--json]                      no rank is gone: rank 0 aborts
 *   mpirun --enable-recovery -n 8 survivors_bench --kill      the last rank kills itself before
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <mimo/mpi.h>

#include "bench_support.h"

enum { REPEATS = 20, DEADLINE = 1000, LONG = 60000 }; /* milliseconds */

typedef struct survivors_options {
    bool json, kill;
} survivors_options;

#define OPTION_INTO survivors_options
static const option_row rows[] = {
    OPTION_FLAG("json", json, "One JSON object a line", .letter = 'j'),
    OPTION_FLAG("kill", kill, "Kill the last rank (mpirun --enable-recovery)"),
};
static const option_table table = {.program = "survivors_bench",
                                   .about = "Time from a failed call to a communicator of the "
                                            "ranks that are left.",
                                   OPTION_ROWS(rows)};

/* Milliseconds of this rank; *comm becomes the new communicator. */
static double recover(mimo_comm **comm)
{
    mimo_comm *left;
    double begin = bench_seconds();
    must(mimo_comm_survivors(&left, *comm, NULL));
    double taken = 1e3 * (bench_seconds() - begin);
    mimo_comm_destroy(*comm);
    *comm = left;
    must(mimo_comm_set_deadline(*comm, LONG));
    must(mimo_comm_allreduce(*comm, &taken, 1, MIMO_F64, MIMO_MAX, NULL));
    return taken;
}

static double after_a_kill(mimo_comm **comm)
{
    must(mimo_comm_barrier(*comm));
    must(mimo_comm_set_deadline(*comm, DEADLINE));
    if (mimo_comm_rank(*comm) == mimo_comm_size(*comm) - 1)
        raise(SIGKILL);
    if (mimo_comm_barrier(*comm) != MIMO_ERR_TIMEOUT)
        must(mimo_fail(MIMO_ERR_INTERNAL, "nobody is missing"));
    return recover(comm);
}

static double after_an_abort(mimo_comm **comm)
{
    if (mimo_comm_rank(*comm) == 0) { /* all have come */
        must(mimo_comm_barrier(*comm));
        must(mimo_comm_abort(*comm, "a repeat"));
    }
    while (mimo_comm_barrier(*comm) == MIMO_OK)
        ;
    return recover(comm);
}

static void print(const survivors_options *options, const mimo_comm *comm, const char *what,
                  double ms)
{
    if (mimo_comm_rank(comm) != 0)
        return;
    if (options->json)
        printf("{\"end\":\"%s\",\"ranks\":%d,\"ms\":%.2f}\n", what, mimo_comm_size(comm), ms);
    else
        printf("%-5s: %d ranks go on after %.2f ms\n", what, mimo_comm_size(comm), ms);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    survivors_options options = {false, false};
    mimo_comm *comm;
    double ms[REPEATS];
    bench_options(&options, &table, argc, argv);
    MPI_Init(&argc, &argv);
    must(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL));
    must(mimo_comm_set_deadline(comm, LONG));
    if (options.kill)
        print(&options, comm, "kill", after_a_kill(&comm));
    for (int i = 0; i < REPEATS; i++)
        ms[i] = after_an_abort(&comm);
    print(&options, comm, "abort", bench_median(ms, REPEATS));
    must(mimo_comm_barrier(comm));
    mimo_comm_destroy(comm);
    if (options.kill) /* MPI_Finalize could wait for the rank that is gone */
        _exit(0);
    MPI_Finalize();
    return 0;
}
