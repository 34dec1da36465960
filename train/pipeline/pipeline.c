#include "train/pipeline/pipeline.h"

#include <inttypes.h>
#include <string.h>

#include "schedule/schedule_types.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { FREE = -1 };

/* --------------------------------------------- life ------------------------------------------- */

static bool goes_back(const stage_pipeline *own)
{
    return own->desc.sizes.kind != MIMO_SCHEDULE_FORWARD;
}

/* Chunks of a stage that hold an activation which the stage behind may not have taken. Without
 * backward nothing says that it was taken. With several chunks the stages are a ring. */
static mimo_status reserve_tiles(stage_pipeline *out)
{
    const mimo_schedule_desc *sizes = &out->desc.sizes;
    mimo_schedule_memory own = MIMO_SCHEDULE_MEMORY_INIT, before = MIMO_SCHEDULE_MEMORY_INIT;
    int64_t stage = out->desc.stage, all = sizes->micro_batches * sizes->chunks;
    bool ring = sizes->chunks > 1;
    TRY(mimo_schedule_memory_of(&own, out->desc.schedule, stage));
    if (ring || stage + 1 < sizes->stages)
        TRY(stage_hops_reserve(out->desc.hops, HOP_ACTIVATIONS,
                               goes_back(out) ? own.saved_states : all));
    if (!goes_back(out) || (!ring && stage == 0))
        return MIMO_OK;
    TRY(mimo_schedule_memory_of(&before, out->desc.schedule,
                                stage > 0 ? stage - 1 : sizes->stages - 1));
    return stage_hops_reserve(out->desc.hops, HOP_GRADIENTS, before.saved_states);
}

static mimo_status init_marks(stage_pipeline *out)
{
    const nn_runtime *runtime = stage_streams_runtime(out->desc.streams);
    for (int64_t i = 0; i < out->first_state[out->desc.sizes.chunks]; i++)
        TRY(nn_mark_init(&out->states[i].touched, runtime));
    for (int64_t i = 0; i < out->desc.slots; i++)
        TRY(nn_mark_init(&out->slots[i].touched, runtime));
    return step_clock_create(&out->clock, out->desc.streams, 1 + 2 * out->count);
}

static mimo_status reserve_all(stage_pipeline *out, const int64_t *states)
{
    int64_t chunks = out->desc.sizes.chunks;
    TRY(memory_reserve(&out->first_state, chunks + 1, sizeof *out->first_state));
    for (int64_t c = 0; c < chunks; c++)
        out->first_state[c + 1] = out->first_state[c] + states[c];
    TRY(memory_reserve(&out->states, out->first_state[chunks], sizeof *out->states));
    TRY(memory_reserve(&out->slots, out->desc.slots, sizeof *out->slots));
    TRY(memory_reserve(&out->ran, out->count, sizeof *out->ran));
    TRY(init_marks(out));
    return reserve_tiles(out);
}

static uint64_t hash_of(const pipeline_desc *desc)
{
    return desc->nodes ? mimo_nodes_hash(desc->nodes) : mimo_schedule_hash(desc->schedule);
}

/* Hashes are host memory, whatever the ranks' tiles are in. */
static mimo_status compare_schedules(const stage_pipeline *own)
{
    mimo_comm *world = own->desc.world;
    uint64_t mine = hash_of(&own->desc), *all = NULL;
    mimo_status status = memory_reserve(&all, mimo_comm_size(world), sizeof *all);
    status = mimo_comm_agree(world, status);
    if (status == MIMO_OK)
        status = mimo_comm_host_allgather(world, all, &mine, sizeof mine);
    if (status == MIMO_OK && mine != all[0])
        status = mimo_fail(MIMO_ERR_MISMATCH,
                           "this rank's schedule has the hash %016" PRIx64
                           ", and that of rank 0 has %016" PRIx64,
                           mine, all[0]);
    memory_release(all);
    return status;
}

