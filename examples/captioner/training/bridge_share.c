#include "captioner/training/bridge_share.h"

#include <inttypes.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

void bridge_share_add(bridge_share *share, const model_pass *pass, double ms)
{
    share->steps++;
    share->moving += 1e-6 * (double)pass->pipeline.walked;
    share->all += ms;
}

/* The image rows of a group of micro-batches as the bridge has them: one after the other at the
 * encoder, at the first positions of each sequence at the LLM. */
static mimo_status create_layout(mimo_layout **out, const rank_topology *topology,
                                 const micro_batch *batch, bool llm)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_layout_desc desc = MIMO_LAYOUT_DESC_INIT;
    mimo_span *spans;
    rule.sp = topology->sp;
    desc.grid = llm ? topology->llm : topology->encoder;
    desc.batch = batch->desc.group * batch->total;
    desc.seq = batch->desc.seq;
    desc.partition = llm ? &rule : NULL;
    desc.ragged = llm ? MIMO_RAGGED_PLACED : MIMO_RAGGED_PACKED;
    TRY(memory_reserve(&spans, desc.batch, sizeof *spans));
    for (int64_t b = 0; b < desc.batch; b++)
        spans[b] = (mimo_span){.sample = b, .length = batch->desc.tokens};
    desc.spans = spans;
    desc.span_count = desc.batch;
    mimo_status status = mimo_layout_create(out, &desc);
    memory_release(spans);
    return status;
}

/* Rows that come to all ranks from other ranks, and rows that stay where they are. */
typedef struct row_counts {
    int64_t moved, kept;
} row_counts;

static mimo_status add_rank(row_counts *counts, const mimo_layout *src, const mimo_layout *dst,
                            int64_t rank)
{
    mimo_plan *plan;
    TRY(mimo_plan_create(&plan, src, dst, rank));
    counts->moved += mimo_plan_rows(plan, MIMO_RECV);
    counts->kept += mimo_plan_rows(plan, MIMO_LOCAL);
    mimo_plan_destroy(plan);
    return MIMO_OK;
}

static mimo_status count_rows(row_counts *out, const bridged_model *model)
{
    const rank_topology *topology = model->topology;
    mimo_layout *src = NULL, *dst = NULL;
    mimo_status status = create_layout(&src, topology, &model->batch, false);
    if (status == MIMO_OK)
        status = create_layout(&dst, topology, &model->batch, true);
    *out = (row_counts){0};
    for (int64_t rank = 0; status == MIMO_OK && rank < mimo_comm_size(topology->world); rank++)
        status = add_rank(out, src, dst, rank);
    mimo_layout_destroy(dst);
    mimo_layout_destroy(src);
    return status;
}

static mimo_status print_rows(const model_pass *pass, FILE *stream)
{
    const bridged_model *model = pass->model;
    int64_t group = model->batch.desc.group,
            calls = (model->desc.micro_batches + group - 1) / group;
    double row = (double)model->desc.hidden * (model->desc.bridge_dtype == MIMO_BF16 ? 2 : 4);
    row_counts counts;
    TRY(count_rows(&counts, model));
    fprintf(stream, "a step: %" PRId64 " image rows stay on their rank", calls * counts.kept);
    if (counts.moved > 0)
        fprintf(stream, ", %" PRId64 " move, %.1f KiB, each once, and as many gradients back",
                calls * counts.moved, (double)(calls * counts.moved) * row / 1024);
    fputc('\n', stream);
    return MIMO_OK;
}

mimo_status bridge_share_print(const bridge_share *share, const model_pass *pass,
                               const struct options *options, FILE *stream)
{
    const rank_topology *topology = pass->model->topology;
    fprintf(stream, "%d ranks: encoder %s, LLM %s\n", mimo_comm_size(topology->world),
            options->encoder, options->llm);
    if (options->most_images == 0)
        TRY(print_rows(pass, stream));
    if (share->steps > 0 && topology->stages == 1 && options->device != OPTIONS_CUDA)
        fprintf(stream,
                "rank 0: %.2f ms of a step's %.1f in the bridge, waits for others included\n",
                share->moving / (double)share->steps, share->all / (double)share->steps);
    return MIMO_OK;
}
