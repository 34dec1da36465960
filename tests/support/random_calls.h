/*
 * A random bridge, and calls of it: several micro-batches, tensors of several shapes at addresses
 * of every alignment, chunks, both passes. A second bridge, which sends plain messages, says what
 * each call must bring.
 *
 *   random_calls it = random_calls_new(&seed);            collective, as all that follows
 *   random_calls_prepare(&it, i);                         call i, by views of other addresses
 *   random_calls_make(&it, i);                            enqueue it
 *   random_calls_check(&it, i);
 *   random_calls_free(&it);
 */
#ifndef MIMO_TESTS_RANDOM_CALLS_H
#define MIMO_TESTS_RANDOM_CALLS_H

#include "executors.h"
#include "mpi_test.h"
#include "test_memory.h"

enum { RANDOM_BATCHES = 3, RANDOM_TENSORS = 4, RANDOM_CALLS = 6 };

typedef struct random_tensor {
    test_room from, to;
    mimo_tensor views[2]; /* what moves, by whether it is written */
    mimo_tensor other[2]; /* the same tensors elsewhere: memory that is not there */
    char *expected;       /* the bytes of `to` after the call */
} random_tensor;

typedef struct random_call {
    int batch; /* which micro-batch */
    bool backward;
    int chunks, n;
    random_tensor tensors[RANDOM_TENSORS];
} random_call;

typedef struct random_calls {
    mimo_grid *src, *dst;
    mimo_bridge *bridge, *plain;
    bool buffer; /* destinations lie in one */
    int64_t seq;
    random_call calls[RANDOM_CALLS];
    char text[256]; /* of the case */
} random_calls;

random_calls random_calls_new(uint64_t *seed);
void random_calls_free(random_calls *it);

void random_calls_prepare(const random_calls *it, int i);
/* Begin a call on the test's stream. */
void random_calls_begin(mimo_op **out, const random_calls *it, int i);
void random_calls_make(const random_calls *it, int i);

/* Poison the targets of a call, which no rank moves now. */
void random_calls_poison(const random_calls *it, int i);
void random_calls_check(const random_calls *it, int i);

/* The numbers 0 to RANDOM_CALLS - 1 in a random order. */
void random_calls_order(uint64_t *seed, int order[RANDOM_CALLS]);

#endif
