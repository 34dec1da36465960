/* The executor of schedules: it runs the list that is printed, and moves the right rows. With
 * stand-ins for the model, one rank a stage; then with the captioner's, whose gradients have the
 * same bits by every schedule. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <mimo/mpi.h>

#include "captioner/training/train_step.h"
#include "core/check.h"
#include "core/mutation.h"
#include "mpi_test.h"
#include "train/nn/params/nn_hash.h"
#include "stand_in_stages.h"

enum { MICRO_BATCHES = 5 };

/* ----------------------------------- between executor and library ----------------------------- */

/* The linker calls these functions in place of those of their names (meson.build). The executor is
 * an example to read, and has no mutations: its bugs are here. */

static int chunks_waited[16], waits; /* since waits was 0 */

mimo_status __real_mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream);
mimo_status __wrap_mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream);

mimo_status __wrap_mimo_op_wait_chunk(mimo_op *op, int chunk, mimo_stream stream)
{
    if (MIMO_MUTATED("wait-for-chunk-0-always"))
        chunk = 0;
    if (waits < 16)
        chunks_waited[waits++] = chunk;
    return __real_mimo_op_wait_chunk(op, chunk, stream);
}

/* Stage 1 hears of the last send that stage 0 makes before it waits. */
static int64_t sends_left; /* 0: it hears of none */

/* The tile of the message before gets the rows of this one. */
static void write_early(const hop_tiles *tiles, int64_t elements, const nn_real *rows)
{
    int64_t before = (tiles->next + tiles->count - 1) % tiles->count;
    if (tiles->sent[before])
        memcpy(tiles->rows + before * elements, rows, (size_t)elements * sizeof *rows);
}

mimo_status __real_stage_hops_send(stage_hops *hops, hop_way way, const nn_real *rows);
mimo_status __wrap_stage_hops_send(stage_hops *hops, hop_way way, const nn_real *rows);

mimo_status __wrap_stage_hops_send(stage_hops *hops, hop_way way, const nn_real *rows)
{
    if (MIMO_MUTATED("hop-reused-early"))
        write_early(&hops->tiles[way], hops->desc.rows * hops->desc.width, rows);
    mimo_status status = __real_stage_hops_send(hops, way, rows);
    if (sends_left > 0 && --sends_left == 0)
        MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    return status;
}

/* How often a rank asked whether all ranks are well. */
static int64_t agreements;
mimo_status __real_mimo_comm_agree(mimo_comm *comm, mimo_status status);
mimo_status __wrap_mimo_comm_agree(mimo_comm *comm, mimo_status status);

mimo_status __wrap_mimo_comm_agree(mimo_comm *comm, mimo_status status)
{
    agreements++;
    return __real_mimo_comm_agree(comm, status);
}

/* Set by a test: what a bridge's backward brings is -0. */
static bool brings_minus_zero;

mimo_status __real_mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                      const mimo_move_desc *move);
mimo_status __wrap_mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                      const mimo_move_desc *move);

mimo_status __wrap_mimo_bridge_backward_start_chunked(mimo_op **out, mimo_bridge *bridge,
                                                      const mimo_move_desc *move)
{
    mimo_status status = __real_mimo_bridge_backward_start_chunked(out, bridge, move);
    nn_real *rows = move->to->data;
    if (!brings_minus_zero || status != MIMO_OK)
        return status;
    status = mimo_op_wait(out);
    for (int64_t i = 0; i < move->to->shape[0] * move->to->shape[1]; i++)
        rows[i] = -0.0f;
    return status;
}

static mimo_schedule_desc sizes_of(mimo_schedule_kind kind)
{
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    sizes.kind = kind;
    sizes.stages = mpi_test_size();
    sizes.micro_batches = MICRO_BATCHES;
    return sizes;
}

