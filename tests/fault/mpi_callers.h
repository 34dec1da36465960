/* Counts calls of MPI by threads or processes that must not call it. Linked into a test, these
 * definitions replace MPI's (its profiling interface). */
#ifndef MIMO_TESTS_MPI_CALLERS_H
#define MIMO_TESTS_MPI_CALLERS_H

/* From now on this thread calls no MPI function that communicates or frees. In a forked child: the
 * process. */
void mpi_callers_forbid(void);

/* How many such calls all threads made in spite of that. */
int mpi_callers_wrong(void);

#endif
