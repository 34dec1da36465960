/* A kernel of a user that lets what follows it on the stream begin at once. */
#ifndef MIMO_TESTS_EARLY_COPY_H
#define MIMO_TESTS_EARLY_COPY_H

#include <cuda_runtime_api.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* Enqueue a copy of `bytes` bytes, written some 50 us after the kernel has said that the next one
 * may begin: one that is launched early and reads `to` has to await its end. */
cudaError_t early_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);

MIMO_END_DECLS

#endif
