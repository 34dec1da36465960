// `combine`: which kernel adds, by the types of a call.
#include "comm/nccl/nccl_combine_bulk.cuh"

namespace
{

// Calls with(enqueue), for the types of a call.
template <class T, class W, class With>
cudaError_t with_depth(const mimo_moves_call &call, With with)
{
    if (call.moves.group.shape.etp == 1)
        return with(enqueue<T, W, MIMO_PROGRAM_BELOW>);
    return with(enqueue<T, W, 2 * MIMO_PROGRAM_BELOW + 1>);
}

// The first tensor of rows; without any, the types do not matter.
const mimo_moves_tensor *first_rows(const mimo_moves_call &call)
{
    for (int i = 0; i < call.count; i++)
        if (!call.tensors[i].by_pair)
            return &call.tensors[i];
    return nullptr;
}

template <class With> cudaError_t with_types(const mimo_moves_call &call, With with)
{
    const mimo_moves_tensor *rows = first_rows(call);
    switch (rows ? rows->dtype : MIMO_F32) {
    case MIMO_F32:
        return with_depth<float, float>(call, with);
    case MIMO_F64:
        return with_depth<double, double>(call, with);
    case MIMO_F16:
        return rows->narrow ? with_depth<__half, __half>(call, with)
                            : with_depth<__half, float>(call, with);
    case MIMO_BF16:
        return rows->narrow ? with_depth<__nv_bfloat16, __nv_bfloat16>(call, with)
                            : with_depth<__nv_bfloat16, float>(call, with);
    case MIMO_I32:
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
    return cudaErrorInvalidValue;
}

template <class T, class W> cudaError_t load_types()
{
    constexpr int kFew = MIMO_PROGRAM_BELOW, kMany = 2 * MIMO_PROGRAM_BELOW + 1;
    cudaError_t status = load_kernels(combine_in_bulk<T, W, kFew>, combine_in_bulk<T, W, kMany>);
    if (status == cudaSuccess)
        status = allow_shared_memory<T, W, kFew>();
    if (status == cudaSuccess)
        status = allow_shared_memory<T, W, kMany>();
    return status;
}

cudaError_t load_bulk()
{
    cudaError_t status = load_types<float, float>();
    if (status == cudaSuccess)
        status = load_types<double, double>();
    if (status == cudaSuccess)
        status = load_types<__half, __half>();
    if (status == cudaSuccess)
        status = load_types<__half, float>();
    if (status == cudaSuccess)
        status = load_types<__nv_bfloat16, __nv_bfloat16>();
    if (status == cudaSuccess)
        status = load_types<__nv_bfloat16, float>();
    return status;
}

cudaError_t runs_bulk(bool *out)
{
    return runs_hopper_code_with(out,
                                 (const void *)combine_in_bulk<float, float, MIMO_PROGRAM_BELOW>,
                                 shared_bytes<__half, float, MIMO_PROGRAM_BELOW>() + kStaticBytes);
}

// All ranks find the same: widths are alike.
bool is_bulk(const mimo_moves_call &call)
{
    for (int i = 0; i < call.count; i++)
        if (!call.tensors[i].by_pair && call.tensors[i].row_bytes % 16 != 0)
            return false;
    return true;
}

} // namespace

cudaError_t mimo_combine_launch(const mimo_moves_call *call, int blocks, cudaStream_t stream)
{
    bool bulk;
    cudaError_t status = runs_bulk(&bulk);
    if (status == cudaSuccess)
        status = mimo_moves_gate_launch(&call->moves, stream);
    if (status != cudaSuccess)
        return status;
    if (!bulk || !is_bulk(*call))
        return mimo_combine_words_launch(call, blocks, stream);
    return with_types(*call, [=](auto enqueue) { return enqueue(*call, blocks, stream); });
}

cudaError_t mimo_combine_load(void)
{
    bool bulk;
    cudaError_t status = runs_bulk(&bulk);
    if (status == cudaSuccess)
        status = mimo_moves_gate_load();
    if (status == cudaSuccess)
        status = mimo_combine_words_load();
    return status == cudaSuccess && bulk ? load_bulk() : status;
}
