#include "train/model/row_order.h"

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static const int64_t image_id = 0;

mimo_status row_order_create(mimo_alignment **out, const nn_runtime *runtime)
{
    mimo_alignment_desc desc = MIMO_ALIGNMENT_DESC_INIT;
    desc.modalities = 1;
    desc.special = &image_id;
    desc.memory = runtime->memory;
    return mimo_alignment_create(out, &desc);
}

mimo_status row_order_set(mimo_alignment *order, int64_t samples, int64_t positions,
                          const nn_runtime *runtime)
{
    int64_t *ids;
    TRY(memory_reserve(&ids, samples * positions, sizeof *ids)); /* zeros: image_id */
    mimo_tensor view = mimo_tensor_2d(ids, MIMO_I64, "bs", samples, positions);
    mimo_status status = mimo_alignment_update(order, &view, runtime->stream);
    memory_release(ids);
    return status;
}
