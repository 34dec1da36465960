#include "nn/nn_attention.h"

#include <string.h>

#include "core/checked.h"
#include "nn/nn_blas.h"
#include "nn/nn_math.h"
#include "nn/nn_support.h"

static mimo_status check_desc(const nn_attention_desc *desc, const mimo_comm *tp)
{
    const char *name = desc->name;
    MIMO_TRY(nn_check_size(name, "hidden", desc->hidden));
    MIMO_TRY(nn_check_size(name, "heads", desc->heads));
    MIMO_TRY(nn_check_size(name, "max_rows", desc->max_rows));
    MIMO_TRY(nn_check_size(name, "max_batch", desc->max_batch));
    MIMO_TRY(nn_check_size(name, "max_parts", desc->max_parts > 0 ? desc->max_parts : 1));
    int64_t stride; /* elements from one row of a (sample, head) to the next, an int for BLAS */
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
    nn_linear_desc qkv = {name, hidden, 3 * hidden, NN_SPLIT_COLUMNS, true, desc->std};
    MIMO_TRY(nn_linear_init(&layer->qkv, params, tp, &qkv));
    MIMO_TRY(nn_join(name, desc->name, "out"));
    nn_linear_desc out = {name, hidden, hidden, NN_SPLIT_ROWS, true, desc->out_std};
    return nn_linear_init(&layer->out, params, tp, &out);
}

static mimo_status reserve_rooms(nn_attention *layer)
{
    int64_t n, width, all, gathered, cells;
    MIMO_TRY(mimo_mul(&n, layer->max_rows, layer->max_batch));
    MIMO_TRY(mimo_mul(&width, n, layer->heads * layer->dh));
    MIMO_TRY(mimo_mul(&all, layer->max_rows, layer->max_parts));
    MIMO_TRY(mimo_mul(&gathered, 2 * width, layer->max_parts));
    MIMO_TRY(mimo_mul(&cells, n * layer->heads, all));
    MIMO_TRY(mimo_reserve(&layer->projected, 3 * width, sizeof(nn_real)));
    MIMO_TRY(mimo_reserve(&layer->d_projected, 3 * width, sizeof(nn_real)));
    MIMO_TRY(mimo_reserve(&layer->context, width, sizeof(nn_real)));
    MIMO_TRY(mimo_reserve(&layer->d_context, width, sizeof(nn_real)));
    MIMO_TRY(mimo_reserve(&layer->weights, cells, sizeof(nn_real)));
    MIMO_TRY(mimo_reserve(&layer->d_scores, layer->max_rows * all, sizeof(nn_real)));
    if (layer->max_parts == 1)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&layer->gathered, gathered, sizeof(nn_real)));
    return mimo_reserve(&layer->d_gathered, gathered, sizeof(nn_real));
}

mimo_status nn_attention_init(nn_attention *layer, nn_params *params, mimo_comm *tp,
                              const nn_attention_desc *desc)
{
    MIMO_TRY(check_desc(desc, tp));
    nn_attention made = {.max_rows = desc->max_rows, .max_batch = desc->max_batch};
    made.max_parts = desc->max_parts > 0 ? desc->max_parts : 1;
    made.heads = desc->heads / nn_comm_size(tp);
    made.dh = desc->hidden / desc->heads;
    MIMO_TRY(init_linears(&made, params, tp, desc));
    mimo_status status = reserve_rooms(&made);
    if (status != MIMO_OK) {
        nn_attention_release(&made);
        return status;
    }
    *layer = made;
    return MIMO_OK;
}

void nn_attention_release(nn_attention *layer)
{
    nn_linear_release(&layer->qkv);
    nn_linear_release(&layer->out);
    mimo_release(layer->projected);
    mimo_release(layer->gathered);
    mimo_release(layer->weights);
    mimo_release(layer->context);
    mimo_release(layer->d_projected);
    mimo_release(layer->d_gathered);
    mimo_release(layer->d_context);
    mimo_release(layer->d_scores);
    memset(layer, 0, sizeof *layer);
}

/* Where the keys and values of all parts lie: those of (row i, sample b, head h, part c) start at
 * data + c * part + (i * B + b) * row + h * head, dh keys, then dh values. On one rank that is the
 * projection itself, under cp the gathered copy; the same holds for their gradients. */
typedef struct key_layout {
    int64_t part, row, head;
} key_layout;

static key_layout layout_of(const nn_attention *layer, const nn_sequence *sequence)
{
    int64_t heads = layer->heads, dh = layer->dh;
    if (sequence->parts == 1)
        return (key_layout){0, heads * 3 * dh, 3 * dh};
    int64_t row = heads * 2 * dh;
    return (key_layout){sequence->rows * sequence->batch * row, row, 2 * dh};
}

