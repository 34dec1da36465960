/* Where the rows of a prepared call lie. */
#ifndef MIMO_BRIDGE_CALL_PLACES_H
#define MIMO_BRIDGE_CALL_PLACES_H

#include "bridge/routed/call_types.h"

/* Place both ends of each transfer behind the call's bases, and take the staging that it needs. */
mimo_status mimo_call_place(const mimo_call_maker *maker);

#endif
