// Launches whose setup overlaps the end of what came before on the stream. To be included by one
// .cu file each: everything here is its own copy.
#ifndef MIMO_DEVICE_CUDA_LAUNCH_CUH
#define MIMO_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime_api.h>

namespace
{

// By every thread of a kernel that is launched early, before it touches memory: what came before on
// the stream is complete and seen.
__device__ void await_stream()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the current device runs code of Hopper or later, which await_stream is made for; as all
// kernels of a file are built for the same devices, one of them tells. Code built for older devices
// alone would not wait.
bool awaits_stream(const void *kernel)
{
    static thread_local int last = -1; // device
    static thread_local bool awaits;
    cudaFuncAttributes code;
    int device;
    if (cudaGetDevice(&device) != cudaSuccess)
        return false;
    if (device != last) {
        if (cudaFuncGetAttributes(&code, kernel) != cudaSuccess)
            return false;
        awaits = code.ptxVersion >= 90;
        last = device;
    }
    return awaits;
}

// Enqueue a kernel that calls await_stream. It is set up while the one before ends, which saves a
// microsecond of a small one; it never runs beside it, as no kernel here triggers what follows
// before its end: that would hold multiprocessors while this one waits for peers, who may wait for
// another stream's kernel here.
template <class... As>
cudaError_t launch_early(void (*kernel)(As...), unsigned blocks, int threads, size_t room,
                         cudaStream_t stream, const As &...as)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = room;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = awaits_stream((const void *)kernel) ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, as...);
}

} // namespace

#endif
