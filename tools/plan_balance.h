/* What mimo-plan balance has read and worked out before it prints. */
#ifndef MIMO_TOOLS_PLAN_BALANCE_H
#define MIMO_TOOLS_PLAN_BALANCE_H

#include "plan_commands.h"

typedef struct plan_balance_request {
    mimo_balance_desc desc; /* lanes, max_rows, slack_permille, in_order */
    int64_t hidden;         /* 0: an item without a cost costs its rows */
    const char *file;       /* "-": stdin */
    const char *output;     /* the option that chooses what is printed; NULL: the text */
} plan_balance_request;

typedef struct plan_balance {
    const plan_balance_request *request;
    mimo_balance_desc desc;
    int64_t *rows, *home, *cost, *lane; /* of each item; cost -1 while it is read: none was given */
    int64_t capacity;
    bool homes; /* an item has a home */
    mimo_balance_report report;
    int64_t *before, *after; /* cost of each lane */
} plan_balance;

/* Read the items, and balance them. Returns the exit status, after a sentence. */
int plan_balance_make(plan_balance *out, const plan_balance_request *request);

void plan_balance_release(plan_balance *plan);

int plan_balance_print_text(const plan_balance *plan);
int plan_balance_print_json(const plan_balance *plan);
int plan_balance_print_svg(const plan_balance *plan);

#endif
