/* The end of a dispatch. */
#ifndef MIMO_DISPATCH_DISPATCH_END_H
#define MIMO_DISPATCH_DISPATCH_END_H

#include "dispatch/dispatch_types.h"

/* Release a dispatch; and one that the caller has destroyed, where neither a route nor an operation
 * needs it any more. */
void mimo_dispatch_release(mimo_dispatch *dispatch);
void mimo_dispatch_release_unused(void *dispatch);

#endif
