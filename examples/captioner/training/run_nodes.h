/* When the nodes of a run by nodes (--overlap) ran: pictures, and what they cost. */
#ifndef CAPTIONER_RUN_NODES_H
#define CAPTIONER_RUN_NODES_H

#include <stdio.h>

#include "train/model/model_pass.h"

/** Times in microseconds of the last run of a pass, of the first rank of each stage. */
typedef struct run_nodes {
    const mimo_nodes *nodes; /* borrowed */
    int64_t stages, most;    /* most: nodes of the longest list */
    mimo_node_time *all, *own;
    const mimo_node_time **times; /* [stages] in `all` */
} run_nodes;

/** Gather them. Once for each run, behind pipeline_times. Collective over the world. The caller
 *  zeroes *out before and calls run_nodes_release after, whatever the result. Errors, on all ranks:
 *  MIMO_ERR_MEMORY, those of mimo_comm_host_allgather. */
mimo_status run_nodes_gather(run_nodes *out, model_pass *pass);
void run_nodes_release(run_nodes *nodes);

/** Draw the plan (schedule.svg) and the run (schedule_run.svg, and schedule_run.json as events)
 *  into a folder, and say on `stream` where they are. Local: for rank 0. Errors: those of
 *  run_drawing_write. */
mimo_status run_nodes_draw(const run_nodes *nodes, const char *folder, FILE *stream);

/** Print what each kind of node took on average, as --node-cost takes it, of a run as of
 *  mimo-plan schedule. */
void run_nodes_print_costs(FILE *stream, const run_nodes *nodes);

#endif
