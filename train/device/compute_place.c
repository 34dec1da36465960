#include "train/device/compute_place.h"

#include "train/device/gpu_place.h"
#include "train/support/train_support.h"

/* What a rank does alone; the others must hear of a failure. */
static mimo_status open_runtime(compute_place *out, nn_runtime_desc desc)
{
    if (out->gpu_world)
        TRY(gpu_stream_create(&out->stream));
    desc.stream = out->stream;
    return nn_runtime_init(&out->runtime, &desc);
}

mimo_status compute_place_open(compute_place *out, mimo_comm *world, const nn_runtime_desc *desc)
{
    out->world = world;
    if (desc->memory == MIMO_MEMORY_CUDA) {
        TRY(gpu_world_create(&out->gpu_world));
        out->world = out->gpu_world;
    }
    return mimo_comm_agree(world, open_runtime(out, *desc));
}

void compute_place_close(compute_place *place)
{
    nn_runtime_release(&place->runtime);
    mimo_comm_destroy(place->gpu_world);
    gpu_stream_destroy(place->stream);
    *place = (compute_place){0};
}
