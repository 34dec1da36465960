/*
 * What a prepared call may know of where its tensors lie. It is made from their keys, not from
 * their addresses, and it serves tensors of equal keys alone. So what it has chosen for one tensor
 * suits every other one that it serves.
 */
#ifndef MIMO_MOVE_ADDRESS_KEY_H
#define MIMO_MOVE_ADDRESS_KEY_H

#include "comm/comm_backend.h"
#include "layout/tile.h"

/* Of one tensor. */
typedef struct mimo_address_key {
    uint64_t buffer; /* the serial of the buffer that its rows are pushed into; 0: none are */
    /* By side: the alignment of the tile (mimo_alignment_of), or its address where the key is
     * exact. MIMO_LEAST_ALIGNMENT where a tile decides nothing: it has no rows. A target in a
     * buffer always decides. A rank that only sends finds its peers' tiles by an empty one. */
    int64_t tiles[2];
} mimo_address_key;

/* The key of a tensor whose rows go to side `to`, and are pushed into `buffer`; NULL: they are not.
 */
mimo_address_key mimo_address_key_of(const mimo_tile_pair *pair, mimo_side to,
                                     const mimo_buffer *buffer, bool exact);

static inline bool mimo_address_key_equals(const mimo_address_key *a, const mimo_address_key *b)
{
    return a->buffer == b->buffer && a->tiles[MIMO_SRC] == b->tiles[MIMO_SRC] &&
           a->tiles[MIMO_DST] == b->tiles[MIMO_DST];
}

#endif
