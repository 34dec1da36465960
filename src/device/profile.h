/* Ranges around public calls, which profilers of CUDA show (NVTX). Without CUDA they are nothing.
 */
#ifndef MIMO_DEVICE_PROFILE_H
#define MIMO_DEVICE_PROFILE_H

#ifdef MIMO_WITH_CUDA
void mimo_range_begin(const char *name);
void mimo_range_end(const char *const *name);

/* A range with the function's name, from here to wherever the function returns. */
#define MIMO_RANGE()                                                                     \
    __attribute__((cleanup(mimo_range_end))) const char *const mimo_profiled = __func__; \
    mimo_range_begin(mimo_profiled)
#else
#define MIMO_RANGE() (void)0
#endif

#endif
