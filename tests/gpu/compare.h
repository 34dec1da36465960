/* A comparison of memory that stays on the device. */
#ifndef MIMO_TESTS_COMPARE_H
#define MIMO_TESTS_COMPARE_H

#include <cuda_runtime_api.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* Enqueue: add the number of bytes that differ to *differing, in device memory. */
cudaError_t compare_bytes(unsigned long long *differing, const void *one, const void *other,
                          size_t bytes, cudaStream_t stream);

MIMO_END_DECLS

#endif
