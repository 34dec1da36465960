/* A contiguous copy by the pump of the kernels that move rows of experts. Hopper and later. */
#ifndef MIMO_BENCH_PUMPED_COPY_H
#define MIMO_BENCH_PUMPED_COPY_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* `count` chunks of `chunk` bytes, a multiple of 16 up to 15 KiB. */
typedef struct pumped_copy {
    char *to;
    const char *from;
    int64_t count, chunk;
} pumped_copy;

cudaError_t pumped_copy_launch(const pumped_copy *copy, int blocks, cudaStream_t stream);

MIMO_END_DECLS

#endif
