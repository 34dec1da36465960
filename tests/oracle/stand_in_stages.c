#include "stand_in_stages.h"

#include <stdio.h>

#include "core/check.h"
#include "schedule/schedule_types.h"

/* Each chunk adds 1 in forward, and STEP_BACK in backward; the last one doubles. */
enum { STEP_BACK = 1000 };

static bool encodes(const stand_in_stages *own)
{
    return own->pipeline.desc.sizes.encoder_group > 0;
}

/* What the encoder of a rank makes of a micro-batch. */
static nn_real made(int64_t m, int64_t rank, int i)
{
    return (nn_real)(100 * m + 20 * rank + i);
}

/* The first chunk takes the rows of the last encoder; without encoder, those that it would have
 * made. */
static void forward(stand_in_stages *own, const pipeline_task *task)
{
    nn_real *to = own->output[task->state], *from = own->input[task->state];
    for (int i = 0; i < STAND_IN_TILE; i++) {
        if (task->first)
            from[i] = encodes(own) ? own->brought[task->slot][own->count - 1][i]
                                   : made(task->index, own->count - 1, i);
        to[i] = from[i] + 1;
        from[i] = 0; /* nobody needs it any more */
    }
}

static void backward(stand_in_stages *own, const pipeline_task *task)
{
    nn_real *to = own->input[task->state], *from = own->output[task->state];
    nn_real chunks = (nn_real)own->chunks;
    bool right = true, last = own->stage + task->chunk * own->count == own->chunks - 1;
    for (int i = 0; i < STAND_IN_TILE; i++) {
        to[i] = from[i] * (last ? 2 : 1) + STEP_BACK;
        right = right &&
                to[i] == 2 * (made(task->index, own->count - 1, i) + chunks) + STEP_BACK * chunks;
        for (int r = 0; task->first && encodes(own) && r < own->count; r++)
            own->brought[task->slot][r][i] = to[i] + (nn_real)r;
    }
    own->right += task->first && !encodes(own) && right;
}

static void encode_backward(stand_in_stages *own, const pipeline_task *task)
{
    nn_real chunks = (nn_real)own->chunks;
    bool right = true;
    for (int i = 0; i < STAND_IN_TILE; i++)
        right = right &&
                own->encoded[task->slot][i] == 2 * (made(task->index, own->count - 1, i) + chunks) +
                                                   STEP_BACK * chunks + (nn_real)own->stage;
    own->right += right;
}

static mimo_status come_to(stand_in_stages *own, const pipeline_task *task)
{
    mimo_status status = own->before ? own->before(own, task) : MIMO_OK;
    own->steps++;
    return status;
}

static mimo_status compute(void *context, const pipeline_task *task)
{
    stand_in_stages *own = context;
    MIMO_TRY(come_to(own, task));
    if (task->kind == MIMO_STEP_E)
        for (int i = 0; i < STAND_IN_TILE; i++)
            own->encoded[task->slot][i] = made(task->index, own->stage, i);
    else if (task->kind == MIMO_STEP_EB)
        encode_backward(own, task);
    else if (task->kind == MIMO_STEP_F)
        forward(own, task);
    else if (task->kind != MIMO_STEP_W)
        backward(own, task);
    return MIMO_OK;
}

static mimo_status begin(mimo_op **out, void *context, const pipeline_task *task)
{
    stand_in_stages *own = context;
    int64_t rows = own->stage == 0 ? STAND_IN_ROWS * own->count : 0;
    int64_t width = STAND_IN_TILE / STAND_IN_ROWS;
    mimo_tensor src =
        mimo_tensor_3d(own->encoded[task->slot], NN_DTYPE, "sbh", 1, STAND_IN_ROWS, width);
    mimo_tensor dst =
        mimo_tensor_3d(rows > 0 ? own->brought[task->slot] : NULL, NN_DTYPE, "sbh", 1, rows, width);
    MIMO_TRY(come_to(own, task));
    bool back = task->kind == MIMO_STEP_BB;
    mimo_move_desc move = MIMO_MOVE_DESC_INIT;
    move.to = back ? &src : &dst;
    move.from = back ? &dst : &src;
    move.n = 1;
    return back ? mimo_bridge_backward_start_chunked(out, own->bridge, &move)
                : mimo_bridge_forward_start_chunked(out, own->bridge, &move);
}

static nn_real *input(void *context, const pipeline_task *task)
{
    return ((stand_in_stages *)context)->input[task->state];
}

static nn_real *output(void *context, const pipeline_task *task)
{
    return ((stand_in_stages *)context)->output[task->state];
}

static mimo_status create_grids(stand_in_stages *out)
{
    char encoders[32], stages[32];
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    snprintf(encoders, sizeof encoders, "tp=1,dp=%d", (int)out->count);
    snprintf(stages, sizeof stages, "tp=1,dp=1,pp=%d", (int)out->count);
    MIMO_TRY(mimo_grid_create_text(&out->encoders, encoders, 0));
    MIMO_TRY(mimo_grid_create_text(&out->stages, stages, 0));
    MIMO_TRY(mimo_grid_connect(out->stages, out->comm));
    desc.src = out->encoders;
    desc.dst = out->stages;
    desc.batch = STAND_IN_ROWS * out->count;
    desc.name = "images";
    return mimo_bridge_create(&out->bridge, out->comm, &desc);
}

mimo_status stand_in_create(stand_in_stages *out, mimo_comm *comm, const mimo_schedule_desc *sizes,
                            int64_t spare)
{
    int64_t states[2], groups = sizes->encoder_group > 0 ? sizes->micro_batches : 0;
    out->comm = comm;
    out->stage = mimo_comm_rank(comm);
    out->count = mimo_comm_size(comm);
    out->chunks = out->count * sizes->chunks;
    MIMO_TRY(create_grids(out));
    const stage_hops_desc hops = {.world = comm,
                                  .grid = out->stages,
                                  .rows = STAND_IN_ROWS,
                                  .width = STAND_IN_TILE / STAND_IN_ROWS,
                                  .ring = sizes->chunks > 1};
    MIMO_TRY(stage_hops_create(&out->hops, &hops));
    MIMO_TRY(mimo_schedule_create(&out->schedule, sizes));
    MIMO_TRY(mimo_schedule_states(states, out->schedule, out->stage));
    states[0] += spare;
    const pipeline_desc desc = {.world = comm,
                                .schedule = out->schedule,
                                .sizes = *sizes,
                                .stage = out->stage,
                                .states = states,
                                .slots = sizes->encoder_alive > 0 ? sizes->encoder_alive : groups,
                                .hops = &out->hops,
                                .work = {out, compute, NULL, begin, input, output}};
    return pipeline_create(&out->pipeline, &desc);
}

void stand_in_destroy(stand_in_stages *own)
{
    pipeline_destroy(&own->pipeline);
    mimo_schedule_destroy(own->schedule);
    stage_hops_destroy(&own->hops);
    mimo_bridge_destroy(own->bridge);
    mimo_grid_destroy(own->stages);
    mimo_grid_destroy(own->encoders);
    *own = (stand_in_stages){0};
}
