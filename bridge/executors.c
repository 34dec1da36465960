/* The executors of a bridge: which one moves which pass. */
#include "bridge/bridge_types.h"
#include "core/check.h"

static const mimo_executor_table *const executors[] = {&mimo_collective_executor,
                                                       &mimo_routed_executor};
enum { EXECUTORS = sizeof executors / sizeof executors[0] };

const mimo_executor_table *mimo_bridge_executor_of(const mimo_bridge *bridge, bool backward)
{
    return executors[bridge->executor[backward].algorithm != MIMO_ALGORITHM_COLLECTIVE];
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

static mimo_status check(const mimo_executor *given)
{
    MIMO_CHECK((unsigned)given->algorithm <= MIMO_ALGORITHM_ROUTED, MIMO_ERR_ARGUMENT,
               "bridge: unknown algorithm %d", (int)given->algorithm);
    MIMO_CHECK((unsigned)given->transport <= MIMO_TRANSPORT_STAGED, MIMO_ERR_ARGUMENT,
               "bridge: unknown transport %d", (int)given->transport);
    MIMO_CHECK(given->algorithm != MIMO_ALGORITHM_COLLECTIVE ||
                   given->transport == MIMO_TRANSPORT_AUTO,
               MIMO_ERR_ARGUMENT,
               "bridge: transport %d is asked for with the collective algorithm, which takes "
               "MIMO_TRANSPORT_AUTO alone",
               (int)given->transport);
    return MIMO_OK;
}

/* Routed, unless the caller asks for another one. Routed takes any grids, and its links never carry
 * more than those of collective (tools/plan_cost.h). */
static mimo_status read_passes(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    const mimo_executor given[2] = {desc->executor, desc->backward_executor};
    for (int pass = 0; pass < 2; pass++) {
        MIMO_TRY(check(&given[pass]));
        bridge->executor[pass] = given[pass];
        if (mimo_executor_is_auto(given[pass]) && pass > 0)
            bridge->executor[pass] = bridge->executor[0];
        else if (given[pass].algorithm == MIMO_ALGORITHM_AUTO)
            bridge->executor[pass].algorithm = MIMO_ALGORITHM_ROUTED;
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
