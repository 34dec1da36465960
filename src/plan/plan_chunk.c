#include "plan/plan_chunk.h"

#include "plan/plan_types.h"
#include "core/memory.h"

/* Where a chunk begins: index * samples / count, in numbers that fit. */
static int64_t begin_of(int64_t samples, int64_t index, int64_t count)
{
    return samples / count * index + samples % count * index / count;
}

mimo_range mimo_chunk_samples(const mimo_chunk *chunk, int64_t dp)
{
    mimo_range all = mimo_layout_samples(chunk->tiles, dp);
    int64_t begin = begin_of(all.count, chunk->index, chunk->count);
    int64_t end = begin_of(all.count, chunk->index + 1, chunk->count);
    return (mimo_range){all.first + begin, end - begin};
}

static bool has_item(const mimo_chunk *chunk, const mimo_placed_item *placed)
{
    int64_t count = mimo_items_count(chunk->tiles, placed->dp);
    return placed->index >= begin_of(count, chunk->index, chunk->count) &&
           placed->index < begin_of(count, chunk->index + 1, chunk->count);
}

bool mimo_chunk_has(const mimo_chunk *chunk, int64_t sample, int64_t position)
{
    if (chunk->tiles->ragged.kind == MIMO_RAGGED_ITEMS)
        return has_item(chunk, mimo_items_find(chunk->tiles, sample, position));
    mimo_range samples = mimo_chunk_samples(chunk, mimo_layout_dp_of(chunk->tiles, sample));
    return sample >= samples.first && sample < samples.first + samples.count;
}

/* The samples [b0, b0 + nb) of a block that holds them. */
static mimo_block part_of(const mimo_block *block, int64_t b0, int64_t nb)
{
    mimo_block part = *block;
    part.b0 = b0;
    part.nb = nb;
    part.src_row += (b0 - block->b0) * block->src_b;
    part.dst_row += (b0 - block->b0) * block->dst_b;
    return part;
}

/* A block can have samples of several dp coordinates: its own tiles may be split differently. */
static mimo_status append_parts(mimo_blocks *out, const mimo_block *block, const mimo_chunk *chunk)
{
    int64_t end = block->b0 + block->nb;
    for (int64_t b = block->b0; b < end;) {
        int64_t dp = mimo_layout_dp_of(chunk->tiles, b);
        mimo_range all = mimo_layout_samples(chunk->tiles, dp), in = mimo_chunk_samples(chunk, dp);
        int64_t first = in.first > b ? in.first : b;
        int64_t last = in.first + in.count < end ? in.first + in.count : end;
        if (first < last) {
            const mimo_block part = part_of(block, first, last - first);
            MIMO_TRY(mimo_blocks_append(out, &part));
        }
        b = all.first + all.count;
    }
    return MIMO_OK;
}

/* A plan's blocks lie in boxes of both of its layouts, so each of them is in one item. */
static mimo_status append_block(mimo_blocks *out, const mimo_block *block, const mimo_chunk *chunk)
{
    if (chunk->tiles->ragged.kind != MIMO_RAGGED_ITEMS)
        return append_parts(out, block, chunk);
    return mimo_chunk_has(chunk, block->b0, block->s0) ? mimo_blocks_append(out, block) : MIMO_OK;
}

static mimo_status fill(mimo_plan *out, const mimo_plan *plan, const mimo_chunk *chunk)
{
    for (int kind = 0; kind < MIMO_BLOCK_KINDS; kind++) {
        const mimo_blocks *whole = &plan->blocks[kind];
        for (int64_t i = 0; i < whole->count; i++)
            MIMO_TRY(append_block(&out->blocks[kind], &whole->list[i], chunk));
        mimo_blocks_sort(&out->blocks[kind]);
    }
    return MIMO_OK;
}

mimo_status mimo_plan_chunk(mimo_plan **out, const mimo_plan *plan, const mimo_chunk *chunk)
{
    mimo_plan *made;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->rank = plan->rank;
    made->classes = plan->classes;
    mimo_status status = fill(made, plan, chunk);
    if (status == MIMO_OK)
        *out = made;
    else
        mimo_plan_destroy(made);
    return status;
}
