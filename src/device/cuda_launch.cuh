// Launches whose setup overlaps the end of the work before them on the stream. Each .cu file that
// includes this has its own copy of everything.
#ifndef MIMO_DEVICE_CUDA_LAUNCH_CUH
#define MIMO_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime_api.h>

namespace
{

// Every thread of a kernel that is launched early calls this before it touches memory. It waits
// until the work before on the stream is complete and visible.
__device__ void await_stream()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the current device runs code for Hopper or later: await_stream waits in no other. All
// kernels of a file are built for the same devices, so any of them shows it.
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

// The same, and a thread block can have this much shared memory: some newer devices have less.
cudaError_t runs_hopper_code_with(bool *out, const void *kernel, size_t shared_bytes)
{
    int device, most = 0;
    cudaError_t status = runs_hopper_code(out, kernel);
    if (status == cudaSuccess && *out)
        status = cudaGetDevice(&device);
    if (status == cudaSuccess && *out)
        status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    *out = *out && most >= (int)shared_bytes;
    return status;
}

// Load kernels onto the current device. CUDA does so by itself when a kernel is first launched, and
// may then wait for the device.
template <class... Kernels> cudaError_t load_kernels(Kernels... kernels)
{
    cudaFuncAttributes ignored;
    cudaError_t status = cudaSuccess;
    for (const void *kernel : {(const void *)kernels...})
        if (status == cudaSuccess)
            status = cudaFuncGetAttributes(&ignored, kernel);
    return status;
}

// Enqueue a kernel that calls await_stream. It is set up while the kernel before it ends, which
// saves one microsecond of a small kernel. No kernel here lets its successor begin early: the
// successor would occupy multiprocessors while this one waits for peers, and the peers may wait for
// a kernel of another stream.
template <class... As>
cudaError_t launch_early(void (*kernel)(As...), dim3 blocks, dim3 threads, size_t shared_bytes,
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
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = newer ? 1 : 0;
    return cudaLaunchKernelExC(&config, (const void *)kernel, arguments);
}

} // namespace

#endif
