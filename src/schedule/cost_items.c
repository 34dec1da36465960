#include "schedule/cost_items.h"

#include <stdio.h>
#include <string.h>

enum { ITEM = 80 };

mimo_status mimo_read_cost_items(void *costs, const char *what, const char *text,
                                 mimo_cost_item_reader read)
{
    char item[ITEM];
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        MIMO_CHECK(length < sizeof item, MIMO_ERR_ARGUMENT, "%s has '%s...', which is too long",
                   what, item);
        MIMO_TRY(read(costs, item));
        at += length;
        if (!*at)
            return MIMO_OK;
    }
}
