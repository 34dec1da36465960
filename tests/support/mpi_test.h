/*
 * Tests on real MPI ranks.
 *
 *   MPI_TEST(suite, name)
 *   {
 *       mimo_comm *comm = mpi_test_comm();     made on first use, destroyed at the end
 *       MPI_EXPECT(x == 3, "x is %d", x);      notes a failure and goes on, so no rank waits
 *   }                                          at the end all ranks agree on the verdict
 *
 * A launch runs the tests that it names, in this order, in its processes themselves:
 *
 *   mpirun -n N exe --filter suite/name [--filter suite/name]...
 *
 * It ends at the first test that fails, or that all ranks skip (exit status 77). A rank that dies
 * ends the launch, so no rank waits. It says in which test, or whether in MPI_Init, in MPI_Finalize
 * or behind that (fatal_signal.h). mpi_cases.py tells the tests of a launch apart by the lines
 * that rank 0 prints where a test begins and ends.
 */
#ifndef MIMO_TESTS_MPI_TEST_H
#define MIMO_TESTS_MPI_TEST_H

#include <stdbool.h>
#include <string.h>

#include <mpi.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

typedef struct mpi_test {
    const char *suite, *name;
    void (*body)(void);
    struct mpi_test *next;
} mpi_test;

void mpi_test_add(mpi_test *test);

/* Begins MPI for the launch's first test; that test is the running one from then on. */
void mpi_test_begin(const mpi_test *first);
/* Runs a test and returns the verdict, on which all ranks agree. */
bool mpi_test_run(const mpi_test *test);
void mpi_test_end(void); /* ends MPI */

/* The running test. Another one has another address. */
const mpi_test *mpi_test_running(void);
/* The level of threads that MPI is initialised with: MPI_THREAD_SINGLE, unless the test's file
 * defines this. */
int mpi_test_level(void);
void mpi_test_note(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
mimo_comm *mpi_test_comm(void);
mimo_comm *mpi_test_comm_new(void); /* a new one; the caller owns it */
/* From now on calls on a communicator (host memory) guard the caller's tensors, or do not. The
 * means is a deadline that is far away. Local, as the ranks need not do the same. */
void mpi_test_guard(mimo_comm *on, bool guarded);
int mpi_test_rank(void);
int mpi_test_size(void);
/* A grid by its text; destroyed at the end of the test. */
mimo_grid *mpi_test_grid(const char *spec, int64_t offset);
/* The same from rank 0 on, by a text with numbers. */
mimo_grid *mpi_test_grid_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a bridge between two grids is made of, with defaults for the rest. */
mimo_bridge_desc mpi_test_bridge_desc(const mimo_grid *src, const mimo_grid *dst);
/* Skip, agreed by all ranks: every rank calls it with the same reason. Does not return. */
void mpi_test_skip(const char *reason) __attribute__((noreturn));

#define MPI_TEST(in_suite, of_name)                                                        \
    static void mpi_body_##in_suite##_##of_name(void);                                     \
    __attribute__((constructor)) static void mpi_add_##in_suite##_##of_name(void)          \
    {                                                                                      \
        static mpi_test it = {#in_suite, #of_name, mpi_body_##in_suite##_##of_name, NULL}; \
        mpi_test_add(&it);                                                                 \
    }                                                                                      \
    static void mpi_body_##in_suite##_##of_name(void)

/* The macros below call this, in any thread. A test fails in which no rank does, such as one whose
 * table has no case for this number of ranks. */
void mpi_test_look(void);

/* Notes a failure with a sentence, and goes on. */
#define MPI_EXPECT(condition, ...)                          \
    do {                                                    \
        mpi_test_look();                                    \
        if (!(condition))                                   \
            mpi_test_note(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

/* The call must return exactly this status. Otherwise the last error is printed. */
#define MPI_EXPECT_STATUS(call, expected)                                            \
    do {                                                                             \
        mimo_status mpi_got = (call);                                                \
        mpi_test_look();                                                             \
        if (mpi_got != (expected))                                                   \
            mpi_test_note(__FILE__, __LINE__, "%s gave %s (%s), expected %s", #call, \
                          mimo_status_name(mpi_got), mimo_last_error(),              \
                          mimo_status_name(expected));                               \
    } while (0)

#define MPI_EXPECT_OK(call) MPI_EXPECT_STATUS(call, MIMO_OK)

/* The last error's sentence must contain these words. */
#define MPI_EXPECT_SENTENCE(words)                                               \
    MPI_EXPECT(strstr(mimo_last_error(), words), "sentence \"%s\" lacks \"%s\"", \
               mimo_last_error(), words)

/* A row of a table of refusals: the call must fail with exactly this status, and its sentence must
 * contain each of the words. FAILS of expect_failure.h is the same for tests without ranks. */
#define MPI_FAILS(call, expected, ...)                                                  \
    do {                                                                                \
        const char *const mpi_words[] = {__VA_ARGS__};                                  \
        MPI_EXPECT_STATUS(call, expected);                                              \
        for (size_t mpi_i = 0; mpi_i < sizeof mpi_words / sizeof mpi_words[0]; mpi_i++) \
            MPI_EXPECT_SENTENCE(mpi_words[mpi_i]);                                      \
    } while (0)

#endif
