/*
 * Messages: the plans of some tensors, turned into what one exchange sends, receives, pushes and
 * copies.
 *
 * All tensors of a phase have the same samples and positions. So their plans have the same blocks
 * between the same ranks, and differ only in where rows lie. A message to a peer has the blocks of
 * every tensor for it, one tensor after the other; both ends list them in this order. Rows whose
 * destination is a peer's buffer are pushed there instead. Both ends know which these are, from the
 * buffer and the block's class.
 */
#include "bridge/routed/routed_messages.h"

#include "bridge/routed/routed_pushes.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ----------------------------------------- lists -------------------------------------------- */

/* Append the blocks of a peer that travel as a message. */
static void append_message(mimo_message_list *list, const mimo_transfers *transfers,
                           const mimo_peer_blocks *blocks)
{
    mimo_message *message = &list->messages[list->count];
    mimo_placed_rows *rows = &list->rows[list->row_count];
    *message = (mimo_message){mimo_peer_of(transfers, blocks), 0, rows};
    for (int i = 0; i < transfers->count; i++) {
        const mimo_transfer *transfer = &transfers->list[i];
        if (blocks->kind == MIMO_RECV && MIMO_MUTATED("tensors-reversed"))
            transfer = &transfers->list[transfers->count - 1 - i];
        const mimo_block *block = mimo_transfer_blocks(transfer, blocks->kind);
        for (int64_t at = blocks->first; at < blocks->end && transfer->row_bytes > 0; at++)
            if (!mimo_transfer_pushes(transfer, &block[at]))
                rows[message->count++] = blocks->kind == MIMO_SEND
                                             ? mimo_transfer_source_rows(transfer, &block[at])
                                             : mimo_transfer_target_rows(transfer, &block[at]);
    }
    list->row_count += message->count;
    if (message->count > 0)
        list->count++;
}

/* --------------------------------------- all of them ---------------------------------------- */

static void append_peer(mimo_message_maker *maker, const mimo_transfers *transfers,
                        const mimo_peer_blocks *blocks)
{
    append_message(blocks->kind == MIMO_SEND ? &maker->sends : &maker->receives, transfers, blocks);
    if (blocks->kind == MIMO_SEND)
        mimo_push_list_append(&maker->pushes, transfers, blocks);
    else
        mimo_pushers_append(maker, transfers, blocks);
}

static void append_peers(mimo_message_maker *maker, const mimo_transfers *transfers,
                         mimo_block_kind kind)
{
    int64_t count, end;
    const mimo_block *block = mimo_plan_blocks(&count, transfers->list[0].plan, kind);
    for (int64_t first = 0; first < count; first = end) {
        for (end = first; end < count && block[end].peer == block[first].peer;)
            end++;
        append_peer(maker, transfers, &(mimo_peer_blocks){kind, first, end});
    }
}

static void append_copies(mimo_message_maker *maker, const mimo_transfers *transfers)
{
    for (int i = 0; i < transfers->count; i++) {
        int64_t blocks;
        const mimo_transfer *transfer = &transfers->list[i];
        const mimo_block *block = mimo_plan_blocks(&blocks, transfer->plan, MIMO_LOCAL);
        for (int64_t at = 0; at < blocks && transfer->row_bytes > 0; at++)
            maker->copies[maker->copy_count++] =
                (mimo_placed_copy){mimo_transfer_target_rows(transfer, &block[at]),
                                   mimo_transfer_source_rows(transfer, &block[at])};
    }
}

/* Memory for the most that there can be, by the blocks of each kind. */
static mimo_status reserve_lists(mimo_message_maker *maker, const mimo_transfers *transfers)
{
    int64_t blocks[MIMO_LOCAL + 1], rows[MIMO_LOCAL + 1];
    for (int kind = 0; kind <= MIMO_LOCAL; kind++) {
        mimo_plan_blocks(&blocks[kind], transfers->list[0].plan, (mimo_block_kind)kind);
        MIMO_TRY(mimo_mul(&rows[kind], blocks[kind], transfers->count));
    }
    mimo_message_list *receives = &maker->receives, *sends = &maker->sends;
    mimo_push_list *pushes = &maker->pushes;
    MIMO_TRY(mimo_reserve(&receives->messages, blocks[MIMO_RECV], sizeof *receives->messages));
    MIMO_TRY(mimo_reserve(&receives->rows, rows[MIMO_RECV], sizeof *receives->rows));
    MIMO_TRY(mimo_reserve(&maker->pushers, blocks[MIMO_RECV], sizeof *maker->pushers));
    MIMO_TRY(mimo_reserve(&sends->messages, blocks[MIMO_SEND], sizeof *sends->messages));
    MIMO_TRY(mimo_reserve(&sends->rows, rows[MIMO_SEND], sizeof *sends->rows));
    MIMO_TRY(mimo_reserve(&pushes->pushes, blocks[MIMO_SEND], sizeof *pushes->pushes));
    MIMO_TRY(mimo_reserve(&pushes->rows, rows[MIMO_SEND], sizeof *pushes->rows));
    return mimo_reserve(&maker->copies, rows[MIMO_LOCAL], sizeof *maker->copies);
}

mimo_status mimo_messages_make(mimo_message_maker *maker, const mimo_transfers *transfers)
{
    MIMO_TRY(reserve_lists(maker, transfers));
    append_peers(maker, transfers, MIMO_RECV);
    append_peers(maker, transfers, MIMO_SEND);
    append_copies(maker, transfers);
    maker->made = (mimo_messages){
        .receives = maker->receives.messages,
        .sends = maker->sends.messages,
        .receive_count = maker->receives.count,
        .send_count = maker->sends.count,
        .pushes = {.buffer = mimo_push_flags_of(transfers),
                   .list = maker->pushes.pushes,
                   .count = maker->pushes.count,
                   .pushers = maker->pushers,
                   .pusher_count = maker->pusher_count},
        .copies = maker->copies,
        .copy_count = maker->copy_count,
    };
    return MIMO_OK;
}

void mimo_messages_release(mimo_message_maker *maker)
{
    mimo_release(maker->receives.messages);
    mimo_release(maker->receives.rows);
    mimo_release(maker->sends.messages);
    mimo_release(maker->sends.rows);
    mimo_release(maker->pushes.pushes);
    mimo_release(maker->pushes.rows);
    mimo_release(maker->pushers);
    mimo_release(maker->copies);
}
