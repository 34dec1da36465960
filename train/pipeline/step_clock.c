#include "train/pipeline/step_clock.h"

#include <time.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

mimo_status step_clock_create(step_clock *out, const stage_streams *streams, int64_t count)
{
    out->streams = streams;
    out->count = count;
    TRY(memory_reserve(&out->times, count, sizeof *out->times));
    return stage_stream_of(streams, STREAM_COMPUTE) ? gpu_clock_create(&out->gpu, count) : MIMO_OK;
}

void step_clock_destroy(step_clock *clock)
{
    gpu_clock_destroy(clock->gpu);
    memory_release(clock->times);
    *clock = (step_clock){0};
}

int64_t host_clock_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

mimo_status step_clock_stamp(step_clock *clock, int64_t i, stage_stream stream)
{
    if (clock->gpu)
        return gpu_clock_stamp(clock->gpu, i, stage_stream_of(clock->streams, stream));
    clock->times[i] = host_clock_now();
    return MIMO_OK;
}

mimo_status step_clock_read(step_clock *clock, int64_t count)
{
    if (clock->gpu)
        return gpu_clock_read(clock->times, clock->gpu, count);
    for (int64_t i = count - 1; i >= 0; i--)
        clock->times[i] -= clock->times[0];
    return MIMO_OK;
}
