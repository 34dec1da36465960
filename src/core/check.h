/*
 * The one family of checks. The message, with numbers, sits in the check:
 *
 *   MIMO_TRY(call)                            return the status of a failing call as it is
 *   MIMO_TRY_GOTO(status, label, call)        the same where something must be released
 *   MIMO_CHECK(condition, status, format...)  fail with a sentence unless the condition holds
 *   MIMO_KEEP_FIRST(status, call)             teardown: run the call, keep the first error
 */
#ifndef MIMO_CORE_CHECK_H
#define MIMO_CORE_CHECK_H

#include <mimo/status.h>

/* Put a sentence in front of the last error ("rank 3: ") and return `status`. */
MIMO_PRINTF(2, 3)
mimo_status mimo_fail_prefix(mimo_status status, const char *format, ...);

#define MIMO_TRY(call)                        \
    do {                                      \
        mimo_status mimo_try_status = (call); \
        if (mimo_try_status != MIMO_OK)       \
            return mimo_try_status;           \
    } while (0)

#define MIMO_TRY_GOTO(status, label, call) \
    do {                                   \
        (status) = (call);                 \
        if ((status) != MIMO_OK)           \
            goto label;                    \
    } while (0)

/* A test build can switch one check off by its file and line (core/check_off.c): then its condition
 * counts as held, and a call of mimo_fail at that line gives MIMO_OK. */
#ifdef MIMO_TEST_CHECKS
#include <stdbool.h>
bool mimo_check_is_off(const char *file, int line);
#define MIMO_HOLDS(condition) ((condition) || mimo_check_is_off(__FILE__, __LINE__))
#define mimo_fail(status, ...) \
    (mimo_check_is_off(__FILE__, __LINE__) ? MIMO_OK : (mimo_fail)(status, __VA_ARGS__))
#else
#define MIMO_HOLDS(condition) (condition)
#endif

/* The macro returns the status itself. The compiler can't see that mimo_fail returns its argument,
 * and would warn that a caller reads a variable that was not set. */
#define MIMO_CHECK(condition, status, ...)                  \
    do {                                                    \
        if (!MIMO_HOLDS(condition)) {                       \
            const mimo_status mimo_check_status = (status); \
            (mimo_fail)(mimo_check_status, __VA_ARGS__);    \
            return mimo_check_status;                       \
        }                                                   \
    } while (0)

#define MIMO_KEEP_FIRST(status, call)          \
    do {                                       \
        mimo_status mimo_keep_status = (call); \
        if ((status) == MIMO_OK)               \
            (status) = mimo_keep_status;       \
    } while (0)

#endif
