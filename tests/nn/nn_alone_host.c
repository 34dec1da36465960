/* Tensors of tests on one rank in host memory. */
#include <stddef.h>

#include "nn_alone.h"
#include "test_memory.h"

mimo_memory test_memory(void)
{
    return MIMO_MEMORY_HOST;
}

mimo_stream test_stream(void)
{
    return NULL;
}

const char *nn_alone_lacks(void)
{
    return NULL;
}
