/* What mimo-plan experts has worked out before it prints. */
#ifndef MIMO_TOOLS_PLAN_EXPERTS_H
#define MIMO_TOOLS_PLAN_EXPERTS_H

#include "dispatch/route/virtual_ranks.h"
#include "plan_commands.h"
#include "tools/plan_cost.h"

/* Sets of dimensions whose groups are printed: "etp,ep" first. */
enum { PLAN_EXPERT_SETS = 4 };
extern const char *const plan_expert_sets[PLAN_EXPERT_SETS];

typedef struct plan_experts_request {
    const char *llm, *grid, *dtype;         /* as written on the command line; NULL: missing */
    int64_t experts, top_k, tokens, hidden; /* 0: missing */
    int64_t alignment, capacity;            /* capacity -1: not given */
    double zipf;                            /* 0: all experts are equally likely */
    int64_t seed;
    bool shuffled; /* likely experts lie anywhere, otherwise they come first */
    bool narrow;   /* partial sums travel in the dtype of the rows */
    bool json;
    mimo_link_speed speed; /* gbps 0: print no times; no latency is used */
} plan_experts_request;

/* Rows of one rank. */
typedef struct plan_experts_load {
    int64_t rows;              /* that its tile needs */
    int64_t in, out;           /* over its link, a row of a token once */
    int64_t pair_in, pair_out; /* the same, a row for each pair */
    int64_t copied;            /* to further experts of a token in the tile */
    int64_t read;              /* rows that these copies come from */
    int64_t lost;              /* rows of pairs behind the capacity */
} plan_experts_load;

/* The busiest link's bytes, in or out. */
typedef struct plan_experts_bytes {
    int64_t rows, combine; /* a row of a token once, a partial sum once */
    int64_t per_pair;      /* in place of `rows`: a row for each pair */
    int64_t all_gather;    /* in place of `rows`: all rows to all ranks */
    int64_t copied;        /* in the tile: read and written */
} plan_experts_bytes;

typedef struct plan_experts {
    const plan_experts_request *request;
    mimo_grid *llm, *view; /* the view is the LLM grid's */
    int64_t etp, ep, edp;
    int64_t row_bytes, sum_bytes; /* of a row, and of a partial sum */
    int32_t *ids;                 /* [ranks of a group, tokens, top_k] */
    mimo_route_desc *descs;
    mimo_virtual_ranks ranks; /* a group */
    plan_experts_load *loads; /* [ranks of a group] */
    plan_experts_bytes busiest;
    int64_t most_rows, all_rows, overflows, lost;
    int64_t *group; /* memory for the ranks of a group */
} plan_experts;

/* Check every rule, draw ids, and count the routes of a group. The caller sets plan->request and
 * zeroes the rest, and releases the plan, also after an error (plan_experts_make.c). */
mimo_status plan_experts_make(plan_experts *plan);
void plan_experts_release(plan_experts *plan);

/* Draw the experts of all tokens of a group: each token's are different, and expert r is chosen
 * first with a probability that is proportional to (r + 1)^-zipf (plan_experts_draw.c). */
mimo_status plan_experts_draw(plan_experts *plan);

/* Print everything. Returns the exit status. */
int plan_experts_print_json(const plan_experts *plan);
int plan_experts_print_text(const plan_experts *plan);

/* The name of the grid of experts in full: "etp=2,ep=4,edp=1". Returns `text`. */
enum { PLAN_EXPERTS_NAME = 96 };
const char *plan_experts_name(char text[PLAN_EXPERTS_NAME], const plan_experts *plan);

/* Microseconds of bytes at a rate in 10^9 bytes a second. */
static inline double plan_experts_us(int64_t bytes, double gbps)
{
    return (double)bytes / gbps / 1e3;
}

static inline double plan_experts_copy_gbps(const mimo_link_speed *speed)
{
    return speed->copy_gbps > 0 ? speed->copy_gbps : MIMO_COPY_RATIO * speed->gbps;
}

#endif
