// The gate of a staged call: one warp that waits, ahead of the kernel that moves rows, until that
// one has something to do. So a call that a peer is late for holds one warp, and other kernels have
// the multiprocessors that it will use. A wait of 8 thread blocks makes products of one wave take
// two: those of 4,096 rows took 1.5 times as long (H100).
//
// Why nobody waits for ever: the gate sets RETURNED before it waits, as the kernel behind it would
// (comm/staged/staged_types.h). It waits until one peer has begun this call, and no peer needs
// anything of this call before it begins. It opens for the first peer and not for all: behind it
// everything is as it is without a gate.
#include "comm/nccl/nccl_staged_worker.cuh"

namespace
{

constexpr int kWarp = 32;

// Whether the sender has begun: the first piece is there.
template <class Program>
__device__ bool arrives(const Program &program, const mimo_staged_message &message)
{
    const uint64_t number = *message.fifo.before;
    return load_acquire(message.fifo.filled + number % program.head.entries) > number;
}

// Whether nothing of the message waits for RETURNED. Where it is longer than the FIFO, the receiver
// has begun then.
template <class Program>
__device__ bool leaves(const Program &program, const mimo_staged_message &message)
{
    const uint64_t entries = program.head.entries;
    const uint64_t end = *message.fifo.before + min((uint64_t)message.pieces, entries);
    return end <= entries || load_acquire(message.fifo.returned) >= end - entries;
}

template <class Program> __device__ bool can_begin(const Program &program)
{
    const mimo_staged_head &head = program.head;
    bool can = false;
    for (int i = threadIdx.x; i < head.count[0] + head.count[1]; i += kWarp) // sends come first
        can = can || (i < head.count[MIMO_STAGED_SEND] ? leaves(program, program.messages[i])
                                                       : arrives(program, program.messages[i]));
    return can;
}

// As little of a multiprocessor as a kernel can take, so that it has room beside products.
template <class Program>
__global__ void __launch_bounds__(kWarp) await_peer(const __grid_constant__ Program program)
{
    await_stream();
    begin_call(program);
    for (uint32_t spin = 1;; spin++) {
        const bool aborted = spin % kSpinsPerAbortCheck == 0 && program.shared.note->abort;
        if (__any_sync(~0u, aborted || can_begin(program)))
            return;
    }
}

template <class Program> cudaError_t enqueue(const Program &program, cudaStream_t stream)
{
    return launch_early(await_peer<Program>, 1, kWarp, 0, stream, program);
}

} // namespace

cudaError_t mimo_staged_gate_load(void)
{
    return load_kernels(await_peer<mimo_staged_small>, await_peer<mimo_staged_large>);
}

cudaError_t mimo_staged_gate_small(const mimo_staged_small *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}

cudaError_t mimo_staged_gate_large(const mimo_staged_large *program, cudaStream_t stream)
{
    return enqueue(*program, stream);
}
