/* No mutation is on. This is in the archive of the testable library. A program links it only where
 * it has no mutations of its own (tests/oracle/mutations.c). */
#undef MIMO_MUTATIONS
#define MIMO_MUTATIONS
#include "core/mutation.h"

bool mimo_mutated(const char *name)
{
    (void)name;
    return false;
}