static void expect_list_ran(stage_pipeline *pipeline, const mimo_schedule *schedule, int64_t stage)
{
    int64_t count, ended = 0;
    const mimo_schedule_step *steps = mimo_schedule_steps(&count, schedule, stage);
    MPI_EXPECT(pipeline->done == count && count > 0, "%d of %d steps ran", (int)pipeline->done,
               (int)count);
    MPI_EXPECT_OK(pipeline_times(pipeline));
    for (int64_t i = 0; i < pipeline->done; i++) {
        const pipeline_record *ran = &pipeline->ran[i];
        MPI_EXPECT(memcmp(&ran->step, &steps[i], sizeof *steps) == 0, "step %d is another one",
                   (int)i);
        MPI_EXPECT(ended <= ran->begin && ran->begin <= ran->end, "step %d: %d to %d after %d",
                   (int)i, (int)ran->begin, (int)ran->end, (int)ended);
        ended = ran->end;
    }
}

/* Calls of hops that a stage makes in a walk. */
static int64_t hops_of(const mimo_schedule_desc *sizes, int64_t stage)
{
    int64_t calls = 0, last = sizes->stages * sizes->chunks - 1;
    for (int64_t n = stage; n <= last; n += sizes->stages)
        calls += (n > 0) + (n < last);
    return calls * sizes->micro_batches * (sizes->kind == MIMO_SCHEDULE_FORWARD ? 1 : 2);
}

/* Two walks, each with the right numbers at its end. */
static void walk_stand_ins(const mimo_schedule_desc *sizes)
{
    static stand_in_stages run;
    bool back = sizes->kind != MIMO_SCHEDULE_FORWARD;
    int64_t all = sizes->micro_batches;
    MPI_EXPECT_OK(stand_in_create(&run, mpi_test_comm(), sizes, 0));
    bool ends_here = back && (sizes->encoder_group > 0 || run.stage == 0);
    for (int walk = 1; walk <= 2; walk++) {
        MPI_EXPECT_OK(pipeline_run(&run.pipeline));
        expect_list_ran(&run.pipeline, run.schedule, run.stage);
        MPI_EXPECT(run.hops.calls == walk * hops_of(sizes, run.stage), "%d calls",
                   (int)run.hops.calls);
        MPI_EXPECT(run.right == (ends_here ? walk * all : 0), "%d of %d backwards are right",
                   (int)run.right, (int)(walk * all));
    }
    stand_in_destroy(&run);
}

MPI_TEST(captioner_pipeline, rows_come_back)
{
    static const mimo_schedule_kind kinds[] = {MIMO_SCHEDULE_1F1B, MIMO_SCHEDULE_ZERO_BUBBLE,
                                               MIMO_SCHEDULE_FORWARD};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        mimo_schedule_desc sizes = sizes_of(kinds[i]);
        walk_stand_ins(&sizes);
        sizes.encoder_group = 1;
        walk_stand_ins(&sizes);
        sizes.encoder_alive = kinds[i] == MIMO_SCHEDULE_FORWARD ? 1 : MICRO_BATCHES - 1;
        if (mpi_test_size() < MICRO_BATCHES)
            walk_stand_ins(&sizes);
    }
    mimo_schedule_desc sizes = sizes_of(MIMO_SCHEDULE_1F1B);
    sizes.overlap = true;
    walk_stand_ins(&sizes);
}

/* With several chunks the stages are a ring. */
MPI_TEST(captioner_pipeline, rows_go_round)
{
    static const mimo_schedule_kind kinds[] = {MIMO_SCHEDULE_INTERLEAVED, MIMO_SCHEDULE_FORWARD};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        mimo_schedule_desc sizes = sizes_of(kinds[i]);
        sizes.chunks = 2;
        sizes.micro_batches = sizes.stages < 4 ? 2 * sizes.stages : sizes.stages;
        walk_stand_ins(&sizes);
        sizes.encoder_group = 1;
        walk_stand_ins(&sizes);
    }
}

