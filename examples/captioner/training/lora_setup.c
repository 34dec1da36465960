#include "captioner/training/lora_setup.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/formats/adapter_file.h"
#include "train/formats/lora_v1_file.h"
#include "train/model/layer_layout.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "captioner/training/same_file.h"

#define ALL "all"
static const char *const default_targets = "qkv,out,up,down";
enum { DEFAULT_ALPHA = 16, NAME_CAPACITY = 80, LIST_CAPACITY = 400 };

bool lora_is_v1(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".lora") == 0;
}

/* ------------------------------------------ targets ------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int64_t count_parts(const char *list)
{
    int64_t parts = 1;
    for (const char *comma = list; (comma = strchr(comma, ',')); comma++)
        parts++;
    return parts;
}

/* Sorted, each once. Returns how many are left. */
static int64_t sort_targets(char **targets, int64_t n)
{
    int64_t kept = 0;
    qsort(targets, (size_t)n, sizeof *targets, by_bytes);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(targets[kept - 1], targets[i]) != 0)
            targets[kept++] = targets[i];
    return kept;
}

/* A configuration with the targets of a list with commas, in one piece like one that is read: the
 * struct, the array of targets, their texts. */
static mimo_status make_config(struct adapter_config **out, const char *list)
{
    const char *text = strcmp(list, ALL) == 0 ? ADAPTER_ALL_LINEAR : list;
    int64_t most = count_parts(text), length = (int64_t)strlen(text) + 1, n = 0;
    struct adapter_config *made;
    TRY(memory_reserve(&made, (int64_t)sizeof *made + most * (int64_t)sizeof(char *) + length, 1));
    char **targets = (char **)(made + 1), *rest = NULL;
    char *texts = memcpy(targets + most, text, (size_t)length);
    for (char *part = strtok_r(texts, ",", &rest); part; part = strtok_r(NULL, ",", &rest))
        targets[n++] = part;
    made->targets = (const char *const *)targets;
    made->target_count = sort_targets(targets, n);
    if (n == 0) {
        memory_release(made);
        return mimo_fail(MIMO_ERR_ARGUMENT, "--lora-targets \"%s\" names no layer", list);
    }
    *out = made;
    return MIMO_OK;
}

/* A walk over the names of linear layers, in search of one that is chosen. */
typedef struct layer_walk {
    const nn_lora_selection *choice;
    char name[NAME_CAPACITY];
    bool found;
} layer_walk;

__attribute__((format(printf, 2, 3))) static void visit_layer(layer_walk *walk, const char *format,
                                                              ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(walk->name, sizeof walk->name, format, values);
    va_end(values);
    walk->found = walk->found || nn_lora_for(walk->choice, walk->name);
}

static void visit_attention(layer_walk *walk, const char *module, int64_t block)
{
    visit_layer(walk, "%s.block%" PRId64 ".attention.qkv", module, block);
    visit_layer(walk, "%s.block%" PRId64 ".attention.out", module, block);
}

/* An MLP's layers, or those of each expert in its place. */
static void visit_mlp(layer_walk *walk, const char *module, int64_t block, int64_t experts)
{
    bool mixture = experts > 0 && layer_layout_mixes(block);
    for (int64_t e = 0; e < experts && mixture && !walk->found; e++) {
        visit_layer(walk, "%s.block%" PRId64 ".mlp.experts.%" PRId64 ".up", module, block, e);
        visit_layer(walk, "%s.block%" PRId64 ".mlp.experts.%" PRId64 ".down", module, block, e);
    }
    if (mixture)
        return;
    visit_layer(walk, "%s.block%" PRId64 ".mlp.up", module, block);
    visit_layer(walk, "%s.block%" PRId64 ".mlp.down", module, block);
}

