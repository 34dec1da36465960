#include "schedule/node_types.h"

#include "core/memory.h"

mimo_status mimo_nodes_append(mimo_stage_nodes *list, mimo_node node)
{
    if (list->count == list->capacity) {
        int64_t grown = list->capacity > 0 ? 2 * list->capacity : 32;
        MIMO_TRY(mimo_regrow(&list->nodes, list->count, grown, sizeof *list->nodes));
        list->capacity = grown;
    }
    list->nodes[list->count++] = node;
    return MIMO_OK;
}
