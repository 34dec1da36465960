/* What an exchange stages, as a program of workers. */
#ifndef MIMO_COMM_STAGED_PROGRAM_H
#define MIMO_COMM_STAGED_PROGRAM_H

#include "comm/buffer_state.h"
#include "comm/staged/staged_types.h"

/* How FIFOs lie in the buffer that they are in, on every rank alike: one for each other rank within
 * reach, first the flags of all FIFOs, then their entries. An entry holds fifos->piece bytes, or
 * fewer where there is little memory. No entries: the buffer is too small, or no other rank is
 * within reach. */
typedef struct mimo_fifo_layout {
    int64_t flags; /* bytes of the flags of all FIFOs */
    uint32_t entries, entry_bytes;
} mimo_fifo_layout;

mimo_fifo_layout mimo_fifo_layout_of(const mimo_buffer *fifos);

/* Whether a message of this size to or from a peer is staged. Both ends know. */
bool mimo_is_staged(const mimo_buffer *fifos, int peer, int64_t bytes);

/* The bytes of a message. MIMO_ERR_OVERFLOW. */
mimo_status mimo_message_bytes(int64_t *out, const mimo_message *message);

/* messages[message_count] and blocks[block_count] belong to the program. */
typedef struct mimo_staged_program {
    mimo_staged_head head;
    mimo_staged_message *messages;
    mimo_staged_block *blocks;
    int32_t message_count, block_count;
} mimo_staged_program;

/* Make *out (all 0 before) of those messages of `all` that are staged through all->fifos, and of
 * the copies where `copies` is true. Up to `ctas` thread blocks, and never fewer workers than one
 * of each kind that is needed. `bulk`: the device can move rows in bulk, which the program then
 * does where that is faster. Without staged messages there are no workers, and no copies either.
 * Local. To be released, also after an error. MIMO_ERR_MEMORY, MIMO_ERR_OVERFLOW. */
mimo_status mimo_staged_program_make(mimo_staged_program *out, const mimo_messages *all,
                                     bool copies, int64_t ctas, bool bulk);
void mimo_staged_program_release(mimo_staged_program *program);

#endif
