/* Which ranks' waits sleep: those of more ranks than there are processors for them. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <sched.h>
#include <stdlib.h>

#include "comm/comm_backend.h"
#include "mpi_test.h"

/* As MPI sees it: how many ranks of this host have the same processors as this one. */
static int same_processors(const cpu_set_t *own)
{
    MPI_Comm host;
    int size, same = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &size);
    cpu_set_t *all = calloc((size_t)size, sizeof *all);
    MPI_Allgather(own, sizeof *own, MPI_BYTE, all, sizeof *all, MPI_BYTE, host);
    for (int i = 0; i < size; i++)
        same += CPU_EQUAL(&all[i], own) != 0;
    free(all);
    MPI_Comm_free(&host);
    return same;
}

/* A new communicator on these processors, and one that was split from it. */
static void expect_on(const cpu_set_t *processors)
{
    MPI_EXPECT(sched_setaffinity(0, sizeof *processors, processors) == 0, "not on %d processors",
               CPU_COUNT(processors));
    bool crowded = same_processors(processors) > CPU_COUNT(processors);
    mimo_comm *comm = mpi_test_comm_new(), *half = NULL;
    MPI_EXPECT(comm->family->sleeps == crowded, "%d ranks on %d processors: sleeps is %d",
               same_processors(processors), CPU_COUNT(processors), comm->family->sleeps);
    MPI_EXPECT_OK(mimo_comm_split(&half, comm, mpi_test_rank() % 2, 0));
    MPI_EXPECT(half->family->sleeps == crowded, "half of them: sleeps is %d", half->family->sleeps);
    mimo_comm_destroy(half);
    mimo_comm_destroy(comm);
}

/* All ranks on all processors; on one, which several share; and each on one of its own, as far as
 * there are enough. */
MPI_TEST(wait, where_ranks_outnumber_processors)
{
    cpu_set_t all, one, own;
    MPI_EXPECT(sched_getaffinity(0, sizeof all, &all) == 0, "no processors");
    CPU_ZERO(&one);
    CPU_ZERO(&own);
    for (int i = 0, number = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all))
            continue;
        if (number == 0)
            CPU_SET(i, &one);
        if (number++ == mpi_test_rank() % CPU_COUNT(&all))
            CPU_SET(i, &own);
    }
    unsetenv("MIMO_WAIT");
    expect_on(&all);
    expect_on(&one);
    expect_on(&own);
    MPI_EXPECT(sched_setaffinity(0, sizeof all, &all) == 0, "not on all processors again");
}
