/* Private: functions for the host and for kernels. */
#ifndef MIMO_NN_NN_EVERYWHERE_H
#define MIMO_NN_NN_EVERYWHERE_H

#ifdef __CUDACC__
#define NN_EVERYWHERE __host__ __device__
#else
#define NN_EVERYWHERE
#endif

#endif
