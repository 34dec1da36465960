#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "fatal_signal.h"
#include "idle_threads.h"
#include "mpi_test.h"
#include "test_memory.h"

static const mpi_test *running;
static mimo_comm *comm;
static mimo_grid **grids; /* of mpi_test_grid */
static int grid_count, grid_capacity;
static int failures;
static bool looked;

const mpi_test *mpi_test_running(void)
{
    return running;
}

void mpi_test_look(void)
{
    __atomic_store_n(&looked, true, __ATOMIC_RELAXED);
}

__attribute__((weak)) int mpi_test_level(void)
{
    return MPI_THREAD_SINGLE;
}

void mpi_test_begin(const mpi_test *first)
{
    running = first;
    int provided = -1, wanted = mpi_test_level();
    fatal_signal_phase("in MPI_Init");
    MPI_Init_thread(NULL, NULL, wanted, &provided);
    if (provided == wanted)
        return;
    fprintf(stderr, "MPI has thread level %d, not %d\n", provided, wanted);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* MPI_Finalize of Open MPI 4.1 dies where a thread of its own still has work from MPI_Init
 * (docs/errors.md), as in a short test on a busy machine. */
void mpi_test_end(void)
{
    fatal_signal_phase("in MPI_Finalize");
    idle_threads_wait();
    MPI_Finalize();
    fatal_signal_phase("behind MPI_Finalize");
}

int mpi_test_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int mpi_test_size(void)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

mimo_comm *mpi_test_comm_new(void)
{
    mimo_comm *made = NULL;
    if (test_comm_create(&made) != MIMO_OK) {
        fprintf(stderr, "no communicator: %s\n", mimo_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    /* A rank may have its communicator, and abort it, while others are still inside. */
    MPI_Barrier(MPI_COMM_WORLD);
    return made;
}

mimo_comm *mpi_test_comm(void)
{
    if (!comm)
        comm = mpi_test_comm_new();
    return comm;
}

void mpi_test_guard(mimo_comm *on, bool guarded)
{
    enum { HOUR = 3600000 };
    if (test_memory() == MIMO_MEMORY_HOST)
        MPI_EXPECT_OK(mimo_comm_set_deadline(on, guarded ? HOUR : 0));
}

void mpi_test_note(const char *file, int line, const char *format, ...)
{
    char text[2048]; /* written at once, so that lines of several ranks stay apart */
    va_list arguments;
    if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) > 10)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, mpi_test_rank(), text);
}

/* Rank 0 says so. mpi_cases.py reads these lines. */
static void say(const char *what)
{
    if (mpi_test_rank() != 0)
        return;
    printf("test %s/%s %s\n", running->suite, running->name, what);
    fflush(stdout);
}

/* Agree first. A rank that failed alone would leave the others waiting in their next call. */
static bool verdict(void)
{
    test_rooms_free(NULL);
    while (grid_count > 0)
        mimo_grid_destroy(grids[--grid_count]);
    int all[] = {failures, looked};
    test_shared_end();
    mimo_comm_destroy(comm);
    comm = NULL;
    MPI_Allreduce(MPI_IN_PLACE, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (mpi_test_rank() == 0 && all[0] > 0)
        fprintf(stderr, "%s/%s: %d checks failed over all ranks\n", running->suite, running->name,
                all[0]);
    if (mpi_test_rank() == 0 && all[1] == 0)
        fprintf(stderr, "%s/%s: nothing was checked on %d ranks\n", running->suite, running->name,
                mpi_test_size());
    return all[0] == 0 && all[1] > 0;
}

bool mpi_test_run(const mpi_test *test)
{
    running = test;
    failures = 0;
    looked = false;
    fatal_signal_phase("in %s/%s", test->suite, test->name);
    say("begins");
    MPI_Barrier(MPI_COMM_WORLD); /* no rank dies in this test before rank 0 has said so */
    const char *lacks = test_memory_lacks();
    if (lacks)
        mpi_test_skip(lacks);
    test->body();
    bool passed = verdict();
    say(passed ? "passed" : "failed");
    fatal_signal_phase("behind %s/%s", test->suite, test->name);
    return passed;
}

mimo_grid *mpi_test_grid(const char *spec, int64_t offset)
{
    if (grid_count == grid_capacity) {
        grid_capacity = 2 * grid_capacity + 16;
        grids = realloc(grids, (size_t)grid_capacity * sizeof(mimo_grid *));
    }
    grids[grid_count] = NULL;
    MPI_EXPECT_OK(mimo_grid_create_text(&grids[grid_count], spec, offset));
    return grids[grid_count++];
}

mimo_grid *mpi_test_grid_of(const char *format, ...)
{
    char spec[128];
    va_list values;
    va_start(values, format);
    vsnprintf(spec, sizeof spec, format, values);
    va_end(values);
    return mpi_test_grid(spec, 0);
}

mimo_bridge_desc mpi_test_bridge_desc(const mimo_grid *src, const mimo_grid *dst)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = src;
    desc.dst = dst;
    return desc;
}

void mpi_test_skip(const char *reason)
{
    enum { EXIT_SKIPPED = 77 };
    if (mpi_test_rank() == 0)
        fprintf(stderr, "%s/%s is skipped: %s\n", running->suite, running->name, reason);
    mimo_comm_destroy(comm);
    mpi_test_end();
    exit(EXIT_SKIPPED);
}
