/*
 * Where the tensors of a test lie. A test prepares and compares its data in host memory, and gives
 * the library views of the *place*: the same memory on the host, CUDA memory with the NCCL backend.
 * So one source tests both backends:
 *
 *   test_tile tile = test_tile_new("sbh", MIMO_F32, 4, 2, 3);
 *   ... write tile.room.host ...
 *   test_push(&tile.room);
 *   mimo_...(&tile.view, ..., test_stream());
 *   test_pull(&tile.room);
 *   ... compare tile.room.host ...
 *
 * What a test has made is released when it ends. A test that makes much releases it itself.
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

/* The stream of a test's calls; NULL on the host. It is ordered with no other stream, not even the
 * default one, so that work which the library puts on another stream is noticed. */
mimo_stream test_stream(void);

/* Another stream, for calls that are waited for by events. It is ordered after all work that is on
 * test_stream so far. */
mimo_stream test_side_stream(void);

/* Prepare this rank; collective over MPI_COMM_WORLD. Returns what this launch lacks to run here,
 * the same on every rank; NULL where nothing is missing. */
const char *test_memory_lacks(void);

/* A communicator over MPI_COMM_WORLD for this memory. */
mimo_status test_comm_create(mimo_comm **out);

/* For test_room only: a place of `bytes` bytes for the memory at `host`, and copies in both
 * directions. */
void *test_place_new(void *host, int64_t bytes);
void test_place_free(void *place);
void test_place_push(void *place, const void *host, int64_t bytes);
void test_place_pull(void *host, const void *place, int64_t bytes);

/* ---------------------------------- the same for both ------------------------------------- */

/* Host memory for an existing place, and its release. */
void *test_host_of(void *place, int64_t bytes);
void test_host_free(void *host);

/* Memory of a test, on the host and at its place. It is poisoned at first, and lies between guard
 * bands (guarded.h). */
typedef struct test_room {
    void *host;    /* what the test writes and reads */
    void *place;   /* what the library gets */
    int64_t bytes; /* without the guard bands */
    bool shared;   /* lies in a buffer */
} test_room;

test_room test_room_new(int64_t bytes);
/* A room in a buffer of mpi_test_comm(), at the same offset on every rank. Collective: all ranks
 * make and free such rooms in the same order. */
test_room test_shared_room_new(int64_t bytes);
/* Checks the guard bands on the host and at the place, and releases both. */
void test_room_free(const test_room *room);

/* The room goes with its owner: test_rooms_free does the same for all rooms of an owner; NULL: for
 * all that there are. */
void test_room_own(const test_room *room, const void *owner);
void test_rooms_free(const void *owner);

/* Copy from host to place; or, when the stream has done its work, from place to host. Guard bands
 * are copied as well. Where host and place are the same memory nothing is copied. */
void test_push(const test_room *room);
void test_pull(const test_room *room);

/* A tensor in a room of its own. */
typedef struct test_tile {
    test_room room;
    mimo_tensor view; /* a view of the room's place */
} test_tile;

test_tile test_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                        int64_t size2);
/* A tile in a shared room. */
test_tile test_shared_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                               int64_t size2);
void test_tile_free(const test_tile *tile);

/* A view of a room's place, with the arguments of mimo_tensor_3d. */
mimo_tensor test_view(const test_room *room, mimo_dtype dtype, const char *letters, int64_t size0,
                      int64_t size1, int64_t size2);

/* The kind of memory that this test does not use. */
mimo_memory test_other_memory(void);

/* The buffer of the shared rooms; NULL where there is none now. */
mimo_buffer *test_shared_buffer(void);
/* Release that buffer. The next shared room makes a new one. Collective; no shared room may be
 * left. */
void test_shared_end(void);
/* Skip the test where a buffer reaches fewer ranks than these from some rank. Collective. */
void test_needs_reach(int ranks);

/* For tests of a mistake on one rank, and of batch splits that ranks must find out. Calls that move
 * data then agree, which on a device they do only when asked. */
void test_agree_on_data(void);

#endif
