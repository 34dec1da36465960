#include "compare.h"

namespace
{

__global__ void count_differing(unsigned long long *differing, const char *one, const char *other,
                                size_t bytes)
{
    unsigned long long count = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes;
         i += (size_t)gridDim.x * blockDim.x)
        count += one[i] != other[i];
    if (count > 0)
        atomicAdd(differing, count);
}

} // namespace

cudaError_t compare_bytes(unsigned long long *differing, const void *one, const void *other,
                          size_t bytes, cudaStream_t stream)
{
    count_differing<<<4, 256, 0, stream>>>(differing, (const char *)one, (const char *)other,
                                           bytes);
    return cudaGetLastError();
}
