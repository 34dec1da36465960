/* The LLM's steps of a stage: the orders that are known by name. */
#include "schedule/schedule_types.h"

#include "core/check.h"
#include "core/mutation.h"

/* Forward step i of an interleaved stage. Blocks of pp micro-batches go through one chunk after the
 * other; the last block may be smaller, where nothing comes back (M % pp, forward only). Backward
 * goes through the chunks from the last one. */
static mimo_schedule_step interleaved(const mimo_schedule_desc *desc, mimo_step_kind kind,
                                      int64_t i)
{
    int64_t block = i / (desc->stages * desc->chunks), first = block * desc->stages;
    int64_t left = desc->micro_batches - first;
    int64_t width = left < desc->stages ? left : desc->stages;
    int64_t within = i - first * desc->chunks;
    int64_t chunk = within / width;
    if (kind != MIMO_STEP_F)
        chunk = desc->chunks - 1 - chunk;
    return (mimo_schedule_step){kind, first + within % width, chunk, 0, 0};
}

/* How many forwards a stage is ahead of its backwards. */
static int64_t warmup_of(const mimo_schedule_desc *desc, int64_t stage)
{
    int64_t behind = desc->stages - 1 - stage;
    int64_t ahead = desc->kind == MIMO_SCHEDULE_INTERLEAVED
                        ? 2 * behind + (desc->chunks - 1) * desc->stages
                        : behind;
    int64_t most = desc->micro_batches * desc->chunks;
    ahead += desc->overlap ? 1 : 0;
    return ahead < most ? ahead : most;
}

static mimo_schedule_step pair_of(mimo_schedule_step forward, mimo_schedule_step backward)
{
    return (mimo_schedule_step){MIMO_STEP_FB, forward.index, forward.chunk, backward.index,
                                backward.chunk};
}

/* Forward i and then backward k, or both as one step. */
static mimo_status append_turn(mimo_stage_list *list, const mimo_schedule_desc *desc, int64_t i,
                               int64_t k)
{
    mimo_schedule_step forward = interleaved(desc, MIMO_STEP_F, i);
    mimo_schedule_step backward = interleaved(desc, MIMO_STEP_B, k);
    if (desc->overlap)
        return mimo_stage_append(list, pair_of(forward, backward));
    MIMO_TRY(mimo_stage_append(list, forward));
    return mimo_stage_append(list, backward);
}

/* 1F1B is the interleaved order of one chunk. */
static mimo_status order_in_turn(mimo_stage_list *list, const mimo_schedule_desc *desc,
                                 int64_t stage)
{
    int64_t all = desc->micro_batches * desc->chunks, warmup = warmup_of(desc, stage);
    for (int64_t i = 0; i < warmup; i++)
        MIMO_TRY(mimo_stage_append(list, interleaved(desc, MIMO_STEP_F, i)));
    for (int64_t i = warmup; i < all; i++)
        MIMO_TRY(append_turn(list, desc, i, i - warmup));
    for (int64_t k = all - warmup; k < all; k++)
        MIMO_TRY(mimo_stage_append(list, interleaved(desc, MIMO_STEP_B, k)));
    return MIMO_OK;
}

/* After I of micro-batch k, stage p runs W up to k - p. So each stage holds pp micro-batches, and
 * fills the end of the pipeline with its W. */
static mimo_status order_zero_bubble(mimo_stage_list *list, const mimo_schedule_desc *desc,
                                     int64_t stage)
{
    int64_t all = desc->micro_batches, warmup = warmup_of(desc, stage), next = 0;
    for (int64_t i = 0; i < warmup; i++)
        MIMO_TRY(mimo_stage_append(list, (mimo_schedule_step){MIMO_STEP_F, i, 0, 0, 0}));
    for (int64_t k = 0; k < all; k++) {
        if (warmup + k < all)
            MIMO_TRY(
                mimo_stage_append(list, (mimo_schedule_step){MIMO_STEP_F, warmup + k, 0, 0, 0}));
        MIMO_TRY(mimo_stage_append(list, (mimo_schedule_step){MIMO_STEP_I, k, 0, 0, 0}));
        int64_t due = k - stage; /* the last micro-batch whose W may run */
        if (MIMO_MUTATED("weight-before-input") && k + 1 < all)
            due++;
        for (; next <= due; next++)
            MIMO_TRY(mimo_stage_append(list, (mimo_schedule_step){MIMO_STEP_W, next, 0, 0, 0}));
    }
    for (; next < all; next++)
        MIMO_TRY(mimo_stage_append(list, (mimo_schedule_step){MIMO_STEP_W, next, 0, 0, 0}));
    return MIMO_OK;
}

static mimo_status order_forward(mimo_stage_list *list, const mimo_schedule_desc *desc)
{
    for (int64_t i = 0; i < desc->micro_batches * desc->chunks; i++)
        MIMO_TRY(mimo_stage_append(list, interleaved(desc, MIMO_STEP_F, i)));
    return MIMO_OK;
}

mimo_status mimo_schedule_order(mimo_schedule *schedule)
{
    const mimo_schedule_desc *desc = &schedule->desc;
    for (int64_t p = 0; p < desc->stages; p++) {
        mimo_stage_list *list = &schedule->lists[p];
        if (desc->kind == MIMO_SCHEDULE_ZERO_BUBBLE)
            MIMO_TRY(order_zero_bubble(list, desc, p));
        else if (desc->kind == MIMO_SCHEDULE_FORWARD)
            MIMO_TRY(order_forward(list, desc));
        else
            MIMO_TRY(order_in_turn(list, desc, p));
    }
    return MIMO_OK;
}
