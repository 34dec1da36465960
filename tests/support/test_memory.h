/*
 * Where the tensors of a test lie. A test prepares and compares what it moves in host memory, and
 * hands the library views of the *place*: the same memory on the host, CUDA memory with the NCCL
 * backend. So one source is a test of both backends:
 *
 *   test_tile tile = test_tile_new("sbh", MIMO_F32, 4, 2, 3);
 *   ... write tile.room.host ...
 *   test_push(&tile.room);
 *   mimo_...(&tile.view, ..., test_stream());
 *   test_pull(&tile.room);
 *   ... compare tile.room.host ...
 *   test_tile_free(&tile);
 *
 * A destination that peers write into lies in a mimo_buffer: test_shared_tile_new.
 *
 * test_memory_host.c and test_memory_cuda.c are the two kinds of memory; a program links one.
 */
#ifndef MIMO_TESTS_TEST_MEMORY_H
#define MIMO_TESTS_TEST_MEMORY_H

#include <stdbool.h>

#include <mimo/buffer.h>

/* ---------------------------- one kind of memory, or the other ---------------------------- */

mimo_memory test_memory(void);

/* The stream that a test's calls go to; NULL on the host. It is ordered with no other, the default
 * stream included, so that work which the library puts elsewhere is noticed. */
mimo_stream test_stream(void);

/* Another one, for calls that are waited for by events; it is ordered after all that has been given
 * to test_stream so far. */
mimo_stream test_side_stream(void);

/* Prepare this rank; collective over MPI_COMM_WORLD. What this launch lacks to run here, the same
 * on every rank; NULL where nothing. */
const char *test_memory_lacks(void);

/* A communicator over MPI_COMM_WORLD for this memory. */
mimo_status test_comm_create(mimo_comm **out);

/* Of test_room alone: the place of `bytes` bytes at `host`, and both ways between them. */
void *test_place_new(void *host, int64_t bytes);
void test_place_free(void *place);
void test_place_push(void *place, const void *host, int64_t bytes);
void test_place_pull(void *host, const void *place, int64_t bytes);

/* ---------------------------------- the same for both ------------------------------------- */

/* Host memory for a place that is there already, and its release. */
void *test_host_of(void *place, int64_t bytes);
void test_host_free(void *host);

/* Memory of a test, poisoned at first and between guard bands (guarded.h), on the host and at its
 * place. */
typedef struct test_room {
    void *host;    /* what the test writes and reads */
    void *place;   /* what the library gets */
    int64_t bytes; /* without the guard bands */
    bool shared;   /* lies in a buffer */
} test_room;

test_room test_room_new(int64_t bytes);
/* The same in a buffer of mpi_test_comm(), at the same place of it on every rank. Collective: all
 * ranks make and free such rooms in the same order. */
test_room test_shared_room_new(int64_t bytes);
/* Checks the guard bands of both, and releases. */
void test_room_free(test_room *room);

/* Host to place, and back once the stream has done its work; guard bands too. Where host and place
 * are the same memory there is nothing to do. */
void test_push(const test_room *room);
void test_pull(const test_room *room);

/* A tensor in a room of its own. */
typedef struct test_tile {
    test_room room;
    mimo_tensor view; /* of the room's place */
} test_tile;

test_tile test_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                        int64_t size2);
/* In a shared room. */
test_tile test_shared_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                               int64_t size2);
void test_tile_free(test_tile *tile);

/* A view of a room's place, as mimo_tensor_3d. */
mimo_tensor test_view(const test_room *room, mimo_dtype dtype, const char *letters, int64_t size0,
                      int64_t size1, int64_t size2);

/* The kind of memory that this test does not use. */
mimo_memory test_other_memory(void);

/* The buffer of the shared rooms; NULL while there is none. */
mimo_buffer *test_shared_buffer(void);
/* Release it; shared rooms that come later make a new one. Collective; none is left. */
void test_shared_end(void);

/* For tests of what is wrong on one rank, and of cuts that ranks must find out about: have calls
 * that move data agree, which on a device they only do when asked. */
void test_agree_on_data(void);

#endif
