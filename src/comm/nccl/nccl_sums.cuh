// Sums of rows by programs (core/sum_program.h), 16 bytes of a row in a thread. Each .cu file that
// includes this has its own copy of everything.
#ifndef MIMO_COMM_NCCL_SUMS_CUH
#define MIMO_COMM_NCCL_SUMS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/sum_program.h"

namespace
{

// ----------------------------------------- elements -----------------------------------------

// What elements of a type are added in.
template <class T> struct Added {
    using Type = float;
};
template <> struct Added<double> {
    using Type = double;
};

__device__ float widen(float value)
{
    return value;
}

__device__ double widen(double value)
{
    return value;
}

__device__ float widen(__half value)
{
    return __half2float(value);
}

__device__ float widen(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

template <class T> __device__ T rounded(typename Added<T>::Type value)
{
    return value;
}

template <> __device__ __half rounded<__half>(float value)
{
    return __float2half_rn(value);
}

template <> __device__ __nv_bfloat16 rounded<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}

// N values of a row.
template <class Type, int N> struct Values {
    Type at[N];
};

// Elements of one word of 16 bytes, from value `first` on.
template <class T, class Type, int N>
__device__ void unpack(Values<Type, N> &out, const uint4 &word, int first)
{
    const T *elements = (const T *)&word;
#pragma unroll
    for (int i = 0; i < 16 / (int)sizeof(T); i++)
        out.at[first + i] = widen(elements[i]);
}

template <class T, class Type, int N>
__device__ uint4 pack(const Values<Type, N> &values, int first)
{
    uint4 word;
    T *elements = (T *)&word;
#pragma unroll
    for (int i = 0; i < 16 / (int)sizeof(T); i++)
        elements[i] = rounded<T>(values.at[first + i]);
    return word;
}

// The values as they arrive where they travel as W.
template <class W, class Type, int N> __device__ void round_to(Values<Type, N> &values)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        values.at[i] = widen(rounded<W>(values.at[i]));
}

// ------------------------------------------- sums -------------------------------------------

// The values of a sum that are open, in registers: the top and up to kBelow below it. All threads
// of a warp run the same program, so its branches do not diverge.
template <class Type, int N, int kBelow> class Sum
{
  public:
    Values<Type, N> top = {};

    // Visit a leaf, and add `adds` times.
    __device__ void visit(const Values<Type, N> &leaf, int adds)
    {
        if (leaves++ == 0)
            top = leaf;
        else if (adds == 0) {
            push();
            top = leaf;
        } else {
            add(leaf);
            for (; adds > 1; adds--)
                pop();
        }
    }

  private:
    Values<Type, N> below[kBelow];
    int depth = 0, leaves = 0;

    __device__ void add(const Values<Type, N> &other)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            top.at[i] += other.at[i];
    }

    __device__ void push()
    {
#pragma unroll
        for (int d = 0; d < kBelow; d++)
            if (depth == d)
                below[d] = top;
        depth++;
    }

    __device__ void pop()
    {
        depth--;
#pragma unroll
        for (int d = 0; d < kBelow; d++)
            if (depth == d)
                add(below[d]);
    }
};

} // namespace

#endif
