/* The bug that test_nn_ordered must find in products: even and odd steps of k apart, in tiles of
 * fewer rows than others. */
#include <string.h>

#include "core/mutation.h"

bool mimo_mutated(const char *name)
{
    return strcmp(name, "edge-two-chains") == 0;
}
