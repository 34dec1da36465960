/* Staging from an allocator of the test's own, which counts. */
#include <stdlib.h>

#include "bridge_bed.h"
#include "gpu_calls.h"

enum { S = 256, H = 512, MOST = 64 };

static struct {
    void *memory[MOST];
    size_t bytes[MOST];
    int reserves, releases;
    size_t live;
    bool none; /* give no memory */
} seen;

static void *reserve(void *context, size_t bytes, mimo_stream stream)
{
    void *memory = NULL;
    MPI_EXPECT(context == &seen && bytes > 0, "reserve of %zu bytes", bytes);
    if (seen.none || cudaMallocAsync(&memory, bytes, (cudaStream_t)stream) != cudaSuccess)
        return NULL;
    for (int i = 0; i < MOST; i++)
        if (!seen.memory[i]) {
            seen.memory[i] = memory;
            seen.bytes[i] = bytes;
            break;
        }
    seen.reserves++;
    seen.live += bytes;
    return memory;
}

static void release(void *context, void *data, size_t bytes, mimo_stream stream)
{
    int i = 0;
    while (i < MOST && seen.memory[i] != data)
        i++;
    MPI_EXPECT(context == &seen && i < MOST && seen.bytes[i] == bytes, "release of %zu bytes at %p",
               bytes, data);
    if (i < MOST)
        seen.memory[i] = NULL;
    seen.releases++;
    seen.live -= bytes;
    EXPECT_CUDA(cudaFreeAsync(data, (cudaStream_t)stream));
}

/* A bridge of full sequences, whose backward adds two contributions, with tiles of its own. */
typedef struct passage {
    mimo_bridge *bridge;
    test_tile from, to;
    int64_t most; /* as mimo_bridge_staging says */
} passage;

static passage begin(mimo_comm *comm, executor_id executor, mimo_dtype dtype)
{
    passage it = {0};
    int size = mpi_test_size();
    mimo_bridge_desc desc = mpi_test_bridge_desc(mpi_test_grid_of("tp=1,dp=%d", size),
                                                 mpi_test_grid_of("tp=1,cp=2,dp=%d", size / 2));
    mimo_bridge_sizes sizes = MIMO_BRIDGE_SIZES_INIT;
    mimo_tensor view;
    desc.executor = executor_of(executor);
    desc.batch = sizes.batch = 2 * size;
    MPI_EXPECT_OK(mimo_bridge_create(&it.bridge, comm, &desc));
    sizes.seq = S;
    sizes.hidden = H;
    sizes.dtype = dtype;
    sizes.dst_letters = "bsh";
    MPI_EXPECT_OK(mimo_bridge_staging(&it.most, it.bridge, &sizes));
    MPI_EXPECT_OK(mimo_bridge_tile(&view, it.bridge, MIMO_SRC, &sizes));
    it.from = test_tile_new("sbh", dtype, view.shape[0], view.shape[1], view.shape[2]);
    MPI_EXPECT_OK(mimo_bridge_tile(&view, it.bridge, MIMO_DST, &sizes));
    it.to = test_tile_new("bsh", dtype, view.shape[0], view.shape[1], view.shape[2]);
    return it;
}

static mimo_status move(const passage *it)
{
    mimo_status status =
        mimo_bridge_forward(it->bridge, &it->to.view, &it->from.view, 1, test_stream());
    return status != MIMO_OK
               ? status
               : mimo_bridge_backward(it->bridge, &it->from.view, &it->to.view, 1, test_stream());
}

static void end(passage *it)
{
    EXPECT_CUDA(cudaStreamSynchronize(test_stream()));
    mimo_bridge_destroy(it->bridge);
    test_tile_free(&it->from);
    test_tile_free(&it->to);
}

static mimo_comm *create(void)
{
    mimo_comm *comm = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    memset(&seen, 0, sizeof seen);
    desc.reserve = reserve;
    desc.release = release;
    desc.context = &seen;
    MPI_EXPECT_OK(gpu_comm_create(&comm, &desc));
    return comm;
}

static void check_staging(mimo_comm *comm, executor_id executor, mimo_dtype dtype)
{
    passage it = begin(comm, executor, dtype);
    int before = seen.reserves;
    MPI_EXPECT_OK(move(&it));
    int first = seen.reserves;
    MPI_EXPECT(first > before, "executor %d took no staging", (int)executor);
    MPI_EXPECT((int64_t)seen.live <= it.most, "executor %d has %zu bytes, announced were %lld",
               (int)executor, seen.live, (long long)it.most);
    for (int i = 0; i < 10; i++)
        MPI_EXPECT_OK(move(&it));
    MPI_EXPECT(seen.reserves == first, "%d more reserves", seen.reserves - first);
    end(&it);
    MPI_EXPECT(seen.live == 0 && seen.reserves == seen.releases,
               "%zu bytes of executor %d are left", seen.live, (int)executor);
}

MPI_TEST(allocator, staging_of_the_host)
{
    mimo_comm *comm = create();
    if (!comm)
        return;
    check_staging(comm, EXECUTOR_COLLECTIVE, MIMO_F32);
    check_staging(comm, EXECUTOR_COLLECTIVE, MIMO_BF16); /* whose sums are wider */
    check_staging(comm, EXECUTOR_P2P, MIMO_F32);
    mimo_comm_destroy(comm);
}

/* All ranks run short alike, as calls that only enqueue do not agree. The next attempt works. */
MPI_TEST(allocator, without_memory)
{
    mimo_comm *comm = create();
    if (!comm)
        return;
    passage it = begin(comm, EXECUTOR_COLLECTIVE, MIMO_F32);
    seen.none = true;
    MPI_FAILS(mimo_bridge_backward(it.bridge, &it.from.view, &it.to.view, 1, test_stream()),
              MIMO_ERR_MEMORY, "`reserve` gave no memory for");
    seen.none = false;
    MPI_EXPECT_OK(move(&it));
    end(&it);
    mimo_comm_destroy(comm);
    MPI_EXPECT(seen.live == 0, "%zu bytes are left", seen.live);
}

/* A shape that the stream has not seen can't be captured, and nothing is reserved. */
MPI_TEST(allocator, captured_too_early)
{
    cudaGraph_t graph = NULL;
    mimo_comm *comm = create();
    if (!comm)
        return;
    passage it = begin(comm, EXECUTOR_COLLECTIVE, MIMO_F32);
    EXPECT_CUDA(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    MPI_FAILS(mimo_bridge_backward(it.bridge, &it.from.view, &it.to.view, 1, test_stream()),
              MIMO_ERR_STATE, "while a graph is captured");
    EXPECT_CUDA(cudaStreamEndCapture(test_stream(), &graph));
    MPI_EXPECT(seen.reserves == 0, "%d reserves in a capture", seen.reserves);
    if (graph)
        EXPECT_CUDA(cudaGraphDestroy(graph));
    MPI_EXPECT_OK(move(&it));
    end(&it);
    mimo_comm_destroy(comm);
}

MPI_TEST(allocator, half_given)
{
    mimo_comm *comm = NULL;
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    desc.reserve = reserve;
    MPI_FAILS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT,
              "`reserve` of the NCCL descriptor is given, and `release` is NULL");
    desc.reserve = NULL;
    desc.release = release;
    MPI_EXPECT_STATUS(gpu_comm_create(&comm, &desc), MIMO_ERR_ARGUMENT);
    MPI_EXPECT(!comm, "a failed call made an object");
}
