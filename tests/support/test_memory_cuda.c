/* Tensors of tests in CUDA memory, over NCCL: one rank a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <mimo/mpi.h>
#include <mimo/nccl.h>

#include "core/hash.h"

#include "test_memory.h"

/* A test can't go on without its memory. The launch ends, as the other ranks wait for this one. */
static void must(cudaError_t code, const char *call)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define MUST(call) must((call), #call)

mimo_memory test_memory(void)
{
    return MIMO_MEMORY_CUDA;
}

mimo_stream test_stream(void)
{
    static cudaStream_t stream;
    if (!stream)
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* The ranks of this host, by NCCL's identification of hosts. With NCCL_HOSTID one machine may
 * pretend to be several hosts, and each of them uses all its GPUs. */
static void place_on_host(int *local, int *ranks)
{
    MPI_Comm machine, host;
    const char *id = getenv("NCCL_HOSTID");
    int color = id ? (int)(mimo_hash_bytes(MIMO_HASH_START, id, strlen(id)) >> 33) : 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_split(machine, color, 0, &host);
    MPI_Comm_rank(host, local);
    MPI_Comm_size(host, ranks);
    MPI_Comm_free(&host);
    MPI_Comm_free(&machine);
}

mimo_stream test_side_stream(void)
{
    static cudaStream_t stream;
    static cudaEvent_t event;
    if (!stream) {
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    MUST(cudaEventRecord(event, test_stream()));
    MUST(cudaStreamWaitEvent(stream, event, 0));
    return stream;
}

/* Whether NCCL lets ranks of one host share a GPU (2.30 and later, where it is told). */
static bool ranks_share_gpus(void)
{
    const char *enabled = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return enabled && strcmp(enabled, "1") == 0;
}

/* A rank takes the GPU with its number among the ranks of its host. */
const char *test_memory_lacks(void)
{
    static char text[96];
    int local, ranks, count = 0, mine[2], most[2];
    place_on_host(&local, &ranks);
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        count = 0;
    mine[0] = (ranks_share_gpus() ? 1 : ranks) - count; /* missing GPUs */
    mine[1] = -count;
    MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    snprintf(text, sizeof text, "a GPU for each rank: %d are missing, a host has %d", most[0],
             -most[1]);
    if (most[0] > 0)
        return text;
    MUST(cudaSetDevice(local % count));
    return NULL;
}

mimo_status test_comm_create(mimo_comm **out)
{
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    mimo_status status = mimo_bootstrap_from_mpi(&bootstrap, &world);
    return status == MIMO_OK ? mimo_comm_create_nccl(out, &bootstrap, &desc) : status;
}

void *test_host_of(void *place, int64_t bytes)
{
    (void)place;
    return malloc((size_t)bytes);
}

void test_host_free(void *host)
{
    free(host);
}

void *test_place_new(void *host, int64_t bytes)
{
    void *place = NULL;
    (void)host;
    MUST(cudaMalloc(&place, (size_t)bytes));
    return place;
}

void test_place_free(void *place)
{
    MUST(cudaFree(place));
}

void test_place_push(void *place, const void *host, int64_t bytes)
{
    MUST(cudaMemcpyAsync(place, host, (size_t)bytes, cudaMemcpyHostToDevice, test_stream()));
}

void test_place_pull(void *host, const void *place, int64_t bytes)
{
    MUST(cudaMemcpyAsync(host, place, (size_t)bytes, cudaMemcpyDeviceToHost, test_stream()));
    MUST(cudaStreamSynchronize(test_stream()));
}
