/* Adapters of files that the captioner did not write: values known beforehand, in a folder of PEFT
 * and in a LORA file, reach the ranks that hold them, and leave as that LORA file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captioner/captions/caption_batch.h"
#include "captioner/training/adapter_store.h"
#include "core/mutation.h"
#include "mpi_test.h"
#include "shared_folder.h"
#include "train/formats/adapter_file.h"
#include "train/support/train_support.h"

enum { RANK = 4, HEADS = 8, MOST_FACTORS = 64, PATH_BYTES = 64, MOST_BYTES = 1 << 17 };
#define ALPHA 6.5 /* and not what a run has by itself */

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

static float value_of(const char *name, int64_t index)
{
    uint64_t hash = hash_int(hash_bytes(HASH_START, name, strlen(name)), index);
    return (float)(hash % 2001) / 1000 - 1;
}

/* -------------------------------------------- files ------------------------------------------- */

/* In the order of their names, as a LORA file has them. */
typedef struct factors {
    struct adapter_tensor list[MOST_FACTORS];
    char names[MOST_FACTORS][80];
    int count;
} factors;

static int by_name(const void *a, const void *b)
{
    const struct adapter_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void list_factors(factors *out, const bridged_model *model)
{
    const nn_params *stores[] = {model->encoder.params, model->language.params};
    for (int store = 0; store < MODEL_STORES; store++)
        for (int i = 0; i < nn_params_count(stores[store]); i++) {
            const nn_param *param = nn_params_at(stores[store], i);
            const int64_t *shape = param->placement.shape;
            if (!param->adapter)
                continue;
            char *name = strcpy(out->names[out->count], param->name);
            out->list[out->count++] = (struct adapter_tensor){name, {shape[0], shape[1]}, NULL};
        }
    qsort(out->list, (size_t)out->count, sizeof *out->list, by_name);
}

static void write_folder(const char *path, const factors *all)
{
    static const char *const targets[] = {ADAPTER_ALL_LINEAR};
    static float whole[MOST_BYTES / sizeof(float)];
    const struct adapter_config config = {
        .rank = RANK, .alpha = ALPHA, .targets = targets, .target_count = 1};
    struct adapter_tensor list[MOST_FACTORS];
    adapter_writer *writer = NULL;
    memcpy(list, all->list, sizeof list);
    MPI_EXPECT_OK(
        adapter_create(&writer, path, &config, &(struct adapter_tensors){list, all->count}));
    for (int t = 0; t < all->count; t++) {
        for (int64_t i = 0; i < list[t].shape[0] * list[t].shape[1]; i++)
            whole[i] = value_of(list[t].name, i);
        MPI_EXPECT_OK(adapter_write(writer, t, whole));
    }
    MPI_EXPECT_OK(adapter_commit(writer));
}

/* Which row of a factor is row `row` in a LORA file: there all queries come first, then all keys,
 * then all values, and here one head after the other. */
static int64_t row_behind(const struct adapter_tensor *tensor, int64_t row)
{
    int64_t kind = tensor->shape[0] / 3, width = kind / HEADS;
    if (!strstr(tensor->name, ".qkv.lora_B"))
        return row;
    return row % kind / width * 3 * width + row / kind * width + row % width;
}

static void put(FILE *file, const void *data, size_t bytes)
{
    MPI_EXPECT(fwrite(data, bytes, 1, file) == 1, "a full disk");
}

/* By hand, after InfiniTrain's description of the format. */
static void write_v1(const char *path, const factors *all)
{
    uint32_t dims = 2;
    const uint32_t head[] = {0x4C4F5241, 1, (uint32_t)all->count};
    FILE *file = fopen(path, "wb");
    put(file, head, sizeof head);
    for (int t = 0; t < all->count; t++) {
        const struct adapter_tensor *tensor = &all->list[t];
        const int64_t *shape = tensor->shape;
        uint32_t length = (uint32_t)(strlen(tensor->name) - strlen(".weight"));
        put(file, &length, sizeof length);
        put(file, tensor->name, length);
        put(file, &dims, sizeof dims);
        put(file, shape, sizeof tensor->shape);
        for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
            int64_t row = row_behind(tensor, i / shape[1]);
            float value = value_of(tensor->name, row * shape[1] + i % shape[1]);
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

/* -------------------------------------------- models ------------------------------------------ */

static model_desc small_model(const nn_lora_selection *adapters)
{
    return (model_desc){.hidden = 32,
                        .heads = HEADS,
                        .encoder_layers = 1,
                        .llm_layers = 2,
                        .tokens = 4,
                        .patch_values = PATCH_VALUES,
                        .words = CAPTION_WORDS,
                        .seq = 16,
                        .micro_batch = 4,
                        .bridge_dtype = MIMO_F32,
                        .adapters = adapters};
}

/* This rank's part of a factor. */
static void expect_values(const nn_params *store, int index)
{
    const nn_param *param = nn_params_at(store, index);
    int64_t row = param->placement.cut == 0 ? param->start : 0;
    int64_t column = param->placement.cut == 1 ? param->start : 0;
    nn_real *part = calloc((size_t)param->count + 1, sizeof *part);
    MPI_EXPECT_OK(nn_params_read(store, index, NN_VALUE, part));
    for (int64_t i = 0; i < param->count; i++) {
        int64_t at =
            (row + i / param->local[1]) * param->placement.shape[1] + column + i % param->local[1];
        float wanted = value_of(param->name, at);
        MPI_EXPECT(part[i] == wanted, "element %lld of %s is %g, not %g", (long long)at,
                   param->name, (double)part[i], (double)wanted);
    }
    free(part);
}

static void expect_factors(const bridged_model *model, const factors *all)
{
    const nn_params *stores[] = {model->encoder.params, model->language.params};
    int count = 0;
    for (int store = 0; store < MODEL_STORES; store++)
        for (int i = 0; i < nn_params_count(stores[store]); i++)
            if (nn_params_at(stores[store], i)->adapter) {
                expect_values(stores[store], i);
                count++;
            }
    MPI_EXPECT(count == all->count && count > 0, "%d factors, not %d", count, all->count);
}

/* A model takes the adapter of a file, and saves what it took as a LORA file. */
static void check_adapter(const struct options *options, const rank_topology *topology,
                          const factors *all, const char *out)
{
    bridged_model model = {0};
    lora_setup setup = {0};
    MPI_EXPECT_OK(lora_setup_make(&setup, options, mpi_test_comm()));
    MPI_EXPECT(setup.choice.adapter.rank == RANK && setup.choice.adapter.alpha == ALPHA,
               "rank %d, alpha %g", (int)setup.choice.adapter.rank, setup.choice.adapter.alpha);
    const model_desc desc = small_model(&setup.choice);
    MPI_EXPECT_OK(model_create(&model, topology, &desc));
    MPI_EXPECT_OK(adapter_store_load(options->adapter, &setup, &model));
    expect_factors(&model, all);
    MPI_EXPECT_OK(adapter_store_save(out, &setup, &model));
    model_destroy(&model);
    lora_setup_release(&setup);
}

static void find_factors(factors *out, const rank_topology *topology)
{
    const nn_lora_selection everywhere = {.adapter = {.rank = RANK, .alpha = ALPHA}};
    const model_desc desc = small_model(&everywhere);
    bridged_model model = {0};
    MPI_EXPECT_OK(model_create(&model, topology, &desc));
    list_factors(out, &model);
    model_destroy(&model);
}

typedef char file_path[PATH_BYTES];

static void check_files(const rank_topology *topology, const char *folder)
{
    static factors all;
    const model_desc desc = small_model(NULL);
    char v1[2 * PATH_BYTES], out[2 * PATH_BYTES];
    snprintf(v1, sizeof v1, "%s/one.lora", folder);
    snprintf(out, sizeof out, "%s/out.lora", folder);
    find_factors(&all, topology);
    if (mpi_test_rank() == 0) {
        write_folder(folder, &all);
        write_v1(v1, &all);
    }
    const char *const sources[] = {folder, v1};
    for (int i = 0; i < 2; i++) {
        const struct options options = {.adapter = sources[i],
                                        .encoder_layers = desc.encoder_layers,
                                        .llm_layers = desc.llm_layers,
                                        .lora_alpha = i == 0 ? 0 : ALPHA,
                                        .lora_targets = i == 0 ? NULL : "all"};
        MPI_EXPECT_OK(mimo_comm_agree(mpi_test_comm(), MIMO_OK)); /* the files are there */
        check_adapter(&options, topology, &all, out);
        if (mpi_test_rank() == 0)
            expect_same_file(out, v1);
    }
}

MPI_TEST(captioner_adapters, of_other_programs)
{
    char folder[SHARED_FOLDER];
    rank_topology topology = {0};
    const topology_desc grids =
        mpi_test_size() == 1 ? (topology_desc){.encoder = "tp=1,dp=1", .llm = "tp=1,cp=1,dp=1"}
                             : (topology_desc){.encoder = "tp=2,dp=2", .llm = "tp=2,cp=2,dp=1"};
    shared_folder_make(folder);
    MPI_EXPECT_OK(topology_create(&topology, mpi_test_comm(), &grids));
    check_files(&topology, folder);
    topology_destroy(&topology);
    shared_folder_remove(folder);
}
