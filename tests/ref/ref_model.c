#include "ref_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_block.h"
#include "ref_random.h"

/* The matrices of one sample: before each block, after the last block, after the norm. And their
 * gradient. */
typedef struct ref_tower {
    ref_block *blocks;
    ref_norm norm;
    int64_t layers, rows;
    double **x; /* [layers + 2] of [rows, H] */
    double *d;  /* [rows, H] */
} ref_tower;

enum { MOST_LINEARS = 64 };

struct ref_model {
    ref_sizes sizes;
    ref_table values, grads;
    ref_tower encoder, llm;
    ref_linear patch, project, head;
    ref_linear *adapted[MOST_LINEARS]; /* those with an adapter */
    int adapters;
    ref_param places, text, positions; /* tables [P, H], [text vocabulary, H], [S, H] */
    double *rows, *merged;             /* [P, H], [S, H] */
    double *logits, *d_logits;         /* [S, vocabulary] */
    double *d_rows;                    /* [P, H] */
};

/* ---------------------------------------- parameters ---------------------------------------- */

typedef struct spread {
    double about, std;
    bool uniform; /* in (-std, std], and not normal */
} spread;

static ref_param add_param(ref_model *model, const char *layer, const char *part, int64_t rows,
                           int64_t columns, spread s)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    ref_param param = {ref_add(&model->values, name, rows, columns),
                       ref_add(&model->grads, name, rows, columns)};
    double *value = ref_find(&model->values, name)->data;
    uint64_t key = ref_key(model->sizes.seed, name);
    for (int64_t i = 0; i < rows * columns; i++) {
        /* rounded to f32 at each step, as the library stores it */
        float away = (float)(s.std * (s.uniform ? ref_uniform(key, i) : ref_normal(key, i)));
        value[i] = (double)((float)s.about + away);
    }
    return param;
}

bool ref_model_trains(const ref_model *model, const char *name)
{
    return !model->sizes.frozen || strstr(name, "lora_");
}

static ref_param add_matrix(ref_model *model, const char *layer, const char *part, int64_t rows,
                            int64_t columns, spread s)
{
    ref_param param = add_param(model, layer, part, rows, columns, s);
    model->values.list[model->values.count - 1].decays = ref_model_trains(model, part);
    return param;
}

static void add_adapter(ref_model *model, ref_linear *layer, const char *name)
{
    int64_t rank = model->sizes.adapter, in = layer->in, out = layer->out;
    layer->rank = rank;
    layer->scale = model->sizes.adapter_alpha / (double)rank;
    layer->effective = ref_room(in * out);
    layer->a =
        add_matrix(model, name, "lora_A.weight", rank, in, (spread){0, 1 / sqrt((double)in), true});
    layer->b =
        add_matrix(model, name, "lora_B.weight", out, rank, (spread){0, REF_ADAPTER_STD, false});
    model->adapted[model->adapters++] = layer;
}

/* A part of the text is the name, or its end behind a dot. */
static bool is_adapted(const ref_sizes *sizes, const char *name)
{
    const char *end = sizes->adapted;
    size_t length = strlen(name), part;
    if (sizes->adapter == 0 || !end)
        return sizes->adapter > 0;
    for (; *end; end += part + (end[part] == ',')) {
        part = strcspn(end, ",");
        bool fits = part <= length && memcmp(name + length - part, end, part) == 0;
        if (fits && (part == length || name[length - part - 1] == '.'))
            return true;
    }
    return false;
}

/* The head has no bias. */
static void add_linear(ref_model *model, ref_linear *layer, const char *name, double std)
{
    layer->weight =
        add_matrix(model, name, "weight", layer->out, layer->in, (spread){0, std, false});
    if (layer != &model->head)
        layer->bias = add_param(model, name, "bias", layer->out, 1, (spread){0, 0.1, false});
    if (is_adapted(&model->sizes, name))
        add_adapter(model, layer, name);
}

static ref_norm add_norm(ref_model *model, const char *name)
{
    ref_norm layer = {.width = model->sizes.hidden};
    layer.scale = add_param(model, name, "scale", layer.width, 1, (spread){1, 0.1, false});
    layer.shift = add_param(model, name, "shift", layer.width, 1, (spread){0, 0.1, false});
    return layer;
}

