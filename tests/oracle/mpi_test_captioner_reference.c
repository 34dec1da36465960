/* The captioner's own step, from pictures and names to gradients, against the reference; and what
 * its layers exchange. mimo-oracle trains an LLM of its own; this test trains the example's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"
#include "reference_grid.h"

#include "captioner/training/train_step.h"
#include "capture.h"
#include "comparison.h"
#include "ref_model.h"
#include "ref_optimizer.h"
#include "ref_random.h"

enum {
    SIDE = 16,
    TOKENS = SIDE / 8 * (SIDE / 8),
    VALUES = 8 * 8 * 3,
    SEQ = 16,
    SAMPLES = 13,
    MICRO_BATCH = 5, /* 5, 5, and 3 with two masked samples */
    LONGEST = SEQ - TOKENS - 1,
    SEED = 3,
    END = 256,
    PADDING = 257,
    IMAGE = 258,
};

/* A sample in the captioner's form and in the reference's. */
typedef struct drawn {
    uint8_t picture[SIDE * SIDE * 3];
    char name[LONGEST];
    double patches[TOKENS * VALUES];
    int64_t ids[SEQ], labels[SEQ];
} drawn;

static void draw(drawn *out, batch_item *item, ref_sample *sample, int64_t number)
{
    uint64_t key = ref_bits(ref_key(SEED, "captioner"), number);
    int64_t length = 1 + (int64_t)(ref_bits(key, -1) % LONGEST);
    for (int64_t y = 0; y < SIDE; y++)
        for (int64_t i = 0; i < SIDE * 3; i++) {
            uint8_t pixel = (uint8_t)(ref_bits(key, y * SIDE * 3 + i) % 256);
            int64_t patch = y / 8 * (SIDE / 8) + i / 24;
            out->picture[y * SIDE * 3 + i] = pixel;
            out->patches[patch * VALUES + y % 8 * 24 + i % 24] = pixel / 127.5 - 1;
        }
    for (int64_t s = 0; s < SEQ; s++) {
        int64_t letter = s - TOKENS, id = (int64_t)(ref_bits(key, 5000 + s) % 256);
        out->ids[s] = letter < 0 ? IMAGE : letter < length ? id : letter == length ? END : PADDING;
        if (letter >= 0 && letter < length)
            out->name[letter] = (char)id;
    }
    for (int64_t s = 0; s < SEQ; s++)
        out->labels[s] = s + 1 < SEQ && out->ids[s + 1] <= END ? out->ids[s + 1] : -100;
    *item = (batch_item){.picture = out->picture, .name = out->name, .length = length};
    *sample = (ref_sample){out->patches, out->ids, out->labels};
}

/* Write this rank's part of a parameter: from the reference's whole parameter, or into a
 * capture. */
static void write_param(nn_params *store, int index, const ref_table *values)
{
    const nn_param *param = nn_params_at(store, index);
    const ref_tensor *whole = ref_find(values, param->name);
    nn_real *part = malloc((size_t)(param->count + 1) * sizeof *part);
    int64_t row = param->placement.cut == 0 ? param->start : 0;
    int64_t column = param->placement.cut == 1 ? param->start : 0;
    MPI_EXPECT(whole, "the reference has no %s", param->name);
    for (int64_t i = 0; whole && i < param->local[0]; i++)
        for (int64_t j = 0; j < param->local[1]; j++)
            part[i * param->local[1] + j] =
                (nn_real)whole->data[(row + i) * whole->columns + column + j];
    MPI_EXPECT_OK(nn_params_write(store, index, NN_VALUE, part));
    free(part);
}

static void capture_grad(oracle_capture *capture, const nn_params *store, int index)
{
    const nn_param *param = nn_params_at(store, index);
    nn_real *part = malloc((size_t)(param->count + 1) * sizeof *part);
    int64_t *row_of = malloc((size_t)(param->local[0] + 1) * sizeof *row_of);
    for (int64_t i = 0; i < param->local[0]; i++)
        row_of[i] = i + (param->placement.cut == 0 ? param->start : 0);
    MPI_EXPECT_OK(nn_params_read(store, index, NN_GRAD, part));
    capture_block block = {param->name,     row_of,
                           param->local[0], param->placement.cut == 1 ? param->start : 0,
                           param->local[1], part};
    capture_add(capture, &block);
    free(part);
    free(row_of);
}

