#include "test_memory.h"

#include <stdlib.h>

#include "guarded.h"
#include "mpi_test.h"

static void *with_guards(void *data)
{
    return (char *)data - GUARD_BYTES;
}

test_room test_room_new(int64_t bytes)
{
    test_room room = {.host = guarded_new(bytes), .bytes = bytes};
    void *place = test_place_new(with_guards(room.host), bytes + 2 * GUARD_BYTES);
    room.place = (char *)place + GUARD_BYTES;
    test_push(&room);
    return room;
}

void test_room_free(test_room *room)
{
    test_pull(room);
    MPI_EXPECT(guarded_intact(room->host, room->bytes), "a guard band was written");
    test_place_free(with_guards(room->place));
    guarded_free(room->host);
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

test_tile test_tile_new(const char *letters, mimo_dtype dtype, int64_t size0, int64_t size1,
                        int64_t size2)
{
    test_tile tile;
    int64_t bytes = 0;
    tile.view = mimo_tensor_3d(NULL, dtype, letters, size0, size1, size2);
    MPI_EXPECT_OK(mimo_tensor_extent(&tile.view, NULL, &bytes));
    tile.room = test_room_new(bytes);
    tile.view.data = tile.room.place;
    tile.view.memory = test_memory();
    return tile;
}

void test_tile_free(test_tile *tile)
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
        setenv("MIMO_AGREE", "2", 1);
}
