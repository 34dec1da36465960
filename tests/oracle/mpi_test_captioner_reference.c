/* The captioner's own step, from pictures and names to gradients, against the reference; and what
 * its layers exchange. mimo-oracle trains an LLM of its own; this test trains the example's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_test.h"
#include "reference_grid.h"

#include "train/formats/adapter_file.h"
#include "captioner/training/adapter_store.h"
#include "captioner/training/train_step.h"
#include "capture.h"
#include "comparison.h"
#include "core/mutation.h"
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
    if (!nn_param_has(param, NN_GRAD))
        return;
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
                          .lr = 1e-3,
                          .decay = 0.01};
}

/* Set by a test: what a bridge's backward brings is -0. */
static bool brings_minus_zero;

/* The linker calls it in place of mimo_bridge_backward_start_chunked (meson.build), which it calls
 * as __real_, and waits. */
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

/* Adapters come from the reference, or from a file. */
static void write_params(bridged_model *model, ref_model *reference, bool adapters)
{
    nn_params *stores[] = {model->encoder.params, model->language.params};
    for (int store = 0; store < 2; store++)
        for (int i = 0; i < nn_params_count(stores[store]); i++)
            if (adapters || !nn_params_at(stores[store], i)->adapter)
                write_param(stores[store], i, ref_model_values(reference));
}

/* One step of the captioner on these ranks, into the capture. */
static void train(oracle_capture *capture, bridged_model *model, const batch_item *items)
{
    step_trainer trainer = {0};
    step_result result = {0};
    nn_params *stores[] = {model->encoder.params, model->language.params};
    trainer_desc desc = trainer_of(items);
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
        if (ref_model_trains(reference, grads->list[i].name))
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
                        .tokens = caption_tokens(SIDE),
                        .patch_values = PATCH_VALUES,
                        .words = CAPTION_WORDS,
                        .seq = SEQ,
                        .micro_batch = MICRO_BATCH,
                        .micro_batches = (SAMPLES + MICRO_BATCH - 1) / MICRO_BATCH,
                        .seed = SEED,
                        .bridge_dtype = MIMO_F32};
}

/* A step of a model whose parameters are those of the reference. */
static void check_step(bridged_model *model, ref_model *reference, const char *spec)
{
    static drawn data[SAMPLES];
    batch_item items[SAMPLES];
    ref_sample samples[SAMPLES];
    oracle_capture capture = {0};
    oracle_comparison comparison = {0};
    for (int64_t i = 0; i < SAMPLES; i++)
        draw(&data[i], &items[i], &samples[i], i);
    train(&capture, model, items);
    if (mpi_test_rank() == 0)
        expect_step(&comparison, reference, samples);
    MPI_EXPECT_OK(capture_collect(&capture, mpi_test_comm(), comparison_receive, &comparison));
    if (mpi_test_rank() == 0)
        judge(&comparison, spec);
    comparison_free(&comparison);
    capture_release(&capture);
}

static void check_pair(const char *encoder, const char *llm)
{
    rank_topology topology = {0};
    bridged_model model = {0};
    model_desc desc = small_model();
    ref_sizes sizes = sizes_of(&desc);
    ref_model *reference = ref_model_create(&sizes);
    const topology_desc grids = {.encoder = encoder, .llm = llm};
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), &grids));
    MPI_EXPECT_OK(model_create(&model, &topology, &desc));
    write_params(&model, reference, true);
    check_step(&model, reference, llm);
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

/* ------------------------------------- adapters of a file ------------------------------------- */

enum { ADAPTER_RANK = 4, MOST_FACTORS = 64, PATH_BYTES = 64, MOST_BYTES = 1 << 17 };
#define ADAPTER_ALPHA 6.5 /* and not what a run has by itself */

/* The linker calls it in place of adapter_read_config (meson.build). */
mimo_status __real_adapter_read_config(struct adapter_config **out, struct file_content *content,
                                       const char *folder);
