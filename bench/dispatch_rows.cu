// Rows by index, and sums of rows: what torch's index_select and index_add_ do.
#include "dispatch_rows.h"

namespace
{

constexpr int kThreads = 256;

__global__ void select_words(uint4 *to, const uint4 *from, const int32_t *index, int64_t words)
{
    const int64_t row = blockIdx.x;
    for (int64_t w = threadIdx.x; w < words; w += blockDim.x)
        to[row * words + w] = from[index[row] * words + w];
}

__device__ float widened(uint16_t bits)
{
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// To the nearest, ties to even; no sum here is infinite or NaN.
__device__ uint16_t rounded(float value)
{
    const uint32_t bits = __float_as_uint(value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__global__ void add_rows(void *to, const uint16_t *from, const int32_t *begin, const int32_t *leaf,
                         int64_t hidden, int wide)
{
    const int64_t row = blockIdx.x;
    for (int64_t h = threadIdx.x; h < hidden; h += blockDim.x) {
        float sum = 0;
        for (int32_t n = begin[row]; n < begin[row + 1]; n++)
            sum += widened(from[leaf[n] * hidden + h]);
        if (wide)
            static_cast<float *>(to)[row * hidden + h] = sum;
        else
            static_cast<uint16_t *>(to)[row * hidden + h] = rounded(sum);
    }
}

} // namespace

cudaError_t dispatch_select_rows(void *to, const void *from, const int32_t *index, int64_t rows,
                                 int64_t row_bytes, cudaStream_t stream)
{
    if (rows > 0)
        select_words<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
            static_cast<uint4 *>(to), static_cast<const uint4 *>(from), index, row_bytes / 16);
    return cudaGetLastError();
}

cudaError_t dispatch_add_rows(void *to, const void *from, const routing_sums *sums, int64_t hidden,
                              int wide, cudaStream_t stream)
{
    if (sums->count > 0)
        add_rows<<<static_cast<unsigned>(sums->count), kThreads, 0, stream>>>(
            to, static_cast<const uint16_t *>(from), sums->begin, sums->leaf, hidden, wide);
    return cudaGetLastError();
}
