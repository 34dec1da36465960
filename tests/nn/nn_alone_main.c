/* main() of the tests of the layers on one rank: skips visibly (exit status 77) where this machine
 * lacks what they need. */
#include <stdio.h>

#include <criterion/criterion.h>

#include "nn_alone.h"

int main(int argc, char **argv)
{
    const char *lacks = nn_alone_lacks();
    if (lacks) {
        fprintf(stderr, "skipped: this machine lacks %s\n", lacks);
        return 77;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    return result;
}
