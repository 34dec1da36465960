/* The executors of a bridge: which one moves which pass. */
#include "bridge/bridge_types.h"
#include "core/check.h"

static const mimo_executor_table *const executors[] = {&mimo_collective_executor,
                                                       &mimo_routed_executor};
enum { EXECUTORS = sizeof executors / sizeof executors[0] };

const mimo_executor_table *mimo_bridge_executor_of(const mimo_bridge *bridge, bool backward)
{
    return executors[bridge->executor[backward] != MIMO_EXECUTOR_COLLECTIVE];
}

const mimo_executor_table *mimo_bridge_stricter_executor(const mimo_bridge *bridge)
{
    return executors[!bridge->collective];
}

static bool is_used(const mimo_bridge *bridge, const mimo_executor_table *executor)
{
    return mimo_bridge_executor_of(bridge, false) == executor ||
           mimo_bridge_executor_of(bridge, true) == executor;
}

/* Routed, unless the caller asks for another one. Routed takes any grids, and its links never carry
 * more than those of collective (tools/plan_cost.h). */
static mimo_status read_passes(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    const mimo_executor given[2] = {desc->executor, desc->backward_executor};
    for (int pass = 0; pass < 2; pass++) {
        MIMO_CHECK((unsigned)given[pass] <= MIMO_EXECUTOR_ZERO_COPY, MIMO_ERR_ARGUMENT,
                   "bridge: unknown executor %d", (int)given[pass]);
        bridge->executor[pass] = given[pass] != MIMO_EXECUTOR_AUTO ? given[pass]
                                 : pass > 0                        ? bridge->executor[0]
                                                                   : MIMO_EXECUTOR_ROUTED;
    }
    return MIMO_OK;
}

mimo_status mimo_executors_create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    MIMO_TRY(read_passes(bridge, desc));
    for (int i = 0; i < EXECUTORS; i++)
        if (is_used(bridge, executors[i]))
            MIMO_TRY(executors[i]->create(bridge, desc));
    return MIMO_OK;
}

mimo_status mimo_executors_connect(mimo_bridge *bridge)
{
    for (int i = 0; i < EXECUTORS; i++)
        if (is_used(bridge, executors[i]))
            MIMO_TRY(executors[i]->connect(bridge));
    return MIMO_OK;
}

void mimo_executors_destroy(mimo_bridge *bridge)
{
    for (int i = 0; i < EXECUTORS; i++)
        executors[i]->destroy(bridge);
}

const mimo_executor_table *mimo_executor_other(const mimo_executor_table *executor)
{
    return executors[executor == executors[0]];
}
