/*
 * The kernels of this folder, called from C. Each function enqueues on `stream` and returns the
 * launch's result. Any alignment and row size is right; accesses are 16 bytes wide where addresses
 * and row size allow. Counts are > 0 unless a function says otherwise.
 */
#ifndef MIMO_DEVICE_CUDA_KERNELS_H
#define MIMO_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "device/device.h"

MIMO_BEGIN_DECLS

/* Matching strided rows; any count may be 0. */
cudaError_t mimo_cuda_copy_rows(const mimo_rows *to, const mimo_rows *from, cudaStream_t stream);

/* A list of such copies. One launch takes about 30 of them. */
cudaError_t mimo_cuda_copy_list(const mimo_row_copy *list, int64_t count, cudaStream_t stream);

/* Load the kernels of these copies onto the current device. Which of them a list takes depends on
 * its length and alignment, so that a later call may need one for the first time. */
cudaError_t mimo_cuda_load_copies(void);

/* All rows of `to`: rows of no stretch become zero. Any count may be 0. One launch. */
cudaError_t mimo_cuda_fill_rows(const mimo_rows *to, const mimo_rows *from,
                                const mimo_stretches *stretches, cudaStream_t stream);

/* Mapped rows: from the tile to the packed rows, and from the packed rows to the tile. Any count
 * may be 0. */
cudaError_t mimo_cuda_gather_rows(void *packed, const void *tile, const mimo_row_map *map,
                                  cudaStream_t stream);
cudaError_t mimo_cuda_scatter_rows(void *tile, const void *packed, const mimo_row_map *map,
                                   cudaStream_t stream);

/* data[i] *= factor; cudaErrorInvalidValue for a dtype that is no float. */
cudaError_t mimo_cuda_scale(void *data, int64_t count, mimo_dtype dtype, double factor,
                            cudaStream_t stream);

/* data[i] += element i of each of the n terms, in order; cudaErrorInvalidValue for MIMO_F8. */
cudaError_t mimo_cuda_accumulate(const mimo_addends *addends, cudaStream_t stream);

/* Sums of rows, and copies of rows, by lists in device memory (device.h). cudaErrorInvalidValue for
 * a dtype that is no float. mimo_cuda_load_row_lists loads the kernels onto the current device. */
cudaError_t mimo_cuda_add_rows(const mimo_row_sums *sums, cudaStream_t stream);
cudaError_t mimo_cuda_repeat_rows(const mimo_row_repeats *repeats, cudaStream_t stream);
cudaError_t mimo_cuda_load_row_lists(void);

/* partials[0] = sum of squares in f64. partials[MIMO_CUDA_PARTIALS] is device memory. The order of
 * the additions depends on count alone. cudaErrorInvalidValue for a dtype that is no float. */
enum { MIMO_CUDA_PARTIALS = 512 };
cudaError_t mimo_cuda_sum_squares(double *partials, const void *data, int64_t count,
                                  mimo_dtype dtype, cudaStream_t stream);

/* f16 or bf16 to f32, and back with rounding to nearest even. */
cudaError_t mimo_cuda_widen(float *to, const void *from, int64_t count, mimo_dtype dtype,
                            cudaStream_t stream);
cudaError_t mimo_cuda_narrow(void *to, const float *from, int64_t count, mimo_dtype dtype,
                             cudaStream_t stream);

MIMO_END_DECLS

#endif
