/*
 * What the tests of threads use of Criterion, for ThreadSanitizer: Criterion maps memory at
 * addresses that ThreadSanitizer keeps for itself. The same test sources are compiled with this
 * header. One launch runs one test, in the process itself: `plain_test_NAME --filter
 * suite/name`.
 */
#ifndef MIMO_TESTS_THREADS_CRITERION_H
#define MIMO_TESTS_THREADS_CRITERION_H

#include <stdio.h>
#include <stdlib.h>

typedef struct plain_test {
    struct plain_test *next;
    const char *suite, *name;
    void (*init)(void), (*body)(void), (*fini)(void);
    int timeout; /* the launcher's */
} plain_test;

extern const plain_test *criterion_current_test;
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

#define cr_skip_test(...) PLAIN_END(77, __VA_ARGS__)

#endif