static mimo_status wait_for_sends(stand_in_stages *own, const pipeline_task *task)
{
    if (own->stage == 1 && task->kind == MIMO_STEP_F && task->index == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MIMO_OK;
}

/* Stage 0 sends what all its forwards before the first backward made, and stage 1 has taken one of
 * these messages so far. */
MPI_TEST(captioner_pipeline, rows_for_a_late_stage)
{
    static stand_in_stages run;
    const mimo_schedule_desc sizes = sizes_of(MIMO_SCHEDULE_1F1B);
    MPI_EXPECT_OK(stand_in_create(&run, mpi_test_comm(), &sizes, 0));
    run.before = wait_for_sends;
    sends_left = run.stage == 0 ? run.count : 0;
    MPI_EXPECT_OK(pipeline_run(&run.pipeline));
    MPI_EXPECT(run.stage > 0 || run.right == MICRO_BATCHES, "%d of %d backwards are right",
               (int)run.right, MICRO_BATCHES);
    stand_in_destroy(&run);
}

MPI_TEST(captioner_pipeline, schedules_differ)
{
    static stand_in_stages run;
    char words[80];
    int last = mpi_test_size() - 1;
    mimo_schedule_desc sizes = sizes_of(MIMO_SCHEDULE_1F1B);
    sizes.micro_batches += mpi_test_rank() == last;
    MPI_EXPECT(stand_in_create(&run, mpi_test_comm(), &sizes, 0) == MIMO_ERR_MISMATCH,
               "a pipeline was made");
    snprintf(words, sizeof words, "rank %d: this rank's schedule has the hash ", last);
    MPI_EXPECT_SENTENCE(words);
    stand_in_destroy(&run);
}

static mimo_status fail_in_the_third(stand_in_stages *own, const pipeline_task *task)
{
    bool fails = own->stage == 0 && task->kind == MIMO_STEP_F && task->index == 2;
    return fails ? mimo_fail(MIMO_ERR_MEMORY, "no room for a forward") : MIMO_OK;
}

/* Run what fails on one rank, in a family of its own, which then ends on all ranks. */
static void expect_end(bool fails, int64_t spare, const char *words)
{
    static stand_in_stages run;
    mimo_comm *comm = NULL;
    mimo_schedule_desc sizes = sizes_of(MIMO_SCHEDULE_1F1B);
    sizes.encoder_group = 1;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL));
    MPI_EXPECT_OK(mimo_comm_set_deadline(comm, 20000));
    MPI_EXPECT_OK(stand_in_create(&run, comm, &sizes, mpi_test_rank() == 0 ? spare : 0));
    run.before = fails ? fail_in_the_third : NULL;
    mimo_status status = pipeline_run(&run.pipeline);
    MPI_EXPECT(status != MIMO_OK && (status == MIMO_ERR_ABORTED) == (mpi_test_rank() > 0), "%s",
               mimo_status_name(status));
    MPI_EXPECT_SENTENCE(words);
    stand_in_destroy(&run);
    mimo_comm_destroy(comm);
}

MPI_TEST(captioner_pipeline, a_failed_step_ends_all)
{
    expect_end(true, 0, "stage 0, micro-batch 2: no room for a forward");
    expect_end(false, -1,
               "stage 0, micro-batch 1: stage 0 holds 2 micro-batches, there are 1 saved states");
}

/* ------------------------------------------ the captioner ------------------------------------- */

enum { SIDE = 16, SEQ = 16, SAMPLES = 11, LONGEST = 6, EACH = 2 }; /* the last of 6 parts has one */

/* Pictures and names that differ in each sample. */
static void draw_items(batch_item items[SAMPLES])
{
    static uint8_t pictures[SAMPLES][SIDE * SIDE * 3];
    static const char letters[] = "pipelined";
    for (int s = 0; s < SAMPLES; s++) {
        for (int i = 0; i < SIDE * SIDE * 3; i++)
            pictures[s][i] = (uint8_t)((i * (s + 3)) ^ (i / 7));
        items[s] = (batch_item){
            .picture = pictures[s], .name = letters + s % 3, .length = 1 + s % LONGEST};
    }
}

/* What a step leaves: the sum of both modules' hashes, and the losses. */
typedef struct step_left {
    uint64_t hash;
    double loss;
} step_left;

static void check_memory(const step_trainer *trainer)
{
    const bridged_model *model = trainer->model;
    mimo_schedule_memory memory = MIMO_SCHEDULE_MEMORY_INIT;
    int64_t stage = model->topology->stage;
    MPI_EXPECT_OK(mimo_schedule_memory_of(&memory, trainer->pass.schedule, stage));
    MPI_EXPECT(model->language.states == memory.saved_states, "%d saved states, not %d",
               (int)model->language.states, (int)memory.saved_states);
    MPI_EXPECT(model->encoder.states == trainer->pass.sizes.encoder_alive, "%d slots, not %d",
               (int)model->encoder.states, (int)trainer->pass.sizes.encoder_alive);
    MPI_EXPECT(model->hops.calls == hops_of(&trainer->pass.sizes, stage), "%d hops",
               (int)model->hops.calls);
}

