/* What the programs of this backend's kernels need of the device. */
#ifndef MIMO_COMM_NCCL_PROGRAMS_H
#define MIMO_COMM_NCCL_PROGRAMS_H

#include "comm/comm_backend.h"

/* The most thread blocks of a launch that waits for peers: as many as may be in flight on the
 * current device, which has so many *multiprocessors, and no more than the exchange's limits. */
mimo_status mimo_nccl_most_ctas(int64_t *most, int64_t *multiprocessors, const mimo_pushes *pushes);

#endif
