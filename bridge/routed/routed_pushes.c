#include "bridge/routed/routed_pushes.h"

#include "comm/buffer_state.h"
#include "core/mutation.h"

bool mimo_transfer_pushes(const mimo_transfer *transfer, const mimo_block *block)
{
    return transfer->buffer && block->contribution == 0 && transfer->buffer->data[block->peer];
}

/* How far the peer's memory of the buffer lies from this rank's. */
static intptr_t distance(const mimo_buffer *buffer, int64_t peer)
{
    if (MIMO_MUTATED("push-to-self"))
        return 0;
    return (intptr_t)buffer->data[peer] - (intptr_t)mimo_buffer_data(buffer);
}

/* The same offset in the peer's memory of the buffer. */
static mimo_placed_rows pushed_rows(const mimo_transfer *transfer, const mimo_block *block)
{
    mimo_place tile = transfer->to;
    tile.offset += distance(transfer->buffer, block->peer);
    mimo_placed_rows pushed = mimo_block_rows(block, MIMO_RECEIVER, &tile, transfer->row_bytes);
    if (MIMO_MUTATED("push-row-before"))
        pushed.rows.first -= pushed.rows.first > 0;
    return pushed;
}

void mimo_push_list_append(mimo_push_list *list, const mimo_transfers *transfers,
                           const mimo_peer_blocks *blocks)
{
    mimo_push *push = &list->pushes[list->count];
    mimo_placed_copy *rows = &list->rows[list->row_count];
    *push = (mimo_push){mimo_peer_of(transfers, blocks), 0, rows};
    for (int i = 0; i < transfers->count; i++) {
        const mimo_transfer *transfer = &transfers->list[i];
        const mimo_block *block = mimo_transfer_blocks(transfer, MIMO_SEND);
        for (int64_t at = blocks->first; at < blocks->end && transfer->row_bytes > 0; at++)
            if (mimo_transfer_pushes(transfer, &block[at]))
                rows[push->count++] =
                    (mimo_placed_copy){pushed_rows(transfer, &block[at]),
                                       mimo_transfer_source_rows(transfer, &block[at])};
    }
    list->row_count += push->count;
    if (push->count > 0)
        list->count++;
}

void mimo_pushers_append(mimo_message_maker *maker, const mimo_transfers *transfers,
                         const mimo_peer_blocks *blocks)
{
    bool pushes = false;
    for (int i = 0; i < transfers->count; i++) {
        const mimo_transfer *transfer = &transfers->list[i];
        const mimo_block *block = mimo_transfer_blocks(transfer, MIMO_RECV);
        for (int64_t at = blocks->first; at < blocks->end && transfer->row_bytes > 0; at++)
            pushes = pushes || mimo_transfer_pushes(transfer, &block[at]);
    }
    if (pushes)
        maker->pushers[maker->pusher_count++] = mimo_peer_of(transfers, blocks);
}

mimo_buffer *mimo_push_flags_of(const mimo_transfers *transfers)
{
    mimo_buffer *found = NULL;
    for (int i = 0; i < transfers->count; i++) {
        mimo_buffer *buffer = transfers->list[i].buffer;
        if (buffer && (!found || mimo_buffer_reach(buffer) > mimo_buffer_reach(found)))
            found = buffer;
    }
    return found;
}
