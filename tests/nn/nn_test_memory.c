#include "nn_test_memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "test_memory.h"

static nn_runtime runtime;

enum { MOST_ROOMS = 256 };
static struct {
    const nn_runtime *where;
    void *room;
} rooms[MOST_ROOMS];
static int room_count;

void nn_test_must(mimo_status status, const char *what)
{
    if (status == MIMO_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, mimo_last_error());
    abort();
}

const nn_runtime *nn_test_runtime(void)
{
    nn_runtime_desc desc = {test_memory(), test_stream(), NN_PRECISION_FULL, NN_ORDER_FAST, 0};
    if (!runtime.ops)
        nn_test_must(nn_runtime_init(&runtime, &desc), "runtime");
    return &runtime;
}

void *nn_test_place(const nn_runtime *where, int64_t count, size_t size)
{
    void *room = NULL;
    if (room_count == MOST_ROOMS)
        nn_test_must(mimo_fail(MIMO_ERR_MEMORY, "more than %d rooms in a test", MOST_ROOMS),
                     "room");
    nn_test_must(nn_runtime_reserve(where, &room, count, size), "room");
    rooms[room_count].where = where;
    rooms[room_count++].room = room;
    return room;
}

nn_real *nn_test_room(int64_t n)
{
    return nn_test_place(nn_test_runtime(), n, sizeof(nn_real));
}

nn_real *nn_test_sent(const nn_real *x, int64_t n)
{
    nn_real *room = nn_test_room(n);
    nn_test_write(room, x, n);
    return room;
}

void nn_test_free_rooms(void)
{
    while (room_count-- > 0)
        nn_runtime_free(rooms[room_count].where, rooms[room_count].room);
    room_count = 0;
}

void nn_test_write(nn_real *room, const nn_real *x, int64_t n)
{
    nn_test_must(nn_runtime_write(nn_test_runtime(), room, x, n * (int64_t)sizeof *x), "write");
}

void nn_test_read(nn_real *x, const nn_real *room, int64_t n)
{
    nn_test_must(nn_runtime_read(nn_test_runtime(), x, room, n * (int64_t)sizeof *x), "read");
}
