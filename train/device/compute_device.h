/* Where a run computes: on the host over MPI, or on a GPU per rank over NCCL. */
#ifndef TRAIN_COMPUTE_DEVICE_H
#define TRAIN_COMPUTE_DEVICE_H

#include <mimo/comm.h>

#include "train/nn/ops/nn_runtime.h"

typedef struct compute_device {
    mimo_comm *world;     /* all ranks, moving tensors where they are computed */
    mimo_comm *gpu_world; /* owned: `world` on GPUs, otherwise NULL */
    mimo_stream stream;   /* owned; NULL on the host */
    nn_runtime runtime;
} compute_device;

/** Open a device as `desc` says (its stream is the device's own). `world` is the MPI communicator
 *  of all ranks, which outlives it. Collective. The caller zeroes *out before and calls
 *  compute_device_close after, whatever the result. Errors, the same on every rank:
 *  MIMO_ERR_UNSUPPORTED (this build has no CUDA), and those of mimo_comm_create_nccl. */
mimo_status compute_device_open(compute_device *out, mimo_comm *world, const nn_runtime_desc *desc);
void compute_device_close(compute_device *device);

#endif