mimo_status __wrap_adapter_read_config(struct adapter_config **out, struct file_content *content,
                                       const char *folder);

mimo_status __wrap_adapter_read_config(struct adapter_config **out, struct file_content *content,
                                       const char *folder)
{
    mimo_status status = __real_adapter_read_config(out, content, folder);
    if (status == MIMO_OK && MIMO_MUTATED("adapter-own-alpha"))
        (*out)->alpha = 16;
    return status;
}

static int by_name(const void *a, const void *b)
{
    const ref_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int list_factors(const ref_tensor *list[MOST_FACTORS], ref_model *reference)
{
    const ref_table *values = ref_model_values(reference);
    int count = 0;
    for (int i = 0; i < values->count; i++)
        if (strstr(values->list[i].name, ".lora_"))
            list[count++] = &values->list[i];
    qsort(list, (size_t)count, sizeof *list, by_name);
    return count;
}

static void write_folder(const char *path, ref_model *reference)
{
    static const char *const all[] = {ADAPTER_ALL_LINEAR};
    static float whole[MOST_BYTES / sizeof(float)];
    const struct adapter_config config = {
        .rank = ADAPTER_RANK, .alpha = ADAPTER_ALPHA, .targets = all, .target_count = 1};
    const ref_tensor *list[MOST_FACTORS];
    struct adapter_tensor tensors[MOST_FACTORS];
    adapter_writer *writer = NULL;
    int count = list_factors(list, reference);
    for (int i = 0; i < count; i++)
        tensors[i] =
            (struct adapter_tensor){list[i]->name, {list[i]->rows, list[i]->columns}, NULL};
    MPI_EXPECT_OK(
        adapter_create(&writer, path, &config, &(struct adapter_tensors){tensors, count}));
    for (int t = 0; t < count; t++) {
        for (int64_t i = 0; i < list[t]->rows * list[t]->columns; i++)
            whole[i] = (float)list[t]->data[i];
        MPI_EXPECT_OK(adapter_write(writer, t, whole));
    }
    MPI_EXPECT_OK(adapter_commit(writer));
}

/* Which row of the reference's tensor is row `row` in a LORA file: there all queries come first,
 * then all keys, then all values, and here one head after the other. */
static int64_t row_behind(const ref_tensor *tensor, int64_t row, int64_t heads)
{
    int64_t kind = tensor->rows / 3, width = kind / heads;
    if (!strstr(tensor->name, ".qkv.lora_B"))
        return row;
    return row % kind / width * 3 * width + row / kind * width + row % width;
}

static void put(FILE *file, const void *data, size_t bytes)
{
    MPI_EXPECT(fwrite(data, bytes, 1, file) == 1, "a full disk");
}

/* By hand, after InfiniTrain's description of the format. */
static void write_v1(const char *path, ref_model *reference)
{
    const ref_tensor *list[MOST_FACTORS];
    uint32_t count = (uint32_t)list_factors(list, reference), dims = 2;
    const uint32_t head[] = {0x4C4F5241, 1, count};
    FILE *file = fopen(path, "wb");
    put(file, head, sizeof head);
    for (uint32_t t = 0; t < count; t++) {
        const int64_t shape[] = {list[t]->rows, list[t]->columns};
        uint32_t length = (uint32_t)(strlen(list[t]->name) - strlen(".weight"));
        put(file, &length, sizeof length);
        put(file, list[t]->name, length);
        put(file, &dims, sizeof dims);
        put(file, shape, sizeof shape);
        for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
            int64_t row = row_behind(list[t], i / shape[1], small_model().heads);
            float value = (float)list[t]->data[row * shape[1] + i % shape[1]];
            put(file, &value, sizeof value);
        }
    }
    fclose(file);
}

static size_t bytes_of(const char *path, unsigned char *bytes)
{
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(bytes, 1, MOST_BYTES, file) : 0;
    if (file)
        fclose(file);
    return size;
}

