/* Checks of a bridge at run time, and what each asks of an operation. */
#ifndef MIMO_BRIDGE_VERIFY_H
#define MIMO_BRIDGE_VERIFY_H

#include "bridge/bridge_types.h"

/* MIMO_CHECK=samples (row_origins.c): move tags along with the rows, and, once they have moved,
 * compare where they came from with the layouts. Prepare is local, before the agreement. */
mimo_status mimo_origins_prepare(mimo_op *op);
mimo_status mimo_origins_outcome(const mimo_op *op);

/* MIMO_CHECK=replicas (replicas.c). Prepare sets bridge->replicated; local, once the executors are
 * created. Then, of an operation: begin to compare the sources of copies (op->progress.request),
 * and the outcome. */
mimo_status mimo_replicas_prepare(mimo_bridge *bridge);
mimo_status mimo_replicas_start(mimo_op *op);
mimo_status mimo_replicas_outcome(const mimo_op *op);

#endif
