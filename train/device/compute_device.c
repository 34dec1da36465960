#include "train/device/compute_device.h"

#include "train/device/gpu_device.h"
#include "train/support/train_support.h"

/* What a rank does alone; the others must hear of a failure. */
static mimo_status open_runtime(compute_device *out, nn_runtime_desc desc)
{
    if (out->gpu_world)
        TRY(gpu_stream_create(&out->stream, false));
    desc.stream = out->stream;
    return nn_runtime_init(&out->runtime, &desc);
}

mimo_status compute_device_open(compute_device *out, mimo_comm *world, const nn_runtime_desc *desc)
{
    out->world = world;
    if (desc->memory == MIMO_MEMORY_CUDA) {
        TRY(gpu_world_create(&out->gpu_world));
        out->world = out->gpu_world;
    }
    return mimo_comm_agree(world, open_runtime(out, *desc));
}

void compute_device_close(compute_device *device)
{
    nn_runtime_release(&device->runtime);
    mimo_comm_destroy(device->gpu_world);
    gpu_stream_destroy(device->stream);
    *device = (compute_device){0};
}
