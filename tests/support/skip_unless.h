/* main() of a Criterion program that skips visibly (exit status 77) where a file that it needs is
 * missing. */
#ifndef MIMO_TESTS_SKIP_UNLESS_H
#define MIMO_TESTS_SKIP_UNLESS_H

#include <stdio.h>
#include <unistd.h>

#include <criterion/criterion.h>

static inline int run_tests(int argc, char **argv)
{
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    return result;
}

static inline int run_unless_missing(int argc, char **argv, const char *const *needed, int count)
{
    for (int i = 0; i < count; i++) {
        if (access(needed[i], R_OK) != 0) {
            fprintf(stderr, "skipped: %s is missing\n", needed[i]);
            return 77;
        }
    }
    return run_tests(argc, argv);
}

#endif
