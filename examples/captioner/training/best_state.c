#include "captioner/training/best_state.h"

#include <math.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

mimo_status best_state_reserve(best_state *out, bridged_model *model)
{
    int64_t elements = 0;
    out->model = model;
    TRY(model_state_list(&out->state, model, STATE_CHANGING));
    for (int64_t i = 0; i < out->state.count; i++)
        elements += out->state.arrays[i].param->count;
    return memory_reserve(&out->kept, elements, sizeof *out->kept);
}

void best_state_release(best_state *best)
{
    model_state_release(&best->state);
    memory_release(best->kept);
    *best = (best_state){0};
}

mimo_status best_state_offer(best_state *best, int64_t step, double loss)
{
    nn_real *room = best->kept;
    if (isnan(loss) || (best->step > 0 && loss >= best->loss))
        return MIMO_OK;
    for (int64_t i = 0; i < best->state.count; i++) {
        const state_array *array = &best->state.arrays[i];
        const nn_param_part *place = &array->place;
        TRY(nn_params_read(place->owners->params, place->index, place->part, room));
        room += array->param->count;
    }
    best->step = step;
    best->loss = loss;
    return MIMO_OK;
}

mimo_status best_state_restore(const best_state *best)
{
    const nn_real *room = best->kept;
    for (int64_t i = 0; i < best->state.count; i++) {
        const state_array *array = &best->state.arrays[i];
        const nn_param_part *place = &array->place;
        TRY(nn_params_write(place->owners->params, place->index, place->part, room));
        room += array->param->count;
    }
    model_state_set_steps(best->model, best->step);
    return MIMO_OK;
}
