/*
 * Programs of staged messages: which messages travel through FIFOs, how they are cut into pieces,
 * in which order the pieces move, and where their rows lie.
 */
#include "comm/staged/staged_program.h"

#include <string.h>

#include "comm/peer_order.h"
#include "comm/row_loops.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"

enum {
    LEAST_ENTRY = 4 << 10,
    LEAST_ENTRIES = 8, /* where there is memory for them: fewer leave no time to copy out */
    LEAST_PIECE = 8 << 10,
    PIECES = 64, /* of a message that is long enough */
    FLAGS = 2,   /* of an entry */
    /* of bulk copies, in bytes; see suits_bulk, choose_bulk and assign_workers */
    LEAST_BULK_ROW = 128,
    MOST_BY_LOAD_STORE = 16 << 10, /* of a thread block */
    MOST_SENDING = 3 << 20,
    MOST_COPYING = 6 << 20,
};

/* ------------------------------------------ FIFOs ------------------------------------------- */

/* As many entries as there is memory for; small ones where long ones would be few. */
mimo_fifo_layout mimo_fifo_layout_of(const mimo_buffer *fifos)
{
    const int64_t flag_bytes = FLAGS * sizeof(uint64_t), returned = sizeof(uint64_t);
    mimo_fifo_layout out = {0, 0, (uint32_t)fifos->piece};
    int64_t count = mimo_buffer_reach(fifos) - 1, bytes = fifos->bytes - MIMO_BUFFER_ALIGNMENT;
    if (count < 1 || bytes / count <= returned)
        return out;
    int64_t each = bytes / count - returned;
    while (out.entry_bytes > LEAST_ENTRY && each / (out.entry_bytes + flag_bytes) < LEAST_ENTRIES)
        out.entry_bytes /= 2;
    out.entries = (uint32_t)mimo_smaller(each / (out.entry_bytes + flag_bytes), INT32_MAX);
    int64_t flags = count * (out.entries * flag_bytes + returned);
    out.flags = (flags + MIMO_BUFFER_ALIGNMENT - 1) / MIMO_BUFFER_ALIGNMENT * MIMO_BUFFER_ALIGNMENT;
    return out;
}

/* The number of a sender's FIFO in the memory of a receiver: the number of ranks within reach below
 * the sender, without the receiver. All of these ranks reach the same ranks. */
static int number_of(const mimo_buffer *fifos, int receiver, int sender)
{
    int number = 0;
    for (int rank = 0; rank < sender; rank++)
        number += fifos->data[rank] != NULL && rank != receiver;
    return number;
}

/* The flags of the FIFOs between an owner of memory and a peer. The owner's memory has FILLED of
 * what the peer sends, then EMPTIED and RETURNED of what it sends to the peer. */
static uint64_t *flags_of(const mimo_buffer *fifos, const mimo_fifo_layout *layout, int owner,
                          int peer)
{
    uint64_t *first = (uint64_t *)(void *)fifos->data[owner];
    return first + ((int64_t)FLAGS * layout->entries + 1) * number_of(fifos, owner, peer);
}

/* This rank's end of the FIFO to a peer, or of the one from it, by the list of the message. */
static mimo_fifo fifo_of(const mimo_buffer *fifos, const mimo_fifo_layout *layout, int peer,
                         int list)
{
    bool sends = list == MIMO_STAGED_SEND;
    int rank = fifos->comm->rank, receiver = sends ? peer : rank, sender = sends ? rank : peer;
    int64_t number = number_of(fifos, receiver, sender);
    mimo_flags *counts = &fifos->flags[rank][peer];
    uint64_t *filled = flags_of(fifos, layout, receiver, sender);
    uint64_t *emptied = flags_of(fifos, layout, sender, receiver) + layout->entries;
    return (mimo_fifo){
        .entries = fifos->data[receiver] + layout->flags +
                   number * layout->entries * (int64_t)layout->entry_bytes,
        .filled = filled,
        .emptied = MIMO_MUTATED("entry-still-full") ? filled : emptied,
        .returned = emptied + layout->entries,
        .before = sends ? &counts->sends : &counts->receives,
    };
}

bool mimo_is_staged(const mimo_buffer *fifos, int peer, int64_t bytes)
{
    return fifos && fifos->data[peer] && bytes > 0 && bytes <= INT32_MAX &&
           mimo_fifo_layout_of(fifos).entries > 0;
}