mimo_status pipeline_create(stage_pipeline *out, const pipeline_desc *desc)
{
    out->desc = *desc;
    out->desc.states = NULL;
    out->steps = mimo_schedule_steps(&out->count, desc->schedule, desc->stage);
    mimo_status compared = compare_schedules(out);
    TRY(mimo_comm_agree(desc->world, compared));
    return mimo_comm_agree(desc->world, reserve_all(out, desc->states));
}

void pipeline_destroy(stage_pipeline *pipeline)
{
    int64_t chunks = pipeline->desc.sizes.chunks;
    for (int64_t i = 0; pipeline->slots && i < pipeline->desc.slots; i++) {
        (void)mimo_op_wait(&pipeline->slots[i].there);
        (void)mimo_op_wait(&pipeline->slots[i].back);
        nn_mark_release(&pipeline->slots[i].touched);
    }
    for (int64_t i = 0; pipeline->states && i < pipeline->first_state[chunks]; i++)
        nn_mark_release(&pipeline->states[i].touched);
    step_clock_destroy(&pipeline->clock);
    memory_release(pipeline->first_state);
    memory_release(pipeline->states);
    memory_release(pipeline->slots);
    memory_release(pipeline->ran);
    *pipeline = (struct stage_pipeline){0};
}

/* -------------------------------------------- streams ----------------------------------------- */

static mimo_stream stream_of(const stage_pipeline *own, stage_stream stream)
{
    return stage_stream_of(own->desc.streams, stream);
}

static bool is_call(const pipeline_task *task)
{
    return task->kind == MIMO_STEP_BF || task->kind == MIMO_STEP_BB;
}

static stage_stream stream_for(const pipeline_task *task)
{
    return is_call(task) ? STREAM_BRIDGE : STREAM_COMPUTE;
}

static int64_t chunks_there(const stage_pipeline *own)
{
    return own->desc.sizes.encoder_group > 0 ? own->desc.sizes.encoder_group : 1;
}

/* -------------------------------------------- states ------------------------------------------ */

/* The state of a micro-batch, or where it is FREE one that nobody has; -1 where there is none. */
static int64_t find_state(const stage_pipeline *own, int64_t chunk, int64_t micro_batch)
{
    for (int64_t i = own->first_state[chunk]; i < own->first_state[chunk + 1]; i++) {
        const pipeline_state *state = &own->states[i];
        bool free = state->done == FREE;
        if (micro_batch == FREE ? free : !free && state->micro_batch == micro_batch)
            return i;
    }
    return -1;
}

static mimo_status take_state(stage_pipeline *own, pipeline_task *task)
{
    int64_t count = own->first_state[task->chunk + 1] - own->first_state[task->chunk];
    task->state = find_state(own, task->chunk, FREE);
    CHECK(task->state >= 0, MIMO_ERR_STATE,
          "stage %" PRId64 " holds %" PRId64 " micro-batches, there are %" PRId64 " saved states",
          own->desc.stage, count + 1, count);
    own->states[task->state].micro_batch = task->index;
    return MIMO_OK;
}

/* What must have run before on this state. */
static mimo_status find_own_state(stage_pipeline *own, pipeline_task *task)
{
    int64_t before = task->kind == MIMO_STEP_W ? MIMO_STEP_I : MIMO_STEP_F;
    task->state = find_state(own, task->chunk, task->index);
    CHECK(task->state >= 0 && own->states[task->state].done == before, MIMO_ERR_STATE,
          "%s before its %s", task->kind == MIMO_STEP_W ? "weights' half" : "backward",
          task->kind == MIMO_STEP_W ? "input's half" : "forward");
    return MIMO_OK;
}

/* A state is free behind the last step of its micro-batch. */
static mimo_status leave_state(const stage_pipeline *own, const pipeline_task *task)
{
    bool last = task->kind == MIMO_STEP_B || task->kind == MIMO_STEP_W || !goes_back(own);
    own->states[task->state].done = last ? FREE : (int64_t)task->kind;
    return nn_mark_set(&own->states[task->state].touched, stream_of(own, STREAM_COMPUTE));
}

