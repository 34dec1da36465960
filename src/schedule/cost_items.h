/* Texts of costs, "f=4,b=8": their items one after the other. */
#ifndef MIMO_COST_ITEMS_H
#define MIMO_COST_ITEMS_H

#include "core/check.h"

/* Read one item into *costs. MIMO_ERR_ARGUMENT: it is no cost. */
typedef mimo_status (*mimo_cost_item_reader)(void *costs, const char *item);

/* Give each item of `text` to `read`, up to the first that fails. MIMO_ERR_ARGUMENT: one is too
 * long; the sentence begins with `what`. */
mimo_status mimo_read_cost_items(void *costs, const char *what, const char *text,
                                 mimo_cost_item_reader read);

#endif
