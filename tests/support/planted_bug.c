/* For programs that compile a file of the library again with its mutations, without mimo-oracle:
 * the one that PLANTED_BUG names is on, and the test must fail. */
#include <stdlib.h>
#include <string.h>

#include "core/mutation.h"

bool mimo_mutated(const char *name)
{
    const char *planted = getenv("PLANTED_BUG");
    return planted && strcmp(name, planted) == 0;
}