/* -------------------------------------------- slots ------------------------------------------ */

static bool learns(const stage_pipeline *own)
{
    return goes_back(own) && !own->desc.sizes.encoder_frozen;
}

/* What is done of a group before each of its steps. */
static int64_t before_encoder_step(mimo_step_kind kind)
{
    switch (kind) {
    case MIMO_STEP_E:
        return FREE;
    case MIMO_STEP_BF:
        return MIMO_STEP_E;
    case MIMO_STEP_BB:
        return MIMO_STEP_BF;
    default:
        return MIMO_STEP_BB;
    }
}

/* Where nothing goes back, a slot is free when its call is over. */
static mimo_status find_place(stage_pipeline *own, const pipeline_task *task)
{
    group_slot *slot = &own->slots[task->slot];
    if (task->kind == MIMO_STEP_E && !learns(own) && slot->done == MIMO_STEP_BF) {
        TRY(stage_streams_end(own->desc.streams, &slot->there, chunks_there(own)));
        slot->done = FREE;
    }
    CHECK(slot->done == before_encoder_step(task->kind) &&
              (task->kind == MIMO_STEP_E || slot->group == task->index),
          MIMO_ERR_STATE,
          "stage %" PRId64 " holds %" PRId64 " encoder groups, and has no more slots",
          own->desc.stage, own->desc.slots);
    slot->group = task->index;
    return MIMO_OK;
}

static void leave_place(const stage_pipeline *own, const pipeline_task *task)
{
    own->slots[task->slot].done = task->kind == MIMO_STEP_EB ? FREE : (int64_t)task->kind;
}

/* Steps of the encoder compute in a slot, and those of the first chunk, which takes rows from it
 * and gives gradients. */
static mimo_status mark_place(const stage_pipeline *own, const pipeline_task *task)
{
    bool computes = task->first ? task->kind != MIMO_STEP_W && own->desc.slots > 0
                                : task->kind == MIMO_STEP_E || task->kind == MIMO_STEP_EB;
    return computes ? nn_mark_set(&own->slots[task->slot].touched, stream_of(own, STREAM_COMPUTE))
                    : MIMO_OK;
}

/* -------------------------------------------- steps ------------------------------------------- */

static pipeline_task task_of(const stage_pipeline *own, const mimo_schedule_step *step)
{
    const mimo_schedule_desc *sizes = &own->desc.sizes;
    bool llm = mimo_step_of_llm(step->kind);
    int64_t size = sizes->encoder_group > 0 ? sizes->encoder_group : 1;
    int64_t group = llm ? step->index / size : step->index;
    return (pipeline_task){.kind = step->kind,
                           .index = step->index,
                           .chunk = step->chunk,
                           .first = llm && own->desc.stage == 0 && step->chunk == 0,
                           .slot = own->desc.slots > 0 ? group % own->desc.slots : 0,
                           .part = llm ? step->index % size : 0};
}

static bool is_last(const stage_pipeline *own, const pipeline_task *task)
{
    return own->desc.stage == own->desc.sizes.stages - 1 &&
           task->chunk == own->desc.sizes.chunks - 1;
}

static mimo_status wait_for_rows(const stage_pipeline *own, const pipeline_task *task)
{
    mimo_op *there = own->slots[task->slot].there;
    return there ? mimo_op_wait_chunk(there, (int)task->part, stream_of(own, STREAM_COMPUTE))
                 : MIMO_OK;
}

static mimo_status receive(const stage_pipeline *own, const pipeline_task *task, hop_way way)
{
    const pipeline_work *work = &own->desc.work;
    nn_real *rows = way == HOP_ACTIVATIONS ? work->input(work->context, task)
                                           : work->output(work->context, task);
    return stage_hops_receive(own->desc.hops, way, rows, &own->states[task->state].touched);
}

