/* The executors that there are, and those that a bridge has. */
#ifndef MIMO_BRIDGE_BRIDGE_EXECUTORS_H
#define MIMO_BRIDGE_BRIDGE_EXECUTORS_H

#include "bridge/bridge_types.h"

/* The executors that a bridge has, those with stricter rules first: the first one (NULL), or the
 * one behind `executor`. NULL: there is none. */
const mimo_executor_table *mimo_bridge_next_executor(const mimo_bridge *bridge,
                                                     const mimo_executor_table *executor);

/* What decides which samples a rank holds, for both passes: the first one. */
static inline const mimo_executor_table *mimo_bridge_stricter_executor(const mimo_bridge *bridge)
{
    return mimo_bridge_next_executor(bridge, NULL);
}

/* Its name, or the one of the transport that is asked for ("p2p"). NULL: there is no such one. */
const char *mimo_executor_name(mimo_executor executor);

/* Read the passes' executors from the description, then create, connect and destroy those that are
 * used. */
mimo_status mimo_executors_create(mimo_bridge *bridge, const mimo_bridge_desc *desc);
mimo_status mimo_executors_connect(mimo_bridge *bridge);
void mimo_executors_destroy(mimo_bridge *bridge);

/* Whether a bridge has an executor, for a pass or because it was measured. */
static inline bool mimo_bridge_has(const mimo_bridge *bridge, mimo_algorithm algorithm)
{
    return bridge->state[algorithm] != NULL;
}

/* Disconnect those that move no pass. Collective. */
void mimo_executors_disconnect_unused(mimo_bridge *bridge);

/* What all executors keep of an operation. After an error some of it is to be destroyed. */
mimo_status mimo_executors_op_create(void *own[MIMO_EXECUTORS]);
void mimo_executors_op_destroy(void *own[MIMO_EXECUTORS]);

#endif
