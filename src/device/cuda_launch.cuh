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

// Whether the current device runs code of Hopper or later, which await_stream is made for: older
// code would not wait. All kernels of a file are built for the same devices, so one of them tells.
cudaError_t runs_hopper_code(bool *out, const void *kernel)
{
    static thread_local int last = -1; // device
    static thread_local bool newer;
    cudaFuncAttributes code;
    int device;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess && device != last) {
        status = cudaFuncGetAttributes(&code, kernel);
        newer = status == cudaSuccess && code.ptxVersion >= 90;
        last = status == cudaSuccess ? device : -1;
    }
    *out = newer;
    return status;
}

// Enqueue a kernel that calls await_stream: it is set up while the one before ends, which saves a
// microsecond of a small one. No kernel here lets what follows begin before its end: that would
// hold multiprocessors while this one waits for peers, who may wait for another stream's kernel.
template <class... As>
cudaError_t launch_early(void (*kernel)(As...), unsigned blocks, int threads, size_t room,
                         cudaStream_t stream, const As &...as)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    void *arguments[] = {const_cast<As *>(&as)...};
    bool newer;
    cudaError_t status = runs_hopper_code(&newer, (const void *)kernel);
    if (status != cudaSuccess)
        return status;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = room;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = newer ? 1 : 0;
    return cudaLaunchKernelExC(&config, (const void *)kernel, arguments);
}

} // namespace

#endif
