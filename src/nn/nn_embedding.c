#include "nn/nn_embedding.h"

#include <string.h>

#include "nn/nn_support.h"

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params, const char *name,
                              int64_t entries, int64_t width, double std)
{
    nn_embedding made = {.params = params, .entries = entries, .width = width, .n = -1};
    char full[NN_NAME_CAPACITY];
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", name);
    MIMO_TRY(nn_check_size(name, "entries", entries));
    MIMO_TRY(nn_check_size(name, "width", width));
    MIMO_TRY(nn_join(full, name, "weight"));
    nn_param_desc desc = {
        .name = full, .ndim = 2, .shape = {entries, width}, .init = NN_INIT_NORMAL, .std = std};
    MIMO_TRY(nn_params_add(params, &desc, &made.weight));
    *layer = made;
    return MIMO_OK;
}

void nn_embedding_release(nn_embedding *layer)
{
    memset(layer, 0, sizeof *layer);
}

static mimo_status check_ids(const nn_embedding *layer, const int64_t *ids, int64_t n)
{
    MIMO_TRY(nn_check_forward("embedding", layer->params, n, INT_MAX));
    for (int64_t i = 0; i < n; i++)
        MIMO_CHECK(ids[i] >= 0 && ids[i] < layer->entries, MIMO_ERR_ARGUMENT,
                   "embedding \"%s\": ids[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64,
                   nn_params_at(layer->params, layer->weight)->name, i, ids[i], layer->entries - 1);
    return MIMO_OK;
}

static void remember(nn_embedding *layer, const int64_t *ids, int64_t n, int64_t repeat)
{
    layer->ids = ids;
    layer->n = n;
    layer->repeat = repeat;
}

mimo_status nn_embedding_forward(nn_embedding *layer, nn_real *y, const int64_t *ids, int64_t n)
{
    MIMO_TRY(check_ids(layer, ids, n));
    const nn_real *table = nn_value(layer->params, layer->weight);
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * layer->width, table + ids[i] * layer->width,
               (size_t)layer->width * sizeof *y);
    remember(layer, ids, n, 1);
    return MIMO_OK;
}

static void add_row(nn_real *to, const nn_real *from, int64_t width)
{
    for (int64_t j = 0; j < width; j++)
        to[j] += from[j];
}

mimo_status nn_embedding_add(nn_embedding *layer, nn_real *x, const int64_t *ids, int64_t n,
                             int64_t repeat)
{
    MIMO_TRY(check_ids(layer, ids, n));
    MIMO_CHECK(repeat >= 0, MIMO_ERR_ARGUMENT, "embedding: repeat is %" PRId64, repeat);
    const nn_real *table = nn_value(layer->params, layer->weight);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < repeat; j++)
            add_row(x + (i * repeat + j) * layer->width, table + ids[i] * layer->width,
                    layer->width);
    remember(layer, ids, n, repeat);
    return MIMO_OK;
}

mimo_status nn_embedding_backward(nn_embedding *layer, const nn_real *dy)
{
    MIMO_CHECK(layer->params && layer->n >= 0, MIMO_ERR_STATE,
               "embedding: backward before forward");
    nn_real *grad = nn_grad(layer->params, layer->weight);
    for (int64_t i = 0; i < layer->n; i++)
        for (int64_t j = 0; j < layer->repeat; j++)
            add_row(grad + layer->ids[i] * layer->width,
                    dy + (i * layer->repeat + j) * layer->width, layer->width);
    return MIMO_OK;
}
