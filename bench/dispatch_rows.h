/* Kernels of the ways beside a dispatch. Rows are multiples of 16 bytes, and begin at such. Each
 * call enqueues. */
#ifndef MIMO_BENCH_DISPATCH_ROWS_H
#define MIMO_BENCH_DISPATCH_ROWS_H

#include <cuda_runtime_api.h>

#include <mimo/status.h>

#include "bench/dispatch_routing.h"

MIMO_BEGIN_DECLS

/* to[i] = from[index[i]] */
cudaError_t dispatch_select_rows(void *to, const void *from, const int32_t *index, int64_t rows,
                                 int64_t row_bytes, cudaStream_t stream);

/* Sums of rows of bf16 in f32, into f32 (wide) or rounded to bf16. */
cudaError_t dispatch_add_rows(void *to, const void *from, const routing_sums *sums, int64_t hidden,
                              int wide, cudaStream_t stream);

MIMO_END_DECLS

#endif
