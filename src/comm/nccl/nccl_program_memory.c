#include "comm/nccl/nccl_program_memory.h"

#include "core/memory.h"
#include "device/cuda_calls.h"
#include "device/device.h"

enum { LEAST = 4096 };

/* Let this thread allocate, copy and wait while a stream is captured: all of it concerns other
 * streams. Returns the mode that was in force, which is to be set again. */
static enum cudaStreamCaptureMode set_mode(enum cudaStreamCaptureMode mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static void destroy(mimo_program_memory *it)
{
    if (it->filled)
        (void)cudaEventDestroy(it->filled);
    if (it->used)
        (void)cudaEventDestroy(it->used);
    if (it->data)
        mimo_device_cuda.release(it->data);
    mimo_release(it);
}

static mimo_status create(mimo_program_memory **out, mimo_program_pool *pool, int64_t bytes)
{
    mimo_program_memory *made;
    mimo_status status;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    made->pool = pool;
    made->item.bytes = bytes;
    MIMO_TRY_GOTO(status, fail, mimo_device_cuda.reserve(&made->data, bytes));
    MIMO_TRY_GOTO(status, fail,
                  mimo_cuda_status(cudaEventCreateWithFlags(&made->filled, cudaEventDisableTiming),
                                   "cudaEventCreateWithFlags"));
    MIMO_TRY_GOTO(status, fail,
                  mimo_cuda_status(cudaEventCreateWithFlags(&made->used, cudaEventDisableTiming),
                                   "cudaEventCreateWithFlags"));
    *out = made;
    return MIMO_OK;
fail:
    destroy(made);
    return status;
}

static bool is_done(cudaEvent_t event)
{
    bool done = cudaEventQuery(event) == cudaSuccess;
    (void)cudaGetLastError(); /* not ready is no error */
    return done;
}

/* The smallest spare memory of that capacity which no launch reads any more; NULL: none. */
static mimo_program_memory *find_spare(mimo_program_pool *pool, int64_t bytes)
{
    mimo_free_item **best = NULL;
    for (mimo_free_item **link = &pool->spare; *link; link = &(*link)->next) {
        const mimo_program_memory *it = (const mimo_program_memory *)*link;
        bool smaller = !best || it->item.bytes < (*best)->bytes;
        if (it->item.bytes >= bytes && smaller && (!it->ran || is_done(it->used)))
            best = link;
    }
    mimo_program_memory *found = best ? (mimo_program_memory *)*best : NULL;
    if (found)
        *best = found->item.next;
    return found;
}

static mimo_status fill(mimo_program_memory *it, const mimo_list *lists, int count)
{
    char *at = it->data;
    it->arrived = it->ran = false;
    for (int i = 0; i < count; at += lists[i].bytes, i++)
        MIMO_TRY(
            mimo_device_cuda.upload(at, lists[i].data, (int64_t)lists[i].bytes, it->pool->stream));
    MIMO_TRY_CUDA(cudaEventRecord(it->filled, it->pool->stream));
    return MIMO_OK;
}

/* Sizes are powers of two, so that memory serves programs of other batches. */
static mimo_status take(mimo_program_memory **out, mimo_program_pool *pool, const mimo_list *lists,
                        int count)
{
    int64_t bytes = 0, capacity = LEAST;
    for (int i = 0; i < count; i++)
        bytes += (int64_t)lists[i].bytes;
    while (capacity < bytes)
        capacity *= 2;
    mimo_program_memory *it = find_spare(pool, capacity);
    if (!it)
        MIMO_TRY(create(&it, pool, capacity));
    mimo_status status = fill(it, lists, count);
    if (status == MIMO_OK)
        *out = it;
    else
        destroy(it);
    return status;
}

mimo_status mimo_program_memory_take(mimo_program_memory **out, mimo_program_pool *pool,
                                     const mimo_list *lists, int count)
{
    enum cudaStreamCaptureMode mode = set_mode(cudaStreamCaptureModeRelaxed);
    mimo_status status = take(out, pool, lists, count);
    (void)set_mode(mode);
    return status;
}

/* A graph may be replayed on any stream. So for a capture the copy must be done, not only
 * enqueued. */
static mimo_status wait_for_copy(mimo_program_memory *it, cudaStream_t stream)
{
    if (mimo_device_cuda.records(stream))
        MIMO_TRY_CUDA(cudaEventSynchronize(it->filled));
    it->arrived = is_done(it->filled);
    if (!it->arrived)
        MIMO_TRY_CUDA(cudaStreamWaitEvent(stream, it->filled, 0));
    return MIMO_OK;
}

mimo_status mimo_program_memory_enter(mimo_program_memory *it, cudaStream_t stream)
{
    if (it->arrived)
        return MIMO_OK;
    enum cudaStreamCaptureMode mode = set_mode(cudaStreamCaptureModeRelaxed);
    mimo_status status = wait_for_copy(it, stream);
    (void)set_mode(mode);
    return status;
}

mimo_status mimo_program_memory_leave(mimo_program_memory *it, cudaStream_t stream)
{
    it->recorded = it->recorded || mimo_device_cuda.records(stream);
    if (it->recorded)
        return MIMO_OK;
    it->ran = true;
    MIMO_TRY_CUDA(cudaEventRecord(it->used, stream));
    return MIMO_OK;
}

void mimo_program_memory_give_back(mimo_program_memory *it)
{
    if (it && it->recorded)
        destroy(it);
    else if (it)
        mimo_free_list_put(&it->pool->spare, &it->item);
}

void mimo_program_pool_release(mimo_program_pool *pool)
{
    for (mimo_program_memory *it; (it = mimo_free_list_take(&pool->spare, 0, 0));)
        destroy(it);
}
