#include "train/nn/layers/nn_attention.h"

#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "device/device.h"
#include "train/nn/params/nn_support.h"

static mimo_status check_desc(const nn_attention_desc *desc, mimo_comm *tp)
{
    const char *name = desc->name;
    MIMO_TRY(nn_check_size(name, "hidden", desc->hidden));
    MIMO_TRY(nn_check_size(name, "heads", desc->heads));
    MIMO_TRY(nn_check_size(name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_size(name, "max_batch", desc->max_batch));
    MIMO_TRY(nn_check_size(name, "max_parts", desc->max_parts > 0 ? desc->max_parts : 1));
    int64_t stride; /* elements between rows of a (sample, head): must fit the int of BLAS */
    MIMO_TRY(mimo_mul(&stride, 3 * desc->hidden, desc->max_batch));
    MIMO_TRY(nn_check_size(name, "3 * hidden * max_batch", stride));
    MIMO_TRY(nn_check_divides(name, "hidden", desc->hidden, desc->heads));
    return nn_check_divides(name, "heads", desc->heads, nn_comm_size(tp));
}

static mimo_status init_linears(nn_attention *layer, nn_params *params, mimo_comm *tp,
                                const nn_attention_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    int64_t hidden = desc->hidden;
    MIMO_TRY(nn_join(name, desc->name, "qkv"));
    nn_linear_desc qkv = {.name = name,
                          .in = hidden,
                          .out = 3 * hidden,
                          .split = NN_SPLIT_COLUMNS,
                          .bias = true,
                          .std = desc->std,
                          .max_rows = layer->max_rows * layer->max_batch,
                          .sp = desc->sp,
                          .packing = {desc->heads, 3},
                          .lora = nn_lora_for(desc->adapters, name)};
    if (MIMO_MUTATED("qkv-packed-by-kind"))
        qkv.packing = (nn_packing){3, desc->heads};
    MIMO_TRY(nn_linear_init(&layer->qkv, params, tp, &qkv));
    MIMO_TRY(nn_join(name, desc->name, "out"));
    nn_linear_desc out = qkv;
    out.out = hidden;
    out.split = NN_SPLIT_ROWS;
    out.std = desc->out_std;
    out.packing = (nn_packing){0};
    out.lora = nn_lora_for(desc->adapters, name);
    return nn_linear_init(&layer->out, params, tp, &out);
}

static bool is_fixed(const nn_attention *layer)
{
    return layer->runtime->order == NN_ORDER_FIXED;
}

/* Elements of the largest tensors: n rows of all heads, keys and values over cp, scores. */
typedef struct sizes {
    int64_t width, keys, cells;
} sizes;

static mimo_status measure(sizes *out, const nn_attention *layer)
{
    int64_t n, all;
    MIMO_TRY(mimo_mul(&n, layer->max_rows, layer->max_batch));
    MIMO_TRY(mimo_mul(&out->width, n, layer->heads * layer->dh));
    MIMO_TRY(mimo_mul(&all, layer->max_rows, layer->max_parts));
    MIMO_TRY(mimo_mul(&out->keys, 2 * out->width, layer->max_parts));
    return mimo_mul(&out->cells, n * layer->heads, all);
}

static mimo_status reserve(const nn_attention *layer, nn_real **room, int64_t count)
{
    return nn_runtime_reserve(layer->runtime, room, count, sizeof **room);
}

static mimo_status reserve_workspace(nn_attention *layer)
{
    sizes of;
    MIMO_TRY(measure(&of, layer));
    MIMO_TRY(reserve(layer, &layer->d_context, of.width));
    MIMO_TRY(reserve(layer, &layer->d_scores, of.cells));
    if (layer->max_parts == 1)
        return MIMO_OK;
    if (is_fixed(layer))
        MIMO_TRY(reserve(layer, &layer->ranked, of.keys));
    return reserve(layer, &layer->d_keys, of.keys);
}

mimo_status nn_attention_init(nn_attention *layer, nn_params *params, mimo_comm *tp,
                              const nn_attention_desc *desc)
{
    MIMO_TRY(check_desc(desc, tp));
    nn_attention made = {.max_rows = desc->max_rows, .max_batch = desc->max_batch};
    made.max_parts = desc->max_parts > 0 ? desc->max_parts : 1;
    made.heads = desc->heads / nn_comm_size(tp);
    made.dh = desc->hidden / desc->heads;
    made.runtime = nn_params_runtime(params);
    mimo_status status;
    MIMO_TRY_GOTO(status, fail, init_linears(&made, params, tp, desc));
    MIMO_TRY_GOTO(status, fail, reserve_workspace(&made));
    *layer = made;
    return MIMO_OK;
fail:
    nn_attention_release(&made);
    return status;
}

void nn_attention_release(nn_attention *layer)
{
    nn_linear_release(&layer->qkv);
    nn_linear_release(&layer->out);
    nn_runtime_free(layer->runtime, layer->ranked);
    nn_runtime_free(layer->runtime, layer->d_keys);
    nn_runtime_free(layer->runtime, layer->d_context);
    nn_runtime_free(layer->runtime, layer->d_scores);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_attention_saved_take(nn_attention_saved *saved, const nn_attention *layer,
                                    nn_room *room)
{
    sizes of;
    *saved = (nn_attention_saved){0};
    MIMO_TRY(measure(&of, layer));
    MIMO_TRY(nn_linear_saved_take(&saved->qkv, &layer->qkv, room));
    MIMO_TRY(nn_linear_saved_take(&saved->out, &layer->out, room));
    MIMO_TRY(nn_room_take(room, &saved->projected, 3 * of.width, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->d_projected, 3 * of.width, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->context, of.width, sizeof(nn_real)));
    if (layer->max_parts > 1)
        MIMO_TRY(nn_room_take(room, &saved->keys, of.keys, sizeof(nn_real)));
    return nn_room_take(room, &saved->weights, of.cells, sizeof(nn_real));
}

/* Elements of one cp rank's part of the gathered keys and values. */
static int64_t part_size(const nn_attention *layer, const nn_attention_saved *saved)
{
    const nn_sequence *sequence = saved->sequence;
    return sequence->rows * sequence->batch * layer->heads * 2 * layer->dh;
}

/* Copy this rank's keys and values from the projection, [.., query | key | value, dh], to its part
 * of the gathered rows, [.., key | value, dh], or back. */
static mimo_status copy_keys(const nn_attention *layer, const nn_attention_saved *saved,
                             nn_real *projected, nn_real *gathered, bool out)
{
    const nn_sequence *sequence = saved->sequence;
    int64_t chunks = sequence->rows * sequence->batch * layer->heads;
    int64_t bytes = layer->dh * (int64_t)sizeof(nn_real);
    nn_real *own = gathered + sequence->part * part_size(layer, saved);
    mimo_rows inside = {projected, bytes, 1, chunks, 3, 2, 1};
    mimo_rows outside = {own, bytes, 0, chunks, 2, 2, 1};
    return layer->runtime->device->copy_rows(out ? &outside : &inside, out ? &inside : &outside,
                                             layer->runtime->stream);
}

static nn_exchange cp_of(const nn_attention *layer, const nn_attention_saved *saved)
{
    nn_exchange_counts *counts = &nn_params_exchanged(layer->qkv.params)->cp;
    return (nn_exchange){.comm = saved->sequence->cp, .runtime = layer->runtime, .counts = counts};
}

/* Copy between rows in rank order and rows by position. Each rank has two chunks of the zigzag
 * partition: of 2 parts chunks, chunk c and chunk 2 parts - 1 - c. */
static mimo_status copy_chunks(const nn_attention *layer, const nn_attention_saved *saved,
                               nn_real *by_rank, nn_real *by_position, bool sort)
{
    int64_t chunk = part_size(layer, saved) / 2, parts = saved->sequence->parts;
    for (int64_t i = 0; i < 2 * parts; i++) {
        int64_t c = i / 2, position = i % 2 == 0 ? c : 2 * parts - 1 - c;
        if (MIMO_MUTATED("key-order"))
            position = i;
        nn_real *ranked = by_rank + i * chunk, *sorted = by_position + position * chunk;
        MIMO_TRY(layer->runtime->device->copy(sort ? sorted : ranked, sort ? ranked : sorted,
                                              chunk * (int64_t)sizeof *ranked,
                                              layer->runtime->stream));
    }
    return MIMO_OK;
}

static mimo_status gather_keys(const nn_attention *layer, const nn_attention_saved *saved)
{
    const nn_sequence *sequence = saved->sequence;
    if (sequence->parts == 1)
        return MIMO_OK;
    int64_t part = part_size(layer, saved);
    nn_real *gathered = is_fixed(layer) ? layer->ranked : saved->keys;
    nn_exchange cp = cp_of(layer, saved);
    MIMO_TRY(copy_keys(layer, saved, saved->projected, gathered, true));
    MIMO_TRY(nn_exchange_gather(&cp, gathered, gathered + sequence->part * part,
                                part * (int64_t)sizeof(nn_real)));
    return is_fixed(layer) ? copy_chunks(layer, saved, gathered, saved->keys, true) : MIMO_OK;
}

/* The contributions of this rank, by position in d_keys, become its rows of the sum. */
static mimo_status scatter_key_gradients(const nn_attention *layer, const nn_attention_saved *saved)
{
    nn_exchange cp = cp_of(layer, saved);
    int64_t part = part_size(layer, saved);
    MIMO_TRY(copy_chunks(layer, saved, layer->ranked, layer->d_keys, false));
    return nn_exchange_sum_scatter(&cp, layer->d_keys + saved->sequence->part * part, layer->ranked,
                                   part);
}

/* Every rank holds a contribution to the gradient of all keys and values. Sum them, and keep the
 * rows of this rank. */
static mimo_status sum_key_gradients(const nn_attention *layer, const nn_attention_saved *saved)
{
    const nn_sequence *sequence = saved->sequence;
    if (sequence->parts == 1)
        return MIMO_OK;
    nn_exchange cp = cp_of(layer, saved);
    if (is_fixed(layer))
        MIMO_TRY(scatter_key_gradients(layer, saved));
    else if (!MIMO_MUTATED("no-key-sum"))
        MIMO_TRY(nn_exchange_sum(&cp, layer->d_keys, sequence->parts * part_size(layer, saved)));
    return copy_keys(layer, saved, saved->d_projected, layer->d_keys, false);
}

/* How the keys are cut for products: in the fast order one product for each cp rank's. */
static int64_t key_parts(const nn_attention *layer, const nn_attention_saved *saved)
{
    return is_fixed(layer) ? 1 : saved->sequence->parts;
}

/* One matrix for each (sample, head), sample by sample. Matrix p starts p * step elements after the
 * first one. Its rows lie `stride` elements apart. Attention multiplies such batches. */
typedef struct panels {
    nn_real *data;
    int64_t columns, stride, step;
} panels;

static nn_matrix matrix_of(const nn_attention_saved *saved, panels p)
{
    return (nn_matrix){p.data, saved->sequence->rows, p.columns, p.stride, p.step, false};
}

/* Keys and values of one product, and the columns of the scores that belong to them. */
static int64_t key_rows(const nn_attention *layer, const nn_attention_saved *saved)
{
    const nn_sequence *sequence = saved->sequence;
    return sequence->rows * sequence->parts / key_parts(layer, saved);
}

static nn_matrix key_matrix_of(const nn_attention *layer, const nn_attention_saved *saved, panels p)
{
    nn_matrix keys = matrix_of(saved, p);
    keys.rows = key_rows(layer, saved);
    return keys;
}

static panels queries_of(const nn_attention *layer, const nn_attention_saved *saved, bool gradient)
{
    nn_real *data = gradient ? saved->d_projected : saved->projected;
    int64_t step = 3 * layer->dh;
    return (panels){data, layer->dh, saved->sequence->batch * layer->heads * step, step};
}

/* The keys of part c. On one rank they lie in the projection, under cp in the gathered copy. */
static panels keys_of(const nn_attention *layer, const nn_attention_saved *saved, int64_t c,
                      bool gradient)
{
    const nn_sequence *sequence = saved->sequence;
    int64_t step = 2 * layer->dh;
    if (sequence->parts == 1) {
        panels keys = queries_of(layer, saved, gradient);
        keys.data += layer->dh;
        return keys;
    }
    nn_real *data = gradient ? layer->d_keys : saved->keys;
    return (panels){data + c * part_size(layer, saved), layer->dh,
                    sequence->batch * layer->heads * step, step};
}

static panels values_of(const nn_attention *layer, const nn_attention_saved *saved, int64_t c,
                        bool gradient)
{
    panels values = keys_of(layer, saved, c, gradient);
    values.data += layer->dh;
    return values;
}

static panels contexts_of(const nn_attention *layer, const nn_attention_saved *saved, bool gradient)
{
    nn_real *data = gradient ? layer->d_context : saved->context;
    int64_t step = layer->dh;
    return (panels){data, step, saved->sequence->batch * layer->heads * step, step};
}

/* The scores, later weights, for the keys of part c: columns from c * key_rows on. */
static panels scores_of(const nn_attention *layer, const nn_attention_saved *saved, int64_t c,
                        bool gradient)
{
    const nn_sequence *sequence = saved->sequence;
    nn_real *data = gradient ? layer->d_scores : saved->weights;
    int64_t rows = sequence->rows, all = sequence->parts * rows, keys = key_rows(layer, saved);
    return (panels){data + c * keys, keys, all, rows * all};
}

typedef struct factors {
    nn_real alpha, beta;
    bool over_queries;
} factors;

/* to = beta to + alpha a b. `over_queries`: k runs over this rank's queries, of which the fixed
 * order adds the pairs of chunks by a tree. */
static mimo_status multiply(const nn_attention *layer, const nn_attention_saved *saved, panels to,
                            factors by, nn_matrix a, nn_matrix b)
{
    nn_product product = {
        .c = to.data,
        .stride = to.stride,
        .step = to.step,
        .alpha = by.alpha,
        .beta = by.beta,
        .a = a,
        .b = b,
        .count = saved->sequence->batch * layer->heads,
    };
    if (by.over_queries && is_fixed(layer)) {
        product.parts = MIMO_MUTATED("leaf-by-cp") ? 1 : nn_params_pairs(layer->qkv.params);
        product.folded = true;
    }
    return layer->runtime->ops->matmul(layer->runtime, &product);
}

static nn_real scale_of(const nn_attention *layer)
{
    if (MIMO_MUTATED("scale-by-width"))
        return 1 / (nn_real)layer->dh;
    return 1 / (nn_real)sqrt((double)layer->dh);
}

static mimo_status attend(const nn_attention *layer, const nn_attention_saved *saved)
{
    const nn_sequence *sequence = saved->sequence;
    nn_matrix query = matrix_of(saved, queries_of(layer, saved, false));
    int64_t parts = key_parts(layer, saved);
    factors scaled = {.alpha = scale_of(layer)};
    for (int64_t c = 0; c < parts; c++) {
        nn_matrix key = key_matrix_of(layer, saved, keys_of(layer, saved, c, false));
        MIMO_TRY(multiply(layer, saved, scores_of(layer, saved, c, false), scaled, query,
                          nn_transpose(key)));
    }
    nn_scores scores = {saved->weights, sequence->mask, sequence->batch * layer->heads,
                        sequence->rows, sequence->parts * sequence->rows};
    MIMO_TRY(layer->runtime->ops->softmax(layer->runtime, &scores));
    panels context = contexts_of(layer, saved, false);
    for (int64_t c = 0; c < parts; c++) {
        nn_matrix weights = matrix_of(saved, scores_of(layer, saved, c, false));
        nn_matrix value = key_matrix_of(layer, saved, values_of(layer, saved, c, false));
        factors added = {.alpha = 1, .beta = c > 0};
        MIMO_TRY(multiply(layer, saved, context, added, weights, value));
    }
    return MIMO_OK;
}

static mimo_status check_sequence(const nn_attention *layer, const nn_sequence *sequence)
{
    MIMO_CHECK(sequence && sequence->rows <= layer->max_rows &&
                   sequence->batch <= layer->max_batch && sequence->parts <= layer->max_parts,
               MIMO_ERR_SHAPE,
               "attention: sequence of %" PRId64 " rows, batch %" PRId64 ", cp %" PRId64
               ", made for %" PRId64 ", %" PRId64 ", %" PRId64,
               sequence ? sequence->rows : 0, sequence ? sequence->batch : 0,
               sequence ? sequence->parts : 0, layer->max_rows, layer->max_batch, layer->max_parts);
    MIMO_CHECK(sequence->runtime->memory == layer->runtime->memory, MIMO_ERR_ARGUMENT,
               "attention: the sequence lies in %s, the layer in %s",
               mimo_memory_text(sequence->runtime->memory),
               mimo_memory_text(layer->runtime->memory));
    return MIMO_OK;
}

mimo_status nn_attention_forward(const nn_attention *layer, nn_attention_saved *saved, nn_real *y,
                                 const nn_real *x, const nn_sequence *sequence)
{
    saved->out.progress = NN_PROGRESS_NONE;
    MIMO_TRY(check_sequence(layer, sequence));
    int64_t n = sequence->rows * sequence->batch, share = nn_edge_factor(&layer->qkv.before);
    MIMO_CHECK(n % share == 0, MIMO_ERR_SHAPE,
               "attention: %" PRId64 " rows do not divide over tp=%" PRId64, n, share);
    saved->sequence = sequence;
    MIMO_TRY(nn_linear_forward(&layer->qkv, &saved->qkv, saved->projected, x, n / share,
                               sequence->batch));
    MIMO_TRY(gather_keys(layer, saved));
    MIMO_TRY(attend(layer, saved));
    return nn_linear_forward(&layer->out, &saved->out, y, saved->context, n, sequence->batch);
}

/* The backward of context = weights * values: the gradients of the values, and in d_scores those of
 * the weights. */
static mimo_status contexts_backward(const nn_attention *layer, const nn_attention_saved *saved)
{
    nn_matrix d_context = matrix_of(saved, contexts_of(layer, saved, true));
    factors plain = {.alpha = 1}, summed = {.alpha = 1, .over_queries = true};
    for (int64_t c = 0; c < key_parts(layer, saved); c++) {
        nn_matrix weights = matrix_of(saved, scores_of(layer, saved, c, false));
        nn_matrix value = key_matrix_of(layer, saved, values_of(layer, saved, c, false));
        MIMO_TRY(multiply(layer, saved, values_of(layer, saved, c, true), summed,
                          nn_transpose(weights), d_context));
        MIMO_TRY(multiply(layer, saved, scores_of(layer, saved, c, true), plain, d_context,
                          nn_transpose(value)));
    }
    return MIMO_OK;
}

/* The backward of scores = scale * queries * keys^T. */
static mimo_status scores_backward(const nn_attention *layer, const nn_attention_saved *saved)
{
    nn_matrix query = matrix_of(saved, queries_of(layer, saved, false));
    panels d_query = queries_of(layer, saved, true);
    nn_real scale = scale_of(layer);
    factors summed = {.alpha = scale, .over_queries = true};
    for (int64_t c = 0; c < key_parts(layer, saved); c++) {
        nn_matrix d_scores = matrix_of(saved, scores_of(layer, saved, c, true));
        nn_matrix key = key_matrix_of(layer, saved, keys_of(layer, saved, c, false));
        factors added = {.alpha = scale, .beta = c > 0};
        MIMO_TRY(multiply(layer, saved, d_query, added, d_scores, key));
        MIMO_TRY(multiply(layer, saved, keys_of(layer, saved, c, true), summed,
                          nn_transpose(d_scores), query));
    }
    return MIMO_OK;
}

mimo_status nn_attention_backward_input(const nn_attention *layer, nn_attention_saved *saved,
                                        nn_real *dx, nn_real *dy)
{
    const nn_runtime *runtime = layer->runtime;
    const nn_sequence *sequence = saved->sequence;
    MIMO_CHECK(saved->out.progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "attention: backward before forward");
    int64_t all = sequence->parts * sequence->rows;
    MIMO_TRY(nn_linear_backward_input(&layer->out, &saved->out, layer->d_context, dy));
    MIMO_TRY(contexts_backward(layer, saved));
    MIMO_TRY(runtime->ops->softmax_backward(runtime, layer->d_scores, saved->weights,
                                            sequence->batch * layer->heads * sequence->rows, all));
    MIMO_TRY(scores_backward(layer, saved));
    MIMO_TRY(sum_key_gradients(layer, saved));
    return nn_linear_backward_input(&layer->qkv, &saved->qkv, dx, saved->d_projected);
}

mimo_status nn_attention_backward_params(const nn_attention *layer, nn_attention_saved *saved)
{
    MIMO_TRY(nn_linear_backward_params(&layer->out, &saved->out));
    return nn_linear_backward_params(&layer->qkv, &saved->qkv);
}