static void add_moe(ref_model *model, ref_moe *moe, const char *name, int64_t layers)
{
    char part[64];
    int64_t hidden = model->sizes.hidden;
    double std = 0.5 / sqrt((double)hidden), out_std = std / sqrt(2.0 * (double)layers);
    snprintf(part, sizeof part, "%s.mlp.router", name);
    moe->router = add_matrix(model, part, "weight", moe->experts, hidden, (spread){0, std, false});
    if (model->sizes.twins) {
        double *rows = model->values.list[model->values.count - 1].data;
        memcpy(rows + hidden, rows, (size_t)hidden * sizeof *rows);
    }
    for (int64_t e = 0; e < moe->experts; e++) {
        moe->up[e] = (ref_linear){.in = hidden, .out = moe->inner};
        snprintf(part, sizeof part, "%s.mlp.experts.%d.up", name, (int)e);
        add_linear(model, &moe->up[e], part, std);
        moe->down[e] = (ref_linear){.in = moe->inner, .out = hidden};
        snprintf(part, sizeof part, "%s.mlp.experts.%d.down", name, (int)e);
        add_linear(model, &moe->down[e], part, out_std);
    }
}

static void add_block(ref_model *model, ref_block *block, const char *name, int64_t layers)
{
    char part[48];
    int64_t hidden = model->sizes.hidden;
    double std = 0.5 / sqrt((double)hidden), out_std = std / sqrt(2.0 * (double)layers);
    block->hidden = hidden;
    block->inner = 4 * hidden;
    block->attention.heads = model->sizes.heads;
    snprintf(part, sizeof part, "%s.norm1", name);
    block->norm1 = add_norm(model, part);
    snprintf(part, sizeof part, "%s.attention.qkv", name);
    block->attention.qkv = (ref_linear){.in = hidden, .out = 3 * hidden};
    add_linear(model, &block->attention.qkv, part, std);
    snprintf(part, sizeof part, "%s.attention.out", name);
    block->attention.out = (ref_linear){.in = hidden, .out = hidden};
    add_linear(model, &block->attention.out, part, out_std);
    snprintf(part, sizeof part, "%s.norm2", name);
    block->norm2 = add_norm(model, part);
    if (block->moe.experts > 0) {
        add_moe(model, &block->moe, name, layers);
        return;
    }
    snprintf(part, sizeof part, "%s.mlp.up", name);
    block->up = (ref_linear){.in = hidden, .out = 4 * hidden};
    add_linear(model, &block->up, part, std);
    snprintf(part, sizeof part, "%s.mlp.down", name);
    block->down = (ref_linear){.in = 4 * hidden, .out = hidden};
    add_linear(model, &block->down, part, out_std);
}

static void reserve_moe(const ref_model *model, ref_moe *moe, int64_t rows)
{
    const ref_sizes *sizes = &model->sizes;
    moe->hidden = moe->inner = sizes->hidden;
    moe->experts = sizes->experts;
    moe->top_k = sizes->top_k;
    moe->balance = sizes->balance;
    moe->others_every = sizes->others_every;
    ref_moe_reserve(moe, rows);
}

static void add_tower(ref_model *model, ref_tower *tower, const char *name)
{
    char part[32];
    int64_t elements = tower->rows * model->sizes.hidden;
    tower->blocks = calloc((size_t)tower->layers + 1, sizeof *tower->blocks);
    tower->x = calloc((size_t)tower->layers + 2, sizeof *tower->x);
    for (int64_t i = 0; i < tower->layers; i++) {
        snprintf(part, sizeof part, "%s.block%d", name, (int)i);
        if (tower == &model->llm && i % 2 == 1 && model->sizes.experts > 0)
            reserve_moe(model, &tower->blocks[i].moe, tower->rows);
        add_block(model, &tower->blocks[i], part, tower->layers);
        ref_block_reserve(&tower->blocks[i], tower->rows);
    }
    snprintf(part, sizeof part, "%s.norm", name);
    tower->norm = add_norm(model, part);
    for (int64_t i = 0; i < tower->layers + 2; i++)
        tower->x[i] = ref_room(elements);
    tower->d = ref_room(elements);
}

static void free_tower(ref_tower *tower)
{
    for (int64_t i = 0; i < tower->layers; i++)
        ref_block_free(&tower->blocks[i]);
    for (int64_t i = 0; i < tower->layers + 2; i++)
        free(tower->x[i]);
    free(tower->x);
    free(tower->d);
    free(tower->blocks);
}