static ref_sizes sizes_of(const model_desc *desc)
{
    return (ref_sizes){.hidden = desc->hidden,
                       .heads = desc->heads,
                       .encoder_layers = desc->encoder_layers,
                       .llm_layers = desc->llm_layers,
                       .patch_values = VALUES,
                       .image_tokens = TOKENS,
                       .seq = SEQ,
                       .text_vocabulary = 258,
                       .vocabulary = 288,
                       .image_id = IMAGE,
                       .seed = SEED};
}

static trainer_desc trainer_of(const batch_item *items)
{
    return (trainer_desc){.items = items,
                          .samples = SAMPLES,
                          .steps = 10,
                          .global_batch = SAMPLES,
                          .seed = SEED,
                          .lr = 1e-3};
}

/* Set by a test: what a bridge's backward brings is -0. */
static bool brings_minus_zero;

/* The linker calls it in place of mimo_bridge_backward (meson.build), which it calls as __real_. */
mimo_status __real_mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                        const mimo_tensor *from, int n, mimo_stream stream);
mimo_status __wrap_mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                        const mimo_tensor *from, int n, mimo_stream stream);

mimo_status __wrap_mimo_bridge_backward(mimo_bridge *bridge, const mimo_tensor *to,
                                        const mimo_tensor *from, int n, mimo_stream stream)
{
    mimo_status status = __real_mimo_bridge_backward(bridge, to, from, n, stream);
    nn_real *rows = to->data;
    for (int64_t i = 0; i < to->shape[0] * to->shape[1] && brings_minus_zero; i++)
        rows[i] = -0.0f;
    return status;
}

/* One step of the captioner on these ranks, into the capture. */
static void train(oracle_capture *capture, captioner_model *model, const batch_item *items,
                  ref_model *reference)
{
    step_trainer trainer = {0};
    step_result result = {0};
    nn_params *stores[] = {model->encoder.params, model->language.params};
    trainer_desc desc = trainer_of(items);
    for (int store = 0; store < 2; store++)
        for (int i = 0; i < nn_params_count(stores[store]); i++)
            write_param(stores[store], i, ref_model_values(reference));
    MPI_EXPECT_OK(trainer_create(&trainer, model, &desc));
    MPI_EXPECT_OK(train_step(&trainer, 0, &result));
    for (int store = 0; store < 2; store++)
        for (int i = 0; i < nn_params_count(stores[store]); i++)
            capture_grad(capture, stores[store], i);
    capture_scalar(capture, "loss", result.loss);
    capture_scalar(capture, "tokens", (double)result.tokens);
    capture_scalar(capture, "norm", result.grad_norm);
    trainer_destroy(&trainer);
}

static void expect_step(oracle_comparison *comparison, ref_model *reference,
                        const ref_sample *samples)
{
    ref_result result;
    ref_model_run(reference, samples, SAMPLES, &result);
    const ref_table *grads = ref_model_grads(reference);
    for (int i = 0; i < grads->count; i++)
        comparison_expect(comparison, PHASE_GRADIENTS, "", &grads->list[i], NULL);
    comparison_expect_scalar(comparison, PHASE_LOSS, "loss", result.loss);
    comparison_expect_scalar(comparison, PHASE_LOSS, "tokens", (double)result.tokens);
    comparison_expect_scalar(comparison, PHASE_NORM, "norm", ref_norm_of(grads));
    ref_free(&result.tensors);
}

