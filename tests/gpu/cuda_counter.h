/* Counts what a program asks of CUDA, by functions before those of the library. For one source of a
 * program, which includes it before all others. */
#ifndef MIMO_TESTS_CUDA_COUNTER_H
#define MIMO_TESTS_CUDA_COUNTER_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "bridge_bed.h"
#include "gpu_calls.h"

/* Calls that take memory, give it back, make the host wait, copy to or from the host, or look at a
 * kernel, while `counts`; only the first three while `waits_alone`. */
static bool counts, waits_alone;
static int64_t counted;
static const char *last_counted = "none";

/* The next function of this name, which the definition here replaces. */
static void find_next(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memcpy(function, &found, sizeof found);
    if (counts) {
        counted++;
        last_counted = name;
    }
}

static void find_other(void *function, const char *name)
{
    bool were = counts;
    counts = counts && !waits_alone;
    find_next(function, name);
    counts = were;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    cudaError_t (*next)(void **, size_t);
    find_next(&next, "cudaMalloc");
    return next(out, bytes);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    cudaError_t (*next)(void **, size_t);
    find_next(&next, "cudaMallocHost");
    return next(out, bytes);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    cudaError_t (*next)(void **, size_t, unsigned);
    find_next(&next, "cudaHostAlloc");
    return next(out, bytes, flags);
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    cudaError_t (*next)(void **, size_t, cudaStream_t);
    find_next(&next, "cudaMallocAsync");
    return next(out, bytes, stream);
}

cudaError_t cudaFree(void *room)
{
    cudaError_t (*next)(void *);
    find_next(&next, "cudaFree");
    return next(room);
}

cudaError_t cudaFreeHost(void *room)
{
    cudaError_t (*next)(void *);
    find_next(&next, "cudaFreeHost");
    return next(room);
}

cudaError_t cudaFreeAsync(void *room, cudaStream_t stream)
{
    cudaError_t (*next)(void *, cudaStream_t);
    find_next(&next, "cudaFreeAsync");
    return next(room, stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t (*next)(cudaStream_t);
    find_next(&next, "cudaStreamSynchronize");
    return next(stream);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t (*next)(void);
    find_next(&next, "cudaDeviceSynchronize");
    return next();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t (*next)(cudaEvent_t);
    find_next(&next, "cudaEventSynchronize");
    return next(event);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t (*next)(void *, const void *, size_t, enum cudaMemcpyKind);
    find_next(&next, "cudaMemcpy");
    return next(to, from, bytes, kind);
}

/* Copies on the device are what calls are for. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t (*next)(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
    bool were = counts;
    counts = counts && kind != cudaMemcpyDeviceToDevice;
    find_other(&next, "cudaMemcpyAsync");
    counts = were;
    return next(to, from, bytes, kind, stream);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t (*next)(const void *, enum cudaFuncAttribute, int);
    find_other(&next, "cudaFuncSetAttribute");
    return next(kernel, attribute, value);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *kernel,
                                                                   int threads, size_t shared,
                                                                   unsigned flags)
{
    cudaError_t (*next)(int *, const void *, int, size_t, unsigned);
    find_other(&next, "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags");
    return next(out, kernel, threads, shared, flags);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *kernel, int threads,
                                                          size_t shared)
{
    cudaError_t (*next)(int *, const void *, int, size_t);
    find_other(&next, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return next(out, kernel, threads, shared);
}

static void begin_count(void)
{
    counted = 0;
    last_counted = "none";
    counts = true;
}

static void end_count(const bed_case *c, const char *what)
{
    counts = false;
    MPI_EXPECT(counted == 0, "%s: %s ask for %d things of CUDA, %s the last one", bed_text(c), what,
               (int)counted, last_counted);
}

#endif
