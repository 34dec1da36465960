/* mimo-plan schedule --nodes: the steps of a schedule, or one step alone, cut into nodes. */
#ifndef MIMO_TOOLS_PLAN_NODES_H
#define MIMO_TOOLS_PLAN_NODES_H

#include "plan_commands.h"

enum { PLAN_BUDGETS = 8 };

/* A number of thread blocks for exchanges, and what one exchange then takes. */
typedef struct plan_exchanges {
    int64_t blocks, cost; /* cost -1: as --node-cost says */
} plan_exchanges;

typedef struct plan_nodes_request {
    const char *layers; /* NULL: --nodes was not given */
    mimo_node_costs costs;
    mimo_nodes_desc desc;                 /* costs: those above */
    plan_exchanges budgets[PLAN_BUDGETS]; /* budgets[count]; 0: the descriptor's alone */
    int64_t count;
    bool shared; /* mixtures have a shared expert */
    bool ahead;  /* their routes are nodes of their own */
    mimo_node_recompute recompute;
    bool costs_given;
    const char *output; /* as plan_schedule_request's */
} plan_nodes_request;

typedef struct plan_nodes {
    const plan_nodes_request *request;
    mimo_node_layer *layers; /* of all chunks */
    mimo_node_chunk *chunks;
    mimo_nodes *nodes[PLAN_BUDGETS]; /* one for each budget */
    plan_exchanges budgets[PLAN_BUDGETS];
    mimo_nodes_report reports[PLAN_BUDGETS];
    int64_t count, best; /* best: the place of the one that takes the least time */
} plan_nodes;

/* "16=5,32=3", "16,32". */
mimo_status plan_read_exchanges(plan_nodes_request *request, const char *text);

/* Whether the layers are those of one step alone: "F,B". */
bool plan_nodes_alone(const plan_nodes_request *request);

/* Cut a schedule; NULL: one step alone. plan_nodes_release in any case. */
mimo_status plan_nodes_make(plan_nodes *out, const plan_nodes_request *request,
                            const mimo_schedule *schedule);
void plan_nodes_release(plan_nodes *plan);

int plan_nodes_print_text(const plan_nodes *plan);
int plan_nodes_print_json(const plan_nodes *plan);

#endif