static void judge(oracle_comparison *comparison, const char *spec)
{
    comparison_judge(comparison);
    MPI_EXPECT(comparison->unknown_count == 0, "%s: unknown tensor %s", spec, comparison->unknown);
    for (int i = 0; i < comparison->count; i++) {
        const checked_tensor *tensor = &comparison->list[i];
        MPI_EXPECT(!comparison_fails(tensor), "%s: %s is off by %.3e%s%s", spec, tensor->name,
                   tensor->error, tensor->fault[0] ? ", " : "", tensor->fault);
    }
}

static model_desc small_model(void)
{
    return (model_desc){.hidden = 32,
                        .heads = 8,
                        .encoder_layers = 1,
                        .llm_layers = 2,
                        .side = SIDE,
                        .seq = SEQ,
                        .micro_batch = MICRO_BATCH,
                        .seed = SEED,
                        .bridge_dtype = MIMO_F32};
}

static void check_pair(const char *encoder, const char *llm)
{
    static drawn data[SAMPLES];
    batch_item items[SAMPLES];
    ref_sample samples[SAMPLES];
    rank_topology topology = {0};
    captioner_model model = {0};
    oracle_capture capture = {0};
    oracle_comparison comparison = {0};
    model_desc desc = small_model();
    ref_sizes sizes = sizes_of(&desc);
    ref_model *reference = ref_model_create(&sizes);
    for (int64_t i = 0; i < SAMPLES; i++)
        draw(&data[i], &items[i], &samples[i], i);
    const topology_desc grids = {encoder, llm, false};
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), &grids));
    MPI_EXPECT_OK(model_create(&model, &topology, &desc));
    train(&capture, &model, items, reference);
    if (mpi_test_rank() == 0)
        expect_step(&comparison, reference, samples);
    MPI_EXPECT_OK(capture_collect(&capture, mpi_test_comm(), comparison_receive, &comparison));
    if (mpi_test_rank() == 0)
        judge(&comparison, llm);
    comparison_free(&comparison);
    capture_release(&capture);
    ref_model_destroy(reference);
    model_destroy(&model);
    topology_destroy(&topology);
}

