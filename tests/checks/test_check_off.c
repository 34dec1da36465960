/* In a build with MIMO_TEST_CHECKS, such as this program, one check can be switched off. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/check.h"
#include "expect_failure.h"

static int line_of_first, line_of_second, line_of_third;

static mimo_status checked(int value)
{
    line_of_first = __LINE__ + 1;
    MIMO_CHECK(value > 1, MIMO_ERR_ARGUMENT, "%d is not above 1", value);
    line_of_second = __LINE__ + 1;
    MIMO_CHECK(value > 2, MIMO_ERR_SHAPE, "%d is not above 2", value);
    line_of_third = __LINE__ + 1;
    return value > 3 ? MIMO_OK : mimo_fail(MIMO_ERR_STATE, "%d is not above 3", value);
}

static void switch_off(const char *file, int line)
{
    char place[256];
    snprintf(place, sizeof place, "%s:%d", file, line);
    setenv("MIMO_TEST_CHECK_OFF", place, 1);
}

Test(check_off, the_named_check_alone)
{
    FAILS(checked(1), MIMO_ERR_ARGUMENT, "1 is not above 1");
    switch_off(__FILE__, line_of_first);
    FAILS(checked(1), MIMO_ERR_SHAPE, "1 is not above 2");
    switch_off(__FILE__, line_of_second);
    FAILS(checked(1), MIMO_ERR_ARGUMENT, "1 is not above 1");
    FAILS(checked(2), MIMO_ERR_STATE, "2 is not above 3");
    SUCCEEDS(checked(4));
}

Test(check_off, a_call_of_mimo_fail)
{
    FAILS(checked(3), MIMO_ERR_STATE, "3 is not above 3");
    switch_off(__FILE__, line_of_third);
    SUCCEEDS(checked(3));
}

/* A file is named by the end of its path, from some folder on. */
Test(check_off, the_named_file_alone)
{
    FAILS(checked(1), MIMO_ERR_ARGUMENT, "above 1");
    const char *const others[] = {"off.c", "other.c", "", ":",
                                  "more/of/a/path/than/test_check_off.c"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        switch_off(others[i], line_of_first);
        FAILS(checked(1), MIMO_ERR_ARGUMENT, "above 1");
    }
    const char *const these[] = {"test_check_off.c", "checks/test_check_off.c"};
    for (size_t i = 0; i < sizeof these / sizeof these[0]; i++) {
        switch_off(these[i], line_of_first);
        FAILS(checked(1), MIMO_ERR_SHAPE, "above 2");
    }
    setenv("MIMO_TEST_CHECK_OFF", "test_check_off.c", 1);
    FAILS(checked(1), MIMO_ERR_ARGUMENT, "above 1");
}

/* The log has each check that failed, switched off or not. It has no check that held. */
Test(check_off, log)
{
    char path[] = "/tmp/mimo-check-log-XXXXXX", expected[512], got[512];
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    setenv("MIMO_TEST_CHECK_LOG", path, 1);
    SUCCEEDS(checked(4));
    FAILS(checked(2), MIMO_ERR_SHAPE, "above 2");
    switch_off(__FILE__, line_of_second);
    FAILS(checked(2), MIMO_ERR_STATE, "above 3");
    snprintf(expected, sizeof expected, "%s:%d\n%s:%d\n%s:%d\n", __FILE__, line_of_second, __FILE__,
             line_of_second, __FILE__, line_of_third);
    FILE *log = fdopen(file, "r");
    got[fread(got, 1, sizeof got - 1, log)] = '\0';
    fclose(log);
    remove(path);
    cr_assert_str_eq(got, expected);
}
