#include "train/pipeline/stage_lanes.h"

#include "train/device/gpu_place.h"
#include "train/support/train_support.h"

mimo_status stage_lanes_create(stage_lanes *out, const nn_runtime *runtime, int stages)
{
    out->runtime = nn_runtime_or_host(runtime);
    for (int lane = 0; lane < STAGE_LANES; lane++)
        out->streams[lane] = out->runtime->stream;
    if (stages == 1 || !out->runtime->stream)
        return MIMO_OK;
    out->apart = true;
    for (int lane = LANE_COMPUTE + 1; lane < STAGE_LANES; lane++)
        out->streams[lane] = NULL;
    for (int lane = LANE_COMPUTE + 1; lane < STAGE_LANES; lane++)
        TRY(gpu_stream_create(&out->streams[lane]));
    return MIMO_OK;
}

void stage_lanes_destroy(stage_lanes *lanes)
{
    for (int lane = LANE_COMPUTE + 1; lanes->apart && lane < STAGE_LANES; lane++)
        gpu_stream_destroy(lanes->streams[lane]);
    *lanes = (stage_lanes){0};
}

mimo_stream stage_lane_stream(const stage_lanes *lanes, stage_lane lane)
{
    return lanes ? lanes->streams[lane] : NULL;
}

mimo_status stage_lanes_end(const stage_lanes *lanes, mimo_op **op, int64_t chunks)
{
    mimo_stream compute = stage_lane_stream(lanes, LANE_COMPUTE);
    mimo_status ordered = MIMO_OK;
    if (*op && compute)
        ordered = mimo_op_wait_chunk(*op, (int)chunks - 1, compute);
    mimo_status ended = mimo_op_wait(op);
    return ordered == MIMO_OK ? ended : ordered;
}

const nn_runtime *stage_lanes_runtime(const stage_lanes *lanes)
{
    return lanes ? lanes->runtime : nn_runtime_or_host(NULL);
}
