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

#include "comm/buffer_state.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ------------------------------------------ rows -------------------------------------------- */

/* Which end of a block is meant. */
typedef enum block_end { SENDER, RECEIVER } block_end;

/* The rows of a block in a tile, or in staging with the strides of a tile. The inner loop runs
 * along samples where that gives the receiver longer runs. Both ends decide by the receiver's
 * strides, so that their rows come in the same order. */
static mimo_rows block_rows(const mimo_block *block, block_end end, void *base, int64_t row_bytes)
{
    bool along_samples = block->nb > 1 && block->dst_b == 1;
    int64_t first = end == SENDER ? block->src_row : block->dst_row;
    if (end == SENDER && MIMO_MUTATED("sender-own-order"))
        along_samples = false;
    int64_t b = end == SENDER ? block->src_b : block->dst_b;
    int64_t s = end == SENDER ? block->src_s : block->dst_s;
    if (along_samples)
        return (mimo_rows){base, row_bytes, first, block->ns, s, block->nb, b};
    return (mimo_rows){base, row_bytes, first, block->nb, b, block->ns, s};
}

/* Where the rows of a block arrive on this rank: class 0 in the tile, other classes in staging. */
static mimo_rows target_rows(const mimo_transfer *transfer, const mimo_block *block)
{
    char *base =
        block->klass > 0 ? transfer->classes + (block->klass - 1) * transfer->bytes : transfer->to;
    return block_rows(block, RECEIVER, base, transfer->row_bytes);
}

static mimo_rows source_rows(const mimo_transfer *transfer, const mimo_block *block)
{
    mimo_rows rows = block_rows(block, SENDER, transfer->from, transfer->row_bytes);
    if (MIMO_MUTATED("row-before"))
        rows.first -= rows.first > 0;
    return rows;
}

/* Only class 0 can be pushed: the other classes arrive in staging, which lies in no buffer. */
static bool is_pushed(const mimo_transfer *transfer, const mimo_block *block)
{
    return transfer->buffer && block->klass == 0 && transfer->buffer->data[block->peer];
}

/* The same offset in the peer's memory of the buffer. */
static mimo_rows pushed_rows(const mimo_transfer *transfer, const mimo_block *block)
{
    const mimo_buffer *buffer = transfer->buffer;
    int64_t rank = MIMO_MUTATED("push-to-self") ? buffer->comm->rank : block->peer;
    char *tile = buffer->data[rank] + (transfer->to - (char *)mimo_buffer_data(buffer));
    mimo_rows rows = block_rows(block, RECEIVER, tile, transfer->row_bytes);
    if (MIMO_MUTATED("push-row-before"))
        rows.first -= rows.first > 0;
    return rows;
}

/* ----------------------------------------- lists -------------------------------------------- */

/* Blocks [first, end) of every tensor's plan are those of one peer. */
typedef struct peer_blocks {
    mimo_block_kind kind;
    int64_t first, end;
} peer_blocks;

static const mimo_block *blocks_of(const mimo_transfer *transfer, mimo_block_kind kind)
{
    int64_t count;
    return mimo_plan_blocks(transfer->plan, kind, &count);
}

static int peer_of(const mimo_transfers *transfers, const peer_blocks *part)
{
    return (int)blocks_of(&transfers->list[0], part->kind)[part->first].peer;
}

/* Append the blocks of a peer that travel as a message. */
static void append_message(mimo_message_list *list, const mimo_transfers *transfers,
                           const peer_blocks *part)
{
    mimo_message *message = &list->messages[list->count];
    mimo_rows *rows = &list->rows[list->row_count];
    bool reversed = part->kind == MIMO_RECV && MIMO_MUTATED("tensors-reversed");
    *message = (mimo_message){peer_of(transfers, part), 0, rows};
    for (int i = 0; i < transfers->count; i++) {
        const mimo_transfer *transfer = &transfers->list[reversed ? transfers->count - 1 - i : i];
        const mimo_block *block = blocks_of(transfer, part->kind);
        for (int64_t at = part->first; at < part->end && transfer->row_bytes > 0; at++)
            if (!is_pushed(transfer, &block[at]))
                rows[message->count++] = part->kind == MIMO_SEND
                                             ? source_rows(transfer, &block[at])
                                             : target_rows(transfer, &block[at]);
    }
    list->row_count += message->count;
    if (message->count > 0)
        list->count++;
}

