// `combine` by loads and stores, for rows of any width, and for any device. A warp takes a token at
// a time, and sets its flag itself: nothing that it has written waits for anything.
#include "comm/nccl/nccl_pairs.cuh"
#include "comm/nccl/nccl_return_items.cuh"
#include "comm/nccl/nccl_sums.cuh"

namespace
{

constexpr int kWarps = 8;
constexpr int kBelow = 2 * MIMO_PROGRAM_BELOW + 1;

// Elements of T are added; parts travel as W.
template <class T, class W> class Mover
{
  public:
    __device__ Mover(const Call &call, const mimo_moves_tensor &tensor, int index)
        : call(call), tensor(tensor), index(index),
          shared(Program::read(call, call.tables.shared, 0)),
          width((int)(tensor.row_bytes / (int64_t)sizeof(T)))
    {
    }

    // False: the call has stopped.
    __device__ bool run(Peers &peers, int worker, int workers)
    {
        Order order(call, worker, workers, 1, false, kLag);
        for (Item item; width > 0 && order.next(item);) {
            const Programs of(call, item);
            if (of.moves() && !(of.own ? receive(item, of) : send(item, of, peers)))
                return false;
        }
        return true;
    }

  private:
    using Type = typename Added<T>::Type;
    using One = Values<Type, 1>;

    const Call &call;
    const mimo_moves_tensor &tensor;
    int index;
    Program shared;
    int width;

    // This rank's rows of a token, one element in a lane. By all lanes.
    __device__ One add_rows(const Program &program, int row, int at) const
    {
        Sum<Type, 1, kBelow> sum;
        for (int v = 0; v < program.leaves(); v++) {
            const int64_t from = __shfl_sync(~0u, row, program.leaf(v));
            const One leaf = {at < width ? widen(((const T *)tensor.from)[from * width + at])
                                         : Type()};
            sum.visit(leaf, program.adds(v), v == 0);
        }
        return sum.top;
    }

    __device__ bool send(const Item &item, const Programs &of, Peers &peers)
    {
        const int64_t slot = own_slot(call, index, item, of);
        W *to = part_of<W>(call.group, item.source, slot_offset(call, slot));
        const int row = row_of_lane(call, item);
        if (!peers.may_write(call))
            return false;
        for (int at = lane_of(); at - lane_of() < width; at += 32) {
            const One sum = add_rows(of.partial, row, at);
            if (at < width)
                to[at] = rounded<W>(sum.at[0]);
        }
        order_flags();
        if (lane_of() == 0)
            call.set(item.source, return_flag(call, slot, item.piece));
        return true;
    }

    __device__ One add_parts(const Item &item, const Programs &of, One own, int at) const
    {
        Sum<Type, 1, kBelow> sum;
        const char *memory = call.group.memory[call.group.rank];
        round_to<W>(own);
        for (int number = 0; number < of.parts(call); number++) {
            const Part part = part_of_sum(call, of.partial, of.total, shared, number);
            const W *from =
                (const W *)(memory +
                            slot_offset(call, return_slot(call, index, item.token, part.slot)));
            const One leaf = part.own || at >= width ? own : One{widen(__ldcg(&from[at]))};
            sum.visit(leaf, adds_of_part(call, of.total, shared, number), number == 0);
        }
        return sum.top;
    }

    __device__ bool receive(const Item &item, const Programs &of)
    {
        const bool lost = of.total.lost();
        const int row = row_of_lane(call, item);
        if (!await_parts(call, index, item, of, shared))
            return false;
        for (int at = lane_of(); at - lane_of() < width; at += 32) {
            One sum = {(Type)NAN};
            if (!lost)
                sum = add_parts(item, of, add_rows(of.partial, row, at), at);
            if (at < width)
                ((T *)tensor.to)[(int64_t)item.token * width + at] = rounded<T>(sum.at[0]);
        }
        return true;
    }
};

__device__ void add_pairs(const Call &call, const mimo_moves_tensor *tensors, int index,
                          Peers &peers)
{
    const Worker worker = {(int)blockIdx.x, (int)gridDim.x};
    if (tensors[index].row_bytes == sizeof(float))
        move_pair_sums<float>(call, tensors, index, worker, peers);
    else
        move_pair_sums<double>(call, tensors, index, worker, peers);
}

template <class T, class W>
__global__ void __launch_bounds__(kWarps * 32)
    combine_by_words(const __grid_constant__ mimo_moves_call program)
{
    const int warp = threadIdx.x / 32;
    await_stream();
    const Call call(program.moves);
    Peers peers;
    begin_call(call.group, call.number);
    bool goes_on = blockIdx.x > 0 || peers.may_write(call); // calls are compared, whatever moves
    for (int i = 0; i < program.count && goes_on; i++)
        if (!program.tensors[i].by_pair)
            goes_on = Mover<T, W>(call, program.tensors[i], i)
                          .run(peers, warp * gridDim.x + blockIdx.x, kWarps * gridDim.x);
        else if (warp == 0)
            add_pairs(call, program.tensors, i, peers);
    finish_call(call.group, call.number);
}

template <class T, class W>
cudaError_t enqueue(const mimo_moves_call &call, int blocks, cudaStream_t stream)
{
    return launch_early(combine_by_words<T, W>, blocks, kWarps * 32, 0, stream, call);
}

template <class T>
cudaError_t enqueue_half(const mimo_moves_call &call, bool narrow, int blocks, cudaStream_t stream)
{
    return narrow ? enqueue<T, T>(call, blocks, stream) : enqueue<T, float>(call, blocks, stream);
}

} // namespace

cudaError_t mimo_combine_words_launch(const mimo_moves_call *call, int blocks, cudaStream_t stream)
{
    int i = 0;
    while (i < call->count - 1 && call->tensors[i].by_pair)
        i++;
    const bool narrow = call->tensors[i].narrow;
    switch (call->tensors[i].by_pair ? MIMO_F32 : call->tensors[i].dtype) {
    case MIMO_F32:
        return enqueue<float, float>(*call, blocks, stream);
    case MIMO_F64:
        return enqueue<double, double>(*call, blocks, stream);
    case MIMO_F16:
        return enqueue_half<__half>(*call, narrow, blocks, stream);
    case MIMO_BF16:
        return enqueue_half<__nv_bfloat16>(*call, narrow, blocks, stream);
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}

cudaError_t mimo_combine_words_load(void)
{
    return load_kernels(combine_by_words<float, float>, combine_by_words<double, double>,
                        combine_by_words<__half, __half>, combine_by_words<__half, float>,
                        combine_by_words<__nv_bfloat16, __nv_bfloat16>,
                        combine_by_words<__nv_bfloat16, float>);
}
