/*
 * What test_calls.c uses of Criterion, for ThreadSanitizer: Criterion maps memory at addresses that
 * ThreadSanitizer keeps for itself. A process runs one test: `plain_test_calls --filter
 * suite/name`.
 */
#ifndef MIMO_TESTS_THREADS_CRITERION_H
#define MIMO_TESTS_THREADS_CRITERION_H

#include <stdio.h>
#include <stdlib.h>

typedef struct plain_test {
    struct plain_test *next;
    const char *suite, *name;
    void (*body)(void);
    int timeout; /* Meson's counts */
} plain_test;

void plain_test_add(plain_test *test);

#define Test(in_suite, of_name, ...)                                                \
    static void plain_body_##in_suite##_##of_name(void);                            \
    __attribute__((constructor)) static void plain_add_##in_suite##_##of_name(void) \
    {                                                                               \
        static plain_test it = {.suite = #in_suite,                                 \
                                .name = #of_name,                                   \
                                .body = plain_body_##in_suite##_##of_name,          \
                                __VA_ARGS__};                                       \
        plain_test_add(&it);                                                        \
    }                                                                               \
    static void plain_body_##in_suite##_##of_name(void)

#define PLAIN_END(code, ...)          \
    do {                              \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr);          \
        exit(code);                   \
    } while (0)

#define cr_assert_eq(a, b, ...)        \
    do {                               \
        if ((a) != (b))                \
            PLAIN_END(1, __VA_ARGS__); \
    } while (0)

#define cr_assert_gt(a, b, ...)        \
    do {                               \
        if ((a) <= (b))                \
            PLAIN_END(1, __VA_ARGS__); \
    } while (0)

#endif