static void add_encoder(ref_model *model)
{
    const ref_sizes *sizes = &model->sizes;
    double patch_std = 1 / sqrt((double)sizes->patch_values);
    model->encoder = (ref_tower){.layers = sizes->encoder_layers, .rows = sizes->image_tokens};
    model->patch = (ref_linear){.in = sizes->patch_values, .out = sizes->hidden};
    add_linear(model, &model->patch, "encoder.patch", patch_std);
    model->places = add_param(model, "encoder.position", "weight", sizes->image_tokens,
                              sizes->hidden, (spread){0, 0.02, false});
    add_tower(model, &model->encoder, "encoder");
    model->project = (ref_linear){.in = sizes->hidden, .out = sizes->hidden};
    add_linear(model, &model->project, "encoder.project", 1 / sqrt((double)sizes->hidden));
}

static void add_llm(ref_model *model)
{
    const ref_sizes *sizes = &model->sizes;
    model->llm = (ref_tower){.layers = sizes->llm_layers, .rows = sizes->seq};
    model->text = add_param(model, "llm.text", "weight", sizes->text_vocabulary, sizes->hidden,
                            (spread){0, 0.02, false});
    model->positions = add_param(model, "llm.position", "weight", sizes->seq, sizes->hidden,
                                 (spread){0, 0.02, false});
    add_tower(model, &model->llm, "llm");
    for (int64_t i = 0; i < sizes->llm_layers; i++)
        model->llm.blocks[i].attention.causal = true;
    model->head = (ref_linear){.in = sizes->hidden, .out = sizes->vocabulary};
    add_linear(model, &model->head, "llm.head", 0.02);
}

ref_model *ref_model_create(const ref_sizes *sizes)
{
    ref_model *model = calloc(1, sizeof *model);
    model->sizes = *sizes;
    add_encoder(model);
    add_llm(model);
    model->rows = ref_room(sizes->image_tokens * sizes->hidden);
    model->d_rows = ref_room(sizes->image_tokens * sizes->hidden);
    model->merged = ref_room(sizes->seq * sizes->hidden);
    model->logits = ref_room(sizes->seq * sizes->vocabulary);
    model->d_logits = ref_room(sizes->seq * sizes->vocabulary);
    return model;
}

void ref_model_destroy(ref_model *model)
{
    double *rooms[] = {model->rows, model->d_rows, model->merged, model->logits, model->d_logits};
    for (int i = 0; i < model->adapters; i++)
        free(model->adapted[i]->effective);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free(rooms[i]);
    free_tower(&model->encoder);
    free_tower(&model->llm);
    ref_free(&model->values);
    ref_free(&model->grads);
    free(model);
}

ref_table *ref_model_values(ref_model *model)
{
    return &model->values;
}

ref_table *ref_model_grads(ref_model *model)
{
    return &model->grads;
}

/* ------------------------------------------ forward ----------------------------------------- */

/* Runs the blocks and the norm on tower->x[0]. The result is the last of tower->x. */
static const double *run_tower(ref_tower *tower)
{
    double **x = tower->x;
    for (int64_t i = 0; i < tower->layers; i++)
        ref_block_forward(&tower->blocks[i], x[i + 1], x[i], tower->rows);
    ref_norm_forward(&tower->norm, x[tower->layers + 1], x[tower->layers], tower->rows);
    return x[tower->layers + 1];
}

static void encode(ref_model *model, const ref_sample *sample)
{
    int64_t elements = model->encoder.rows * model->sizes.hidden;
    ref_linear_forward(&model->patch, model->encoder.x[0], sample->patches, model->encoder.rows);
    for (int64_t i = 0; i < elements; i++)
        model->encoder.x[0][i] += model->places.value[i];
    const double *normed = run_tower(&model->encoder);
    ref_linear_forward(&model->project, model->rows, normed, model->encoder.rows);
}

static void merge(ref_model *model, const ref_sample *sample)
{
    int64_t hidden = model->sizes.hidden, image = 0;
    for (int64_t s = 0; s < model->sizes.seq; s++) {
        const double *from = sample->ids[s] == model->sizes.image_id
                                 ? model->rows + image++ * hidden
                                 : model->text.value + sample->ids[s] * hidden;
        memcpy(model->merged + s * hidden, from, (size_t)hidden * sizeof *from);
    }
    for (int64_t i = 0; i < model->sizes.seq * hidden; i++)
        model->llm.x[0][i] = model->merged[i] + model->positions.value[i];
}

