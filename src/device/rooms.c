#include "device/rooms.h"

#include "core/memory.h"

struct mimo_room {
    mimo_room *next;
    mimo_room_key key;
    void *data;
    int64_t bytes;
};

static bool is_of(const mimo_room *room, const mimo_room_key *key)
{
    return room->key.device == key->device && room->key.stream == key->stream &&
           room->key.slot == key->slot;
}

static mimo_room *find(const mimo_rooms *rooms, const mimo_room_key *key)
{
    mimo_room *room = rooms->first;
    while (room && !is_of(room, key))
        room = room->next;
    return room;
}

static mimo_status room_for(mimo_room **out, mimo_rooms *rooms, const mimo_room_key *key)
{
    *out = find(rooms, key);
    if (*out)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(out, 1, sizeof **out));
    (*out)->key = *key;
    (*out)->next = rooms->first;
    rooms->first = *out;
    return MIMO_OK;
}

mimo_status mimo_rooms_get(void **out, mimo_rooms *rooms, const mimo_room_key *key, int64_t bytes)
{
    mimo_room *room;
    MIMO_TRY(room_for(&room, rooms, key));
    if (bytes > room->bytes || !room->data) {
        void *data;
        MIMO_TRY(key->device->reserve(&data, bytes));
        key->device->release(room->data);
        room->data = data;
        room->bytes = bytes;
    }
    *out = room->data;
    return MIMO_OK;
}

void *mimo_rooms_find(int64_t *bytes, const mimo_rooms *rooms, const mimo_room_key *key)
{
    const mimo_room *room = find(rooms, key);
    *bytes = room ? room->bytes : 0;
    return room ? room->data : NULL;
}

static mimo_room *take_first(mimo_rooms *rooms)
{
    mimo_room *room = rooms->first;
    rooms->first = room->next;
    return room;
}

void mimo_rooms_release(mimo_rooms *rooms)
{
    while (rooms->first) {
        mimo_room *room = take_first(rooms);
        room->key.device->release(room->data);
        mimo_release(room);
    }
}

void mimo_rooms_abandon(mimo_rooms *rooms)
{
    while (rooms->first) {
        mimo_room *room = take_first(rooms);
        mimo_abandon(room->data);
        mimo_release(room);
    }
}
