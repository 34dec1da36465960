/*
 * A mark: how far the work of a stream has come, for another stream to wait for. On a device it is
 * an event, and the host waits for nothing. On the host work is done on return, so a mark is
 * nothing.
 */
#ifndef MIMO_NN_NN_MARK_H
#define MIMO_NN_NN_MARK_H

#include "train/nn/ops/nn_runtime.h"

MIMO_BEGIN_DECLS

typedef struct nn_mark {
    const struct mimo_device *device;
    struct mimo_event *event; /* NULL on the host */
} nn_mark;

/** A mark that nothing is waited for yet. `runtime` NULL means the host. The caller zeroes *mark
 *  before. Local. Errors: MIMO_ERR_MEMORY, MIMO_ERR_DEVICE. Release accepts a zeroed mark, and
 *  leaves it zeroed. */
mimo_status nn_mark_init(nn_mark *mark, const nn_runtime *runtime);
void nn_mark_release(nn_mark *mark);

/** Set the mark behind all that `stream` has been given so far. Who waited for its old place goes
 *  on waiting for that. */
mimo_status nn_mark_set(const nn_mark *mark, mimo_stream stream);

/** What `stream` is given from now on waits until the mark is reached. */
mimo_status nn_mark_await(const nn_mark *mark, mimo_stream stream);

MIMO_END_DECLS

#endif
