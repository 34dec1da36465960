/* Checks of a bridge at run time, and what each asks of an operation. */
#ifndef MIMO_BRIDGE_VERIFY_H
#define MIMO_BRIDGE_VERIFY_H

#include "bridge/bridge_op_types.h"

/* Each is prepared before the agreement, which is local, and takes steps. Where the check is off,
 * these do nothing. */

/* MIMO_CHECK=samples (row_origins.c): tags move along with the rows. Behind them, one step compares
 * where they came from with the layouts. */
mimo_status mimo_origins_prepare(mimo_op *op);
mimo_status mimo_origins_compare(mimo_op *op, const mimo_tile_pair *tiles);

/* MIMO_CHECK=replicas (replicas.c): before the rows, two steps compare the sources of copies. Find
 * sets bridge->replicated; local, once the executors are created. */
mimo_status mimo_replicas_find(mimo_bridge *bridge);
mimo_status mimo_replicas_prepare(mimo_op *op);
mimo_status mimo_replicas_start(mimo_op *op, const mimo_tile_pair *tiles);
mimo_status mimo_replicas_compare(mimo_op *op, const mimo_tile_pair *tiles);

#endif
