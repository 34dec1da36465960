/*
 * Rounds: the plans of some tensors, turned into messages, local copies and sums.
 *
 * All tensors of a round are cut alike, so their plans have the same blocks between the same ranks,
 * and differ only in where rows lie. A message to a peer is every tensor's blocks for it, one
 * tensor after the other; both ends list them so.
 */
#include "bridge/routed_round.h"

#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

/* ------------------------------------------ rows -------------------------------------------- */

/* Which end of a block is meant. */
typedef enum block_end { SENDER, RECEIVER } block_end;

/* The rows of a block in a tile, or in staging that looks like it. Both ends run along samples
 * inside where that gives the receiver longer runs, so that their rows come in the same order. */
static mimo_rows block_rows(const mimo_block *block, block_end end, void *base, int64_t row_bytes)
{
    bool along_samples = block->nb > 1 && block->dst_b == 1;
    int64_t first = end == SENDER ? block->src_row : block->dst_row;
    int64_t b = end == SENDER ? block->src_b : block->dst_b;
    int64_t s = end == SENDER ? block->src_s : block->dst_s;
    if (along_samples)
        return (mimo_rows){base, row_bytes, first, block->ns, s, block->nb, b};
    return (mimo_rows){base, row_bytes, first, block->nb, b, block->ns, s};
}

/* Where the rows of a leg's block end up: class 0 in the tile itself. */
static mimo_rows target_rows(const mimo_leg *leg, const mimo_block *block)
{
    char *base = block->klass > 0 ? leg->classes + (block->klass - 1) * leg->bytes : leg->to;
    return block_rows(block, RECEIVER, base, leg->row_bytes);
}

static mimo_rows source_rows(const mimo_leg *leg, const mimo_block *block)
{
    return block_rows(block, SENDER, leg->from, leg->row_bytes);
}

/* ----------------------------------------- messages ----------------------------------------- */

/* The messages of one direction, in making. */
typedef struct message_list {
    mimo_message *messages;
    int count;
    mimo_rows *rows; /* of all messages, one after the other */
} message_list;

static void release_list(message_list *list)
{
    mimo_release(list->messages);
    mimo_release(list->rows);
}

/* Blocks [first, end) of every tensor's plan are those of one peer. */
static void append_message(message_list *list, const mimo_round *round, mimo_block_kind kind,
                           const int64_t range[2])
{
    int64_t blocks;
    mimo_message *message = &list->messages[list->count];
    mimo_rows *rows =
        list->count > 0 ? (mimo_rows *)message[-1].rows + message[-1].count : list->rows;
    *message = (mimo_message){0, 0, rows};
    for (int i = 0; i < round->count; i++) {
        const mimo_leg *leg = &round->legs[i];
        const mimo_block *block = mimo_plan_blocks(leg->plan, kind, &blocks);
        message->peer = (int)block[range[0]].peer;
        for (int64_t at = range[0]; at < range[1] && leg->row_bytes > 0; at++)
            rows[message->count++] =
                kind == MIMO_SEND ? source_rows(leg, &block[at]) : target_rows(leg, &block[at]);
    }
    if (message->count > 0)
        list->count++;
}

static mimo_status list_messages(message_list *list, const mimo_round *round, mimo_block_kind kind)
{
    int64_t blocks, rows, end;
    const mimo_block *block = mimo_plan_blocks(round->legs[0].plan, kind, &blocks);
    MIMO_TRY(mimo_mul(&rows, blocks, round->count));
    MIMO_TRY(mimo_reserve(&list->messages, blocks, sizeof *list->messages));
    MIMO_TRY(mimo_reserve(&list->rows, rows, sizeof *list->rows));
    for (int64_t first = 0; first < blocks; first = end) {
        for (end = first; end < blocks && block[end].peer == block[first].peer;)
            end++;
        append_message(list, round, kind, (int64_t[]){first, end});
    }
    return MIMO_OK;
}

static mimo_status make_exchange(mimo_round *round, mimo_comm *comm)
{
    message_list receives = {0}, sends = {0};
    mimo_status status = list_messages(&receives, round, MIMO_RECV);
    if (status == MIMO_OK)
        status = list_messages(&sends, round, MIMO_SEND);
    const mimo_messages messages = {receives.messages, sends.messages, receives.count, sends.count};
    if (status == MIMO_OK)
        status = comm->backend->exchange_create(&round->exchange, comm, &messages);
    release_list(&receives);
    release_list(&sends);
    return status;
}

/* ------------------------------------------ rounds ------------------------------------------ */

static mimo_status list_copies(mimo_round *round)
{
    int64_t blocks, copies;
    mimo_plan_blocks(round->legs[0].plan, MIMO_LOCAL, &blocks);
    MIMO_TRY(mimo_mul(&copies, blocks, round->count));
    MIMO_TRY(mimo_reserve(&round->copies, copies, sizeof *round->copies));
    for (int i = 0; i < round->count; i++) {
        const mimo_leg *leg = &round->legs[i];
        const mimo_block *block = mimo_plan_blocks(leg->plan, MIMO_LOCAL, &blocks);
        for (int64_t at = 0; at < blocks && leg->row_bytes > 0; at++)
            round->copies[round->copy_count++] =
                (mimo_row_copy){target_rows(leg, &block[at]), source_rows(leg, &block[at])};
    }
    return MIMO_OK;
}

mimo_status mimo_round_compile(mimo_round *round, mimo_comm *comm)
{
    MIMO_TRY(list_copies(round));
    return make_exchange(round, comm);
}

void mimo_round_release(mimo_round *round, mimo_comm *comm)
{
    comm->backend->exchange_destroy(round->exchange);
    mimo_release(round->copies);
    mimo_release(round->legs);
}

mimo_status mimo_round_move(mimo_request **out, const mimo_round *round, mimo_comm *comm,
                            mimo_stream stream)
{
    MIMO_TRY(comm->backend->exchange_start(out, comm, round->exchange, stream));
    for (int64_t i = 0; i < round->copy_count; i++)
        MIMO_TRY(comm->device->copy_rows(&round->copies[i].to, &round->copies[i].from, stream));
    return MIMO_OK;
}

mimo_status mimo_round_add(const mimo_round *round, mimo_comm *comm, mimo_stream stream)
{
    for (int i = 0; i < round->count && round->classes > 1; i++) {
        const mimo_leg *leg = &round->legs[i];
        int64_t elements = leg->bytes / (int64_t)mimo_dtype_size(leg->dtype);
        if (MIMO_MUTATED("first-class-only"))
            continue;
        MIMO_TRY(comm->device->add_parts(leg->to, leg->classes, round->classes - 1, elements,
                                         leg->dtype, stream));
    }
    return MIMO_OK;
}
