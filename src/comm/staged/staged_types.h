/*
 * Staged messages: rows that travel through memory of the receiver that ranks share, in pieces, so
 * that the receiver copies one piece out while the next one arrives.
 *
 * Between each two ranks there is a FIFO for either direction, in the receiver's memory. It has
 * `entries` entries. The rows of a message, one after the other, are cut into pieces; an entry
 * holds one piece. The two ranks number their pieces over all calls, and piece n goes through entry
 * n mod entries:
 *
 *   sender     waits until piece n - entries has left the entry, copies piece n in, and sets
 *              FILLED of the entry to n + 1
 *   receiver   waits for that, copies the rows to where they belong, and sets EMPTIED of the entry,
 *              in the sender's memory, to n + 1
 *
 * EMPTIED is set where a later piece of the same message needs the entry. Most messages fit in the
 * FIFO, and setting a flag of another GPU takes microseconds at the end of a call. All other
 * entries are returned by the next call of the receiver, which begins when the copies of this one
 * are complete: worker 0 sets RETURNED, in the sender's memory, to the number of pieces of earlier
 * calls.
 *
 * Why nobody waits for ever: let piece q be the q-th one of its message in this call. Every rank
 * begins to send its pieces in the order of q, and to receive them in that order, by workers that
 * do only one of the two. A worker may have taken a later piece already, but it waits with its
 * first one only, and all flags that it owes are on their way then. A sender that waits with piece
 * q < entries waits for RETURNED, which worker 0 of the receiver sets before anything else. One
 * that waits with another piece q needs piece q - entries to be received. The worker that receives
 * it waits, if at all, for a piece of at most that number, so for a sender that waits with a piece
 * of at most q - entries. Numbers along this chain descend, so it ends, at a worker that does not
 * wait. This holds as soon as workers 0 and 1 run: whichever worker runs takes the next piece, and
 * no piece is kept for one that does not.
 *
 * What is here is the same for the host, which makes programs, and for the kernel that runs them.
 */
#ifndef MIMO_COMM_STAGED_TYPES_H
#define MIMO_COMM_STAGED_TYPES_H

#include <stddef.h>

#include "core/divisor.h"

/* This rank's end of the FIFO to or from a peer, at this rank's addresses. */
typedef struct mimo_fifo {
    char *entries;
    uint64_t *filled;   /* filled[entries], in the receiver's memory */
    uint64_t *emptied;  /* emptied[entries], in the sender's memory */
    uint64_t *returned; /* one, in the sender's memory */
    uint64_t *before;   /* pieces of earlier calls; in this rank's own memory */
} mimo_fifo;

/* Rows in two loops, with strides in bytes. Words of 1 << width bytes of the list count them. */
typedef struct mimo_staged_block {
    int64_t at;           /* of row (0, 0): bytes behind the base */
    int64_t outer, inner; /* strides */
    uint32_t begin;       /* words of the list before it */
    uint32_t row_words, n_inner;
    int32_t base;
    mimo_divisor by_row, by_inner;
} mimo_staged_block;

/* The rows at one end of a message, one after the other: blocks [first, first + count). Words are
 * as wide as the alignment at this end allows; that of the other end can differ. */
typedef struct mimo_staged_rows {
    int32_t first, count;
    uint32_t width;
} mimo_staged_rows;

/* A message to or from one peer. */
typedef struct mimo_staged_message {
    mimo_fifo fifo;
    mimo_staged_rows rows;
    uint32_t bytes, piece; /* of the message, and of a piece; the last one can be shorter */
    uint32_t pieces;
    uint32_t begin, round; /* see mimo_staged_find */
} mimo_staged_message;

enum {
    MIMO_STAGED_WARPS = 7,        /* most workers of a thread block */
    MIMO_STAGED_BULK = 16 << 10,  /* the longest piece that moves in bulk, bytes */
    MIMO_STAGED_PIECE = 64 << 10, /* the longest piece for loads and stores */
};

