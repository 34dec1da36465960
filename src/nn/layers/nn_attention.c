#include "nn/layers/nn_attention.h"

#include <math.h>
#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "device/device.h"
#include "nn/params/nn_support.h"

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

static mimo_status reserve(const nn_attention *layer, nn_real **room, int64_t count)
{
    return nn_runtime_reserve(layer->runtime, room, count, sizeof **room);
}

static mimo_status reserve_rooms(nn_attention *layer)
{
    int64_t n, width, all, gathered, cells;
    MIMO_TRY(mimo_mul(&n, layer->max_rows, layer->max_batch));
    MIMO_TRY(mimo_mul(&width, n, layer->heads * layer->dh));
    MIMO_TRY(mimo_mul(&all, layer->max_rows, layer->max_parts));
    MIMO_TRY(mimo_mul(&gathered, 2 * width, layer->max_parts));
    MIMO_TRY(mimo_mul(&cells, n * layer->heads, all));
    MIMO_TRY(reserve(layer, &layer->projected, 3 * width));
    MIMO_TRY(reserve(layer, &layer->d_projected, 3 * width));
    MIMO_TRY(reserve(layer, &layer->context, width));
    MIMO_TRY(reserve(layer, &layer->d_context, width));
    MIMO_TRY(reserve(layer, &layer->weights, cells));
    MIMO_TRY(reserve(layer, &layer->d_scores, cells));
    if (layer->max_parts == 1)
        return MIMO_OK;
    MIMO_TRY(reserve(layer, &layer->gathered, gathered));
    if (layer->runtime->order == NN_ORDER_FIXED)
        MIMO_TRY(reserve(layer, &layer->sorted, gathered));
    return reserve(layer, &layer->d_gathered, gathered);
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
    MIMO_TRY_GOTO(status, fail, reserve_rooms(&made));
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
    nn_runtime_free(layer->runtime, layer->projected);
    nn_runtime_free(layer->runtime, layer->gathered);
    nn_runtime_free(layer->runtime, layer->sorted);
    nn_runtime_free(layer->runtime, layer->weights);
    nn_runtime_free(layer->runtime, layer->context);
    nn_runtime_free(layer->runtime, layer->d_projected);
    nn_runtime_free(layer->runtime, layer->d_gathered);
    nn_runtime_free(layer->runtime, layer->d_context);
    nn_runtime_free(layer->runtime, layer->d_scores);
    memset(layer, 0, sizeof *layer);
}

/* Elements of one cp rank's part of the gathered keys and values. */
static int64_t part_size(const nn_attention *layer, const nn_sequence *sequence)
{
    return sequence->rows * sequence->batch * layer->heads * 2 * layer->dh;
}

/* Copy this rank's keys and values from the projection, [.., query | key | value, dh], to its part
 * of the gathered rows, [.., key | value, dh], or back. */
static mimo_status copy_keys(const nn_attention *layer, const nn_sequence *sequence,
                             nn_real *projected, nn_real *gathered, bool out)
{
    int64_t chunks = sequence->rows * sequence->batch * layer->heads;
    int64_t bytes = layer->dh * (int64_t)sizeof(nn_real);
    nn_real *own = gathered + sequence->part * part_size(layer, sequence);
    mimo_rows inside = {projected, bytes, 1, chunks, 3, 2, 1};
    mimo_rows outside = {own, bytes, 0, chunks, 2, 2, 1};
    return layer->runtime->device->copy_rows(out ? &outside : &inside, out ? &inside : &outside,
                                             layer->runtime->stream);
}

static nn_exchange cp_of(const nn_attention *layer, const nn_sequence *sequence)
{
    nn_exchange_counts *counts = &nn_params_exchanged(layer->qkv.params)->cp;
    return (nn_exchange){.comm = sequence->cp, .runtime = layer->runtime, .counts = counts};
}

static bool is_fixed(const nn_attention *layer)
{
    return layer->runtime->order == NN_ORDER_FIXED;
}

/* Copy between rows in rank order and rows by position. Each rank has two chunks of the zigzag
 * partition: of 2 parts chunks, chunk c and chunk 2 parts - 1 - c. */
