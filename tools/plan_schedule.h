/* What mimo-plan schedule has worked out before it prints. */
#ifndef MIMO_TOOLS_PLAN_SCHEDULE_H
#define MIMO_TOOLS_PLAN_SCHEDULE_H

#include "plan_nodes.h"

/* The least limit, and this number of limits in all, with their times. */
enum { PLAN_LIMITS = 4 };

typedef struct plan_schedule_request {
    mimo_schedule_desc desc; /* costs: those below */
    mimo_step_costs costs;
    int64_t alive;      /* -1: not given */
    const char *file;   /* a table of torch; NULL: an order that is known by name */
    const char *output; /* the option that chooses what is printed; NULL: the text */
    plan_nodes_request nodes;
} plan_schedule_request;

typedef struct plan_schedule {
    const plan_schedule_request *request;
    char *table; /* what the file holds */
    mimo_schedule *schedule;
    mimo_schedule_report report, three_phases, llm_alone; /* each alone */
    int64_t limits[PLAN_LIMITS], times[PLAN_LIMITS]; /* of the least limits; 0: there is none */
} plan_schedule;

/* Make the schedule and what it is compared with. Returns the exit status, after a sentence. */
int plan_schedule_make(plan_schedule *out, const plan_schedule_request *request);

void plan_schedule_release(plan_schedule *plan);

int plan_schedule_print_text(const plan_schedule *plan);
int plan_schedule_print_json(const plan_schedule *plan);

#endif