/* What a rank does in a call. Workers take pieces from these lists. Rows that stay on the rank are
 * a list as well; they need no FIFO. */
enum { MIMO_STAGED_SEND, MIMO_STAGED_RECEIVE, MIMO_STAGED_STAY, MIMO_STAGED_LISTS };

typedef struct mimo_staged_head {
    int32_t first[2], count[2]; /* messages[first, first + count), most pieces first */
    uint32_t pieces[MIMO_STAGED_LISTS];
    uint32_t entries, entry_bytes; /* of every FIFO */
    uint32_t workers[2];           /* that begin to send, and to receive */
    uint32_t warps; /* of a thread block, each of them a worker that moves rows in bulk; 0: a thread
                       block is a worker, and loads and stores */
    mimo_staged_rows to, from; /* rows that stay, in words of one width */
    uint32_t stay_words;       /* of all of them */
    uint32_t stay_piece;       /* of a piece */
} mimo_staged_head;

/* The list that a worker begins with. Where there are workers of both kinds, worker 0 receives,
 * worker 1 sends, and both kinds are spread over the other numbers. */
static inline MIMO_HOST_AND_DEVICE int mimo_staged_list_of(const mimo_staged_head *head,
                                                           uint32_t worker)
{
    const uint32_t receivers = head->workers[MIMO_STAGED_RECEIVE];
    const uint32_t others = receivers + head->workers[MIMO_STAGED_SEND] - 1;
    if (receivers == 0)
        return MIMO_STAGED_SEND;
    if (worker == 0)
        return MIMO_STAGED_RECEIVE;
    const uint32_t before = (worker - 1) * (receivers - 1) / others;
    const uint32_t after = worker * (receivers - 1) / others;
    return after > before ? MIMO_STAGED_RECEIVE : MIMO_STAGED_SEND;
}

/* A piece of a message: messages[message], and its number there. */
typedef struct mimo_staged_piece {
    int32_t message;
    uint32_t number;
} mimo_staged_piece;

/* Piece `index` of all pieces of messages[count], in the order of their numbers. With the most
 * pieces first, the messages that have a piece of some number are the first ones of the list. In
 * the rounds from messages[l].round on, the first count - l messages have a piece; these rounds'
 * first piece is number messages[l].begin of all. */
static inline MIMO_HOST_AND_DEVICE mimo_staged_piece
mimo_staged_find(const mimo_staged_message *messages, int32_t count, uint32_t index)
{
    int32_t low = 0, high = count;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (messages[middle].begin <= index)
            low = middle;
        else
            high = middle;
    }
    const uint32_t width = (uint32_t)(count - low), behind = index - messages[low].begin;
    mimo_staged_piece piece = {(int32_t)(behind % width), messages[low].round + behind / width};
    return piece;
}

/* Bytes of a piece. */
static inline MIMO_HOST_AND_DEVICE uint32_t
mimo_staged_piece_bytes(const mimo_staged_message *message, uint32_t number)
{
    const uint32_t left = message->bytes - number * message->piece;
    return left < message->piece ? left : message->piece;
}

/* The address of a word of a list. */
static inline MIMO_HOST_AND_DEVICE char *mimo_staged_word(const mimo_staged_block *blocks,
                                                          const mimo_staged_rows *rows,
                                                          char *const *bases, uint32_t word)
{
    int32_t low = rows->first, high = rows->first + rows->count;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (blocks[middle].begin <= word)
            low = middle;
        else
            high = middle;
    }
    const mimo_staged_block *block = &blocks[low];
    const uint32_t behind = word - block->begin, row = mimo_divide(behind, block->by_row);
    const uint32_t i = mimo_divide(row, block->by_inner), j = row - i * block->n_inner;
    const uint32_t column = behind - row * block->row_words;
    return (char *)((uintptr_t)bases[block->base] + (uintptr_t)block->at +
                    (uintptr_t)(i * block->outer + j * block->inner) +
                    ((uintptr_t)column << rows->width));
}

#endif