static void expect_same_file(const char *path, const char *other)
{
    static unsigned char one[MOST_BYTES], two[MOST_BYTES];
    size_t size = bytes_of(path, one);
    MPI_EXPECT(size > 0 && size < MOST_BYTES && bytes_of(other, two) == size &&
                   memcmp(one, two, size) == 0,
               "%s and %s differ", path, other);
}

/* A model with the adapter of a file takes a step. Then it saves what it read as a LORA file. */
static void check_adapter(const struct options *options, ref_model *reference,
                          const topology_desc *grids, const char *out)
{
    rank_topology topology = {0};
    bridged_model model = {0};
    lora_setup setup = {0};
    model_desc desc = small_model();
    MPI_EXPECT_OK(lora_setup_make(&setup, options, mpi_test_comm()));
    desc.adapters = &setup.choice;
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), grids));
    MPI_EXPECT_OK(model_create(&model, &topology, &desc));
    write_params(&model, reference, false);
    MPI_EXPECT_OK(adapter_store_load(options->adapter, &setup, &model));
    MPI_EXPECT_OK(adapter_store_save(out, &setup, &model));
    check_step(&model, reference, options->adapter);
    model_destroy(&model);
    topology_destroy(&topology);
    lora_setup_release(&setup);
}

typedef char file_path[PATH_BYTES];

static void check_files(const topology_desc *grids, const file_path folder, ref_model *reference)
{
    char v1[2 * PATH_BYTES], out[2 * PATH_BYTES];
    const model_desc desc = small_model();
    snprintf(v1, sizeof v1, "%s/one.lora", folder);
    snprintf(out, sizeof out, "%s/out.lora", folder);
    if (mpi_test_rank() == 0) {
        write_folder(folder, reference);
        write_v1(v1, reference);
    }
    struct options options = {
        .adapter = folder, .encoder_layers = desc.encoder_layers, .llm_layers = desc.llm_layers};
    MPI_EXPECT_OK(mimo_comm_agree(mpi_test_comm(), MIMO_OK)); /* the files are there */
    check_adapter(&options, reference, grids, out);
    if (mpi_test_rank() == 0)
        expect_same_file(out, v1);
    options.adapter = v1;
    options.lora_alpha = ADAPTER_ALPHA;
    options.lora_targets = "all";
    check_adapter(&options, reference, grids, out);
    if (mpi_test_rank() == 0)
        expect_same_file(out, v1);
}

