/*
 * Staging that outlives a call: one room per (stream, slot), grown when short. Calls that follow
 * one another on a stream share its rooms, as the stream keeps them apart; calls on different
 * streams never meet in one. Growing blocks until the device is idle (mimo_device.release), so
 * later calls of a shape that was seen before allocate nothing.
 */
#ifndef MIMO_DEVICE_ROOMS_H
#define MIMO_DEVICE_ROOMS_H

#include "device/device.h"

/* Who uses a slot: two users of one stream whose rooms are alive at the same time differ. */
typedef enum mimo_room_slot {
    MIMO_ROOM_GATHERED,  /* a backend: rows of other ranks before they go to their places */
    MIMO_ROOM_PACKED,    /* a backend: own rows made contiguous; numbers in a wider dtype */
    MIMO_ROOM_SHARDS,    /* the partition's adjoint: the shards of all tp ranks */
    MIMO_ROOM_FULL,      /* a bridge, collective: full sequences, before they are cut or summed */
    MIMO_ROOM_JOINED,    /* a bridge, collective: the sp shards of all tp ranks */
    MIMO_ROOM_PARTIALS,  /* a bridge, routed: contributions, and sums between two rounds */
    MIMO_ROOM_TAGS_SENT, /* a bridge's samples check */
    MIMO_ROOM_TAGS_RECEIVED, /* the same */
} mimo_room_slot;

typedef struct mimo_room mimo_room;

typedef struct mimo_rooms {
    mimo_room *first;
} mimo_rooms;

/* Where to look: the device that the rooms lie on, the stream and the slot. */
typedef struct mimo_room_key {
    const mimo_device *device;
    mimo_stream stream;
    mimo_room_slot slot;
} mimo_room_key;

/* The room of `key`, of at least `bytes` bytes; what it held is lost where it grew. */
mimo_status mimo_rooms_get(void **out, mimo_rooms *rooms, const mimo_room_key *key, int64_t bytes);

/* The room of `key` as it is, and its size; NULL and 0 where there is none. */
void *mimo_rooms_find(int64_t *bytes, const mimo_rooms *rooms, const mimo_room_key *key);

/* Release all rooms. */
void mimo_rooms_release(mimo_rooms *rooms);

/* Forget all rooms without freeing what is in them: something may still write there. */
void mimo_rooms_abandon(mimo_rooms *rooms);

#endif
