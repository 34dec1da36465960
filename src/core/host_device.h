/* Inline functions that the host and kernels call. */
#ifndef MIMO_CORE_HOST_DEVICE_H
#define MIMO_CORE_HOST_DEVICE_H

#ifdef __CUDACC__
#define MIMO_HOST_AND_DEVICE __host__ __device__
/* In front of a loop with a constant bound: its arrays stay in registers. */
#define MIMO_UNROLL _Pragma("unroll")
#else
#define MIMO_HOST_AND_DEVICE
#define MIMO_UNROLL
#endif

#endif
