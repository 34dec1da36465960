#include "schedule/step_costs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/cost_items.h"

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

static bool read_number(int64_t *out, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return *text && !*end && errno == 0 && value >= 0;
}

static mimo_status parse_item(void *into, const char *item)
{
    mimo_node_costs *costs = into;
    size_t name = strcspn(item, ".="), whole = strcspn(item, "=");
    unsigned passes = find_passes(item + name, whole - name);
    mimo_node_part part;
    int64_t cost;
    MIMO_CHECK(item[whole] == '=' && find_part(&part, item, name) && passes != 0, MIMO_ERR_ARGUMENT,
               "node-cost has '%s', and takes the parts of nodes as mlp=4 or mlp.dw=4 (.fwd, "
               ".replay, .bwd, .dw)",
               item);
    MIMO_CHECK(read_number(&cost, item + whole + 1), MIMO_ERR_ARGUMENT,
               "node-cost %.*s '%s' is not a whole number of at least 0", (int)whole, item,
               item + whole + 1);
    for (unsigned pass = 0; pass < MIMO_NODE_PASSES; pass++)
        if (passes & 1u << pass)
            costs->of[part][pass] = cost;
    return MIMO_OK;
}

mimo_status mimo_node_costs_parse(mimo_node_costs *out, const char *text)
{
    mimo_node_costs costs = *out;
    MIMO_TRY(mimo_read_cost_items(&costs, "node-cost", text, parse_item));
    *out = costs;
    return MIMO_OK;
}
