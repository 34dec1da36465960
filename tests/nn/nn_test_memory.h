/*
 * Rooms in the memory that the tests of the layers are about (test_memory.h), so that one source
 * tests either kind. Tests keep their numbers in plain arrays and hand rooms to the layers. A
 * failure here ends the process.
 */
#ifndef MIMO_TESTS_NN_TEST_MEMORY_H
#define MIMO_TESTS_NN_TEST_MEMORY_H

#include "train/nn/nn.h"

/* The runtime in that memory, in full precision, on the tests' stream; made once per process. */
const nn_runtime *nn_test_runtime(void);

/* Room for n numbers, zeroed; the second form holds a copy of x. */
nn_real *nn_test_room(int64_t n);
nn_real *nn_test_sent(const nn_real *x, int64_t n);
/* Zeroed room for elements of any size, in the memory of another runtime as well. */
void *nn_test_place(const nn_runtime *where, int64_t count, size_t size);
/* Free all rooms. */
void nn_test_free_rooms(void);

/* Place saved states in the zeroed room of the test. `place` does it, and is evaluated twice. */
#define NN_TEST_PLACE(room, place)                                         \
    do {                                                                   \
        nn_test_must((place), #place);                                     \
        nn_test_must(nn_room_reserve(&(room), nn_test_runtime()), #place); \
        nn_test_must((place), #place);                                     \
    } while (0)
void nn_test_must(mimo_status status, const char *what);

void nn_test_write(nn_real *room, const nn_real *x, int64_t n);
void nn_test_read(nn_real *x, const nn_real *room, int64_t n);

#endif
