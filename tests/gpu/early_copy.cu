#include "early_copy.h"

namespace
{

__global__ void copy_late(char *to, const char *from, size_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    for (int i = 0; i < 50; i++)
        __nanosleep(1000);
#endif
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes;
         i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

} // namespace

cudaError_t early_copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    copy_late<<<64, 256, 0, stream>>>((char *)to, (const char *)from, bytes);
    return cudaGetLastError();
}
