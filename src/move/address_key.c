#include "move/address_key.h"

#include "comm/buffer_state.h"

mimo_address_key mimo_address_key_of(const mimo_tile_pair *pair, mimo_side to,
                                     const mimo_buffer *buffer, bool exact)
{
    /* A buffer made anew may take the place of one that ended, in memory of this rank and not of
     * its peers. Its serial is another one. */
    mimo_address_key key = {.buffer = buffer ? buffer->serial : 0};
    for (mimo_side side = MIMO_SRC; side <= MIMO_DST; side++) {
        const mimo_tile *tile = mimo_tile_of(pair, side);
        bool decides = mimo_tile_bytes(tile) > 0 || (buffer && side == to);
        key.tiles[side] = !decides ? MIMO_LEAST_ALIGNMENT
                          : exact  ? (intptr_t)tile->view.data
                                   : mimo_alignment_of(tile->view.data);
    }
    return key;
}
