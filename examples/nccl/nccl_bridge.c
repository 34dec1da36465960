/*
 * The smallest program on GPUs: N ranks, one GPU each, an encoder (dp N) and an LLM (cp 2,
 * dp N / 2). Every rank's encoder output crosses the bridge into this rank's shard of the LLM's
 * sequences, and a gradient of ones comes back. All work is enqueued on one stream; the host waits
 * once, for the results.
 *
 *   mpirun -n 4 nccl_bridge
 *
 * MPI only starts the ranks here. Without it, fill the bootstrap from your launcher: rank, ranks,
 * and a callback that gathers `bytes` bytes of every rank (docs/gpu.md).
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>
#include <mimo/nccl.h>

enum { S = 8, H = 4 }; /* tokens a sample, elements a token; one sample a rank */

static void check(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "%s: %s\n", what, mimo_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static mimo_tensor on_gpu(float *host, int64_t seq, int64_t batch)
{
    size_t bytes = (size_t)(seq * batch * H) * sizeof *host;
    void *data;
    check(cudaMalloc(&data, bytes) || cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice), "GPU");
    mimo_tensor view = mimo_tensor_3d(data, MIMO_F32, "sbh", seq, batch, H);
    view.memory = MIMO_MEMORY_CUDA;
    return view;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm world = MPI_COMM_WORLD;
    mimo_bootstrap bootstrap = MIMO_BOOTSTRAP_INIT;
    const mimo_nccl_desc nccl = MIMO_NCCL_DESC_INIT;
    mimo_comm *comm;
    int device; /* that the library chose */
    check(mimo_bootstrap_from_mpi(&bootstrap, &world), "bootstrap");
    check(mimo_comm_create_nccl(&comm, &bootstrap, &nccl), "communicator");
    check(mimo_nccl_device(&device, comm) || cudaSetDevice(device), "device");

    char encoder_dims[64], llm_dims[64];
    snprintf(encoder_dims, sizeof encoder_dims, "tp=1,dp=%d", bootstrap.ranks);
    snprintf(llm_dims, sizeof llm_dims, "tp=1,cp=2,pp=1,dp=%d", bootstrap.ranks / 2);
    mimo_grid *encoder, *llm;
    mimo_bridge *bridge;
    mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    check(mimo_grid_create_text(&encoder, encoder_dims, 0), "encoder grid");
    check(mimo_grid_create_text(&llm, llm_dims, 0), "LLM grid");
    desc.src = encoder;
    desc.dst = llm;
    desc.partition = &zigzag;
    desc.batch = bootstrap.ranks; /* given, so that calls only enqueue */
    check(mimo_bridge_create(&bridge, comm, &desc), "bridge");

    /* the encoder's output: token s of sample `rank` is 10 * rank + s in every element */
    float output[S * H], shard[S / 2 * 2 * H], gradient[S * H] = {0};
    for (int i = 0; i < S * H; i++)
        output[i] = (float)(10 * bootstrap.rank + i / H);
    for (int i = 0; i < S * H; i++)
        shard[i] = 1;
    mimo_tensor from = on_gpu(output, S, 1), to = on_gpu(shard, S / 2, 2);
    mimo_tensor ones = on_gpu(shard, S / 2, 2), back = on_gpu(gradient, S, 1);

    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(mimo_bridge_forward(bridge, &to, &from, 1, stream), "forward");
    check(mimo_bridge_backward(bridge, &back, &ones, 1, stream), "backward");
    check(
        cudaMemcpyAsync(shard, to.data, sizeof shard, cudaMemcpyDeviceToHost, stream) ||
            cudaMemcpyAsync(gradient, back.data, sizeof gradient, cudaMemcpyDeviceToHost, stream) ||
            cudaStreamSynchronize(stream),
        "results");

    printf("rank %d holds", bootstrap.rank);
    for (int row = 0; row < S / 2 * 2; row++)
        printf(" %g", (double)shard[row * H]);
    printf("; the gradient of its first token is %g\n", (double)gradient[0]);

    mimo_bridge_destroy(bridge);
    mimo_grid_destroy(encoder);
    mimo_grid_destroy(llm);
    mimo_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
