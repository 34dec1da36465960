// Words in shared memory by which warps of a thread block tell each other how far they are. Each
// .cu file that includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_SHARED_WORDS_CUH
#define MIMO_COMM_NCCL_SHARED_WORDS_CUH

#include <cstdint>

namespace
{

__device__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ uint32_t load_acquire_shared(const uint32_t *from)
{
    uint32_t value;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];"
                 : "=r"(value)
                 : "r"(shared_address(from))
                 : "memory");
    return value;
}

__device__ void store_release_shared(uint32_t *to, uint32_t value)
{
    asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(shared_address(to)), "r"(value)
                 : "memory");
}

} // namespace

#endif