/* Keys and values start after the queries in the projection. */
static nn_real *keys_of(const nn_attention *layer, const nn_sequence *sequence, bool gradient)
{
    if (sequence->parts == 1)
        return (gradient ? layer->d_projected : layer->projected) + layer->dh;
    return gradient ? layer->d_gathered : layer->gathered;
}

/* Copy this rank's keys and values between the projection and its part of the gathered rows. */
static void copy_keys(const nn_attention *layer, const nn_sequence *sequence, nn_real *projected,
                      nn_real *gathered, bool out)
{
    int64_t chunks = sequence->rows * sequence->batch * layer->heads, dh = layer->dh;
    nn_real *own = gathered + sequence->part * chunks * 2 * dh;
    size_t bytes = (size_t)(2 * dh) * sizeof *own;
    for (int64_t i = 0; i < chunks; i++) {
        nn_real *inside = projected + (3 * i + 1) * dh, *outside = own + 2 * i * dh;
        memcpy(out ? outside : inside, out ? inside : outside, bytes);
    }
}

static mimo_status gather_keys(nn_attention *layer, const nn_sequence *sequence)
{
    if (sequence->parts == 1)
        return MIMO_OK;
    int64_t part = layout_of(layer, sequence).part;
    copy_keys(layer, sequence, layer->projected, layer->gathered, true);
    return mimo_comm_allgather(sequence->cp, layer->gathered,
                               layer->gathered + sequence->part * part,
                               part * (int64_t)sizeof(nn_real), NULL);
}

/* Every rank holds a part of the gradient of all keys and values: sum, keep the own ones. */
static mimo_status sum_key_gradients(nn_attention *layer, const nn_sequence *sequence)
{
    if (sequence->parts == 1)
        return MIMO_OK;
    int64_t part = layout_of(layer, sequence).part;
    MIMO_TRY(nn_allreduce(sequence->cp, layer->d_gathered, sequence->parts * part));
    copy_keys(layer, sequence, layer->d_projected, layer->d_gathered, false);
    return MIMO_OK;
}

/* Softmax of one row in place; mask NULL: all keys. A query always sees its own key. */
static void softmax(nn_real *row, const nn_real *mask, int64_t n)
{
    if (mask)
        for (int64_t j = 0; j < n; j++)
            row[j] = mask[j] > 0 ? row[j] : (nn_real)-1e30;
    nn_real most = nn_max(row, n);
    if (mask) /* exp is clamped: make the zeros exact */
        for (int64_t j = 0; j < n; j++)
            row[j] = nn_exp(row[j] - most) * mask[j];
    else
        for (int64_t j = 0; j < n; j++)
            row[j] = nn_exp(row[j] - most);
    nn_real scale = 1 / nn_sum(row, n);
    for (int64_t j = 0; j < n; j++)
        row[j] *= scale;
}

/* The views of one (sample, head). */
typedef struct head_panel {
    int64_t rows, all, dh;
    int64_t query;                           /* offset of its queries in the projection */
    int64_t key;                             /* offset of its keys in part 0 of the keys */
    int64_t context;                         /* offset in the context */
    int64_t query_row, key_row, context_row; /* elements from one of its rows to the next */
    int64_t part;
    nn_real *weights; /* [rows, all] */
    nn_real scale;
} head_panel;

static head_panel panel_of(const nn_attention *layer, const nn_sequence *sequence, int64_t b,
                           int64_t h)
{
    key_layout keys = layout_of(layer, sequence);
    int64_t heads = layer->heads, dh = layer->dh, batch = sequence->batch;
    int64_t all = sequence->parts * sequence->rows;
    return (head_panel){
        .rows = sequence->rows,
        .all = all,
        .dh = dh,
        .query = (b * heads + h) * 3 * dh,
        .key = b * keys.row + h * keys.head,
        .context = (b * heads + h) * dh,
        .query_row = batch * heads * 3 * dh,
        .key_row = batch * keys.row,
        .context_row = batch * heads * dh,
        .part = keys.part,
        .weights = layer->weights + (b * heads + h) * sequence->rows * all,
        .scale = 1 / nn_sqrt((nn_real)dh),
    };
}

