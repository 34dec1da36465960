/* Plans as text: one line a block, stable enough to be stored. */
#include <inttypes.h>

#include "plan/plan_types.h"
#include "core/check.h"
#include "core/printed.h"

static const char *const kinds[MIMO_BLOCK_KINDS] = {
    [MIMO_RECV] = "recv", [MIMO_SEND] = "send", [MIMO_LOCAL] = "local"};

/* recv peer 1 class 0 samples [0,2) positions [2,6) from 4 +1 +2 to 0 +1 +4: the first row on
 * either side, then the strides along samples and along positions. */
static bool print_block(FILE *stream, const char *kind, const mimo_block *block)
{
    return fprintf(stream,
                   "%-5s peer %" PRId64 " class %" PRId64 " samples [%" PRId64 ",%" PRId64
                   ") positions [%" PRId64 ",%" PRId64 ") from %" PRId64 " +%" PRId64 " +%" PRId64
                   " to %" PRId64 " +%" PRId64 " +%" PRId64 "\n",
                   kind, block->peer, block->contribution, block->b0, block->b0 + block->nb,
                   block->s0, block->s0 + block->ns, block->src_row, block->src_b, block->src_s,
                   block->dst_row, block->dst_b, block->dst_s) > 0;
}

static bool print_plan(FILE *stream, const mimo_plan *plan)
{
    bool written = fprintf(stream,
                           "rank %" PRId64 " classes %" PRId64 " rows: recv %" PRId64
                           " send %" PRId64 " local %" PRId64 "\n",
                           plan->rank, plan->classes, plan->blocks[MIMO_RECV].rows,
                           plan->blocks[MIMO_SEND].rows, plan->blocks[MIMO_LOCAL].rows) > 0;
    for (int kind = 0; kind < MIMO_BLOCK_KINDS; kind++)
        for (int64_t i = 0; written && i < plan->blocks[kind].count; i++)
            written = print_block(stream, kinds[kind], &plan->blocks[kind].list[i]);
    return written;
}

mimo_status mimo_plan_print(FILE *stream, const mimo_plan *plan)
{
    MIMO_CHECK(plan && stream, MIMO_ERR_ARGUMENT, "mimo_plan_print: %s is NULL",
               plan ? "stream" : "plan");
    MIMO_CHECK(print_plan(stream, plan) && fflush(stream) == 0, MIMO_ERR_IO,
               "mimo_plan_print: the plan of rank %" PRId64 " could not be written", plan->rank);
    return MIMO_OK;
}

mimo_status mimo_plan_text(int64_t *length, char *text, int64_t capacity, const mimo_plan *plan)
{
    mimo_printed printed;
    MIMO_TRY(mimo_printed_open(&printed, text, capacity, "mimo_plan_text"));
    return mimo_printed_close(length, text, capacity, &printed,
                              mimo_plan_print(printed.stream, plan));
}
