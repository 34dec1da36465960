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

/* LeakSanitizer asks for it. A test that fails, as it is to here, leaves before it releases. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}
