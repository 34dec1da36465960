// Flags that ranks share, and counters of thread blocks, for the kernels of this backend. Each .cu
// file that includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_FLAGS_CUH
#define MIMO_COMM_NCCL_FLAGS_CUH

#include <cstdint>

namespace
{

// A wait reads note->abort once in this number of iterations: the read crosses PCIe.
constexpr uint32_t kSpinsPerAbortCheck = 1 << 12;

// ------------------------------------------ flags -------------------------------------------

__device__ uint64_t load_acquire(const uint64_t *flag)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

__device__ void store_relaxed(uint64_t *flag, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ void store_release(uint64_t *flag, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ void add_release(uint64_t *flag, uint64_t value)
{
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

// For flags that are set relaxed behind it.
__device__ void fence_system()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__device__ void or_relaxed(uint64_t *flag, uint64_t bits)
{
    asm volatile("red.relaxed.sys.global.or.b64 [%0], %1;" ::"l"(flag), "l"(bits) : "memory");
}

// The same of flags of 32 bits.
__device__ uint32_t load_acquire(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__device__ void store_relaxed(uint32_t *flag, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// ----------------------------------------- counters -----------------------------------------

// The first thread's value, in all threads of the thread block. `use` counts the calls.
template <int kThreads> __device__ uint32_t from_first(uint32_t value, uint32_t use)
{
    if (kThreads == 32)
        return __shfl_sync(~0u, value, 0);
    __shared__ uint32_t shared[2]; // alternate: a slow thread may still read the other one
    if (threadIdx.x == 0)
        shared[use % 2] = value;
    __syncthreads();
    return shared[use % 2];
}

// Add 1 to a counter and return its old value; only the first thread does so. Not by atomicAdd: the
// compiler would use its result here, and so make the thread block wait here instead of where the
// result is needed.
__device__ uint32_t count_up(uint64_t *counter)
{
    uint32_t before = 0;
    asm volatile("{\n"
                 ".reg .pred first;\n"
                 "setp.eq.u32 first, %2, 0;\n"
                 "@first atom.relaxed.gpu.global.add.u32 %0, [%1], 1;\n"
                 "}\n"
                 : "+r"(before)
                 : "l"(counter), "r"(threadIdx.x)
                 : "memory");
    return before;
}

} // namespace

#endif
