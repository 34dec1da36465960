// Search in sorted lists, in kernels.
#ifndef MIMO_DEVICE_CUDA_SEARCH_CUH
#define MIMO_DEVICE_CUDA_SEARCH_CUH

namespace
{

// The last of `count` elements whose begin(i) is at most `value`; 0 where there is none. Elements
// ascend.
template <class Value, class Begin> __device__ int last_at_most(int count, Value value, Begin begin)
{
    int low = 0, high = count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (begin(middle) <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

} // namespace

#endif
