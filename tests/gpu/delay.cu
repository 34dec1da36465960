#include "tests/gpu/delay.h"

__global__ void delay(unsigned long long nanoseconds)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

cudaError_t delay_stream(int microseconds, cudaStream_t stream)
{
    delay<<<1, 1, 0, stream>>>(microseconds * 1000ull);
    return cudaGetLastError();
}
