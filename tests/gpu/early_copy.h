/* A kernel of a user after which the next one on the stream may begin early. */
#ifndef MIMO_TESTS_EARLY_COPY_H
#define MIMO_TESTS_EARLY_COPY_H

#include <cuda_runtime_api.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* Enqueue a copy of `bytes` bytes. It is written some 50 us after the kernel has allowed the next
 * one to begin. A kernel that begins early and reads `to` has to await the end of this one. */
cudaError_t early_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);

MIMO_END_DECLS

#endif
