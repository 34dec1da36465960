#include "nn/layers/nn_embedding.h"

#include <string.h>

#include "nn/layers/nn_lookup_uses.h"
#include "nn/params/nn_support.h"
#include "nn/params/nn_token_sums.h"

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params, const nn_embedding_desc *desc)
{
    nn_embedding made = {.params = params, .entries = desc->entries, .width = desc->width, .n = -1};
    char full[NN_NAME_CAPACITY];
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", desc->name);
    MIMO_TRY(nn_check_size(desc->name, "entries", desc->entries));
    MIMO_TRY(nn_check_size(desc->name, "width", desc->width));
    MIMO_TRY(nn_join(full, desc->name, "weight"));
    nn_param_desc weight = {.name = full,
                            .ndim = 2,
                            .shape = {desc->entries, desc->width},
                            .rule = desc->rule,
                            .init = NN_INIT_NORMAL,
                            .std = desc->std};
    MIMO_TRY(nn_params_add(params, &weight, &made.weight));
    made.runtime = nn_params_runtime(params);
    MIMO_TRY(mimo_reserve(&made.slot, made.entries, sizeof *made.slot));
    for (int64_t i = 0; i < made.entries; i++)
        made.slot[i] = -1;
    *layer = made;
    return MIMO_OK;
}

void nn_embedding_release(nn_embedding *layer)
{
    mimo_release(layer->slot);
    mimo_release(layer->host);
    nn_runtime_free(layer->runtime, layer->numbers);
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

mimo_status nn_embedding_reserve(nn_embedding *layer, int64_t n)
{
    int64_t length = nn_uses_length(n), *host, *numbers;
    if (layer->host && n <= layer->capacity)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&host, length, sizeof *host));
    mimo_status status = nn_runtime_reserve(layer->runtime, &numbers, length, sizeof *numbers);
    if (status != MIMO_OK) {
        mimo_release(host);
        return status;
    }
    mimo_release(layer->host);
    nn_runtime_free(layer->runtime, layer->numbers);
    layer->host = host;
    layer->numbers = numbers;
    layer->capacity = n;
    return MIMO_OK;
}

/* Copy the ids, and the lists of rows that use each entry, to the runtime's memory. */
static mimo_status bring_ids(nn_embedding *layer, const int64_t *ids, int64_t n, int64_t repeat)
{
    MIMO_TRY(check_ids(layer, ids, n));
    MIMO_CHECK(repeat >= 0, MIMO_ERR_ARGUMENT, "embedding: repeat is %" PRId64, repeat);
    MIMO_TRY(nn_embedding_reserve(layer, n));
    layer->used = nn_uses_fill(layer->host, layer->slot, ids, n);
    layer->n = n;
    layer->repeat = repeat;
    return nn_runtime_write(layer->runtime, layer->numbers, layer->host,
                            nn_uses_length(n) * (int64_t)sizeof *layer->host);
}

static nn_lookup lookup_of(const nn_embedding *layer)
{
    return (nn_lookup){
        .table = nn_value(layer->params, layer->weight),
        .ids = layer->numbers,
        .n = layer->n,
        .repeat = layer->repeat,
        .width = layer->width,
    };
}

mimo_status nn_embedding_forward(nn_embedding *layer, nn_real *y, const int64_t *ids, int64_t n)
{
    MIMO_TRY(bring_ids(layer, ids, n, 1));
    nn_lookup lookup = lookup_of(layer);
    return layer->runtime->ops->lookup(layer->runtime, y, &lookup);
}

mimo_status nn_embedding_add(nn_embedding *layer, nn_real *x, const int64_t *ids, int64_t n,
                             int64_t repeat)
{
    MIMO_TRY(bring_ids(layer, ids, n, repeat));
    nn_lookup lookup = lookup_of(layer);
    return layer->runtime->ops->lookup_add(layer->runtime, x, &lookup);
}

mimo_status nn_embedding_backward(nn_embedding *layer, const nn_real *dy)
{
    MIMO_CHECK(layer->params && layer->n >= 0, MIMO_ERR_STATE,
               "embedding: backward before forward");
    nn_lookup lookup = lookup_of(layer);
    nn_uses uses = nn_uses_at(layer->numbers, layer->n, layer->used);
    return nn_sum_lookups(layer->params, layer->weight, dy, &lookup, &uses);
}
