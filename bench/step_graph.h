/* A step of a benchmark as a CUDA graph: captured once, launched as often as wanted. An error ends
 * the launch. In a build without CUDA all calls do. */
#ifndef MIMO_BENCH_STEP_GRAPH_H
#define MIMO_BENCH_STEP_GRAPH_H

#include <mimo/tensor.h>

typedef struct step_graph step_graph;

/** What this thread gives to `stream` from now on, and to streams that wait for it, is captured and
 *  does not run, until the end. */
void step_graph_begin(mimo_stream stream);
/** Nodes have the priorities of the streams they were captured on. The caller destroys the graph
 *  when it runs no more. */
step_graph *step_graph_end(mimo_stream stream);

/** Behind all that the stream was given. The host does not wait. */
void step_graph_launch(step_graph *graph, mimo_stream stream);
void step_graph_destroy(step_graph *graph); /* NULL is fine */

#endif
