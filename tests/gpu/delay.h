/* Delays of a stream and of the host. */
#ifndef MIMO_TESTS_DELAY_H
#define MIMO_TESTS_DELAY_H

#include <cuda_runtime_api.h>
#include <time.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/* Enqueue a kernel of one thread that runs for this time. */
cudaError_t delay_stream(int microseconds, cudaStream_t stream);

static inline void delay_host(int microseconds)
{
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    nanosleep(&time, NULL);
}

MIMO_END_DECLS

#endif
