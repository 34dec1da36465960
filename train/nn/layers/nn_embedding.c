#include "train/nn/layers/nn_embedding.h"

#include <string.h>

#include "train/nn/layers/nn_lookup_uses.h"
#include "train/nn/params/nn_support.h"
#include "train/nn/params/nn_token_sums.h"

static mimo_status reserve_workspace(nn_embedding *made)
{
    MIMO_TRY(mimo_reserve(&made->host, nn_uses_length(made->max_ids), sizeof *made->host));
    MIMO_TRY(mimo_reserve(&made->place, made->entries, sizeof *made->place));
    for (int64_t i = 0; i < made->entries; i++)
        made->place[i] = -1;
    return MIMO_OK;
}

mimo_status nn_embedding_init(nn_embedding *layer, nn_params *params, const nn_embedding_desc *desc)
{
    nn_embedding made = {.params = params, .entries = desc->entries, .width = desc->width};
    char full[NN_NAME_CAPACITY];
    MIMO_CHECK(params, MIMO_ERR_ARGUMENT, "%s: no parameter store", desc->name);
    MIMO_TRY(nn_check_size(desc->name, "entries", desc->entries));
    MIMO_TRY(nn_check_size(desc->name, "width", desc->width));
    MIMO_CHECK(desc->max_ids >= 0, MIMO_ERR_ARGUMENT, "%s: max_ids is %" PRId64, desc->name,
               desc->max_ids);
    MIMO_TRY(nn_join(full, desc->name, "weight"));
    nn_param_desc weight = {.name = full,
                            .ndim = 2,
                            .shape = {desc->entries, desc->width},
                            .rule = desc->rule,
                            .init = NN_INIT_NORMAL,
                            .std = desc->std};
    MIMO_TRY(nn_params_add(params, &weight, &made.weight));
    made.max_ids = desc->max_ids;
    made.runtime = nn_params_runtime(params);
    mimo_status status = reserve_workspace(&made);
    if (status != MIMO_OK) {
        nn_embedding_release(&made);
        return status;
    }
    *layer = made;
    return MIMO_OK;
}

void nn_embedding_release(nn_embedding *layer)
{
    mimo_release(layer->place);
    mimo_release(layer->host);
    memset(layer, 0, sizeof *layer);
}

mimo_status nn_embedding_saved_take(nn_embedding_saved *saved, const nn_embedding *layer,
                                    nn_room *room)
{
    *saved = (nn_embedding_saved){0};
    return nn_room_take(room, &saved->numbers, nn_uses_length(layer->max_ids),
                        sizeof *saved->numbers);
}

static mimo_status check_ids(const nn_embedding *layer, const int64_t *ids, int64_t n)
{
    MIMO_TRY(nn_check_forward("embedding", layer->params, n, layer->max_ids));
    for (int64_t i = 0; i < n; i++)
        MIMO_CHECK(ids[i] >= 0 && ids[i] < layer->entries, MIMO_ERR_ARGUMENT,
                   "embedding \"%s\": ids[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64,
                   nn_params_at(layer->params, layer->weight)->name, i, ids[i], layer->entries - 1);
    return MIMO_OK;
}

/* Copy the ids, and the lists of rows that use each entry, to the runtime's memory. */
static mimo_status bring_ids(const nn_embedding *layer, nn_embedding_saved *saved,
                             const int64_t *ids, int64_t n, int64_t repeat)
{
    saved->progress = NN_PROGRESS_NONE;
    MIMO_TRY(check_ids(layer, ids, n));
    MIMO_CHECK(repeat >= 0, MIMO_ERR_ARGUMENT, "embedding: repeat is %" PRId64, repeat);
    saved->used = nn_uses_fill(layer->host, layer->place, ids, n);
    saved->n = n;
    saved->repeat = repeat;
    saved->progress = NN_PROGRESS_FORWARD;
    return nn_runtime_write(layer->runtime, saved->numbers, layer->host,
                            nn_uses_length(n) * (int64_t)sizeof *layer->host);
}

static nn_lookup lookup_of(const nn_embedding *layer, const nn_embedding_saved *saved)
{
    return (nn_lookup){
        .table = nn_value(layer->params, layer->weight),
        .ids = saved->numbers,
        .n = saved->n,
        .repeat = saved->repeat,
        .width = layer->width,
    };
}

mimo_status nn_embedding_forward(const nn_embedding *layer, nn_embedding_saved *saved, nn_real *y,
                                 const int64_t *ids, int64_t n)
{
    MIMO_TRY(bring_ids(layer, saved, ids, n, 1));
    nn_lookup lookup = lookup_of(layer, saved);
    return layer->runtime->ops->lookup(layer->runtime, y, &lookup);
}

mimo_status nn_embedding_add(const nn_embedding *layer, nn_embedding_saved *saved, nn_real *x,
                             const int64_t *ids, int64_t n, int64_t repeat)
{
    MIMO_TRY(bring_ids(layer, saved, ids, n, repeat));
    nn_lookup lookup = lookup_of(layer, saved);
    return layer->runtime->ops->lookup_add(layer->runtime, x, &lookup);
}

mimo_status nn_embedding_backward_params(const nn_embedding *layer, nn_embedding_saved *saved,
                                         const nn_real *dy)
{
    MIMO_CHECK(saved->progress == NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "embedding: backward before forward");
    saved->progress = NN_PROGRESS_NONE;
    nn_lookup lookup = lookup_of(layer, saved);
    nn_uses uses = nn_uses_at(saved->numbers, saved->n, saved->used);
    return nn_sum_lookups(layer->params, layer->weight, dy, &lookup, &uses);
}
