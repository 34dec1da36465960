#include "train/nn/ops/nn_saved.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"
#include "core/checked.h"

enum { ALIGNMENT = 256 }; /* that of a device's own allocations */

mimo_status nn_room_take(nn_room *room, void *out, int64_t count, size_t size)
{
    int64_t bytes, end;
    char *taken = room->base ? room->base + room->used : NULL;
    MIMO_TRY(mimo_mul(&bytes, count, (int64_t)size));
    MIMO_TRY(mimo_add(&end, room->used, bytes + (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT));
    MIMO_CHECK(!room->base || end <= room->bytes, MIMO_ERR_STATE,
               "saved state: %" PRId64 " bytes, and %" PRId64 " were measured", end, room->bytes);
    room->used = end;
    memcpy(out, &taken, sizeof taken);
    return MIMO_OK;
}

mimo_status nn_room_reserve(nn_room *room, const nn_runtime *runtime)
{
    nn_room made = {.runtime = runtime, .bytes = room->used};
    MIMO_TRY(nn_runtime_reserve(runtime, &made.base, made.bytes, 1));
    *room = made;
    return MIMO_OK;
}

mimo_status nn_room_lend(nn_room *room, const nn_runtime *runtime, char **memory)
{
    *room = (nn_room){.runtime = runtime, .base = *memory, .bytes = room->used};
    *memory += room->bytes;
    return nn_runtime_zero(runtime, room->base, room->bytes);
}

void nn_room_release(nn_room *room)
{
    nn_runtime_free(room->runtime, room->base);
    memset(room, 0, sizeof *room);
}

#ifdef MIMO_MUTATIONS
void nn_poison(const nn_runtime *runtime, nn_real *room, int64_t count)
{
    if (nn_runtime_or_host(runtime)->memory == MIMO_MEMORY_HOST)
        memset(room, 0xff, (size_t)count * sizeof *room); /* NaN in each element */
}
#else
void nn_poison(const nn_runtime *runtime, nn_real *room, int64_t count)
{
    (void)runtime;
    (void)room;
    (void)count;
}
#endif
