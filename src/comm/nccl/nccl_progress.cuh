// What a launch says of itself in the ring of its family (nccl_launches.h), by stores into memory
// of the host. Each .cu file that includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_PROGRESS_CUH
#define MIMO_COMM_NCCL_PROGRESS_CUH

#include "comm/nccl/nccl_flags.cuh"
#include "comm/nccl/nccl_push_kernel.h"
#include "ring/ring_launches.h"

namespace
{

// Launch `number` has begun. By one thread, when the work before it on the stream is done.
__device__ void say_begun(mimo_ring_launches *words, uint64_t number)
{
    if (words)
        store_relaxed(&words->begun, number);
}

// By one thread, when no other one of the launch moves rows.
__device__ void say_ended(mimo_ring_launches *words, uint64_t number)
{
    if (words)
        store_relaxed(&words->ended, number);
}

// The same where no call is counted on the device: the launch counts itself when it ends. A gate
// and the kernel behind it are one launch.
__device__ void say_begun(const mimo_push_progress &progress)
{
    if (progress.words)
        say_begun(progress.words, *progress.ended + 1);
}

__device__ void say_ended(const mimo_push_progress &progress)
{
    if (progress.words)
        say_ended(progress.words, ++*progress.ended);
}

} // namespace

#endif
