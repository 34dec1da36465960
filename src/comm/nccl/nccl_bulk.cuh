// Bulk copies between device memory and shared memory (Hopper and later), for the kernels of this
// backend. Every address and size is a multiple of 16 bytes. Each .cu file that includes this has
// its own copy of everything.
//
// What orders them (PTX ISA 9.0, "Async Proxy" and "cp.async.bulk.wait_group"):
//
//   - A bulk copy is an access by the async proxy. When its completion is observed, by an mbarrier
//     or by a wait for its group, an implicit fence between the proxies has made its result visible
//     to ordinary accesses. So no fence follows the wait.
//   - `cp.async.bulk.wait_group` waits until the writes of a group are visible to the thread that
//     committed it. With `.read` it waits until their sources were read, and no longer. So a flag
//     that says "the rows are there" is released behind a wait without `.read`. It needs the
//     release as well: visible to this thread is not visible to another GPU.
//   - Bulk copies that follow an ordinary read, such as of a flag, need fence.proxy.async between.
//   - Groups belong to the thread that committed them.
#ifndef MIMO_COMM_NCCL_BULK_CUH
#define MIMO_COMM_NCCL_BULK_CUH

#include "comm/nccl/nccl_shared_words.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define MIMO_HAS_BULK 1

namespace
{

// ----------------------------------------- mbarriers ----------------------------------------

// By one thread; its barriers are open for the others after open_barriers().
__device__ void init_barrier(uint64_t *barrier, uint32_t arrivals = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

// By all threads of the thread block.
__device__ void open_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
}

// The barrier's phase ends when loads have brought this number of bytes.
__device__ void expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ void await(uint64_t *barrier, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}

// Without loads. What this thread did before is visible to those that await the phase.
__device__ void arrive(uint64_t *barrier)
{
    asm volatile(
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
        : "memory");
}

// Whether a phase has ended: await() without the wait.
__device__ bool has_ended(uint64_t *barrier, uint32_t phase)
{
    uint32_t ended;
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, ended;\n"
                 "}\n"
                 : "=r"(ended)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
    return ended != 0;
}

// ------------------------------------------ copies ------------------------------------------

__device__ void load(void *to, const char *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ void store(char *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ void commit_stores()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until all of this thread's groups except the last kPending have read shared memory.
template <int kPending> __device__ void await_reads()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Wait until the writes of all of this thread's groups except the last kPending are visible to it.
template <int kPending> __device__ void await_writes()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Order the bulk copies that follow after this thread's reads of flags.
__device__ void order_bulk()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Order bulk stores that follow, of any thread, after this thread's writes to shared memory.
__device__ void order_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

} // namespace

#else
#define MIMO_HAS_BULK 0
#endif

#endif
