#include "whole_tensor.h"

#include <string.h>

#include "core/check.h"

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

mimo_status gather_whole(nn_real *whole, nn_real *room, const nn_real *local, const nn_param *param,
                         mimo_comm *tp)
{
    if (!tp || param->rule != NN_SHARDED) {
        memcpy(whole, local, (size_t)param->count * sizeof *whole);
        return MIMO_OK;
    }
    int64_t bytes = param->count * (int64_t)sizeof *local;
    MIMO_TRY(mimo_comm_allgather(tp, room, local, bytes, NULL));
    slice_shape shape = shape_of(param);
    for (int64_t t = 0; t < mimo_comm_size(tp); t++)
        for (int64_t row = 0; row < shape.rows; row++)
            memcpy(whole + row * shape.whole_width + t * shape.local_width,
                   room + t * param->count + row * shape.local_width,
                   (size_t)shape.local_width * sizeof *whole);
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