/* Stage 0 waits for each micro-batch's own part of its group. */
static void check_waits(const step_trainer *trainer)
{
    const mimo_schedule_desc *sizes = &trainer->pass.sizes;
    bool takes = trainer->model->topology->stage == 0;
    MPI_EXPECT(waits == (takes ? sizes->micro_batches : 0), "%d waits for parts", waits);
    for (int m = 0; m < waits; m++)
        MPI_EXPECT(chunks_waited[m] == m % sizes->encoder_group, "micro-batch %d waits for part %d",
                   m, chunks_waited[m]);
}

/* Of all stages: a chunk of the model may lie on another one. */
static uint64_t hash_of(const bridged_model *model)
{
    uint64_t encoder = 0, language = 0, all[16];
    MPI_EXPECT_OK(nn_hash_params(&encoder, model->encoder.params, NN_VALUE));
    MPI_EXPECT_OK(nn_hash_params(&language, model->language.params, NN_VALUE));
    MPI_EXPECT_OK(mimo_comm_host_allgather(mpi_test_comm(), all, &language, sizeof language));
    for (int rank = 0; rank < mpi_test_size(); rank++)
        encoder += all[rank];
    return encoder;
}

/* No rank waits for another one inside of a step: stages are at different micro-batches. So they
 * agree on what a whole step reads, before its first forward. */
static void check_agreements(step_trainer *trainer)
{
    step_result result;
    if (trainer->model->desc.shards > 0) /* the fixed order agrees on its sums as well */
        return;
    agreements = 0;
    MPI_EXPECT_OK(train_step(trainer, 1, &result)); /* the first one made what is kept */
    MPI_EXPECT(agreements == 1, "%d agreements in a step of %d micro-batches", (int)agreements,
               (int)trainer->pass.desc.micro_batches);
}

/* In the fixed order no -0 of a bridge reaches the encoder (nn_plain_zeros). Training makes none,
 * so this bridge does. */
static void check_zeros(const bridged_model *model)
{
    int64_t count = model->batch.pictures * model->desc.tokens * model->desc.hidden;
    const nn_real *brought = model->images.slots[0].src_tile;
    MPI_EXPECT(count > 0, "the step had no rows");
    for (int64_t i = 0; brings_minus_zero && i < count; i++)
        MPI_EXPECT(brought[i] == 0 && !signbit(brought[i]), "element %d is %a", (int)i,
                   (double)brought[i]);
}

static void take_step(step_left *out, const rank_topology *topology, const nn_runtime *runtime,
                      const schedule_choice *choice)
{
    bridged_model model = {0};
    step_trainer trainer = {0};
    step_result result = {0};
    batch_item items[SAMPLES];
    bool fixed = runtime->order == NN_ORDER_FIXED;
    const model_desc desc = {.hidden = 16,
                             .heads = 8,
                             .encoder_layers = 1,
                             .llm_layers = 3,
                             .tokens = caption_tokens(SIDE),
                             .patch_values = PATCH_VALUES,
                             .words = CAPTION_WORDS,
                             .seq = SEQ,
                             .micro_batch = EACH,
                             .micro_batches = (SAMPLES + EACH - 1) / EACH,
                             .schedule = *choice,
                             .seed = 3,
                             .runtime = runtime,
                             .shards = fixed ? 8 : 0,
                             .pairs = fixed,
                             .bridge_dtype = MIMO_F32};
    const trainer_desc training = {
        .items = items, .samples = SAMPLES, .steps = 1, .global_batch = SAMPLES, .lr = 0.01};
    draw_items(items);
    MPI_EXPECT_OK(model_create(&model, topology, &desc));
    MPI_EXPECT_OK(trainer_create(&trainer, &model, &training));
    waits = 0;
    MPI_EXPECT_OK(train_step(&trainer, 0, &result));
    expect_list_ran(&trainer.pass.pipeline, trainer.pass.schedule, topology->stage);
    check_memory(&trainer);
    check_waits(&trainer);
    check_zeros(&model);
    *out = (step_left){hash_of(&model), result.loss};
    check_agreements(&trainer);
    trainer_destroy(&trainer);
    model_destroy(&model);
}

