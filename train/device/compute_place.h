/* Where a run computes: on the host over MPI, or on a GPU per rank over NCCL. */
#ifndef TRAIN_COMPUTE_PLACE_H
#define TRAIN_COMPUTE_PLACE_H

#include <mimo/comm.h>

#include "train/nn/ops/nn_runtime.h"

typedef struct compute_place {
    mimo_comm *world;     /* all ranks, moving tensors where they are computed */
    mimo_comm *gpu_world; /* owned: `world` on GPUs, otherwise NULL */
    mimo_stream stream;   /* owned; NULL on the host */
    nn_runtime runtime;
} compute_place;

/** Open a place as `desc` says (its stream is the place's own). `world` is the MPI communicator of
 *  all ranks, which outlives the place. Collective. The caller zeroes *out
 *  before and calls compute_place_close after, whatever the result. Errors, the same on every rank:
 *  MIMO_ERR_UNSUPPORTED (this build has no CUDA), and those of mimo_comm_create_nccl. */
mimo_status compute_place_open(compute_place *out, mimo_comm *world, const nn_runtime_desc *desc);
void compute_place_close(compute_place *place);

#endif
