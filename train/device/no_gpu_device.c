#include "train/device/gpu_device.h"

#include "train/support/train_support.h"

static mimo_status refuse(void)
{
    return mimo_fail(MIMO_ERR_UNSUPPORTED,
                     "--device cuda: this build has no CUDA part (meson setup -Dcuda=enabled)");
}

mimo_status gpu_world_create(mimo_comm **out)
{
    (void)out;
    return refuse();
}

mimo_status gpu_stream_create(mimo_stream *out, bool urgent)
{
    (void)out, (void)urgent;
    return refuse();
}

void gpu_stream_destroy(mimo_stream stream)
{
    (void)stream;
}

mimo_status gpu_apart_create(mimo_comm **out, mimo_comm *same, int ctas)
{
    (void)out, (void)same, (void)ctas;
    return refuse();
}

mimo_status gpu_clock_create(gpu_clock **out, int64_t count)
{
    (void)out, (void)count;
    return refuse();
}

void gpu_clock_destroy(gpu_clock *clock)
{
    (void)clock;
}

mimo_status gpu_clock_stamp(gpu_clock *clock, int64_t i, mimo_stream stream)
{
    (void)clock, (void)i, (void)stream;
    return refuse();
}

mimo_status gpu_clock_read(int64_t *times, gpu_clock *clock, int64_t count)
{
    (void)times, (void)clock, (void)count;
    return refuse();
}