/* Blocks of a pattern may have one half alone. */
static mimo_status visit_blocks(layer_walk *walk, const char *module, const layer_layout_desc *desc,
                                int64_t experts)
{
    layer_layout layout = {0};
    mimo_status status = layer_layout_create(&layout, desc);
    for (int64_t i = 0; status == MIMO_OK && i < layout.items && !walk->found; i++) {
        const nn_block_kind *kind = layer_layout_kind(&layout, i);
        if (kind != &nn_block_mlp)
            visit_attention(walk, module, i);
        if (kind != &nn_block_attention)
            visit_mlp(walk, module, i, experts);
    }
    layer_layout_release(&layout);
    return status;
}

/* Whether any linear layer of the two modules gets an adapter by this target. */
static mimo_status find_layer(bool *found, const char *target, const struct options *options)
{
    const char *const targets[] = {target};
    const nn_lora_selection choice = {.targets = targets, .n_targets = 1};
    layer_walk walk = {.choice = &choice};
    visit_layer(&walk, "encoder.patch");
    visit_layer(&walk, "encoder.project");
    visit_layer(&walk, "llm.head");
    const layer_layout_desc encoder = {.layers = options->encoder_layers, .stages = 1, .chunks = 1};
    const layer_layout_desc llm = {options->llm_pattern, options->llm_layers, 1, 1};
    TRY(visit_blocks(&walk, "encoder", &encoder, 0));
    TRY(visit_blocks(&walk, "llm", &llm, options->experts));
    *found = walk.found;
    return MIMO_OK;
}

static mimo_status check_targets(const struct adapter_config *config, const struct options *options)
{
    for (int64_t i = 0; i < config->target_count; i++) {
        bool found = false;
        if (strcmp(config->targets[i], ADAPTER_ALL_LINEAR) == 0) {
            CHECK(config->target_count == 1, MIMO_ERR_ARGUMENT,
                  "--lora-targets: \"%s\" is there beside other targets", ADAPTER_ALL_LINEAR);
            continue;
        }
        TRY(find_layer(&found, config->targets[i], options));
        CHECK(found, MIMO_ERR_ARGUMENT,
              "%s \"%s\": no linear layer ends with \".%s\"; there are: patch, project, "
              "attention.qkv, attention.out, mlp.up, mlp.down%s, head",
              options->adapter ? options->adapter : "--lora-targets", config->targets[i],
              config->targets[i],
              options->experts > 0 ? ", experts.0.up, experts.0.down and so on" : "");
    }
    return MIMO_OK;
}

/* -------------------------------------------- setup ------------------------------------------- */

/* Targets with commas between them, as far as there is room. */
static const char *join_targets(char *to, size_t capacity, const struct adapter_config *config)
{
    size_t length = 0;
    to[0] = '\0';
    for (int64_t i = 0; i < config->target_count && length < capacity; i++)
        length += (size_t)snprintf(to + length, capacity - length, i > 0 ? ",%s" : "%s",
                                   config->targets[i]);
    return to;
}

static mimo_status check_equal(const struct adapter_config *given,
                               const struct adapter_config *config, const char *adapter)
{
    char flag[LIST_CAPACITY], file[LIST_CAPACITY];
    bool same = given->target_count == config->target_count;
    for (int64_t i = 0; same && i < given->target_count; i++)
        same = strcmp(given->targets[i], config->targets[i]) == 0;
    CHECK(same, MIMO_ERR_ARGUMENT, "--lora-targets is %s, but the adapter in %s has %s",
          join_targets(flag, sizeof flag, given), adapter, join_targets(file, sizeof file, config));
    return MIMO_OK;
}

/* The flags --lora-... beside an adapter may repeat what it says. */
static mimo_status check_flags(const struct adapter_config *config, const struct options *options,
                               const struct adapter_config *given)
{
    CHECK(options->lora_rank == 0 || options->lora_rank == config->rank, MIMO_ERR_ARGUMENT,
          "--lora-rank is %" PRId64 ", but the adapter in %s has r %" PRId64, options->lora_rank,
          options->adapter, config->rank);
    CHECK(options->lora_alpha <= 0 || options->lora_alpha == config->alpha, MIMO_ERR_ARGUMENT,
          "--lora-alpha is %g, but the adapter in %s has lora_alpha %g", options->lora_alpha,
          options->adapter, config->alpha);
    CHECK(!options->lora_rslora || config->rslora, MIMO_ERR_ARGUMENT,
          "--lora-rslora is given, but the adapter in %s has use_rslora false", options->adapter);
    return given ? check_equal(given, config, options->adapter) : MIMO_OK;
}

