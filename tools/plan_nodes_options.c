/* What mimo-plan schedule --nodes reads by itself: costs of nodes, budgets of exchanges. */
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

/* ------------------------------------------- costs ------------------------------------------- */

static bool find_part(mimo_node_part *out, const char *name, size_t length)
{
    static const char *const words[MIMO_NODE_PARTS] = {
#define ROW(name, word, lane, what) (word),
        MIMO_NODE_PART_LIST(ROW)
#undef ROW
    };
    for (int part = 0; part < MIMO_NODE_PARTS; part++)
        if (strlen(words[part]) == length && strncmp(words[part], name, length) == 0) {
            *out = (mimo_node_part)part;
            return true;
        }
    return false;
}

/* A bit for each pass that ".bwd" means; without such an ending all of them; 0: it is none. */
static unsigned find_passes(const char *ending, size_t length)
{
    static const char *const words[MIMO_NODE_PASSES] = {".fwd", ".replay", ".bwd", ".dw"};
    for (unsigned pass = 0; pass < MIMO_NODE_PASSES; pass++)
        if (strlen(words[pass]) == length && strncmp(words[pass], ending, length) == 0)
            return 1u << pass;
    return length == 0 ? (1u << MIMO_NODE_PASSES) - 1 : 0;
}

static mimo_status read_cost(mimo_node_costs *costs, const char *item)
{
    size_t name = strcspn(item, ".="), whole = strcspn(item, "=");
    unsigned passes = find_passes(item + name, whole - name);
    mimo_node_part part;
    int64_t cost;
    MIMO_CHECK(item[whole] == '=' && find_part(&part, item, name) && passes != 0, MIMO_ERR_ARGUMENT,
               "--node-cost has '%s', and takes the parts of nodes as mlp=4 or mlp.dw=4 (.fwd, "
               ".replay, .bwd, .dw)",
               item);
    MIMO_CHECK(read_number(&cost, item + whole + 1), MIMO_ERR_ARGUMENT,
               "--node-cost %.*s '%s' is not a whole number of at least 0", (int)whole, item,
               item + whole + 1);
    for (unsigned pass = 0; pass < MIMO_NODE_PASSES; pass++)
        if (passes & 1u << pass)
            costs->of[part][pass] = cost;
    return MIMO_OK;
}

mimo_status plan_read_node_costs(mimo_node_costs *costs, const char *text)
{
    char item[ITEM];
    while (next_item(item, &text))
        MIMO_TRY(read_cost(costs, item));
    return MIMO_OK;
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
