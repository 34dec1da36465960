/* CUDA results as statuses, for this folder and the NCCL backend. */
#ifndef MIMO_DEVICE_CUDA_CALLS_H
#define MIMO_DEVICE_CUDA_CALLS_H

#include <cuda_runtime_api.h>

#include "core/check.h"

/* MIMO_OK, or MIMO_ERR_DEVICE (MIMO_ERR_MEMORY where the device has none left) with CUDA's text.
 * `call` is the source text of the call. The sentence begins with the name in it. */
mimo_status mimo_cuda_status(cudaError_t code, const char *call);

#define MIMO_TRY_CUDA(call) MIMO_TRY(mimo_cuda_status((call), #call))

#endif
