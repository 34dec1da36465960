/* The bridge's part of an operation. */
#ifndef MIMO_BRIDGE_BRIDGE_OP_H
#define MIMO_BRIDGE_BRIDGE_OP_H

#include "move/mover.h"

/* What a bridge's mover asks of it. */
extern const mimo_mover_hooks mimo_bridge_hooks;

#endif