static mimo_status read_folder(struct adapter_config **out, struct file_content *content,
                               const struct options *options)
{
    struct adapter_config *given = NULL;
    TRY(adapter_read_config(out, content, options->adapter));
    CHECK((*out)->alpha > 0, MIMO_ERR_ARGUMENT,
          "the adapter in %s has lora_alpha %g, and not a number above 0", options->adapter,
          (*out)->alpha);
    if (options->lora_targets)
        TRY(make_config(&given, options->lora_targets));
    mimo_status status = check_flags(*out, options, given);
    memory_release(given);
    return status;
}

/* A LORA v1 file knows its rank, and nothing of alpha and targets. */
static mimo_status read_v1(struct adapter_config **out, struct file_content *content,
                           const struct options *options)
{
    lora_v1_file *file = NULL;
    CHECK(options->lora_alpha > 0, MIMO_ERR_ARGUMENT,
          "%s says nothing of alpha: give --lora-alpha with it", options->adapter);
    TRY(lora_v1_open(&file, options->adapter));
    int64_t rank = lora_v1_rank(file);
    mimo_status status = lora_v1_content(content, file);
    lora_v1_close(file);
    TRY(status);
    CHECK(rank > 0, MIMO_ERR_IO, "%s is a LORA file without a tensor", options->adapter);
    TRY(make_config(out, options->lora_targets ? options->lora_targets : default_targets));
    (*out)->rank = rank;
    (*out)->alpha = options->lora_alpha;
    (*out)->rslora = options->lora_rslora;
    return check_flags(*out, options, NULL);
}

static mimo_status read_flags(struct adapter_config **out, const struct options *options)
{
    TRY(make_config(out, options->lora_targets ? options->lora_targets : default_targets));
    (*out)->rank = options->lora_rank;
    (*out)->alpha = options->lora_alpha > 0 ? options->lora_alpha : DEFAULT_ALPHA;
    (*out)->rslora = options->lora_rslora;
    return MIMO_OK;
}

mimo_status lora_setup_read(lora_setup *out, struct file_content *content,
                            const struct options *options)
{
    TRY(!options->adapter              ? read_flags(&out->config, options)
        : lora_is_v1(options->adapter) ? read_v1(&out->config, content, options)
                                       : read_folder(&out->config, content, options));
    const struct adapter_config *config = out->config;
    TRY(check_targets(config, options));
    bool all = strcmp(config->targets[0], ADAPTER_ALL_LINEAR) == 0;
    out->on = true;
    out->other_base = options->adapter_other_base;
    out->waits = options->survive ? FILE_WAIT_SHORT : FILE_WAIT_LONG;
    out->choice = (nn_lora_selection){
        .adapter = {.rank = config->rank, .alpha = config->alpha, .rslora = config->rslora},
        .targets = all ? NULL : config->targets,
        .n_targets = (int)config->target_count};
    return MIMO_OK;
}

mimo_status lora_setup_make(lora_setup *out, const struct options *options, mimo_comm *world)
{
    const char *path = options->adapter;
    struct file_content content = {0};
    if (!options_have_adapters(options))
        return MIMO_OK;
    mimo_status made = lora_setup_read(out, &content, options);
    if (!path)
        return mimo_comm_agree(world, made);
    const char *kind = lora_is_v1(path) ? "the adapter" : "the configuration of the adapter";
    const opened_file read = {kind, path, content, -1};
    return same_file_agree(world, made, &read);
}

void lora_setup_release(lora_setup *setup)
{
    memory_release(setup->config);
    *setup = (lora_setup){0};
}
