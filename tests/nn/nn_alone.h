/* Tests of the layers on one rank, without MPI: nn_alone_host.c and nn_alone_cuda.c are the two
 * kinds of memory (test_memory and test_stream of test_memory.h, and this); a program links one. */
#ifndef MIMO_TESTS_NN_ALONE_H
#define MIMO_TESTS_NN_ALONE_H

/* What this machine lacks to run the tests; NULL where nothing. Asked before any test runs. */
const char *nn_alone_lacks(void);

#endif