static void compute_logits(ref_model *model)
{
    const double *normed = run_tower(&model->llm);
    ref_linear_forward(&model->head, model->logits, normed, model->sizes.seq);
}

/* ----------------------------------------- backward ----------------------------------------- */

/* From the gradient of the norm's output to that of tower->x[0]. Both are in tower->d. */
static void run_tower_backward(ref_tower *tower)
{
    double *d = tower->d;
    ref_norm_backward(&tower->norm, d, d, tower->x[tower->layers], tower->rows);
    for (int64_t i = tower->layers; i-- > 0;)
        ref_block_backward(&tower->blocks[i], d, d, tower->x[i], tower->rows);
}

static void logits_backward(ref_model *model)
{
    const double *normed = model->llm.x[model->sizes.llm_layers + 1];
    ref_linear_backward(&model->head, model->llm.d, model->d_logits, normed, model->sizes.seq);
}

static void merge_backward(ref_model *model, const ref_sample *sample)
{
    int64_t hidden = model->sizes.hidden, image = 0;
    const double *d = model->llm.d;
    for (int64_t s = 0; s < model->sizes.seq; s++, d += hidden) {
        bool is_image = sample->ids[s] == model->sizes.image_id;
        for (int64_t e = 0; e < hidden; e++) {
            model->positions.grad[s * hidden + e] += d[e];
            if (is_image)
                model->d_rows[image * hidden + e] = d[e];
            else
                model->text.grad[sample->ids[s] * hidden + e] += d[e];
        }
        image += is_image;
    }
}

static void encode_backward(ref_model *model, const ref_sample *sample)
{
    ref_tower *tower = &model->encoder;
    ref_linear_backward(&model->project, tower->d, model->d_rows, tower->x[tower->layers + 1],
                        tower->rows);
    run_tower_backward(tower);
    for (int64_t i = 0; i < tower->rows * model->sizes.hidden; i++)
        model->places.grad[i] += tower->d[i];
    ref_linear_backward(&model->patch, NULL, tower->d, sample->patches, tower->rows);
}

/* ------------------------------------------- steps ------------------------------------------ */

/* Copy a sample's matrix into a table. The first call makes room for the matrices of all
 * samples. */
static void keep(ref_table *table, const char *name, int64_t samples, int64_t sample,
                 const ref_tensor *matrix)
{
    int64_t elements = matrix->rows * matrix->columns;
    if (sample == 0)
        ref_add(table, name, samples * matrix->rows, matrix->columns);
    double *to = ref_find(table, name)->data + sample * elements;
    memcpy(to, matrix->data, (size_t)elements * sizeof *to);
}

static void keep_tower(const ref_model *model, ref_result *result, const char *name, int64_t n,
                       int64_t sample)
{
    const ref_tower *tower = strcmp(name, "llm") == 0 ? &model->llm : &model->encoder;
    char part[32];
    for (int64_t i = 0; i < tower->layers + 2; i++) {
        ref_tensor matrix = {.rows = tower->rows, .columns = model->sizes.hidden};
        matrix.data = tower->x[i];
        if (i == 0)
            snprintf(part, sizeof part, "%s.input", name);
        else if (i <= tower->layers)
            snprintf(part, sizeof part, "%s.block%d", name, (int)i - 1);
        else
            snprintf(part, sizeof part, "%s.norm", name);
        keep(&result->tensors, part, n, sample, &matrix);
    }
}

/* What a mixture did, and what it rests on. */
static void keep_mixture(const ref_model *model, ref_result *result, int64_t n, int64_t sample,
                         int64_t block)
{
    const ref_moe *moe = &model->llm.blocks[block].moe;
    const struct {
        ref_table *to;
        const char *name;
        int64_t columns;
        double *data;
    } list[] = {{&result->tensors, "scores", moe->experts, moe->scores},
                {&result->tensors, "choices", moe->top_k, moe->live},
                {&result->tensors, "weights", moe->top_k, moe->weights},
                {&result->tensors, "balance", 1, moe->losses},
                {&result->tensors, "hidden", moe->top_k * moe->inner, moe->activated},
                {&result->tensors, "mixed", moe->hidden, moe->y},
                {&result->notes, "ids", moe->top_k, moe->ids},
                {&result->notes, "margins", 1, moe->margins}};
    char name[40];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        ref_tensor matrix = {
            .rows = model->llm.rows, .columns = list[i].columns, .data = list[i].data};
        snprintf(name, sizeof name, "llm.%s%d", list[i].name, (int)block);
        keep(list[i].to, name, n, sample, &matrix);
    }
}

