/*
 * A random test that drops a part of its cases prints how many it ran, and fails below a minimum. A
 * change of the generator must not leave the test without cases. The minimum is a little below what
 * runs today.
 *
 *   CASES_RAN(ran, drawn, least, "pairs");        in a Criterion test
 *   MPI_CASES_RAN(ran, drawn, least, "pairs");    on real ranks (mpi_test.h), which count alike
 */
#ifndef MIMO_TESTS_CASES_RAN_H
#define MIMO_TESTS_CASES_RAN_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

static inline bool cases_suffice(int64_t ran, int64_t drawn, int64_t least, const char *what,
                                 bool says)
{
    if (says)
        fprintf(stderr, "%" PRId64 " of %" PRId64 " %s ran, at least %" PRId64 " must\n", ran,
                drawn, what, least);
    return ran >= least;
}

#define CASES_RAN(ran, drawn, least, what)                                                  \
    cr_assert(cases_suffice(ran, drawn, least, what, true), "only %d of %d %s ran, not %d", \
              (int)(ran), (int)(drawn), what, (int)(least))

#define MPI_CASES_RAN(ran, drawn, least, what)                               \
    MPI_EXPECT(cases_suffice(ran, drawn, least, what, mpi_test_rank() == 0), \
               "only %d of %d %s ran, not %d", (int)(ran), (int)(drawn), what, (int)(least))

#endif