static mimo_status copy_chunks(const nn_attention *layer, const nn_sequence *sequence,
                               nn_real *by_rank, nn_real *by_position, bool sort)
{
    int64_t chunk = part_size(layer, sequence) / 2, parts = sequence->parts;
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

static mimo_status gather_keys(nn_attention *layer, const nn_sequence *sequence)
{
    if (sequence->parts == 1)
        return MIMO_OK;
    int64_t part = part_size(layer, sequence);
    MIMO_TRY(copy_keys(layer, sequence, layer->projected, layer->gathered, true));
    nn_exchange cp = cp_of(layer, sequence);
    MIMO_TRY(nn_exchange_gather(&cp, layer->gathered, layer->gathered + sequence->part * part,
                                part * (int64_t)sizeof(nn_real)));
    return is_fixed(layer) ? copy_chunks(layer, sequence, layer->gathered, layer->sorted, true)
                           : MIMO_OK;
}

/* The contributions of this rank, by position in d_gathered, become its rows of the sum. Nobody
 * needs `gathered` any more. */
static mimo_status scatter_key_gradients(nn_attention *layer, const nn_sequence *sequence)
{
    nn_exchange cp = cp_of(layer, sequence);
    int64_t part = part_size(layer, sequence);
    MIMO_TRY(copy_chunks(layer, sequence, layer->gathered, layer->d_gathered, false));
    return nn_exchange_sum_scatter(&cp, layer->d_gathered + sequence->part * part, layer->gathered,
                                   part);
}

/* Every rank holds a contribution to the gradient of all keys and values. Sum them, and keep the
 * rows of this rank. */
static mimo_status sum_key_gradients(nn_attention *layer, const nn_sequence *sequence)
{
    if (sequence->parts == 1)
        return MIMO_OK;
    nn_exchange cp = cp_of(layer, sequence);
    if (is_fixed(layer))
        MIMO_TRY(scatter_key_gradients(layer, sequence));
    else if (!MIMO_MUTATED("no-key-sum"))
        MIMO_TRY(
            nn_exchange_sum(&cp, layer->d_gathered, sequence->parts * part_size(layer, sequence)));
    return copy_keys(layer, sequence, layer->d_projected, layer->d_gathered, false);
}

/* How the keys are cut for products: in the fast order one product for each cp rank's. */
static int64_t key_parts(const nn_attention *layer, const nn_sequence *sequence)
{
    return is_fixed(layer) ? 1 : sequence->parts;
}

/* One matrix for each (sample, head), sample by sample. Matrix p starts p * step elements after the
 * first one. Its rows lie `stride` elements apart. Attention multiplies such batches. */
typedef struct panels {
    nn_real *data;
    int64_t columns, stride, step;
} panels;

static nn_matrix matrix_of(const nn_sequence *sequence, panels p)
{
    return (nn_matrix){p.data, sequence->rows, p.columns, p.stride, p.step, false};
}

/* Keys and values of one product, and the columns of the scores that belong to them. */
static int64_t key_rows(const nn_attention *layer, const nn_sequence *sequence)
{
    return sequence->rows * sequence->parts / key_parts(layer, sequence);
}

static nn_matrix key_matrix_of(const nn_attention *layer, const nn_sequence *sequence, panels p)
{
    nn_matrix keys = matrix_of(sequence, p);
    keys.rows = key_rows(layer, sequence);
    return keys;
}

static panels queries_of(const nn_attention *layer, const nn_sequence *sequence, bool gradient)
{
    nn_real *data = gradient ? layer->d_projected : layer->projected;
    int64_t step = 3 * layer->dh;
    return (panels){data, layer->dh, sequence->batch * layer->heads * step, step};
}

/* The keys of part c. On one rank they lie in the projection, under cp in the gathered copy. */
static panels keys_of(const nn_attention *layer, const nn_sequence *sequence, int64_t c,
                      bool gradient)
{
    int64_t step = 2 * layer->dh;
    if (sequence->parts == 1) {
        panels keys = queries_of(layer, sequence, gradient);
        keys.data += layer->dh;
        return keys;
    }
    nn_real *data = is_fixed(layer) ? layer->sorted : layer->gathered;
    data = gradient ? layer->d_gathered : data;
    return (panels){data + c * part_size(layer, sequence), layer->dh,
                    sequence->batch * layer->heads * step, step};
}

static panels values_of(const nn_attention *layer, const nn_sequence *sequence, int64_t c,
                        bool gradient)
{
    panels values = keys_of(layer, sequence, c, gradient);
    values.data += layer->dh;
    return values;
}

static panels contexts_of(const nn_attention *layer, const nn_sequence *sequence, bool gradient)
{
    nn_real *data = gradient ? layer->d_context : layer->context;
    int64_t step = layer->dh;
    return (panels){data, step, sequence->batch * layer->heads * step, step};
}

/* The scores, later weights, for the keys of part c: columns from c * key_rows on. */
static panels scores_of(const nn_attention *layer, const nn_sequence *sequence, int64_t c,
                        bool gradient)
{
    nn_real *data = gradient ? layer->d_scores : layer->weights;
    int64_t rows = sequence->rows, all = sequence->parts * rows, keys = key_rows(layer, sequence);
    return (panels){data + c * keys, keys, all, rows * all};
}

typedef struct factors {
    nn_real alpha, beta;
    bool over_queries;
} factors;

/* to = beta to + alpha a b. `over_queries`: k runs over this rank's queries, of which the fixed
 * order adds the pairs of chunks by a tree. */
static mimo_status multiply(const nn_attention *layer, const nn_sequence *sequence, panels to,
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
        .count = sequence->batch * layer->heads,
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

static mimo_status attend(nn_attention *layer, const nn_sequence *sequence)
{
    nn_matrix query = matrix_of(sequence, queries_of(layer, sequence, false));
    int64_t parts = key_parts(layer, sequence);
    factors scaled = {.alpha = scale_of(layer)};
    for (int64_t c = 0; c < parts; c++) {
        nn_matrix key = key_matrix_of(layer, sequence, keys_of(layer, sequence, c, false));
        MIMO_TRY(multiply(layer, sequence, scores_of(layer, sequence, c, false), scaled, query,
                          nn_transpose(key)));
    }
    nn_scores scores = {layer->weights, sequence->mask, sequence->batch * layer->heads,
                        sequence->rows, sequence->parts * sequence->rows};
    MIMO_TRY(layer->runtime->ops->softmax(layer->runtime, &scores));
    panels context = contexts_of(layer, sequence, false);
    for (int64_t c = 0; c < parts; c++) {
        nn_matrix weights = matrix_of(sequence, scores_of(layer, sequence, c, false));
        nn_matrix value = key_matrix_of(layer, sequence, values_of(layer, sequence, c, false));
        factors added = {.alpha = 1, .beta = c > 0};
        MIMO_TRY(multiply(layer, sequence, context, added, weights, value));
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

mimo_status nn_attention_forward(nn_attention *layer, nn_real *y, const nn_real *x,
                                 const nn_sequence *sequence)
{
    MIMO_TRY(check_sequence(layer, sequence));
    int64_t n = sequence->rows * sequence->batch, share = nn_edge_factor(&layer->qkv.before);
    MIMO_CHECK(n % share == 0, MIMO_ERR_SHAPE,
               "attention: %" PRId64 " rows do not divide over tp=%" PRId64, n, share);
    MIMO_TRY(nn_linear_forward(&layer->qkv, layer->projected, x, n / share, sequence->batch));
    MIMO_TRY(gather_keys(layer, sequence));
    MIMO_TRY(attend(layer, sequence));
    layer->sequence = sequence;
    return nn_linear_forward(&layer->out, y, layer->context, n, sequence->batch);
}

/* The backward of context = weights * values: the gradients of the values, and in d_scores those of
 * the weights. */
static mimo_status contexts_backward(nn_attention *layer, const nn_sequence *sequence)
{
    nn_matrix d_context = matrix_of(sequence, contexts_of(layer, sequence, true));
    factors plain = {.alpha = 1}, summed = {.alpha = 1, .over_queries = true};
    for (int64_t c = 0; c < key_parts(layer, sequence); c++) {
        nn_matrix weights = matrix_of(sequence, scores_of(layer, sequence, c, false));
        nn_matrix value = key_matrix_of(layer, sequence, values_of(layer, sequence, c, false));
        MIMO_TRY(multiply(layer, sequence, values_of(layer, sequence, c, true), summed,
                          nn_transpose(weights), d_context));
        MIMO_TRY(multiply(layer, sequence, scores_of(layer, sequence, c, true), plain, d_context,
                          nn_transpose(value)));
    }
    return MIMO_OK;
}

/* The backward of scores = scale * queries * keys^T. */
static mimo_status scores_backward(nn_attention *layer, const nn_sequence *sequence)
{
    nn_matrix query = matrix_of(sequence, queries_of(layer, sequence, false));
    panels d_query = queries_of(layer, sequence, true);
    nn_real scale = scale_of(layer);
    factors summed = {.alpha = scale, .over_queries = true};
    for (int64_t c = 0; c < key_parts(layer, sequence); c++) {
        nn_matrix d_scores = matrix_of(sequence, scores_of(layer, sequence, c, true));
        nn_matrix key = key_matrix_of(layer, sequence, keys_of(layer, sequence, c, false));
        factors added = {.alpha = scale, .beta = c > 0};
        MIMO_TRY(multiply(layer, sequence, d_query, added, d_scores, key));
        MIMO_TRY(multiply(layer, sequence, keys_of(layer, sequence, c, true), summed,
                          nn_transpose(d_scores), query));
    }
    return MIMO_OK;
}

mimo_status nn_attention_backward(nn_attention *layer, nn_real *dx, const nn_real *dy)
{
    const nn_sequence *sequence = layer->sequence;
    MIMO_CHECK(sequence, MIMO_ERR_STATE, "attention: backward before forward");
    const nn_runtime *runtime = layer->runtime;
    int64_t all = sequence->parts * sequence->rows;
    MIMO_TRY(nn_linear_backward(&layer->out, layer->d_context, dy));
    MIMO_TRY(contexts_backward(layer, sequence));
    MIMO_TRY(runtime->ops->softmax_backward(runtime, layer->d_scores, layer->weights,
                                            sequence->batch * layer->heads * sequence->rows, all));
    MIMO_TRY(scores_backward(layer, sequence));
    MIMO_TRY(sum_key_gradients(layer, sequence));
    return nn_linear_backward(&layer->qkv, dx, layer->d_projected);
}
