/*
 * The streams of a stage. Work of one stream is done in the order in which it was given; streams
 * wait for one another at marks alone (nn/ops/nn_mark.h). On a device each is a stream of it. On
 * the host all streams are the runtime's, and so are those that nobody asked for: nothing is in
 * flight beside the layers.
 *
 * A kernel of a stream that waits for another stage must not hold back those of another stream. So
 * all streams of a process need a queue of the device each (gpu_device.c asks for them).
 */
#ifndef TRAIN_STAGE_STREAMS_H
#define TRAIN_STAGE_STREAMS_H

#include <mimo/op.h>

#include "train/nn/ops/nn_mark.h"

typedef enum stage_stream {
    STREAM_COMPUTE, /* the runtime's stream */
    STREAM_BRIDGE,
    STREAM_ACTIVATIONS_IN, /* hops: one way, one end. A send must not delay what is received */
    STREAM_ACTIVATIONS_OUT,
    STREAM_GRADIENTS_IN,
    STREAM_GRADIENTS_OUT,
    STREAM_EXCHANGES, /* rows of experts, and where they go (node_lanes.h) */
    STREAM_ROUTES,
    STAGE_STREAMS,
} stage_stream;

/* Thread blocks of a call beside the layers: these fill the link between two H100. The limit also
 * lets a call leave all multiprocessors to the layers while it waits for another stage
 * (mimo_bridge_desc.ctas). */
enum { STREAM_CTAS = 16 };

typedef struct stage_streams {
    const nn_runtime *runtime;
    mimo_stream of[STAGE_STREAMS]; /* NULL on the host */
    bool apart;                    /* bridge and hops have streams of their own */
} stage_streams;

typedef struct stage_streams_desc {
    const nn_runtime *runtime; /* borrowed; NULL: the host */
    bool stages;               /* of a pipeline: streams for the bridge and for hops */
    bool exchanges;            /* streams for expert exchanges */
} stage_streams_desc;

/** Local. The caller zeroes *out before and calls stage_streams_destroy after, whatever the result.
 *  Errors: MIMO_ERR_DEVICE. */
mimo_status stage_streams_create(stage_streams *out, const stage_streams_desc *desc);
void stage_streams_destroy(stage_streams *streams);

/** What the device calls it; without streams (NULL) that of the host. */
mimo_stream stage_stream_of(const stage_streams *streams, stage_stream stream);

/** What is computed from now on comes after a call of `chunks` chunks, which is over then as
 *  mimo_op_wait has it, also on failure: on the host it blocks. Local. NULL in *op is fine. */
mimo_status stage_streams_end(const stage_streams *streams, mimo_op **op, int64_t chunks);

/** Where the streams compute; without streams on the host. */
const nn_runtime *stage_streams_runtime(const stage_streams *streams);

#endif