static void remove_files(const file_path folder)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors",
                                        "one.lora", "out.lora"};
    char path[2 * PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

MPI_TEST(captioner_reference, adapters_of_files)
{
    file_path folder = "/tmp/captioner-reference-XXXXXX";
    const topology_desc grids =
        mpi_test_size() == 1 ? (topology_desc){.encoder = "tp=1,dp=1", .llm = "tp=1,cp=1,dp=1"}
                             : (topology_desc){.encoder = "tp=2,dp=2", .llm = "tp=2,cp=2,dp=1"};
    model_desc desc = small_model();
    ref_sizes sizes = sizes_of(&desc);
    sizes.adapter = ADAPTER_RANK;
    sizes.adapter_alpha = ADAPTER_ALPHA;
    sizes.frozen = true;
    ref_model *reference = ref_model_create(&sizes);
    if (mpi_test_rank() == 0)
        MPI_EXPECT(mkdtemp(folder), "no folder %s", folder);
    MPI_EXPECT_OK(mimo_comm_broadcast(mpi_test_comm(), folder, sizeof folder, 0, NULL));
    check_files(&grids, folder, reference);
    if (mpi_test_rank() == 0)
        remove_files(folder);
    ref_model_destroy(reference);
}

/* What the layers exchange in a step. */
typedef struct exchanged {
    nn_exchange_counts encoder, llm, cp, loss;
} exchanged;

/* A step of one micro-batch, with 2 encoder layers and 4 of the LLM. */
static exchanged count_exchanges(const rank_topology *topology, const nn_lora_selection *adapters)
{
    static drawn data[SAMPLES];
    batch_item items[SAMPLES];
    ref_sample unused;
    bridged_model model = {0};
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

/* How often the captioner asked whether all ranks are well. The linker calls it in place of
 * mimo_comm_agree (meson.build). */
static int64_t agreements;
mimo_status __real_mimo_comm_agree(mimo_comm *comm, mimo_status status);
mimo_status __wrap_mimo_comm_agree(mimo_comm *comm, mimo_status status);

mimo_status __wrap_mimo_comm_agree(mimo_comm *comm, mimo_status status)
{
    agreements++;
    return __real_mimo_comm_agree(comm, status);
}

static int64_t count_agreements(const rank_topology *topology, int64_t samples)
{
    static drawn data[SAMPLES];
    batch_item items[SAMPLES];
    ref_sample unused;
    bridged_model model = {0};
    step_trainer trainer = {0};
    step_result result = {0};
    model_desc desc = small_model();
    desc.micro_batch = samples;
    for (int64_t i = 0; i < SAMPLES; i++)
        draw(&data[i], &items[i], &unused, i);
    const trainer_desc training = trainer_of(items);
    MPI_EXPECT_OK(model_create(&model, topology, &desc));
    MPI_EXPECT_OK(trainer_create(&trainer, &model, &training));
    MPI_EXPECT_OK(train_step(&trainer, 0, &result)); /* the first one makes what is kept */
    agreements = 0;
    MPI_EXPECT_OK(train_step(&trainer, 1, &result));
    int64_t counted = agreements;
    trainer_destroy(&trainer);
    model_destroy(&model);
    return counted;
}

/* Stages of a pipeline are at different micro-batches: ranks that agreed in between would wait for
 * each other. So they agree on the texts of a whole step, before the first forward. */
MPI_TEST(captioner_reference, agreements_of_a_step)
{
    rank_topology topology = {0};
    char encoder[32], llm[32];
    snprintf(encoder, sizeof encoder, "tp=1,dp=%d", mpi_test_size());
    snprintf(llm, sizeof llm, "tp=%d,cp=1,dp=1", mpi_test_size());
    const topology_desc grids = {.encoder = encoder, .llm = llm};
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), &grids));
    int64_t one = count_agreements(&topology, SAMPLES),
            three = count_agreements(&topology, MICRO_BATCH);
    MPI_EXPECT(one == 1 && three == 1, "%d agreements in a step of one micro-batch, %d of three",
               (int)one, (int)three);
    topology_destroy(&topology);
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
    const nn_lora_selection everywhere = {.adapter = {.rank = 4, .alpha = 8}};
    const nn_lora_selection head_alone = {
        .adapter = everywhere.adapter, .targets = &head, .n_targets = 1};
    rank_topology topology = {0};
    const topology_desc grids = {.encoder = "tp=2,dp=4", .llm = "tp=2,cp=2,dp=2"};
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
    bridged_model model = {0};
    step_trainer trainer = {0};
    step_result result = {0};
    const nn_runtime_desc order = {.memory = MIMO_MEMORY_HOST, .order = NN_ORDER_FIXED};
    const topology_desc grids = {.encoder = "tp=1,dp=1", .llm = "tp=1,cp=1,dp=1"};
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
    int64_t count = model.batch.pictures * model.batch.desc.tokens * model.desc.hidden;
    const nn_real *brought = model.images.places[0].src_tile;
    MPI_EXPECT(count > 0, "the step had no rows");
    for (int64_t i = 0; i < count; i++)
        MPI_EXPECT(brought[i] == 0 && !signbit(brought[i]), "element %d is %a", (int)i,
                   (double)brought[i]);
    trainer_destroy(&trainer);
    model_destroy(&model);
    topology_destroy(&topology);
    nn_runtime_release(&runtime);
}
