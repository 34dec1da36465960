#include "train/device/gpu_device.h"

#include <stdlib.h>

#include <cuda_runtime_api.h>

#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* Fail with what CUDA says. */
#define TRY_CUDA(call)                                                 \
    do {                                                               \
        cudaError_t cuda_code = (call);                                \
        CHECK(cuda_code == cudaSuccess, MIMO_ERR_DEVICE, #call ": %s", \
              cudaGetErrorString(cuda_code));                          \
    } while (0)

/* Streams that share a queue of the device hold each other up, so one that waits for another stage
 * must share none. CUDA makes 8 of them, and NCCL has streams beside those of a pipeline. It reads
 * this when a process first uses it; what the user says stays. */
static void ask_for_queues(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

mimo_status gpu_world_create(mimo_comm **out)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    int device;
    ask_for_queues();
    TRY(mimo_bootstrap_from_mpi(&bootstrap, &world));
    TRY(mimo_comm_create_nccl(out, &bootstrap, &desc));
    TRY(mimo_nccl_device(&device, *out));
    TRY_CUDA(cudaSetDevice(device)); /* that the layers work on */
    return MIMO_OK;
}

mimo_status gpu_stream_create(mimo_stream *out, bool urgent)
{
    cudaStream_t stream;
    int usual, first;
    TRY_CUDA(cudaDeviceGetStreamPriorityRange(&usual, &first));
    TRY_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? first : usual));
    *out = stream;
    return MIMO_OK;
}

void gpu_stream_destroy(mimo_stream stream)
{
    if (stream)
        (void)cudaStreamDestroy(stream);
}

static int gather_over(void *context, void *to, const void *from, size_t bytes)
{
    return mimo_comm_host_allgather(context, to, from, (int)bytes) == MIMO_OK ? 0 : -1;
}

mimo_status gpu_apart_create(mimo_comm **out, mimo_comm *same, int ctas)
{
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    bootstrap.rank = mimo_comm_rank(same);
    bootstrap.ranks = mimo_comm_size(same);
    bootstrap.allgather = gather_over;
    bootstrap.context = same;
    TRY(mimo_nccl_device(&desc.device, same));
    desc.max_ctas = ctas; /* of NCCL's messages, where stages are on different hosts */
    return mimo_comm_create_nccl(out, &bootstrap, &desc);
}

struct gpu_clock {
    cudaEvent_t *points;
    int64_t count;
};

static mimo_status create_points(gpu_clock *out, int64_t count)
{
    TRY(memory_reserve(&out->points, count, sizeof(cudaEvent_t)));
    for (; out->count < count; out->count++)
        TRY_CUDA(cudaEventCreate(&out->points[out->count]));
    return MIMO_OK;
}

mimo_status gpu_clock_create(gpu_clock **out, int64_t count)
{
    gpu_clock *made;
    TRY(memory_reserve(&made, 1, sizeof *made));
    mimo_status status = create_points(made, count);
    if (status != MIMO_OK) {
        gpu_clock_destroy(made);
        return status;
    }
    *out = made;
    return MIMO_OK;
}

void gpu_clock_destroy(gpu_clock *clock)
{
    for (int64_t i = 0; clock && i < clock->count; i++)
        (void)cudaEventDestroy(clock->points[i]);
    if (clock)
        memory_release(clock->points);
    memory_release(clock);
}

mimo_status gpu_clock_stamp(gpu_clock *clock, int64_t i, mimo_stream stream)
{
    TRY_CUDA(cudaEventRecord(clock->points[i], stream));
    return MIMO_OK;
}

mimo_status gpu_clock_read(int64_t *times, gpu_clock *clock, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float milliseconds;
        TRY_CUDA(cudaEventSynchronize(clock->points[i]));
        TRY_CUDA(cudaEventElapsedTime(&milliseconds, clock->points[0], clock->points[i]));
        times[i] = (int64_t)(milliseconds * 1e6F);
    }
    return MIMO_OK;
}
