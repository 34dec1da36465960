/* Tensors of tests in host memory, over Open MPI. */
#include <mimo/mpi.h>

#include "test_memory.h"

mimo_memory test_memory(void)
{
    return MIMO_MEMORY_HOST;
}

mimo_stream test_stream(void)
{
    return NULL;
}

mimo_stream test_side_stream(void)
{
    return NULL;
}

const char *test_memory_lacks(void)
{
    return NULL;
}

mimo_status test_comm_create(mimo_comm **out)
{
    return mimo_comm_create_mpi(out, MPI_COMM_WORLD, NULL);
}

void *test_place_new(void *host, int64_t bytes)
{
    (void)bytes;
    return host;
}

void test_place_free(void *place)
{
    (void)place;
}

void test_place_push(void *place, const void *host, int64_t bytes)
{
    (void)place, (void)host, (void)bytes;
}

void test_place_pull(void *host, const void *place, int64_t bytes)
{
    (void)host, (void)place, (void)bytes;
}

void *test_host_of(void *place, int64_t bytes)
{
    (void)bytes;
    return place;
}

void test_host_free(void *host)
{
    (void)host;
}