/* As many stages as there are ranks; the encoder's copies lie on all of them. */
typedef struct stages_bed {
    rank_topology topology;
    nn_runtime runtime;
} stages_bed;

static void begin_stages(stages_bed *out, nn_order order)
{
    char encoder[32], llm[32];
    const nn_runtime_desc runtime = {.memory = MIMO_MEMORY_HOST, .order = order};
    snprintf(encoder, sizeof encoder, "tp=1,dp=%d", mpi_test_size());
    snprintf(llm, sizeof llm, "tp=1,cp=1,dp=1,pp=%d", mpi_test_size());
    const topology_desc grids = {.encoder = encoder, .llm = llm};
    *out = (stages_bed){0};
    MPI_EXPECT_OK(nn_runtime_init(&out->runtime, &runtime));
    MPI_EXPECT_OK(topology_create(&out->topology, mpi_test_comm(), &grids));
}

static void end_stages(stages_bed *bed)
{
    topology_destroy(&bed->topology);
    nn_runtime_release(&bed->runtime);
}

MPI_TEST(captioner_pipeline, bits_of_every_schedule)
{
    static const schedule_choice choices[] = {
        {.group = 1},
        {.group = 6},
        {.group = 1, .alive = ALIVE_NO_LIMIT},
        {.group = 2},
        {.group = 4, .alive = ALIVE_NO_LIMIT}, /* the second group is half full */
        {.kind = MIMO_SCHEDULE_ZERO_BUBBLE},
        {.kind = MIMO_SCHEDULE_ZERO_BUBBLE, .group = 6},
        {.kind = MIMO_SCHEDULE_INTERLEAVED, .chunks = 2}, /* 6 micro-batches, of 2 or 3 stages */
    };
    stages_bed bed;
    step_left first = {0}, other = {0};
    begin_stages(&bed, NN_ORDER_FIXED);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (choices[i].chunks > 1 && (mpi_test_size() == 1 || mpi_test_size() > 3))
            continue;
        take_step(&other, &bed.topology, &bed.runtime, &choices[i]);
        if (i == 0)
            first = other;
        MPI_EXPECT(other.hash == first.hash && other.loss == first.loss,
                   "choice %d has other bits: loss %a, not %a", (int)i, other.loss, first.loss);
    }
    end_stages(&bed);
}

MPI_TEST(captioner_pipeline, agreements_of_a_step)
{
    const schedule_choice choice = {.group = 1};
    stages_bed bed;
    step_left unused;
    begin_stages(&bed, NN_ORDER_FAST);
    take_step(&unused, &bed.topology, &bed.runtime, &choice);
    end_stages(&bed);
}

MPI_TEST(captioner_pipeline, minus_zero_behind_the_bridge)
{
    const schedule_choice choice = {.group = 1};
    stages_bed bed;
    step_left unused;
    begin_stages(&bed, NN_ORDER_FIXED);
    brings_minus_zero = true;
    take_step(&unused, &bed.topology, &bed.runtime, &choice);
    brings_minus_zero = false;
    end_stages(&bed);
}

/* A tp of the encoder that spans stages would make them wait for each other inside of a step. */
MPI_TEST(captioner_pipeline, encoder_across_stages_is_refused)
{
    rank_topology topology = {0};
    const topology_desc grids = {.encoder = "tp=2,dp=1", .llm = "tp=1,cp=1,dp=1,pp=2"};
    MPI_EXPECT(topology_create(&topology, mpi_test_comm(), &grids) == MIMO_ERR_GRID, "it was made");
    MPI_EXPECT_SENTENCE("--encoder tp=2,dp=1: its tp joins ranks 0 and 1, which --llm "
                        "tp=1,cp=1,dp=1,pp=2 puts on stages 0 and 1");
    topology_destroy(&topology);
}
