#include "train/pipeline/stage_streams.h"

#include "train/device/gpu_device.h"
#include "train/support/train_support.h"

mimo_status stage_streams_create(stage_streams *out, const nn_runtime *runtime, int stages)
{
    out->runtime = nn_runtime_or_host(runtime);
    for (int stream = 0; stream < STAGE_STREAMS; stream++)
        out->of[stream] = out->runtime->stream;
    if (stages == 1 || !out->runtime->stream)
        return MIMO_OK;
    out->apart = true;
    for (int stream = STREAM_COMPUTE + 1; stream < STAGE_STREAMS; stream++)
        out->of[stream] = NULL;
    for (int stream = STREAM_COMPUTE + 1; stream < STAGE_STREAMS; stream++)
        TRY(gpu_stream_create(&out->of[stream]));
    return MIMO_OK;
}

void stage_streams_destroy(stage_streams *streams)
{
    for (int stream = STREAM_COMPUTE + 1; streams->apart && stream < STAGE_STREAMS; stream++)
        gpu_stream_destroy(streams->of[stream]);
    *streams = (stage_streams){0};
}

mimo_stream stage_stream_of(const stage_streams *streams, stage_stream stream)
{
    return streams ? streams->of[stream] : NULL;
}

mimo_status stage_streams_end(const stage_streams *streams, mimo_op **op, int64_t chunks)
{
    mimo_stream compute = stage_stream_of(streams, STREAM_COMPUTE);
    mimo_status ordered = MIMO_OK;
    if (*op && compute)
        ordered = mimo_op_wait_chunk(*op, (int)chunks - 1, compute);
    mimo_status ended = mimo_op_wait(op);
    return ordered == MIMO_OK ? ended : ordered;
}

const nn_runtime *stage_streams_runtime(const stage_streams *streams)
{
    return streams ? streams->runtime : nn_runtime_or_host(NULL);
}
