/* Runs exactly one Criterion test per launch; see mpi_test.h. */
#include <stdio.h>

#include <criterion/criterion.h>
#include <criterion/hooks.h>

static size_t ran, skipped;

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    ran = stats->tests_passed + stats->tests_failed + stats->tests_crashed;
}

/* The totals count the tests that the filter left out as skipped. Those tests never get here. */
ReportHook(POST_TEST)(struct criterion_test_stats *stats)
{
    skipped += stats->test_status == CR_STATUS_SKIPPED;
}

int main(int argc, char **argv)
{
    enum { EXIT_SKIPPED = 77 };
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    if (result != 0)
        return 1;
    if (ran == 0 && skipped == 1)
        return EXIT_SKIPPED;
    if (ran != 1) {
        fprintf(stderr, "%zu tests ran: name exactly one with --filter suite/name\n", ran);
        return 1;
    }
    return 0;
}
