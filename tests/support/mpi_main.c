/* Runs the tests that a launch names; see mpi_test.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fatal_signal.h"
#include "mpi_test.h"

static mpi_test *tests;

void mpi_test_add(mpi_test *test)
{
    test->next = tests;
    tests = test;
}

static const mpi_test *find(const char *filter)
{
    char full[256];
    const mpi_test *test = tests;
    for (; test; test = test->next) {
        snprintf(full, sizeof full, "%s/%s", test->suite, test->name);
        if (strcmp(full, filter) == 0)
            break;
    }
    return test;
}

/* The test of argument pair `i`. */
static const mpi_test *named(int argc, char **argv, int i)
{
    int at = 2 * i + 1;
    return at + 1 < argc && strcmp(argv[at], "--filter") == 0 ? find(argv[at + 1]) : NULL;
}

/* What the variables of the library are before the first test. */
enum { MOST_VARIABLES = 32 };
static char *before[MOST_VARIABLES];

static void keep_environment(void)
{
    int count;
    const mimo_env_row *rows = mimo_env_table(&count);
    if (count > MOST_VARIABLES) {
        fprintf(stderr, "%d variables, not at most %d\n", count, MOST_VARIABLES);
        abort();
    }
    for (int i = 0; i < count; i++) {
        const char *value = getenv(rows[i].name);
        before[i] = value ? strdup(value) : NULL;
    }
}

/* The next test begins with the variables of the launch. */
static void restore_environment(void)
{
    int count;
    const mimo_env_row *rows = mimo_env_table(&count);
    for (int i = 0; i < count; i++)
        before[i] ? setenv(rows[i].name, before[i], 1) : unsetenv(rows[i].name);
}

static void forget_environment(void)
{
    for (int i = 0; i < MOST_VARIABLES; i++)
        free(before[i]);
}

int main(int argc, char **argv)
{
    enum { EXIT_USAGE = 2 };
    int count = (argc - 1) / 2;
    for (int i = 0; i < count || i == 0; i++) {
        if (argc % 2 == 1 && named(argc, argv, i))
            continue;
        fprintf(stderr,
                "usage: %s --filter suite/name [--filter suite/name]..., tests of its own\n",
                argv[0]);
        return EXIT_USAGE;
    }
    fatal_signal_watch();
    mpi_test_begin(named(argc, argv, 0));
    keep_environment();
    bool passed = true;
    for (int i = 0; i < count && passed; i++) {
        passed = mpi_test_run(named(argc, argv, i));
        restore_environment();
    }
    forget_environment();
    mpi_test_end();
    return passed ? 0 : 1;
}