static void attend(nn_attention *layer, const nn_sequence *sequence, const head_panel *p)
{
    const nn_real *keys = keys_of(layer, sequence, false) + p->key;
    nn_matrix query = nn_matrix_of(layer->projected + p->query, p->rows, p->dh, p->query_row);
    for (int64_t c = 0; c < sequence->parts; c++) {
        nn_matrix key = nn_matrix_of(keys + c * p->part, p->rows, p->dh, p->key_row);
        nn_gemm(p->weights + c * p->rows, p->all, 0, p->scale, query, nn_transpose(key));
    }
    for (int64_t i = 0; i < p->rows; i++)
        softmax(p->weights + i * p->all, sequence->mask ? sequence->mask + i * p->all : NULL,
                p->all);
    for (int64_t c = 0; c < sequence->parts; c++) {
        nn_matrix weights = nn_matrix_of(p->weights + c * p->rows, p->rows, p->rows, p->all);
        nn_matrix value = nn_matrix_of(keys + c * p->part + p->dh, p->rows, p->dh, p->key_row);
        nn_gemm(layer->context + p->context, p->context_row, c > 0, 1, weights, value);
    }
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
    return MIMO_OK;
}

mimo_status nn_attention_forward(nn_attention *layer, nn_real *y, const nn_real *x,
                                 const nn_sequence *sequence)
{
    MIMO_TRY(check_sequence(layer, sequence));
    int64_t n = sequence->rows * sequence->batch;
    MIMO_TRY(nn_linear_forward(&layer->qkv, layer->projected, x, n));
    MIMO_TRY(gather_keys(layer, sequence));
    for (int64_t b = 0; b < sequence->batch; b++)
        for (int64_t h = 0; h < layer->heads; h++) {
            head_panel panel = panel_of(layer, sequence, b, h);
            attend(layer, sequence, &panel);
        }
    layer->sequence = sequence;
    return nn_linear_forward(&layer->out, y, layer->context, n);
}

/* d_weights [rows, all] becomes the gradient of the scores: w * (dw - sum(dw * w)). */
static void softmax_backward(nn_real *d_weights, const head_panel *p)
{
    for (int64_t i = 0; i < p->rows; i++) {
        nn_real *d = d_weights + i * p->all;
        const nn_real *w = p->weights + i * p->all;
        nn_real mean = nn_dot(d, w, p->all);
        for (int64_t j = 0; j < p->all; j++)
            d[j] = w[j] * (d[j] - mean);
    }
}

static void attend_backward(nn_attention *layer, const nn_sequence *sequence, const head_panel *p)
{
    const nn_real *keys = keys_of(layer, sequence, false) + p->key;
    nn_real *d_keys = keys_of(layer, sequence, true) + p->key, *d_scores = layer->d_scores;
    nn_matrix query = nn_matrix_of(layer->projected + p->query, p->rows, p->dh, p->query_row);
    nn_matrix d_context =
        nn_matrix_of(layer->d_context + p->context, p->rows, p->dh, p->context_row);
    for (int64_t c = 0; c < sequence->parts; c++) {
        nn_matrix weights = nn_matrix_of(p->weights + c * p->rows, p->rows, p->rows, p->all);
        nn_matrix value = nn_matrix_of(keys + c * p->part + p->dh, p->rows, p->dh, p->key_row);
        nn_gemm(d_keys + c * p->part + p->dh, p->key_row, 0, 1, nn_transpose(weights), d_context);
        nn_gemm(d_scores + c * p->rows, p->all, 0, 1, d_context, nn_transpose(value));
    }
    softmax_backward(d_scores, p);
    for (int64_t c = 0; c < sequence->parts; c++) {
        nn_matrix d_part = nn_matrix_of(d_scores + c * p->rows, p->rows, p->rows, p->all);
        nn_matrix key = nn_matrix_of(keys + c * p->part, p->rows, p->dh, p->key_row);
        nn_gemm(layer->d_projected + p->query, p->query_row, c > 0, p->scale, d_part, key);
        nn_gemm(d_keys + c * p->part, p->key_row, 0, p->scale, nn_transpose(d_part), query);
    }
}

mimo_status nn_attention_backward(nn_attention *layer, nn_real *dx, const nn_real *dy)
{
    const nn_sequence *sequence = layer->sequence;
    MIMO_CHECK(sequence, MIMO_ERR_STATE, "attention: backward before forward");
    MIMO_TRY(nn_linear_backward(&layer->out, layer->d_context, dy));
    for (int64_t b = 0; b < sequence->batch; b++)
        for (int64_t h = 0; h < layer->heads; h++) {
            head_panel panel = panel_of(layer, sequence, b, h);
            attend_backward(layer, sequence, &panel);
        }
    MIMO_TRY(sum_key_gradients(layer, sequence));
    return nn_linear_backward(&layer->qkv, dx, layer->d_projected);
}
