/* What mimo-plan schedule --nodes reads by itself: budgets of exchanges. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "plan_nodes.h"

enum { ITEM = 80 };

/* Cut the next item of a list with commas off. False: there is none. */
static bool next_item(char item[ITEM], const char **at)
{
    if (!*at)
        return false;
    size_t length = strcspn(*at, ",");
    snprintf(item, ITEM, "%.*s", (int)(length < ITEM ? length : ITEM - 1), *at);
    *at = (*at)[length] ? *at + length + 1 : NULL;
    return true;
}

static bool read_number(int64_t *out, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return *text && !*end && errno == 0 && value >= 0;
}

/* ------------------------------------------ budgets ------------------------------------------ */

static mimo_status read_budget(plan_exchanges *out, char *item)
{
    char *cost = strchr(item, '=');
    plan_exchanges own = {0, -1};
    bool read = true;
    if (cost) {
        *cost = '\0';
        read = read_number(&own.cost, cost + 1);
    }
    read = read_number(&own.blocks, item) && own.blocks > 0 && read;
    MIMO_CHECK(read, MIMO_ERR_ARGUMENT,
               "--exchanges has '%s%s%s', and takes blocks and the cost of an exchange with them, "
               "as 16=5,32=3",
               item, cost ? "=" : "", cost ? cost + 1 : "");
    *out = own;
    return MIMO_OK;
}

mimo_status plan_read_exchanges(plan_nodes_request *request, const char *text)
{
    char item[ITEM];
    request->count = 0;
    while (next_item(item, &text)) {
        MIMO_CHECK(request->count < PLAN_BUDGETS, MIMO_ERR_ARGUMENT,
                   "--exchanges has more than %d budgets", PLAN_BUDGETS);
        MIMO_TRY(read_budget(&request->budgets[request->count], item));
        request->count++;
    }
    return MIMO_OK;
}
