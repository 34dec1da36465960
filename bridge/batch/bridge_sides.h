/* The two sides of a bridge whose calls move by batches: how their tiles lie on the ranks. */
#ifndef MIMO_BRIDGE_BRIDGE_SIDES_H
#define MIMO_BRIDGE_BRIDGE_SIDES_H

#include "bridge/bridge_types.h"
#include "layout/layout_types.h"

/* All by mimo_side. */
typedef struct mimo_bridge_sides {
    mimo_partition_rule rules[2];
    mimo_layout_desc layouts[2]; /* without order, batch and seq */
    int32_t *packed[2];          /* the lengths that a thd rule points to */
    int64_t sequence_ranks[2];   /* ranks that share one sequence */
    mimo_layout *roles[2];       /* layouts with batch 0: they only say which ranks hold rows */
} mimo_bridge_sides;

/* Read the sides from the description, unless bridge->sides are there. Local. What was made after
 * an error is to be destroyed as well. MIMO_ERR_MEMORY, MIMO_ERR_GRID, errors of the rules. */
mimo_status mimo_bridge_sides_create(mimo_bridge *bridge, const mimo_bridge_desc *desc);
void mimo_bridge_sides_destroy(mimo_bridge *bridge);

#endif
