#include "train/pipeline/stage_streams.h"

#include "train/device/gpu_device.h"
#include "train/support/train_support.h"

/* Streams `first` to `last`. */
static mimo_status make(stage_streams *out, stage_stream first, stage_stream last, bool urgent)
{
    for (int stream = (int)first; stream <= (int)last; stream++)
        out->of[stream] = NULL;
    for (int stream = (int)first; stream <= (int)last; stream++)
        TRY(gpu_stream_create(&out->of[stream], urgent));
    return MIMO_OK;
}

/* The few thread blocks of an exchange that is ready would stand behind all of the product that
 * runs. */
mimo_status stage_streams_create(stage_streams *out, const stage_streams_desc *desc)
{
    out->runtime = nn_runtime_or_host(desc->runtime);
    for (int stream = 0; stream < STAGE_STREAMS; stream++)
        out->of[stream] = out->runtime->stream;
    if (!out->runtime->stream)
        return MIMO_OK;
    out->apart = desc->stages;
    if (desc->stages)
        TRY(make(out, STREAM_BRIDGE, STREAM_GRADIENTS_OUT, false));
    return desc->exchanges ? make(out, STREAM_EXCHANGES, STREAM_ROUTES, true) : MIMO_OK;
}

void stage_streams_destroy(stage_streams *streams)
{
    mimo_stream compute = streams->of[STREAM_COMPUTE];
    for (int stream = STREAM_COMPUTE + 1; stream < STAGE_STREAMS; stream++)
        if (streams->of[stream] != compute)
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
