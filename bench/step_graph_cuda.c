#include <stdio.h>

#include <cuda_runtime_api.h>

#include "bench_support.h"
#include "step_graph.h"

static void must_cuda(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "step_graph: %s: %s\n", what, cudaGetErrorString(code));
    bench_must(MIMO_ERR_DEVICE, what);
}

/* Threads of NCCL may call what a capture of all threads forbids. */
void step_graph_begin(mimo_stream stream)
{
    must_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
}

step_graph *step_graph_end(mimo_stream stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t made;
    must_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must_cuda(cudaGraphInstantiate(&made, graph, cudaGraphInstantiateFlagUseNodePriority),
              "cudaGraphInstantiate");
    must_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return (step_graph *)made;
}

void step_graph_launch(step_graph *graph, mimo_stream stream)
{
    must_cuda(cudaGraphLaunch((cudaGraphExec_t)graph, stream), "cudaGraphLaunch");
}

void step_graph_destroy(step_graph *graph)
{
    if (graph)
        must_cuda(cudaGraphExecDestroy((cudaGraphExec_t)graph), "cudaGraphExecDestroy");
}