mimo_status mimo_message_bytes(int64_t *out, const mimo_message *message)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < message->count; i++)
        MIMO_TRY(mimo_add(&bytes, bytes, mimo_rows_bytes(&message->rows[i].rows)));
    *out = bytes;
    return MIMO_OK;
}

/* ------------------------------------------- rows ------------------------------------------- */

/* A program that is being built. */
typedef struct builder {
    const mimo_messages *all;
    mimo_staged_program *out;
    mimo_fifo_layout layout;
    int32_t capacity;                 /* of out->blocks */
    int64_t bytes[MIMO_STAGED_LISTS]; /* of all pieces */
} builder;

/* Append rows to a list, whose blocks count bytes for now. */
static mimo_status append_rows(builder *it, mimo_staged_rows *list, int64_t *bytes,
                               const mimo_placed_rows *placed)
{
    const mimo_rows *rows = &placed->rows;
    mimo_staged_program *out = it->out;
    if (mimo_rows_bytes(rows) == 0)
        return MIMO_OK;
    if (out->block_count == it->capacity) {
        MIMO_TRY(mimo_regrow(&out->blocks, it->capacity, 2 * (int64_t)it->capacity + 1,
                             sizeof *out->blocks));
        it->capacity = 2 * it->capacity + 1;
    }
    const mimo_row_loops made = mimo_row_loops_of(rows, rows);
    int64_t at = placed->at.offset + rows->first * rows->row_bytes;
    int64_t bits = at | it->all->alignments[placed->at.base];
    uint32_t width = mimo_word_width(&made, (uint64_t)bits);
    list->width = width < list->width ? width : list->width;
    list->count++;
    out->blocks[out->block_count++] = (mimo_staged_block){.at = at,
                                                          .outer = made.to_outer,
                                                          .inner = made.to_inner,
                                                          .begin = (uint32_t)*bytes,
                                                          .row_words = (uint32_t)made.row,
                                                          .n_inner = (uint32_t)made.n_inner,
                                                          .base = placed->at.base};
    *bytes += mimo_rows_bytes(rows);
    return MIMO_OK;
}

static mimo_staged_rows no_rows(const builder *it)
{
    return (mimo_staged_rows){it->out->block_count, 0, MIMO_WIDEST_WORD};
}

/* From bytes to words of the list's width. */
static void count_words(mimo_staged_program *out, const mimo_staged_rows *list)
{
    for (int32_t i = list->first; i < list->first + list->count; i++) {
        mimo_staged_block *block = &out->blocks[i];
        block->begin >>= list->width;
        block->row_words >>= list->width;
        block->by_row = mimo_divisor_of(block->row_words);
        block->by_inner = mimo_divisor_of(block->n_inner);
    }
}

/* ----------------------------------------- messages ----------------------------------------- */

/* Both ends cut a message alike. */
static uint32_t piece_of(int64_t bytes, int64_t most)
{
    int64_t piece = mimo_smaller(LEAST_PIECE, most);
    while (2 * piece <= most && PIECES * piece < bytes)
        piece *= 2;
    return (uint32_t)piece;
}

static mimo_status append_message(builder *it, const mimo_message *from, int list)
{
    int64_t bytes, appended = 0;
    MIMO_TRY(mimo_message_bytes(&bytes, from));
    if (!mimo_is_staged(it->all->fifos, from->peer, bytes))
        return MIMO_OK;
    mimo_staged_message *made = &it->out->messages[it->out->message_count++];
    made->fifo = fifo_of(it->all->fifos, &it->layout, from->peer, list);
    made->rows = no_rows(it);
    for (int64_t i = 0; i < from->count; i++)
        MIMO_TRY(append_rows(it, &made->rows, &appended, &from->rows[i]));
    count_words(it->out, &made->rows);
    made->bytes = (uint32_t)bytes;
    made->piece = piece_of(bytes, it->layout.entry_bytes);
    made->pieces = (made->bytes - 1) / made->piece + 1;
    if (MIMO_MUTATED("last-piece-lost"))
        made->pieces--;
    it->bytes[list] += bytes;
    return MIMO_OK;
}

/* Most pieces first; otherwise as they are. */
static void sort(mimo_staged_message *messages, int32_t count)
{
    for (int32_t i = 1; i < count; i++) {
        const mimo_staged_message moved = messages[i];
        int32_t j = i;
        for (; j > 0 && messages[j - 1].pieces < moved.pieces; j--)
            messages[j] = messages[j - 1];
        messages[j] = moved;
    }
}

