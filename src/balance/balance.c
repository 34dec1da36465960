/* The search for an assignment: deals at several levels, of which the best one is kept. */
#include "balance/balance_types.h"

#include <string.h>

#include "core/memory.h"

/* Levels that are tried after the limit itself. */
enum { STEPS = 8 };

typedef struct balance_search {
    const mimo_balance_input *input;
    mimo_dealer dealer;
    mimo_assignment best, tried;
    int64_t goal;  /* the bound with its slack */
    int64_t limit; /* the longest lane that is allowed: longest-first's where that is above */
} balance_search;

static int64_t with_slack(const mimo_balance_input *input)
{
    int64_t bound = input->bound, permille = input->desc.slack_permille, out;
    int64_t slack = bound / 1000 * permille + bound % 1000 * permille / 1000;
    return __builtin_add_overflow(bound, slack, &out) ? INT64_MAX : out;
}

/* Memory first, then time up to the limit, then rows that move, then time. */
static bool is_better(const balance_search *own)
{
    const mimo_assignment *a = &own->tried, *b = &own->best;
    if (a->rows_over != b->rows_over)
        return a->rows_over < b->rows_over;
    if (a->longest > own->limit || b->longest > own->limit)
        return a->longest < b->longest;
    if (a->rows_moved != b->rows_moved)
        return a->rows_moved < b->rows_moved;
    return a->longest < b->longest;
}

static void keep_better(balance_search *own)
{
    mimo_assignment tried = own->tried;
    if (!is_better(own))
        return;
    own->tried = own->best;
    own->best = tried;
}

/* Returns whether the deal keeps to the limit. A few lanes above it are mended by swaps, which move
 * fewer rows than a lower level would. */
static bool try_deal(balance_search *own, mimo_deal_kind kind, int64_t level)
{
    mimo_deal(&own->tried, &own->dealer, kind, level);
    mimo_shorten_longest(&own->tried, &own->dealer, own->limit);
    mimo_bring_home(&own->tried, &own->dealer, own->limit);
    bool fits = own->tried.longest <= own->limit;
    keep_better(own);
    return fits;
}

static bool try_level(balance_search *own, int64_t level)
{
    bool keeps = try_deal(own, MIMO_DEAL_KEEP, level);
    return try_deal(own, MIMO_DEAL_LEAVE, level) || keeps;
}

/* The higher the level, the fewer rows move, and the longer the longest lane becomes, mostly. So
 * the highest level is looked for that keeps to the limit: the limit itself, or one found by
 * bisection, which begins with the bound. */
static void search_levels(balance_search *own)
{
    int64_t low = 0, high = own->limit, level = own->input->bound;
    if (try_level(own, own->limit))
        return;
    for (int step = 0; step < STEPS; step++) {
        if (try_level(own, level))
            low = level;
        else
            high = level;
        level = low + (high - low) / 2;
    }
}

/* The longest lane becomes shorter than it must be where no more rows move for it. */
static void shorten_best(balance_search *own)
{
    int64_t items = own->input->desc.items;
    if (items > 0)
        memcpy(own->tried.lane, own->best.lane, (size_t)items * sizeof *own->best.lane);
    mimo_assignment_measure(&own->tried, own->input);
    mimo_shorten_longest(&own->tried, &own->dealer, own->goal);
    keep_better(own);
}

/* Memory is short: items are dealt by their rows. */
static mimo_status deal_by_rows(balance_search *own)
{
    mimo_dealer dealer;
    MIMO_TRY(mimo_dealer_open(&dealer, own->input, own->input->desc.rows));
    mimo_deal(&own->tried, &dealer, MIMO_DEAL_KEEP, -1);
    keep_better(own);
    mimo_dealer_close(&dealer);
    return MIMO_OK;
}

static mimo_status search(balance_search *own)
{
    mimo_deal(&own->best, &own->dealer, MIMO_DEAL_KEEP, -1);
    own->goal = with_slack(own->input);
    own->limit = own->best.longest > own->goal ? own->best.longest : own->goal;
    if (own->input->desc.home)
        search_levels(own);
    if (own->best.rows_over > 0)
        MIMO_TRY(deal_by_rows(own));
    shorten_best(own);
    return MIMO_OK;
}

/* The best assignment, into own->best. */
static mimo_status assign(balance_search *own)
{
    if (own->input->desc.in_order)
        return mimo_balance_cut(&own->best, own->input);
    MIMO_TRY(mimo_dealer_open(&own->dealer, own->input, own->input->desc.cost));
    mimo_status status = search(own);
    mimo_dealer_close(&own->dealer);
    return status;
}

mimo_status mimo_balance(int64_t *lane, const mimo_balance_desc *desc)
{
    mimo_balance_input input;
    MIMO_TRY(mimo_balance_read(&input, desc));
    MIMO_CHECK(lane || input.desc.items == 0, MIMO_ERR_ARGUMENT, "mimo_balance: lane is NULL");
    balance_search own = {.input = &input};
    mimo_status status = mimo_assignment_open(&own.best, &input);
    if (status == MIMO_OK)
        status = mimo_assignment_open(&own.tried, &input);
    if (status == MIMO_OK)
        status = assign(&own);
    if (status == MIMO_OK && input.desc.items > 0)
        memcpy(lane, own.best.lane, (size_t)input.desc.items * sizeof *lane);
    mimo_assignment_close(&own.tried);
    mimo_assignment_close(&own.best);
    return status;
}
