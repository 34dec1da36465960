#include "train/nn/layers/nn_expert_lists.h"

#include "train/nn/params/nn_support.h"

enum { VALUES, GRADIENTS, ARRAYS };

static int64_t entries_of(const nn_expert_lists *lists)
{
    return (int64_t)NN_EXPERT_LAYERS * ARRAYS * NN_EXPERT_PARTS * lists->count;
}

static int64_t first_of(const nn_expert_lists *lists, nn_expert_layer layer, int array,
                        nn_expert_part part)
{
    return (((int64_t)layer * ARRAYS + array) * NN_EXPERT_PARTS + part) * lists->count;
}

mimo_status nn_expert_lists_init(nn_expert_lists *lists, const nn_runtime *runtime, int64_t count)
{
    nn_expert_lists made = {.count = count};
    MIMO_TRY(mimo_reserve(&made.made, entries_of(&made), sizeof *made.made));
    made.there = made.made;
    if (runtime->order == NN_ORDER_FIXED && runtime->memory != MIMO_MEMORY_HOST) {
        mimo_status status =
            nn_runtime_reserve(runtime, &made.there, entries_of(&made), sizeof *made.there);
        if (status != MIMO_OK) {
            mimo_release(made.made);
            return status;
        }
    }
    *lists = made;
    return MIMO_OK;
}

void nn_expert_lists_release(nn_expert_lists *lists, const nn_runtime *runtime)
{
    if (lists->there != lists->made)
        nn_runtime_free(runtime, lists->there);
    mimo_release(lists->made);
    *lists = (nn_expert_lists){0};
}

/* The parameter of a part; -1: products do without it. */
static int parameter_of(const nn_expert_linear *linear, nn_expert_part part)
{
    const bool adapted = linear->lora.rank > 0 && !linear->lora.unmerged;
    switch (part) {
    case NN_EXPERT_WEIGHT:
        return linear->weight;
    case NN_EXPERT_BIAS:
        return linear->bias;
    case NN_EXPERT_A:
        return adapted ? linear->lora.a : -1;
    default:
        return adapted ? linear->lora.b : -1;
    }
}

static void *gradient_of(const nn_params *params, int index)
{
    const nn_param *param = nn_params_at(params, index);
    if (param->frozen)
        return NULL;
    return nn_params_runtime(params)->order == NN_ORDER_FIXED ? (void *)param->sums : param->grad;
}

static bool set(const nn_expert_lists *lists, int64_t at, void *array)
{
    bool changed = lists->made[at] != array;
    lists->made[at] = array;
    return changed;
}

static bool set_linear(const nn_expert_lists *lists, const nn_params *params, nn_expert_layer layer,
                       const nn_expert_linear *linear, int64_t expert)
{
    bool changed = false;
    for (int part = 0; part < NN_EXPERT_PARTS; part++) {
        int index = parameter_of(linear, (nn_expert_part)part);
        void *value = index < 0 ? NULL : nn_value(params, index);
        void *gradient = index < 0 ? NULL : gradient_of(params, index);
        int64_t values = first_of(lists, layer, VALUES, (nn_expert_part)part) + expert;
        int64_t gradients = first_of(lists, layer, GRADIENTS, (nn_expert_part)part) + expert;
        changed = set(lists, values, value) || changed;
        changed = set(lists, gradients, gradient) || changed;
    }
    return changed;
}

mimo_status nn_expert_lists_update(const nn_expert_lists *lists, const nn_params *params,
                                   const nn_expert *experts)
{
    bool changed = false;
    for (int64_t e = 0; e < lists->count; e++) {
        changed = set_linear(lists, params, NN_EXPERT_UP, &experts[e].up, e) || changed;
        changed = set_linear(lists, params, NN_EXPERT_DOWN, &experts[e].down, e) || changed;
    }
    if (!changed || lists->there == lists->made)
        return MIMO_OK;
    return nn_runtime_write(nn_params_runtime(params), lists->there, lists->made,
                            entries_of(lists) * (int64_t)sizeof *lists->made);
}

const nn_real *const *nn_expert_values(const nn_expert_lists *lists, nn_expert_layer layer,
                                       nn_expert_part part)
{
    return (const nn_real *const *)(lists->there + first_of(lists, layer, VALUES, part));
}

void *const *nn_expert_gradients(const nn_expert_lists *lists, nn_expert_layer layer,
                                 nn_expert_part part)
{
    return lists->there + first_of(lists, layer, GRADIENTS, part);
}
