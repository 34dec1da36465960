/* What mimo-plan bridge has worked out before it prints. */
#ifndef MIMO_TOOLS_PLAN_BRIDGE_H
#define MIMO_TOOLS_PLAN_BRIDGE_H

#include "tools/plan_cost.h"
#include "plan_commands.h"

/* Up to this number of ranks, a drawing shows who sends to whom. */
enum { PLAN_DRAWN_RANKS = 16 };

enum {
    PLAN_FORWARD = MIMO_COST_FORWARD,
    PLAN_BACKWARD = MIMO_COST_BACKWARD,
    PLAN_PASSES = MIMO_COST_PASSES,
};

typedef struct plan_bridge_request {
    const char *src, *dst, *dtype; /* as written on the command line; NULL: missing */
    int64_t batch, seq, hidden;    /* 0: missing */
    int64_t offset;
    int64_t offsets[2]; /* by mimo_side; -1: `offset` holds */
    int64_t rank;       /* -1: all ranks */
    mimo_row_order order;
    bool sp, json;
    bool summary;          /* no line for each rank, and no drawing */
    bool each_rank;        /* no rank stands for others */
    mimo_link_speed speed; /* gbps 0: print no times */
} plan_bridge_request;

/* Bytes of one rank in one pass. */
typedef struct plan_flow {
    int64_t recv, send, local;
    int64_t peers; /* ranks that it sends to */
} plan_flow;

/* The largest number of bytes, and the rank or pair that has it. */
typedef struct plan_most {
    int64_t bytes, rank, peer;
} plan_most;

/* How evenly one pass loads the links, over all ranks. */
typedef struct plan_links {
    int64_t bytes, pairs;    /* bytes that move; ordered pairs of ranks that move some of them */
    plan_most pair, in, out; /* the busiest pair (sender, receiver), receiver, sender */
} plan_links;

typedef struct plan_bridge {
    const plan_bridge_request *request;
    mimo_grid *grids[2];     /* by mimo_side */
    mimo_layout *layouts[2]; /* shards in dst, and in src where its cp is larger than 1 */
    mimo_pairing pairing;    /* scale 0: a rule of collective is broken; `broken` says which */
    char broken[1024];
    int64_t row_bytes;
    int64_t *group;                  /* memory for the ranks of a gather group */
    int64_t first, ranks;            /* the ranks of both grids together */
    int64_t first_shown, shown;      /* the ranks to print */
    plan_flow (*flows)[PLAN_PASSES]; /* flows[ranks] */
    int64_t *traffic[PLAN_PASSES];   /* [sender * ranks + receiver]; NULL: not drawn */
    plan_links links[PLAN_PASSES];
    mimo_plan_load load[PLAN_PASSES]; /* the largest over all ranks */
} plan_bridge;

/* Check every rule, then make the grids and layouts (plan_bridge_layouts.c). Nothing is planned
 * yet. The caller sets bridge->request and zeroes the rest, and releases the bridge, also after an
 * error. */
mimo_status plan_bridge_make(plan_bridge *bridge);
void plan_bridge_release(plan_bridge *bridge);

/* Count the plans of all ranks (plan_bridge_bytes.c). */
mimo_status plan_bridge_count(plan_bridge *bridge);

/* The samples of a rank on a side; false where it holds no rows there. */
bool plan_bridge_samples(const plan_bridge *bridge, mimo_side side, int64_t rank, int64_t *first,
                         int64_t *count);

/* The estimated times. Call it only where the request has a link speed. */
mimo_cost plan_bridge_cost(const plan_bridge *bridge);

/* `most` over the mean of `bytes` over `parts` parts; 1 where nothing moves. */
double plan_imbalance(int64_t most, int64_t bytes, int64_t parts);

/* Print everything. Only the stream can still fail. Returns the exit status. */
int plan_bridge_print_json(const plan_bridge *bridge);
int plan_bridge_print_text(const plan_bridge *bridge);

/* Write the ranks of gather group `index` to ranks[pairing.group_size]. */
static inline mimo_status plan_bridge_group(const plan_bridge *bridge, int64_t index,
                                            int64_t *ranks)
{
    return mimo_pairing_group(ranks, bridge->grids[MIMO_SRC], bridge->grids[MIMO_DST], index);
}

#endif
