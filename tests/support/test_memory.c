#include "test_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "mpi_test.h"
#include "same_bits.h"

static void *with_guards(void *data)
{
    return (char *)data - GUARD_BYTES;
}

/* Rooms that have not been released. */
typedef struct owned_room {
    test_room room;
    const void *owner; /* NULL: the test's */
} owned_room;

static owned_room *rooms;
static int room_count, room_capacity;

static test_room *keep(const test_room *room)
{
    if (room_count == room_capacity) {
        room_capacity = 2 * room_capacity + 16;
        rooms = realloc(rooms, (size_t)room_capacity * sizeof *rooms);
    }
    rooms[room_count] = (owned_room){*room, NULL};
    return &rooms[room_count++].room;
}

static owned_room *find(const test_room *room)
{
    for (int i = room_count - 1; i >= 0; i--)
        if (rooms[i].room.host == room->host)
            return &rooms[i];
    fprintf(stderr, "a room that is no longer there\n");
    abort();
}

test_room test_room_new(int64_t bytes)
{
    test_room room = {.host = guarded_new(bytes), .bytes = bytes};
    void *place = test_place_new(with_guards(room.host), bytes + 2 * GUARD_BYTES);
    room.place = (char *)place + GUARD_BYTES;
    test_push(&room);
    return *keep(&room);
}

/* ------------------------------------- shared rooms --------------------------------------- */

/* Rooms are handed out one after the other. When all have come back, they begin at the start
 * again. */
enum { SHARED_BYTES = 2 << 20, SHARED_STEP = 8 };

static struct {
    mimo_buffer *buffer;
    int64_t used;
    int rooms;
} shared;

mimo_buffer *test_shared_buffer(void)
{
    return shared.buffer;
}

void test_shared_end(void)
{
    mimo_buffer_destroy(shared.buffer);
    shared.buffer = NULL;
    shared.used = 0;
}

/* All ranks take as much as the rank that needs most, so rooms begin at the same offset on every
 * rank. */
static char *take_shared(int64_t bytes)
{
    int64_t most;
    MPI_Allreduce(&bytes, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (!shared.buffer &&
        mimo_buffer_create(&shared.buffer, mpi_test_comm(), SHARED_BYTES) != MIMO_OK) {
        fprintf(stderr, "no buffer: %s\n", mimo_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (shared.rooms == 0)
        shared.used = 0;
    char *at = (char *)mimo_buffer_data(shared.buffer) + shared.used;
    shared.used += (most + SHARED_STEP - 1) / SHARED_STEP * SHARED_STEP;
    if (shared.used > SHARED_BYTES) {
        fprintf(stderr, "shared rooms need more than %d bytes\n", SHARED_BYTES);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    shared.rooms++;
    return at;
}

test_room test_shared_room_new(int64_t bytes)
{
    int64_t all = bytes + 2 * GUARD_BYTES;
    char *place = take_shared(all), *host = test_host_of(place, all);
    memset(host, GUARD_POISON, (size_t)all);
    test_room room = {host + GUARD_BYTES, place + GUARD_BYTES, bytes, true};
    test_push(&room);
    return *keep(&room);
}

void test_needs_reach(int ranks)
{
    test_room probe = test_shared_room_new(1);
    int own = mimo_buffer_reach(shared.buffer), least;
    MPI_Allreduce(&own, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    test_room_free(&probe);
    char reason[64];
    snprintf(reason, sizeof reason, "a buffer of at least %d ranks, not %d", ranks, least);
    if (least < ranks)
        mpi_test_skip(reason);
}

/* ----------------------------------------- rooms ------------------------------------------ */

static void release(const test_room *room)
{
    test_pull(room);
    MPI_EXPECT_BITS(bits_of_guards(room->host, room->bytes), "a guard band of %d bytes",
                    (int)room->bytes);
    if (room->shared) {
        test_host_free(with_guards(room->host));
        shared.rooms--;
        return;
    }
    test_place_free(with_guards(room->place));
    guarded_free(room->host);
}

void test_room_free(const test_room *room)
{
    owned_room *found = find(room);
    const test_room kept = found->room;
    *found = rooms[--room_count];
    release(&kept);
}

void test_room_own(const test_room *room, const void *owner)
{
    find(room)->owner = owner;
}

void test_rooms_free(const void *owner)
{
    for (int i = room_count - 1; i >= 0; i--)
        if (!owner || rooms[i].owner == owner)
            test_room_free(&rooms[i].room);
}

void test_push(const test_room *room)
{
    test_place_push(with_guards(room->place), with_guards(room->host),
                    room->bytes + 2 * GUARD_BYTES);
}

void test_pull(const test_room *room)
{
    test_place_pull(with_guards(room->host), with_guards(room->place),
                    room->bytes + 2 * GUARD_BYTES);
}

static test_tile tile_in(test_room (*room_new)(int64_t bytes), const mimo_tensor *view)
{
    test_tile tile = {.view = *view};
    int64_t bytes = 0;
    MPI_EXPECT_OK(mimo_tensor_extent(NULL, &bytes, view));
    tile.room = room_new(bytes);
    tile.view.data = tile.room.place;
    tile.view.memory = test_memory();
    return tile;
}

test_tile test_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                        int64_t size2)
{
    mimo_tensor view = mimo_tensor_3d(NULL, dtype, letters, size0, size1, size2);
    return tile_in(test_room_new, &view);
}

test_tile test_shared_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                               int64_t size2)
{
    mimo_tensor view = mimo_tensor_3d(NULL, dtype, letters, size0, size1, size2);
    return tile_in(test_shared_room_new, &view);
}

void test_tile_free(const test_tile *tile)
{
    test_room_free(&tile->room);
}

mimo_tensor test_view(const test_room *room, mimo_dtype dtype, const char *letters, int64_t size0,
                      int64_t size1, int64_t size2)
{
    mimo_tensor view = mimo_tensor_3d(room->place, dtype, letters, size0, size1, size2);
    view.memory = test_memory();
    return view;
}

mimo_memory test_other_memory(void)
{
    return test_memory() == MIMO_MEMORY_HOST ? MIMO_MEMORY_CUDA : MIMO_MEMORY_HOST;
}

void test_agree_on_data(void)
{
    if (test_memory() != MIMO_MEMORY_HOST)
        setenv("MIMO_CHECK", "calls", 1);
}
