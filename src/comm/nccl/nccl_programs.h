/* What the programs of this backend's kernels need of the device. */
#ifndef MIMO_COMM_NCCL_PROGRAMS_H
#define MIMO_COMM_NCCL_PROGRAMS_H

#include <stdint.h>

#include "core/check.h"

/* The most thread blocks of a launch that waits for peers: one for each of the *multiprocessors of
 * the current device, except for some that are left to NCCL's kernels. At most `ctas` where that is
 * not 0. */
mimo_status mimo_nccl_most_ctas(int64_t *most, int64_t *multiprocessors, int ctas);

#endif
