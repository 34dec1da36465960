#include "captioner/training/best_state.h"

#include <math.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { STORES = 2, PARTS = 3 };
static const nn_part parts[PARTS] = {NN_VALUE, NN_MOMENT_M, NN_MOMENT_V};

/* What is done with an array of a parameter, and with its room. */
typedef mimo_status visit(nn_params *params, int index, nn_part part, nn_real *room);

static mimo_status keep(nn_params *params, int index, nn_part part, nn_real *room)
{
    return nn_params_read(params, index, part, room);
}

static mimo_status put_back(nn_params *params, int index, nn_part part, nn_real *room)
{
    return nn_params_write(params, index, part, room);
}

static bool changes(const nn_param *param)
{
    return param->held && nn_param_has(param, NN_GRAD);
}

static mimo_status visit_all(const best_state *best, visit *act)
{
    nn_params *stores[STORES] = {best->model->encoder.params, best->model->language.params};
    nn_real *room = best->kept;
    for (int s = 0; s < STORES; s++)
        for (int i = 0; i < nn_params_count(stores[s]); i++) {
            const nn_param *param = nn_params_at(stores[s], i);
            for (int part = 0; changes(param) && part < PARTS; part++) {
                TRY(act(stores[s], i, parts[part], room));
                room += param->count;
            }
        }
    return MIMO_OK;
}

mimo_status best_state_reserve(best_state *out, bridged_model *model)
{
    nn_params *stores[STORES] = {model->encoder.params, model->language.params};
    int64_t elements = 0;
    for (int s = 0; s < STORES; s++)
        for (int i = 0; i < nn_params_count(stores[s]); i++) {
            const nn_param *param = nn_params_at(stores[s], i);
            elements += changes(param) ? PARTS * param->count : 0;
        }
    out->model = model;
    return memory_reserve(&out->kept, elements, sizeof *out->kept);
}

void best_state_release(best_state *best)
{
    memory_release(best->kept);
    *best = (best_state){0};
}

mimo_status best_state_offer(best_state *best, int64_t step, double loss)
{
    if (isnan(loss) || (best->step > 0 && loss >= best->loss))
        return MIMO_OK;
    TRY(visit_all(best, keep));
    best->step = step;
    best->loss = loss;
    return MIMO_OK;
}

mimo_status best_state_restore(const best_state *best)
{
    TRY(visit_all(best, put_back));
    nn_params_set_steps(best->model->encoder.params, best->step);
    nn_params_set_steps(best->model->language.params, best->step);
    return MIMO_OK;
}
