#include "bench_support.h"
#include "step_graph.h"

static void refuse(void)
{
    bench_must(MIMO_ERR_UNSUPPORTED, "--graph: this build has no CUDA part");
}

void step_graph_begin(mimo_stream stream)
{
    (void)stream;
    refuse();
}

step_graph *step_graph_end(mimo_stream stream)
{
    (void)stream;
    refuse();
    return NULL;
}

void step_graph_launch(step_graph *graph, mimo_stream stream)
{
    (void)graph, (void)stream;
    refuse();
}

void step_graph_destroy(step_graph *graph)
{
    (void)graph; /* there is none */
}