/* Append those that are pushed. */
static void append_push(mimo_push_list *list, const mimo_transfers *transfers,
                        const peer_blocks *part)
{
    mimo_push *push = &list->pushes[list->count];
    mimo_row_copy *rows = &list->rows[list->row_count];
    *push = (mimo_push){peer_of(transfers, part), 0, rows};
    for (int i = 0; i < transfers->count; i++) {
        const mimo_transfer *transfer = &transfers->list[i];
        const mimo_block *block = blocks_of(transfer, MIMO_SEND);
        for (int64_t at = part->first; at < part->end && transfer->row_bytes > 0; at++)
            if (is_pushed(transfer, &block[at]))
                rows[push->count++] = (mimo_row_copy){pushed_rows(transfer, &block[at]),
                                                      source_rows(transfer, &block[at])};
    }
    list->row_count += push->count;
    if (push->count > 0)
        list->count++;
}

/* A peer that pushes rows here. */
static void append_pusher(mimo_message_maker *maker, const mimo_transfers *transfers,
                          const peer_blocks *part)
{
    bool pushes = false;
    for (int i = 0; i < transfers->count; i++) {
        const mimo_transfer *transfer = &transfers->list[i];
        const mimo_block *block = blocks_of(transfer, MIMO_RECV);
        for (int64_t at = part->first; at < part->end && transfer->row_bytes > 0; at++)
            pushes = pushes || is_pushed(transfer, &block[at]);
    }
    if (pushes)
        maker->pushers[maker->pusher_count++] = peer_of(transfers, part);
}

/* --------------------------------------- all of them ---------------------------------------- */

static void append_peer(mimo_message_maker *maker, const mimo_transfers *transfers,
                        const peer_blocks *part)
{
    append_message(part->kind == MIMO_SEND ? &maker->sends : &maker->receives, transfers, part);
    if (part->kind == MIMO_SEND)
        append_push(&maker->pushes, transfers, part);
    else
        append_pusher(maker, transfers, part);
}

static void append_peers(mimo_message_maker *maker, const mimo_transfers *transfers,
                         mimo_block_kind kind)
{
    int64_t count, end;
    const mimo_block *block = mimo_plan_blocks(transfers->list[0].plan, kind, &count);
    for (int64_t first = 0; first < count; first = end) {
        for (end = first; end < count && block[end].peer == block[first].peer;)
            end++;
        append_peer(maker, transfers, &(peer_blocks){kind, first, end});
    }
}

static void append_copies(mimo_message_maker *maker, const mimo_transfers *transfers)
{
    for (int i = 0; i < transfers->count; i++) {
        int64_t blocks;
        const mimo_transfer *transfer = &transfers->list[i];
        const mimo_block *block = mimo_plan_blocks(transfer->plan, MIMO_LOCAL, &blocks);
        for (int64_t at = 0; at < blocks && transfer->row_bytes > 0; at++)
            maker->copies[maker->copy_count++] = (mimo_row_copy){target_rows(transfer, &block[at]),
                                                                 source_rows(transfer, &block[at])};
    }
}

/* Memory for the most that there can be, by the blocks of each kind. */
static mimo_status reserve_lists(mimo_message_maker *maker, const mimo_transfers *transfers)
{
    int64_t blocks[MIMO_LOCAL + 1], rows[MIMO_LOCAL + 1];
    for (int kind = 0; kind <= MIMO_LOCAL; kind++) {
        mimo_plan_blocks(transfers->list[0].plan, (mimo_block_kind)kind, &blocks[kind]);
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

/* The buffer whose flags the pushes of a phase use: the one with the longest reach of those that it
 * writes into. Buffers that reach several ranks reach the same ranks. */
static mimo_buffer *flags_of(const mimo_transfers *transfers)
{
    mimo_buffer *found = NULL;
    for (int i = 0; i < transfers->count; i++) {
        mimo_buffer *buffer = transfers->list[i].buffer;
        if (buffer && (!found || mimo_buffer_reach(buffer) > mimo_buffer_reach(found)))
            found = buffer;
    }
    return found;
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
        .pushes = {.buffer = flags_of(transfers),
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
