/* For MPI tests that need much memory: all ranks skip visibly where it is short. */
#ifndef MIMO_TESTS_FREE_MEMORY_H
#define MIMO_TESTS_FREE_MEMORY_H

#include <stdint.h>
#include <stdio.h>

#include "mpi_test.h"

static inline int64_t free_memory(void)
{
    char line[128];
    long long kilobytes = 0;
    FILE *info = fopen("/proc/meminfo", "r");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) == 1)
            break;
    if (info)
        fclose(info);
    return (int64_t)kilobytes * 1024;
}

/* `bytes` is the sum over all ranks. */
static inline void skip_unless_free(int64_t bytes)
{
    int enough = free_memory() >= bytes;
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!enough)
        mpi_test_skip("not enough free memory for messages past 2^31 bytes");
}

#endif