MPI_TEST(captioner_reference, gradients)
{
    static const char *pairs[][2] = {
        {"tp=1,dp=1", "tp=1,cp=1,dp=1"}, {"tp=2,dp=2", "tp=2,cp=2,dp=1"},
        {"tp=1,dp=4", "tp=1,cp=2,dp=2"}, {"tp=4,dp=1", "tp=1,cp=1,dp=4"},
        {"tp=2,dp=4", "tp=2,cp=2,dp=2"}, {"tp=4,dp=2", "tp=1,cp=2,dp=4"},
        {"tp=1,dp=8", "tp=2,cp=4,dp=1"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (ref_ranks(pairs[i][0]) == mpi_test_size())
            check_pair(pairs[i][0], pairs[i][1]);
}

/* What the layers exchange in a step. */
typedef struct exchanged {
    nn_exchange_counts encoder, llm, cp, loss;
} exchanged;

/* A step of one micro-batch, with 2 encoder layers and 4 of the LLM. */
static exchanged count_exchanges(const rank_topology *topology, const nn_lora_choice *adapters)
{
    static drawn data[SAMPLES];
    batch_item items[SAMPLES];
    ref_sample unused;
    captioner_model model = {0};
    step_trainer trainer = {0};
    step_result result = {0};
    model_desc desc = small_model();
    desc.encoder_layers = 2;
    desc.llm_layers = 4;
    desc.micro_batch = SAMPLES;
    desc.adapters = adapters;
    for (int64_t i = 0; i < SAMPLES; i++)
        draw(&data[i], &items[i], &unused, i);
    const trainer_desc training = trainer_of(items);
    MPI_EXPECT_OK(model_create(&model, topology, &desc));
    MPI_EXPECT_OK(trainer_create(&trainer, &model, &training));
    MPI_EXPECT_OK(train_step(&trainer, 0, &result));
    const nn_params_counts *llm = nn_params_exchanged(model.language.params);
    exchanged counts = {nn_params_exchanged(model.encoder.params)->tp, llm->tp, llm->cp,
                        model.language.loss.exchanged};
    trainer_destroy(&trainer);
    model_destroy(&model);
    return counts;
}

static void expect_calls(const char *what, const nn_exchange_counts *counts, nn_exchange_kind kind,
                         int64_t expected)
{
    MPI_EXPECT(counts->calls[kind] == expected, "%s: %lld calls of kind %d, must be %lld", what,
               (long long)counts->calls[kind], (int)kind, (long long)expected);
}

/* Adapters exchange nothing of their own. Where nothing of the encoder is trained, it has no
 * backward, and so the sums of its forward alone. */
MPI_TEST(captioner_reference, exchanges)
{
    static const char *const head = "head";
    const nn_lora_choice everywhere = {.adapter = {.rank = 4, .alpha = 8}};
    const nn_lora_choice head_alone = {
        .adapter = everywhere.adapter, .targets = &head, .n_targets = 1};
    rank_topology topology = {0};
    const topology_desc grids = {"tp=2,dp=4", "tp=2,cp=2,dp=2", false};
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), &grids));
    exchanged full = count_exchanges(&topology, NULL);
    exchanged adapted = count_exchanges(&topology, &everywhere);
    exchanged frozen = count_exchanges(&topology, &head_alone);
    expect_calls("encoder", &full.encoder, NN_EXCHANGE_SUM, 8);
    expect_calls("LLM", &full.llm, NN_EXCHANGE_SUM, 17);
    expect_calls("cp", &full.cp, NN_EXCHANGE_GATHER, 4);
    expect_calls("cp", &full.cp, NN_EXCHANGE_SUM, 4);
    expect_calls("loss", &full.loss, NN_EXCHANGE_MAX, 1);
    expect_calls("loss", &full.loss, NN_EXCHANGE_SUM, 1);
    MPI_EXPECT(memcmp(&adapted, &full, sizeof full) == 0, "adapters exchange more, or less");
    expect_calls("frozen encoder", &frozen.encoder, NN_EXCHANGE_SUM, 4);
    topology_destroy(&topology);
}

/* In the fixed order no -0 of a bridge reaches the encoder (nn_plain_zeros). Training makes none,
 * so this bridge does. */
MPI_TEST(captioner_reference, minus_zero_behind_the_bridge)
{
    static drawn data[SAMPLES];
    batch_item items[SAMPLES];
    ref_sample sample;
    nn_runtime runtime = {0};
    rank_topology topology = {0};
    captioner_model model = {0};
    step_trainer trainer = {0};
    step_result result = {0};
    const nn_runtime_desc order = {.memory = MIMO_MEMORY_HOST, .order = NN_ORDER_FIXED};
    const topology_desc grids = {"tp=1,dp=1", "tp=1,cp=1,dp=1", false};
    const trainer_desc training = trainer_of(items);
    model_desc desc = small_model();
    desc.runtime = &runtime, desc.shards = 8, desc.pairs = 1;
    for (int64_t i = 0; i < SAMPLES; i++)
        draw(&data[i], &items[i], &sample, i);
    MPI_EXPECT_OK(nn_runtime_init(&runtime, &order));
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), &grids));
    MPI_EXPECT_OK(model_create(&model, &topology, &desc));
    MPI_EXPECT_OK(trainer_create(&trainer, &model, &training));
    brings_minus_zero = true;
    MPI_EXPECT_OK(train_step(&trainer, 0, &result));
    brings_minus_zero = false;
    int64_t count = model.batch.pictures * model.batch.tokens * model.desc.hidden;
    MPI_EXPECT(count > 0, "the step had no rows");
    for (int64_t i = 0; i < count; i++)
        MPI_EXPECT(model.src_tile[i] == 0 && !signbit(model.src_tile[i]), "element %d is %a",
                   (int)i, (double)model.src_tile[i]);
    trainer_destroy(&trainer);
    model_destroy(&model);
    topology_destroy(&topology);
    nn_runtime_release(&runtime);
}
