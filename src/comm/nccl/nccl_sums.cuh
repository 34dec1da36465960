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

// Elements of 4 bytes of a word, and back.
template <class Type, int N>
__device__ void unpack_word(Values<Type, N> &out, uint32_t word, int first, float)
{
    out.at[first] = __uint_as_float(word);
}

template <class Type, int N>
__device__ void unpack_word(Values<Type, N> &out, uint32_t word, int first, __half)
{
    const float2 both = __half22float2(*(const __half2 *)&word);
    out.at[first] = both.x;
    out.at[first + 1] = both.y;
}

template <class Type, int N>
__device__ void unpack_word(Values<Type, N> &out, uint32_t word, int first, __nv_bfloat16)
{
    out.at[first] = __uint_as_float(word << 16);
    out.at[first + 1] = __uint_as_float(word & 0xffff0000u);
}

template <class Type, int N>
__device__ uint32_t pack_word(const Values<Type, N> &values, int first, float)
{
    return __float_as_uint(values.at[first]);
}

template <class Type, int N>
__device__ uint32_t pack_word(const Values<Type, N> &values, int first, __half)
{
    const __half2 both = __floats2half2_rn(values.at[first], values.at[first + 1]);
    return *(const uint32_t *)&both;
}

template <class Type, int N>
__device__ uint32_t pack_word(const Values<Type, N> &values, int first, __nv_bfloat16)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(values.at[first], values.at[first + 1]);
    return *(const uint32_t *)&both;
}

// Elements of one word of 16 bytes, from value `first` on.
template <class T, class Type, int N>
__device__ void unpack(Values<Type, N> &out, const uint4 &word, int first)
{
    constexpr int kEach = 4 / sizeof(T);
    unpack_word(out, word.x, first, T());
    unpack_word(out, word.y, first + kEach, T());
    unpack_word(out, word.z, first + 2 * kEach, T());
    unpack_word(out, word.w, first + 3 * kEach, T());
}

template <> __device__ void unpack<double>(Values<double, 2> &out, const uint4 &word, int first)
{
    out.at[first] = __hiloint2double((int)word.y, (int)word.x);
    out.at[first + 1] = __hiloint2double((int)word.w, (int)word.z);
}

template <class T, class Type, int N>
__device__ uint4 pack(const Values<Type, N> &values, int first)
{
    constexpr int kEach = 4 / sizeof(T);
    return make_uint4(pack_word(values, first, T()), pack_word(values, first + kEach, T()),
                      pack_word(values, first + 2 * kEach, T()),
                      pack_word(values, first + 3 * kEach, T()));
}

template <> __device__ uint4 pack<double>(const Values<double, 2> &values, int first)
{
    const double a = values.at[first], b = values.at[first + 1];
    return make_uint4((uint32_t)__double2loint(a), (uint32_t)__double2hiint(a),
                      (uint32_t)__double2loint(b), (uint32_t)__double2hiint(b));
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
    __device__ void visit(const Values<Type, N> &leaf, int adds, bool first)
    {
        if (first)
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
    int depth = 0;

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
