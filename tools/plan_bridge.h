/* What mimo-plan bridge has worked out before it prints. */
#ifndef MIMO_TOOLS_PLAN_BRIDGE_H
#define MIMO_TOOLS_PLAN_BRIDGE_H

#include "plan_commands.h"

/* The most ranks that get a drawing of who sends to whom. */
enum { PLAN_DRAWN_RANKS = 16 };

enum { PLAN_FORWARD = 0, PLAN_BACKWARD = 1, PLAN_DIRECTIONS = 2 };

typedef struct plan_bridge_request {
    const char *src, *dst, *dtype; /* as given; NULL: missing */
    int64_t batch, seq, hidden;    /* 0: missing */
    int64_t offset;
    int64_t rank; /* -1: all ranks */
    mimo_row_order order;
    bool sp, json;
} plan_bridge_request;

/* Bytes of one rank in one direction. */
typedef struct plan_flow {
    int64_t recv, send, local;
} plan_flow;

typedef struct plan_bridge {
    const plan_bridge_request *request;
    mimo_grid *grids[2];     /* by mimo_side */
    mimo_layout *layouts[2]; /* whole sequences in src, shards in dst */
    mimo_pairing pairing;
    int64_t row_bytes;
    int64_t *group;                      /* room for the ranks of a gather group */
    int64_t first, ranks;                /* the ranks to print */
    plan_flow (*flows)[PLAN_DIRECTIONS]; /* flows[ranks] */
    int64_t *traffic[PLAN_DIRECTIONS];   /* [sender * ranks + receiver]; NULL: not drawn */
} plan_bridge;

/* Print everything; nothing can fail any more but the stream. Returns the exit status. */
int plan_bridge_print_json(const plan_bridge *bridge);
int plan_bridge_print_text(const plan_bridge *bridge);

/* The ranks of gather group `index`, into room for the pairing's group_size. */
static inline mimo_status plan_bridge_group(const plan_bridge *bridge, int64_t index,
                                            int64_t *ranks)
{
    return mimo_pairing_group(bridge->grids[MIMO_SRC], bridge->grids[MIMO_DST], index, ranks);
}

#endif
