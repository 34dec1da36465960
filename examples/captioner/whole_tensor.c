#include "whole_tensor.h"

#include <string.h>

#include "captioner_support.h"

/* A tensor cut along dimension 1 is rows of slices; one cut along dimension 0 lies in one piece. */
typedef struct slice_shape {
    int64_t rows, whole_width, local_width;
} slice_shape;

static slice_shape shape_of(const nn_param *param)
{
    if (param->shard_dim == 1)
        return (slice_shape){param->shape[0], param->shape[1], param->local[1]};
    return (slice_shape){1, param->shape[0] * param->shape[1], param->local[0] * param->local[1]};
}

static const nn_real *array_of(const nn_param *param, nn_part part)
{
    return part == NN_VALUE ? param->value : part == NN_MOMENT_M ? param->m : param->v;
}

mimo_status gather_whole(const whole_rooms *rooms, const param_part *from)
{
    const nn_param *param = nn_params_at(from->params, from->index);
    const nn_runtime *runtime = nn_params_runtime(from->params);
    int64_t bytes = param->count * (int64_t)sizeof *rooms->whole;
    if (!from->tp || param->rule != NN_SHARDED)
        return nn_params_read(from->params, from->index, from->part, rooms->whole);
    int64_t ranks = mimo_comm_size(from->tp);
    TRY(mimo_comm_allgather(from->tp, rooms->gathered, array_of(param, from->part), bytes,
                            runtime->stream));
    TRY(nn_runtime_read(runtime, rooms->slices, rooms->gathered, ranks * bytes));
    slice_shape shape = shape_of(param);
    for (int64_t t = 0; t < ranks; t++)
        for (int64_t row = 0; row < shape.rows; row++)
            memcpy(rooms->whole + row * shape.whole_width + t * shape.local_width,
                   rooms->slices + t * param->count + row * shape.local_width,
                   (size_t)shape.local_width * sizeof *rooms->whole);
    return MIMO_OK;
}

void slice_whole(nn_real *local, const nn_real *whole, const nn_param *param)
{
    slice_shape shape = shape_of(param);
    int64_t width = param->shard_dim == 1 ? 1 : param->shape[1];
    for (int64_t row = 0; row < shape.rows; row++)
        memcpy(local + row * shape.local_width,
               whole + row * shape.whole_width + param->start * width,
               (size_t)shape.local_width * sizeof *local);
}
