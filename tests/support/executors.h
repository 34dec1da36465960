/* Executors as one enumeration, so that tests and benchmarks can list them and switch over them. */
#ifndef MIMO_TESTS_EXECUTORS_H
#define MIMO_TESTS_EXECUTORS_H

#include <mimo/bridge.h>
#include <stdlib.h>

typedef enum executor_id {
    EXECUTOR_AUTO,
    EXECUTOR_COLLECTIVE,
    EXECUTOR_ROUTED, /* zero-copy or p2p, as each call's destinations say */
    EXECUTOR_P2P,
    EXECUTOR_ZERO_COPY,
    EXECUTOR_STAGED,
    EXECUTORS
} executor_id;

/* The number of the tests' own executor (loopback_executor.c): behind the last of the library. */
enum { LOOPBACK_ALGORITHM = MIMO_ALGORITHM_ROUTED + 1 };

/* With MIMO_TEST_STAGED in the environment EXECUTOR_P2P stages, so that every test of messages is a
 * test of staged ones. With MIMO_TEST_LOOPBACK these and EXECUTOR_ROUTED are the executor of the
 * tests. */
static inline mimo_executor executor_of(executor_id id)
{
    mimo_executor out = {MIMO_ALGORITHM_ROUTED, MIMO_TRANSPORT_AUTO};
    if ((id == EXECUTOR_ROUTED || id == EXECUTOR_P2P) && getenv("MIMO_TEST_LOOPBACK"))
        return (mimo_executor){(mimo_algorithm)LOOPBACK_ALGORITHM, MIMO_TRANSPORT_AUTO};
    if (id == EXECUTOR_AUTO || id == EXECUTOR_COLLECTIVE)
        out.algorithm = id == EXECUTOR_AUTO ? MIMO_ALGORITHM_AUTO : MIMO_ALGORITHM_COLLECTIVE;
    if (id == EXECUTOR_P2P)
        out.transport = getenv("MIMO_TEST_STAGED") ? MIMO_TRANSPORT_STAGED : MIMO_TRANSPORT_P2P;
    if (id == EXECUTOR_ZERO_COPY || id == EXECUTOR_STAGED)
        out.transport = id == EXECUTOR_STAGED ? MIMO_TRANSPORT_STAGED : MIMO_TRANSPORT_ZERO_COPY;
    return out;
}

/* The id of what a bridge says it uses. */
static inline executor_id executor_id_of(mimo_executor executor)
{
    executor_id id = EXECUTOR_AUTO;
    for (int i = 0; i < EXECUTORS; i++)
        if (executor_of((executor_id)i).algorithm == executor.algorithm &&
            executor_of((executor_id)i).transport == executor.transport)
            id = (executor_id)i;
    return id;
}

#endif
