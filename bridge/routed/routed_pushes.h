/* Pushes: rows that a rank writes straight into a buffer of its peer. */
#ifndef MIMO_BRIDGE_ROUTED_PUSHES_H
#define MIMO_BRIDGE_ROUTED_PUSHES_H

#include "bridge/routed/routed_blocks.h"

/* Whether a block is pushed, not sent. Both ends know. Only class 0 can be pushed: the other
 * classes arrive in staging, which lies in no buffer. */
bool mimo_transfer_pushes(const mimo_transfer *transfer, const mimo_block *block);

/* Append those blocks of a peer that are pushed there. */
void mimo_push_list_append(mimo_push_list *list, const mimo_transfers *transfers,
                           const mimo_peer_blocks *blocks);

/* Append a peer that pushes rows here. */
void mimo_pushers_append(mimo_message_maker *maker, const mimo_transfers *transfers,
                         const mimo_peer_blocks *blocks);

/* The buffer whose flags the pushes of a phase use: the one with the longest reach of those that it
 * writes into. Buffers that reach several ranks reach the same ranks. NULL: nothing is pushed. */
mimo_buffer *mimo_push_flags_of(const mimo_transfers *transfers);

#endif
