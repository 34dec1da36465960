/* The dispatch's part of an operation. */
#ifndef MIMO_DISPATCH_DISPATCH_OP_H
#define MIMO_DISPATCH_DISPATCH_OP_H

#include "move/mover.h"

/* What its mover asks of a dispatch. */
extern const mimo_mover_hooks mimo_dispatch_hooks;

#endif
