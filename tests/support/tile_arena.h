/* Memory of a test in which a tile lies elsewhere each time. */
#ifndef MIMO_TESTS_TILE_ARENA_H
#define MIMO_TESTS_TILE_ARENA_H

#include <string.h>

#include "bridge_bed.h"
#include "guarded.h"

typedef struct arena {
    test_tile like; /* its shape, and any memory */
    test_room room;
    int64_t spread; /* offsets below this one */
} arena;

static inline arena arena_new(const bridge_bed *bed, mimo_side side, bool shared, int64_t spread)
{
    arena made = {.like = bed_tile_new(bed, side), .spread = spread};
    int64_t bytes = made.like.room.bytes + spread + 2 * GUARD_BYTES;
    made.room = shared ? test_shared_room_new(bytes) : test_room_new(bytes);
    return made;
}

static inline void arena_free(arena *it)
{
    test_tile_free(&it->like);
    test_room_free(&it->room);
}

/* The tile at an offset; not to be freed. */
static inline test_tile tile_at(const arena *it, int64_t offset)
{
    test_tile tile = it->like;
    int64_t at = GUARD_BYTES + offset % it->spread;
    tile.room = (test_room){(char *)it->room.host + at, (char *)it->room.place + at,
                            it->like.room.bytes, it->room.shared};
    tile.view.data = tile.room.place;
    return tile;
}

static inline void poison(const test_tile *tile)
{
    memset((char *)tile->room.host - GUARD_BYTES, GUARD_POISON,
           (size_t)tile->room.bytes + 2 * GUARD_BYTES);
    test_push(&tile->room);
}

/* Nothing was written beside the tile. */
static inline void check_guards(const test_tile *tile)
{
    MPI_EXPECT_BITS(bits_of_guards(tile->room.host, tile->room.bytes), "beside a tile of %d bytes",
                    (int)tile->room.bytes);
}

#endif
