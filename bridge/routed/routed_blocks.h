/* The blocks of a transfer's plan: their rows in memory, and those of one peer. */
#ifndef MIMO_BRIDGE_ROUTED_BLOCKS_H
#define MIMO_BRIDGE_ROUTED_BLOCKS_H

#include "bridge/routed/transfer_types.h"

/* Which end of a block is meant. */
typedef enum mimo_block_end { MIMO_SENDER, MIMO_RECEIVER } mimo_block_end;

/* Blocks [first, end) of every tensor's plan are those of one peer. */
typedef struct mimo_peer_blocks {
    mimo_block_kind kind;
    int64_t first, end;
} mimo_peer_blocks;

/* The rows of a block in the tile at a place, or in staging with the strides of a tile. The inner
 * loop runs along samples where that gives the receiver longer runs. Both ends decide by the
 * receiver's strides, so that their rows come in the same order. */
mimo_placed_rows mimo_block_rows(const mimo_block *block, mimo_block_end end,
                                 const mimo_place *tile, int64_t row_bytes);

/* Where the rows of a block arrive on this rank: class 0 in the tile, other classes in staging. */
mimo_placed_rows mimo_transfer_target_rows(const mimo_transfer *transfer, const mimo_block *block);

/* Where the rows of a block lie on this rank. */
mimo_placed_rows mimo_transfer_source_rows(const mimo_transfer *transfer, const mimo_block *block);

/* The blocks of a kind in a transfer's plan. */
const mimo_block *mimo_transfer_blocks(const mimo_transfer *transfer, mimo_block_kind kind);

/* The peer of some blocks. */
int mimo_peer_of(const mimo_transfers *transfers, const mimo_peer_blocks *blocks);

#endif
