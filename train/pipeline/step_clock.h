/* When the steps of a stage began and ended. On the host that is read from its clock at once. On a
 * device it is an event in a stream, and read when all is over: the host does not wait before. */
#ifndef TRAIN_STEP_CLOCK_H
#define TRAIN_STEP_CLOCK_H

#include "train/device/gpu_device.h"
#include "train/pipeline/stage_streams.h"

typedef struct step_clock {
    const stage_streams *streams; /* borrowed; NULL: the host */
    int64_t count;
    int64_t *times; /* [count] nanoseconds since stamp 0; until they are read, on the host, of the
                       host's clock */
    gpu_clock *gpu; /* NULL on the host */
} step_clock;

/** `count` stamps. Local. The caller zeroes *out before and calls step_clock_destroy after,
 *  whatever the result. */
mimo_status step_clock_create(step_clock *out, const stage_streams *streams, int64_t count);
void step_clock_destroy(step_clock *clock);

/** Nanoseconds of the host's clock. */
int64_t host_clock_now(void);

/** Stamp `i` is when the stream has done all that it was given so far. */
mimo_status step_clock_stamp(step_clock *clock, int64_t i, stage_stream stream);

/** Read the first `count` stamps, once: then clock->times begins at stamp 0. Waits for them. */
mimo_status step_clock_read(step_clock *clock, int64_t count);

#endif
