/*
 * The lanes of a stage. Work of one lane is done in the order in which it was given; lanes wait for
 * one another at marks alone (nn/ops/nn_mark.h). On a device a lane is a stream. On the host, and
 * where there is one stage, all lanes are the runtime's: nothing is in flight beside the layers.
 *
 * A lane's kernel that waits for another stage must not hold back those of another lane. So all
 * streams of a process need a queue of the device each (gpu_place.c asks for them).
 */
#ifndef TRAIN_STAGE_LANES_H
#define TRAIN_STAGE_LANES_H

#include <mimo/op.h>

#include "train/nn/ops/nn_mark.h"

typedef enum stage_lane {
    LANE_COMPUTE, /* the runtime's stream */
    LANE_BRIDGE,
    LANE_ACTIVATIONS_IN, /* hops: one way, one end. A send must not delay what is received */
    LANE_ACTIVATIONS_OUT,
    LANE_GRADIENTS_IN,
    LANE_GRADIENTS_OUT,
    STAGE_LANES,
} stage_lane;

/* Thread blocks of a call beside the layers: these fill the link between two H100. The limit also
 * lets a call leave all multiprocessors to the layers while it waits for another stage
 * (mimo_bridge_desc.ctas). */
enum { LANE_CTAS = 16 };

typedef struct stage_lanes {
    const nn_runtime *runtime;
    mimo_stream streams[STAGE_LANES]; /* NULL on the host */
    bool apart;                       /* all but the first are of these lanes alone */
} stage_lanes;

/** `runtime` is borrowed; NULL: the host. Local. The caller zeroes *out before and calls
 *  stage_lanes_destroy after, whatever the result. Errors: MIMO_ERR_DEVICE. */
mimo_status stage_lanes_create(stage_lanes *out, const nn_runtime *runtime, int stages);
void stage_lanes_destroy(stage_lanes *lanes);

/** The stream of a lane; of no lanes (NULL) the host's. */
mimo_stream stage_lane_stream(const stage_lanes *lanes, stage_lane lane);

/** What is computed from now on comes after a call of `chunks` chunks, which is over then as
 *  mimo_op_wait has it, also on failure: on the host it blocks. Local. NULL in *op is fine. */
mimo_status stage_lanes_end(const stage_lanes *lanes, mimo_op **op, int64_t chunks);

/** Where the lanes compute; of no lanes on the host. */
const nn_runtime *stage_lanes_runtime(const stage_lanes *lanes);

#endif