static void keep_mixtures(const ref_model *model, ref_result *result, int64_t n, int64_t sample)
{
    for (int64_t i = 0; i < model->llm.layers; i++)
        if (model->llm.blocks[i].moe.experts > 0)
            keep_mixture(model, result, n, sample, i);
}

static void keep_sample(const ref_model *model, ref_result *result, int64_t n, int64_t sample)
{
    int64_t image = model->sizes.image_tokens, seq = model->sizes.seq, hidden = model->sizes.hidden;
    ref_tensor rows = {.rows = image, .columns = hidden, .data = model->rows};
    ref_tensor d_rows = {.rows = image, .columns = hidden, .data = model->d_rows};
    ref_tensor merged = {.rows = seq, .columns = hidden, .data = model->merged};
    ref_tensor logits = {.rows = seq, .columns = model->sizes.vocabulary, .data = model->logits};
    keep_tower(model, result, "encoder", n, sample);
    keep(&result->tensors, "encoder.rows", n, sample, &rows);
    keep(&result->tensors, "encoder.d_rows", n, sample, &d_rows);
    keep(&result->tensors, "llm.merged", n, sample, &merged);
    keep_mixtures(model, result, n, sample);
    keep_tower(model, result, "llm", n, sample);
    keep(&result->tensors, "llm.logits", n, sample, &logits);
}

/* The mixtures of a sample: the number of its first token; and the sum of the balance losses. */
static void number_tokens(ref_model *model, int64_t first)
{
    for (int64_t i = 0; i < model->llm.layers; i++)
        model->llm.blocks[i].moe.first = first;
}

static double balance_of(const ref_model *model)
{
    double sum = 0;
    for (int64_t i = 0; i < model->llm.layers; i++)
        for (int64_t s = 0; s < model->llm.rows && model->llm.blocks[i].moe.experts > 0; s++)
            sum += model->llm.blocks[i].moe.losses[s];
    return sum;
}

/* The loss of one sample, and the gradients of the *sum* of its labels' losses. */
static void run_sample(ref_model *model, const ref_sample *sample, double *losses,
                       ref_result *result)
{
    int64_t vocabulary = model->sizes.vocabulary;
    encode(model, sample);
    merge(model, sample);
    compute_logits(model);
    result->balance += balance_of(model);
    for (int64_t s = 0; s < model->sizes.seq; s++) {
        losses[s] =
            ref_cross_entropy(model->d_logits + s * vocabulary, model->logits + s * vocabulary,
                              vocabulary, sample->labels[s]);
        result->loss += losses[s];
        result->tokens += sample->labels[s] >= 0;
    }
    logits_backward(model);
    run_tower_backward(&model->llm);
    merge_backward(model, sample);
    encode_backward(model, sample);
}

void ref_model_run(ref_model *model, const ref_sample *samples, int64_t n, ref_result *result)
{
    *result = (ref_result){0};
    ref_zero(&model->grads);
    double *losses = ref_add(&result->tensors, "losses", n * model->sizes.seq, 1);
    for (int i = 0; i < model->adapters; i++)
        ref_linear_prepare(model->adapted[i]);
    for (int64_t i = 0; i < n; i++) {
        number_tokens(model, i * model->sizes.seq);
        run_sample(model, &samples[i], losses + i * model->sizes.seq, result);
        keep_sample(model, result, n, i);
    }
    for (int i = 0; i < model->adapters; i++)
        ref_linear_finish(model->adapted[i]);
    double count = result->tokens > 0 ? (double)result->tokens : 1;
    result->loss /= count;
    result->balance /= count;
    for (int t = 0; t < model->grads.count; t++) {
        ref_tensor *grad = &model->grads.list[t];
        for (int64_t i = 0; i < grad->rows * grad->columns; i++)
            grad->data[i] = ref_model_trains(model, grad->name) ? grad->data[i] / count : 0;
    }
}
