/* Tests of the layers on one rank, without MPI. nn_alone_host.c and nn_alone_cuda.c are the two
 * kinds of memory: they define test_memory and test_stream of test_memory.h, and nn_alone_lacks. A
 * program links one of them. */
#ifndef MIMO_TESTS_NN_ALONE_H
#define MIMO_TESTS_NN_ALONE_H

/* Names what this machine lacks to run the tests; NULL where nothing is missing. Called before any
 * test runs. */
const char *nn_alone_lacks(void);

#endif