/* The rounds of mimo_staged_find. Returns the number of all pieces. */
static int64_t count_rounds(mimo_staged_message *messages, int32_t count)
{
    int64_t begin = 0;
    uint32_t round = 0;
    for (int32_t l = 0; l < count; l++) {
        const uint32_t end = messages[count - 1 - l].pieces;
        messages[l].begin = (uint32_t)mimo_smaller(begin, UINT32_MAX);
        messages[l].round = round;
        begin += (int64_t)(end - round) * (count - l);
        round = end;
    }
    return begin;
}

/* The messages that are sent, or received. Senders begin with the next higher rank and go upwards,
 * receivers with the next lower one and go downwards, so that not all ranks begin with the same
 * peer. */
static mimo_status append_messages(builder *it, int list)
{
    bool sends = list == MIMO_STAGED_SEND;
    const mimo_message *from = sends ? it->all->sends : it->all->receives;
    int count = sends ? it->all->send_count : it->all->receive_count;
    int first = mimo_first_peer(it->all->fifos->comm->rank, from, count, sizeof *from);
    mimo_staged_head *head = &it->out->head;
    head->first[list] = it->out->message_count;
    for (int i = 0; i < count; i++) {
        int at = sends ? first + i : first + count - 1 - i;
        MIMO_TRY(append_message(it, &from[at % count], list));
    }
    head->count[list] = it->out->message_count - head->first[list];
    mimo_staged_message *messages = it->out->messages + head->first[list];
    sort(messages, head->count[list]);
    int64_t pieces = count_rounds(messages, head->count[list]);
    MIMO_CHECK(pieces <= INT32_MAX, MIMO_ERR_OVERFLOW,
               "the messages of one call are in %" PRId64 " pieces, more than %d", pieces,
               INT32_MAX);
    head->pieces[list] = (uint32_t)pieces;
    return MIMO_OK;
}

/* ------------------------------------------ copies ------------------------------------------ */

static mimo_status append_copies(builder *it)
{
    mimo_staged_head *head = &it->out->head;
    const mimo_messages *all = it->all;
    int64_t to = 0, from = 0;
    head->to = no_rows(it);
    for (int64_t i = 0; i < all->copy_count; i++)
        MIMO_TRY(append_rows(it, &head->to, &to, &all->copies[i].to));
    head->from = no_rows(it);
    for (int64_t i = 0; i < all->copy_count; i++)
        MIMO_TRY(append_rows(it, &head->from, &from, &all->copies[i].from));
    const uint32_t width = mimo_smaller(head->to.width, head->from.width);
    head->to.width = head->from.width = width;
    count_words(it->out, &head->to);
    count_words(it->out, &head->from);
    head->stay_words = (uint32_t)(to >> width);
    it->bytes[MIMO_STAGED_STAY] = to;
    return MIMO_OK;
}

/* ------------------------------------------ kernels ----------------------------------------- */

static int64_t all_bytes(const builder *it)
{
    return it->bytes[MIMO_STAGED_SEND] + it->bytes[MIMO_STAGED_RECEIVE] +
           it->bytes[MIMO_STAGED_STAY];
}

/* Everything is a multiple of the widest word, and rows are not short: each is a bulk copy. Two
 * H100, 16 MiB each way: rows of 128 bytes take 74 us in bulk and 110 by loads and stores, rows of
 * 8 KiB 66 and 110. */
static bool suits_bulk(const builder *it)
{
    const mimo_staged_program *out = it->out;
    const mimo_staged_head *head = &out->head;
    uint32_t width = mimo_smaller(head->to.width, head->from.width);
    for (int32_t i = 0; i < out->message_count; i++)
        width = mimo_smaller(width, out->messages[i].rows.width);
    for (int32_t i = 0; i < out->block_count; i++)
        if ((int64_t)out->blocks[i].row_words << MIMO_WIDEST_WORD < LEAST_BULK_ROW)
            return false;
    return width == MIMO_WIDEST_WORD;
}

/* Few rows move faster through registers. Two H100, 0.25 MiB each way: 9.7 us by loads and stores,
 * 11.2 in bulk; 1 MiB each way: 14.8 and 13.5. Peers need not choose alike. */
static bool choose_bulk(const builder *it, int64_t ctas, bool bulk)
{
    return bulk && it->out->head.entry_bytes <= MIMO_STAGED_BULK &&
           all_bytes(it) > MOST_BY_LOAD_STORE * ctas && suits_bulk(it);
}