/* Wait until the inputs of a step are there. The rows of BF may not be written over before the call
 * has ended on this rank: the gradients of BB come into their slot. */
static mimo_status await_inputs(stage_pipeline *own, const pipeline_task *task)
{
    group_slot *slot = &own->slots[task->slot];
    switch (task->kind) {
    case MIMO_STEP_F:
        if (!task->first)
            return receive(own, task, HOP_ACTIVATIONS);
        return own->desc.sizes.encoder_group > 0 ? wait_for_rows(own, task) : MIMO_OK;
    case MIMO_STEP_B:
    case MIMO_STEP_I:
        return is_last(own, task) ? MIMO_OK : receive(own, task, HOP_GRADIENTS);
    case MIMO_STEP_BF:
        return nn_mark_await(&slot->touched, stream_of(own, STREAM_BRIDGE));
    case MIMO_STEP_BB:
        TRY(mimo_op_wait(&slot->there));
        return nn_mark_await(&slot->touched, stream_of(own, STREAM_BRIDGE));
    case MIMO_STEP_EB:
        return stage_streams_end(own->desc.streams, &slot->back, 1);
    default:
        return MIMO_OK;
    }
}

static mimo_status pass_on(stage_pipeline *own, const pipeline_task *task)
{
    const pipeline_work *work = &own->desc.work;
    if (task->kind == MIMO_STEP_F && !is_last(own, task))
        return stage_hops_send(own->desc.hops, HOP_ACTIVATIONS, work->output(work->context, task));
    if ((task->kind == MIMO_STEP_B || task->kind == MIMO_STEP_I) && !task->first)
        return stage_hops_send(own->desc.hops, HOP_GRADIENTS, work->input(work->context, task));
    return MIMO_OK;
}

static mimo_status compute(stage_pipeline *own, const pipeline_task *task)
{
    int64_t begin = host_clock_now();
    mimo_status status = own->desc.work.compute(own->desc.work.context, task);
    own->walked -= host_clock_now() - begin;
    return status;
}

static mimo_status do_work(stage_pipeline *own, const pipeline_task *task)
{
    const pipeline_work *work = &own->desc.work;
    group_slot *slot = &own->slots[task->slot];
    if (task->kind == MIMO_STEP_BF)
        return work->begin(&slot->there, work->context, task);
    if (task->kind == MIMO_STEP_BB)
        return work->begin(&slot->back, work->context, task);
    TRY(compute(own, task));
    return mimo_step_of_llm(task->kind) ? pass_on(own, task) : MIMO_OK;
}

static mimo_status find_own(stage_pipeline *own, pipeline_task *task)
{
    if (!mimo_step_of_llm(task->kind))
        return find_place(own, task);
    return task->kind == MIMO_STEP_F ? take_state(own, task) : find_own_state(own, task);
}

static mimo_status leave(const stage_pipeline *own, const pipeline_task *task)
{
    if (mimo_step_of_llm(task->kind))
        TRY(leave_state(own, task));
    else
        leave_place(own, task);
    return mark_place(own, task);
}

/* `stamp` of the clock is when its inputs are there; -1: no stamp. */
static mimo_status run_task(stage_pipeline *own, pipeline_task *task, int64_t stamp)
{
    TRY(find_own(own, task));
    TRY(await_inputs(own, task));
    if (stamp >= 0)
        TRY(step_clock_stamp(&own->clock, stamp, stream_for(task)));
    TRY(do_work(own, task));
    return leave(own, task);
}

/* A forward and a backward as one: what either gives to another stage leaves behind both. */
static mimo_status compute_pair(stage_pipeline *own, const pipeline_task *tasks)
{
    int64_t begin = host_clock_now();
    mimo_status status = own->desc.work.compute_pair(own->desc.work.context, tasks, own->done);
    own->walked -= host_clock_now() - begin;
    return status;
}

