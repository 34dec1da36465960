// Refusals of calls, noted for the host (comm/buffer_state.h). Each .cu file that includes this has
// its own copy of everything.
#ifndef MIMO_COMM_NCCL_REFUSAL_CUH
#define MIMO_COMM_NCCL_REFUSAL_CUH

#include "comm/nccl/nccl_push_kernel.h"

namespace
{

// What a rank found: READY of the call with its own signature, and with the peer's (0: the peer
// refused); peer - rank.
struct Refused {
    uint64_t mine, other;
    int64_t distance;
};

// Note a refusal; only the first one of a buffer is kept. `own` is this rank's entry about itself.
__device__ void note_refusal(mimo_flags *own, mimo_push_note *note, const Refused &refused)
{
    if (atomicExch((unsigned long long *)&own->sends, 1ull) > 0)
        return;
    mimo_refusal *refusal = &note->refusal;
    refusal->mine = refused.mine;
    refusal->other = refused.other;
    refusal->distance = refused.distance;
    __threadfence_system();
    *(volatile uint32_t *)&refusal->noted = 1;
}

} // namespace

#endif
