/* Nodes of a schedule: chunks with their layers, and a list of nodes for each stage. */
#ifndef MIMO_NODE_TYPES_H
#define MIMO_NODE_TYPES_H

#include "schedule/schedule_types.h"

typedef struct mimo_own_layer {
    uint32_t parts;
    mimo_node_recompute recompute; /* by_costs: as they have chosen */
    bool by_costs;
    mimo_node_costs costs;
} mimo_own_layer;

typedef struct mimo_own_chunk {
    mimo_own_layer *layers; /* layers[count] */
    int64_t count, mtp;
    int64_t last; /* the micro-batch behind which its gradients are whole */
    uint32_t has;
} mimo_own_chunk;

typedef struct mimo_stage_nodes {
    mimo_node *nodes; /* nodes[count], with memory for `capacity` */
    int64_t count, capacity;
    int64_t *waits;        /* waits[count * MIMO_NODE_LANES] */
    mimo_node_time *times; /* times[count] */
} mimo_stage_nodes;

struct mimo_nodes {
    mimo_schedule *schedule; /* a copy. Of one step alone: one stage, whose chunk 0 goes forward and
                                whose chunk 1 goes backward */
    bool alone;
    mimo_nodes_desc desc; /* desc.costs is &costs */
    mimo_node_costs costs;
    mimo_own_chunk *chunks;   /* chunks[pp * V], in the model's order */
    int64_t pieces;           /* of E and EB; 0: they are whole */
    mimo_stage_nodes *stages; /* stages[pp] */
};

/* ------------------------------------------- names ------------------------------------------- */

const char *mimo_node_lane_name(mimo_node_lane lane);

/* "f.pre0", "b.mlp1.bwd", "b.mlp1.dw", "b.combine0", "b.pre0.replay", "f.send_recv". */
typedef struct mimo_node_name {
    char text[64];
} mimo_node_name;

mimo_node_name mimo_node_name_of(const mimo_node *node);

/* "(node 9)", and of a whole schedule "(stage 0, FB1/0, node 9)". */
typedef struct mimo_node_where {
    char text[192];
} mimo_node_where;

mimo_node_where mimo_node_where_of(const mimo_nodes *nodes, int64_t stage, int64_t i);

/* ------------------------------------ what there is, and needs -------------------------------- */

static inline bool mimo_node_of_layer(mimo_node_part part)
{
    return (int)part < (int)MIMO_NODE_LAYER_PARTS;
}

/* The chunk of a stage that a node of the LLM works on. */
static inline const mimo_own_chunk *mimo_node_chunk_of(const mimo_nodes *nodes, int64_t stage,
                                                       int64_t chunk)
{
    return &nodes->chunks[mimo_step_number(nodes->schedule, stage, chunk)];
}

/* Whether a chunk has such a node at all. GRAD_SYNC, ENCODER and CALL are asked by others. */
bool mimo_chunk_has_node(const mimo_own_chunk *chunk, mimo_node_part part, mimo_node_pass pass,
                         int64_t layer);

typedef mimo_status mimo_node_visit(void *context, const mimo_node *node);

/* Visit all nodes that step number `step` of a stage must have, in no order that matters. */
mimo_status mimo_node_each_of_step(const mimo_nodes *nodes, int64_t stage, int64_t step,
                                   mimo_node_visit *visit, void *context);

/* Visit the nodes of the same stage that a node needs. */
mimo_status mimo_node_each_input(const mimo_nodes *nodes, int64_t stage, const mimo_node *node,
                                 mimo_node_visit *visit, void *context);

/* Places of a stage's nodes in its list: 1 + the place, 0: there is none. */
typedef struct mimo_node_places {
    const mimo_nodes *nodes;
    int64_t stage, layers; /* layers: at least those of each of its chunks */
    int64_t *of;
} mimo_node_places;

mimo_status mimo_node_places_open(mimo_node_places *out, const mimo_nodes *nodes, int64_t stage);
void mimo_node_places_close(mimo_node_places *places);
int64_t *mimo_node_place(const mimo_node_places *places, const mimo_node *node);

/* ------------------------------------------- making ------------------------------------------ */

mimo_status mimo_nodes_append(mimo_stage_nodes *list, mimo_node node);

/* Append the nodes of step number `step` of a stage (node_order.c). */
mimo_status mimo_node_order(mimo_nodes *nodes, int64_t stage, int64_t step);

/* From the steps to lists and their waits, as often as it is called (node_cut.c). */
mimo_status mimo_nodes_cut(mimo_nodes *nodes);

/* Put pieces of the encoder where exchanges leave a stage idle, if that takes less time
 * (node_encoder.c). The lists are as mimo_nodes_cut leaves them. */
mimo_status mimo_nodes_fill(mimo_nodes *nodes);

/* Fill stages[].waits, anew where lists have changed (node_rules.c). */
mimo_status mimo_nodes_find_waits(mimo_nodes *nodes);

/* ------------------------------------------- times ------------------------------------------- */

typedef enum mimo_node_mode {
    MIMO_NODES_PLANNED,
    MIMO_NODES_LOCAL,  /* exchanges take no time */
    MIMO_NODES_SERIAL, /* exchanges run in the lane COMPUTE */
} mimo_node_mode;

/* Multiprocessors of the lanes of a stage that wait: what must be resident together. */
int64_t mimo_node_lanes_need(const mimo_nodes *nodes, int64_t stage);

/* Times of all stages, times[pp][count]. */
mimo_status mimo_node_times_open(mimo_node_time ***out, const mimo_nodes *nodes);
void mimo_node_times_close(mimo_node_time **times, const mimo_nodes *nodes);

/* Fill stages[].times, anew where lists have changed. The end of the last of them (node_cut.c). */
mimo_status mimo_nodes_find_times(mimo_nodes *nodes);
int64_t mimo_nodes_planned_time(const mimo_nodes *nodes);

/* Let all lanes of all stages run (node_walk.c). times: those of each stage, to be filled.
 * *stuck: the first stage that waits for ever, or -1; *at: its first node that did not run. */
mimo_status mimo_nodes_walk(mimo_node_time *const *times, int64_t *stuck, int64_t *at,
                            const mimo_nodes *nodes, mimo_node_mode mode);

/* Until the last node has ended. */
int64_t mimo_nodes_time_of(const mimo_nodes *nodes, mimo_node_time *const *times);

/* What E or EB of a group, or a piece of them, costs. */
int64_t mimo_node_encoder_cost(const mimo_nodes *nodes, const mimo_node *node);

/* Whether a stage runs nodes in this lane. */
bool mimo_node_lane_used(const mimo_nodes *nodes, int64_t stage, mimo_node_lane lane);

/* When each node of each stage begins and ends: as planned, or measured. Borrowed. */
typedef struct mimo_node_timeline {
    const mimo_nodes *nodes;
    const mimo_node_time *const *times;
    const char *unit; /* of the times; NULL: none */
} mimo_node_timeline;

/* `title` has two lines, the second one behind a '\n'. */
void mimo_nodes_write_svg(FILE *stream, const mimo_node_timeline *line, const char *title);
void mimo_nodes_write_trace(FILE *stream, const mimo_node_timeline *line);

/* One of these two, with the planned times (node_run.c). */
mimo_status mimo_nodes_write_plan(FILE *stream, const mimo_nodes *nodes,
                                  mimo_schedule_format format);

#endif