static void cut_copies(builder *it, bool bulk)
{
    mimo_staged_head *head = &it->out->head;
    const int64_t most = bulk ? MIMO_STAGED_BULK : MIMO_STAGED_PIECE;
    head->stay_piece = piece_of(it->bytes[MIMO_STAGED_STAY], most) >> head->to.width;
    head->pieces[MIMO_STAGED_STAY] = (head->stay_words + head->stay_piece - 1) / head->stay_piece;
}

/* ------------------------------------------ workers ----------------------------------------- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : mimo_smaller(value, high);
}

/* Bytes decide, as for the kernels of zero-copy (nccl_push_program.c).
 *
 * More warps than the link and the memory keep busy make everything later, as flags stand in the
 * same queues as rows. Two H100, 32 MiB each way: 108.6 to 110.7 us with 96 to 192 warps of 16 or
 * 32 KiB that send and 160 to 384 that copy; 112 to 115 with all of them; 141 with 96 warps of 16
 * KiB that send. */
static void assign_workers(builder *it, int64_t workers, bool bulk)
{
    const int64_t most_senders = bulk ? MOST_SENDING / MIMO_STAGED_BULK : workers;
    const int64_t most_copiers = bulk ? MOST_COPYING / MIMO_STAGED_BULK : workers;
    const double link_speed = bulk ? MIMO_LINK_SPEED_IN_BULK : MIMO_LINK_SPEED;
    mimo_staged_head *head = &it->out->head;
    int64_t sends = head->pieces[MIMO_STAGED_SEND];
    int64_t copies = (int64_t)head->pieces[MIMO_STAGED_RECEIVE] + head->pieces[MIMO_STAGED_STAY];
    double out = (double)it->bytes[MIMO_STAGED_SEND] / link_speed;
    double in =
        (double)(it->bytes[MIMO_STAGED_RECEIVE] + it->bytes[MIMO_STAGED_STAY]) / MIMO_COPY_SPEED;
    int64_t senders = mimo_link_workers(workers, out, in);
    senders = clamp(senders, sends > 0, mimo_smaller(sends, workers - (copies > 0)));
    senders = mimo_smaller(senders < (sends > 0) ? 1 : senders, most_senders);
    head->workers[MIMO_STAGED_SEND] = (uint32_t)senders;
    head->workers[MIMO_STAGED_RECEIVE] = (uint32_t)clamp(
        mimo_smaller(workers - senders, most_copiers), copies > 0, mimo_smaller(copies, workers));
}

/* Warps are spread over as many thread blocks as there may be. */
static void assign(builder *it, int64_t ctas, bool can_bulk)
{
    mimo_staged_head *head = &it->out->head;
    const bool bulk = choose_bulk(it, ctas, can_bulk);
    if (it->out->message_count == 0)
        return;
    if (head->stay_words > 0)
        cut_copies(it, bulk);
    assign_workers(it, bulk ? ctas * MIMO_STAGED_WARPS : ctas, bulk);
    int64_t workers = (int64_t)head->workers[MIMO_STAGED_SEND] + head->workers[MIMO_STAGED_RECEIVE];
    head->warps = bulk ? (uint32_t)((workers + ctas - 1) / ctas) : 0;
}

/* ------------------------------------------ program ----------------------------------------- */

static mimo_status make(builder *it, bool copies, int64_t ctas, bool bulk)
{
    const mimo_messages *all = it->all;
    mimo_staged_program *out = it->out;
    int64_t most = (int64_t)all->send_count + all->receive_count;
    out->head.to = out->head.from = no_rows(it);
    it->layout = mimo_fifo_layout_of(all->fifos);
    out->head.entries = it->layout.entries;
    out->head.entry_bytes = it->layout.entry_bytes;
    MIMO_TRY(mimo_reserve(&out->messages, most, sizeof *out->messages));
    MIMO_TRY(append_messages(it, MIMO_STAGED_SEND));
    MIMO_TRY(append_messages(it, MIMO_STAGED_RECEIVE));
    if (copies && out->message_count > 0)
        MIMO_TRY(append_copies(it));
    assign(it, ctas, bulk);
    return MIMO_OK;
}

mimo_status mimo_staged_program_make(mimo_staged_program *out, const mimo_messages *all,
                                     bool copies, int64_t ctas, bool bulk)
{
    builder it = {.all = all, .out = out};
    return all->fifos ? make(&it, copies, ctas, bulk) : MIMO_OK;
}

void mimo_staged_program_release(mimo_staged_program *program)
{
    mimo_release(program->messages);
    mimo_release(program->blocks);
}
