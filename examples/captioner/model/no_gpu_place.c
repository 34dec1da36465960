#include "captioner/model/gpu_place.h"

#include "captioner/support/captioner_support.h"

mimo_status gpu_world_create(mimo_comm **out)
{
    (void)out;
    return mimo_fail(MIMO_ERR_UNSUPPORTED,
                     "--device cuda: this build has no CUDA part (meson setup -Dcuda=enabled)");
}

mimo_status gpu_stream_create(mimo_stream *out)
{
    (void)out;
    return gpu_world_create(NULL);
}

void gpu_stream_destroy(mimo_stream stream)
{
    (void)stream;
}
