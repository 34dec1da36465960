#include "schedule/node_types.h"

#include "core/memory.h"

mimo_status mimo_nodes_append(mimo_stage_nodes *list, mimo_node node)
{
    MIMO_TRY(mimo_make_room(&list->nodes, &list->capacity, list->count, 32, sizeof *list->nodes));
    list->nodes[list->count++] = node;
    return MIMO_OK;
}
