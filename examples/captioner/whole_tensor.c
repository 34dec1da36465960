#include "whole_tensor.h"

#include <string.h>

#include "captioner_support.h"

static const nn_real *array_of(const nn_param *param, nn_part part)
{
    nn_real *const parts[] = {param->value, param->grad, param->m, param->v};
    return parts[part];
}

mimo_status gather_whole(const whole_rooms *rooms, const param_part *from)
{
    const nn_param *param = nn_params_at(from->params, from->index);
    const nn_runtime *runtime = nn_params_runtime(from->params);
    int64_t bytes = param->count * (int64_t)sizeof *rooms->whole;
    if (!from->tp || param->rule != NN_SHARDED)
        return nn_params_read(from->params, from->index, from->part, rooms->whole);
    int ranks = mimo_comm_size(from->tp);
    TRY(mimo_comm_allgather(from->tp, rooms->gathered, array_of(param, from->part), bytes,
                            runtime->stream));
    TRY(nn_runtime_read(runtime, rooms->slices, rooms->gathered, ranks * bytes));
    for (int t = 0; t < ranks; t++)
        for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
            nn_run run = nn_placement_run(&param->placement, t, i);
            memcpy(rooms->whole + run.global, rooms->slices + t * param->count + run.local,
                   (size_t)run.count * sizeof *rooms->whole);
        }
    return MIMO_OK;
}

void slice_whole(nn_real *local, const nn_real *whole, const nn_param *param, int tp_rank)
{
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, tp_rank, i);
        memcpy(local + run.local, whole + run.global, (size_t)run.count * sizeof *local);
    }
}