static mimo_status run_both(stage_pipeline *own, pipeline_task *tasks)
{
    for (int k = 0; k < 2; k++)
        TRY(find_own(own, &tasks[k]));
    for (int k = 0; k < 2; k++)
        TRY(await_inputs(own, &tasks[k]));
    TRY(step_clock_stamp(&own->clock, 1 + 2 * own->done, STREAM_COMPUTE));
    TRY(compute_pair(own, tasks));
    for (int k = 0; k < 2; k++) {
        TRY(pass_on(own, &tasks[k]));
        TRY(leave(own, &tasks[k]));
    }
    return MIMO_OK;
}

static mimo_status run_pair(stage_pipeline *own, const mimo_schedule_step *step)
{
    mimo_schedule_step parts[2];
    mimo_step_parts(parts, step);
    pipeline_task tasks[2] = {task_of(own, &parts[0]), task_of(own, &parts[1])};
    mimo_status status = run_both(own, tasks);
    if (status != MIMO_OK)
        return fail_prefix(status, "stage %" PRId64 ", micro-batches %" PRId64 " and %" PRId64 ": ",
                           own->desc.stage, tasks[0].index, tasks[1].index);
    own->ran[own->done++].step = *step;
    return step_clock_stamp(&own->clock, 2 * own->done, STREAM_COMPUTE);
}

static mimo_status run_step(stage_pipeline *own, const mimo_schedule_step *step)
{
    mimo_schedule_step parts[2];
    pipeline_task task;
    int64_t stamp = 1 + 2 * own->done;
    if (step->kind == MIMO_STEP_FB && own->desc.work.compute_pair)
        return run_pair(own, step);
    int count = mimo_step_parts(parts, step);
    for (int i = 0; i < count; i++) {
        task = task_of(own, &parts[i]);
        mimo_status status = run_task(own, &task, i == 0 ? stamp : -1);
        if (status != MIMO_OK)
            return fail_prefix(status, "stage %" PRId64 ", %s %" PRId64 ": ", own->desc.stage,
                               mimo_step_of_llm(task.kind) ? "micro-batch" : "group", task.index);
    }
    own->ran[own->done++].step = *step;
    return step_clock_stamp(&own->clock, stamp + 1, stream_for(&task));
}

/* All that is on its way arrives. */
static mimo_status finish(stage_pipeline *own)
{
    for (int64_t i = 0; i < own->desc.slots; i++)
        TRY(stage_streams_end(own->desc.streams, &own->slots[i].there, chunks_there(own)));
    return stage_hops_finish(own->desc.hops);
}

static mimo_status walk(stage_pipeline *own)
{
    own->done = 0;
    own->walked = 0;
    for (int64_t i = 0; i < own->first_state[own->desc.sizes.chunks]; i++)
        own->states[i].done = FREE;
    for (int64_t i = 0; i < own->desc.slots; i++)
        own->slots[i].done = FREE;
    TRY(step_clock_stamp(&own->clock, 0, STREAM_COMPUTE));
    for (int64_t i = 0; i < own->count; i++)
        TRY(run_step(own, &own->steps[i]));
    return finish(own);
}

mimo_status pipeline_run(stage_pipeline *pipeline)
{
    int64_t begin = host_clock_now();
    mimo_status status = walk(pipeline);
    bool others = pipeline->desc.sizes.stages > 1 || pipeline->desc.groups;
    pipeline->walked += host_clock_now() - begin;
    if (status != MIMO_OK && others) {
        stage_hops_abort(pipeline->desc.hops, mimo_last_error());
        (void)mimo_comm_abort(pipeline->desc.world, mimo_last_error());
    }
    return status;
}

mimo_status pipeline_times(stage_pipeline *pipeline)
{
    step_clock *clock = &pipeline->clock;
    TRY(step_clock_read(clock, 1 + 2 * pipeline->done));
    for (int64_t i = 0; i < pipeline->done; i++) {
        pipeline->ran[i].begin = clock->times[1 + 2 * i];
        pipeline->ran[i].end = clock->times[2 + 2 * i];
    }
    return MIMO_OK;
}
