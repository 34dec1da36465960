/* Reads the descriptor of a balance. */
#include "balance/balance_types.h"

#include "core/checked.h"
#include "core/descriptor.h"

MIMO_DEFINE_INIT(mimo_balance_desc, MIMO_BALANCE_DESC_INIT)

static mimo_status check_numbers(const mimo_balance_desc *desc)
{
    MIMO_CHECK(desc->items >= 0 && desc->lanes >= 1, MIMO_ERR_ARGUMENT,
               "balance: %" PRId64 " items on %" PRId64 " lanes", desc->items, desc->lanes);
    MIMO_CHECK(desc->items == 0 || desc->cost, MIMO_ERR_ARGUMENT, "balance: cost is NULL");
    MIMO_CHECK(desc->max_rows >= 0, MIMO_ERR_ARGUMENT, "balance: max_rows is %" PRId64,
               desc->max_rows);
    MIMO_CHECK(desc->slack_permille >= 0 && desc->slack_permille <= 1000, MIMO_ERR_ARGUMENT,
               "balance: slack_permille is %" PRId64 ", and can be 0 to 1000",
               desc->slack_permille);
    return MIMO_OK;
}

static mimo_status check_item(const mimo_balance_desc *desc, int64_t item)
{
    int64_t home = desc->home ? desc->home[item] : -1;
    MIMO_CHECK(desc->cost[item] >= 0, MIMO_ERR_ARGUMENT, "balance: item %" PRId64 " costs %" PRId64,
               item, desc->cost[item]);
    MIMO_CHECK(desc->rows[item] >= 0, MIMO_ERR_ARGUMENT,
               "balance: item %" PRId64 " has %" PRId64 " rows", item, desc->rows[item]);
    MIMO_CHECK(home >= -1 && home < desc->lanes, MIMO_ERR_ARGUMENT,
               "balance: home %" PRId64 " of item %" PRId64 " on %" PRId64 " lanes", home, item,
               desc->lanes);
    MIMO_CHECK(desc->max_rows == 0 || desc->rows[item] <= desc->max_rows, MIMO_ERR_SHAPE,
               "balance: item %" PRId64 " of %" PRId64 " rows fits no lane of at most %" PRId64,
               item, desc->rows[item], desc->max_rows);
    return MIMO_OK;
}

static mimo_status add_item(mimo_balance_input *own, int64_t item)
{
    if (mimo_add(&own->cost, own->cost, own->desc.cost[item]) != MIMO_OK ||
        mimo_add(&own->rows, own->rows, own->desc.rows[item]) != MIMO_OK)
        return mimo_fail_prefix(MIMO_ERR_OVERFLOW, "balance: items 0 to %" PRId64 ": ", item);
    if (own->desc.cost[item] > own->largest)
        own->largest = own->desc.cost[item];
    return MIMO_OK;
}

/* Whether all rows fit all lanes: the product may need more than 63 bits. */
static mimo_status check_room(const mimo_balance_input *own)
{
    int64_t lanes = own->desc.lanes, most = own->desc.max_rows;
    MIMO_CHECK(most == 0 || own->rows / lanes + (own->rows % lanes > 0) <= most, MIMO_ERR_SHAPE,
               "balance: items of %" PRId64 " rows fit no %" PRId64 " lanes of at most %" PRId64,
               own->rows, lanes, most);
    return MIMO_OK;
}

mimo_status mimo_balance_read(mimo_balance_input *out, const mimo_balance_desc *desc)
{
    mimo_balance_input own = {.desc = MIMO_BALANCE_DESC_INIT};
    MIMO_CHECK(desc, MIMO_ERR_ARGUMENT, "balance: desc is NULL");
    MIMO_TRY(mimo_read_descriptor(&own.desc, sizeof own.desc, desc, "balance"));
    MIMO_TRY(check_numbers(&own.desc));
    if (!own.desc.rows)
        own.desc.rows = own.desc.cost;
    for (int64_t i = 0; i < own.desc.items; i++) {
        MIMO_TRY(check_item(&own.desc, i));
        MIMO_TRY(add_item(&own, i));
    }
    MIMO_TRY(check_room(&own));
    int64_t lanes = own.desc.lanes, mean = own.cost / lanes + (own.cost % lanes > 0);
    own.bound = mean > own.largest ? mean : own.largest;
    *out = own;
    return MIMO_OK;
}
