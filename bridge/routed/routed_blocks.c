#include "bridge/routed/routed_blocks.h"

#include "core/mutation.h"

mimo_placed_rows mimo_block_rows(const mimo_block *block, mimo_block_end end,
                                 const mimo_place *tile, int64_t row_bytes)
{
    bool along_samples = block->nb > 1 && block->dst_b == 1;
    int64_t first = end == MIMO_SENDER ? block->src_row : block->dst_row;
    if (end == MIMO_SENDER && MIMO_MUTATED("sender-own-order"))
        along_samples = false;
    int64_t b = end == MIMO_SENDER ? block->src_b : block->dst_b;
    int64_t s = end == MIMO_SENDER ? block->src_s : block->dst_s;
    mimo_rows rows = {NULL, row_bytes, first, block->nb, b, block->ns, s};
    if (along_samples)
        rows = (mimo_rows){NULL, row_bytes, first, block->ns, s, block->nb, b};
    return (mimo_placed_rows){rows, *tile};
}

mimo_placed_rows mimo_transfer_target_rows(const mimo_transfer *transfer, const mimo_block *block)
{
    mimo_place tile = block->contribution > 0 ? transfer->classes : transfer->to;
    if (block->contribution > 0)
        tile.offset += (block->contribution - 1) * transfer->bytes;
    return mimo_block_rows(block, MIMO_RECEIVER, &tile, transfer->row_bytes);
}

mimo_placed_rows mimo_transfer_source_rows(const mimo_transfer *transfer, const mimo_block *block)
{
    mimo_placed_rows source =
        mimo_block_rows(block, MIMO_SENDER, &transfer->from, transfer->row_bytes);
    if (MIMO_MUTATED("row-before"))
        source.rows.first -= source.rows.first > 0;
    return source;
}

const mimo_block *mimo_transfer_blocks(const mimo_transfer *transfer, mimo_block_kind kind)
{
    int64_t count;
    return mimo_plan_blocks(&count, transfer->plan, kind);
}

int mimo_peer_of(const mimo_transfers *transfers, const mimo_peer_blocks *blocks)
{
    return (int)mimo_transfer_blocks(&transfers->list[0], blocks->kind)[blocks->first].peer;
}
