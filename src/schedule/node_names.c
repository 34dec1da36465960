#include "schedule/node_types.h"

#include <inttypes.h>

static const struct {
    const char *word;
    mimo_node_lane lane;
} parts[MIMO_NODE_PARTS] = {
#define ROW(name, word, lane, what) {(word), MIMO_NODE_LANE_##lane},
    MIMO_NODE_PART_LIST(ROW)
#undef ROW
};

mimo_node_lane mimo_node_lane_of(mimo_node_part part)
{
    return parts[part].lane;
}

const char *mimo_node_lane_name(mimo_node_lane lane)
{
    static const char *const names[MIMO_NODE_LANES] = {
#define ROW(name, word, what) (word),
        MIMO_NODE_LANE_LIST(ROW)
#undef ROW
    };
    return names[lane];
}

/* A move has one backward; what computes has two halves. */
static const char *ending_of(const mimo_node *node)
{
    bool computes = parts[node->part].lane == MIMO_NODE_LANE_COMPUTE;
    if (node->pass == MIMO_NODE_REPLAY)
        return ".replay";
    if (node->pass == MIMO_NODE_FORWARD || !computes)
        return "";
    return node->pass == MIMO_NODE_INPUTS ? ".bwd" : ".dw";
}

mimo_node_name mimo_node_name_of(const mimo_node *node)
{
    mimo_node_name name;
    char layer[24] = "";
    if (mimo_node_of_layer(node->part) || node->layer > 0)
        snprintf(layer, sizeof layer, "%" PRId64, node->layer);
    snprintf(name.text, sizeof name.text, "%s.%s%s%s", node->pass == MIMO_NODE_FORWARD ? "f" : "b",
             parts[node->part].word, layer, ending_of(node));
    return name;
}

mimo_node_where mimo_node_where_of(const mimo_nodes *nodes, int64_t stage, int64_t i)
{
    mimo_node_where where;
    const mimo_node *node = &nodes->stages[stage].nodes[i];
    const mimo_stage_list *list = &nodes->schedule->lists[stage];
    bool known = node->step >= 0 && node->step < list->count;
    if (nodes->alone)
        snprintf(where.text, sizeof where.text, "(node %" PRId64 ")", i);
    else
        snprintf(where.text, sizeof where.text, "(stage %" PRId64 ", %s, node %" PRId64 ")", stage,
                 known ? mimo_step_name_of(nodes->schedule, &list->steps[node->step]).text
                       : "no step",
                 i);
    return where;
}
