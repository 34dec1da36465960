/* For Criterion tests. SUCCEEDS: the call succeeds; otherwise its sentence is printed. FAILS: the
 * call fails with this status, and its sentence holds each of the words. */
#ifndef MIMO_TESTS_EXPECT_FAILURE_H
#define MIMO_TESTS_EXPECT_FAILURE_H

#include <string.h>

#include <criterion/criterion.h>

#include <mimo/status.h>

#define SUCCEEDS(call)                                                                   \
    do {                                                                                 \
        mimo_status ok_got = (call);                                                     \
        cr_assert_eq(ok_got, MIMO_OK, "%s gave %s: %s", #call, mimo_status_name(ok_got), \
                     mimo_last_error());                                                 \
    } while (0)

#define FAILS(call, status, ...)                                                                  \
    do {                                                                                          \
        const char *const fail_words[] = {__VA_ARGS__};                                           \
        mimo_status fail_got = (call);                                                            \
        cr_assert_eq(fail_got, (status), "%s gave %s, not %s", #call, mimo_status_name(fail_got), \
                     #status);                                                                    \
        for (size_t fail_i = 0; fail_i < sizeof fail_words / sizeof fail_words[0]; fail_i++)      \
            cr_assert(strstr(mimo_last_error(), fail_words[fail_i]), "no '%s' in '%s'",           \
                      fail_words[fail_i], mimo_last_error());                                     \
    } while (0)

#endif
