/* The phases of a prepared call. */
#ifndef MIMO_BRIDGE_CALL_PHASES_H
#define MIMO_BRIDGE_CALL_PHASES_H

#include "bridge/routed/call_types.h"

/* Find the phases and plan their transfers. */
mimo_status mimo_call_plan(mimo_call_maker *maker);

/* Whether a backward over sequences of this length takes two phases in this batch. */
bool mimo_routed_two_phases(const mimo_bridge *bridge, const mimo_bridge_batch *batch, int64_t seq);

#endif
