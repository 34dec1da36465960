/* The executors of a bridge: which one moves which pass. */
#include "bridge/bridge_types.h"
#include "core/check.h"

/* By mimo_algorithm, those with stricter rules first. */
static const mimo_executor_table *const executors[MIMO_EXECUTORS] = {
    [MIMO_ALGORITHM_COLLECTIVE] = &mimo_collective_executor,
    [MIMO_ALGORITHM_ROUTED] = &mimo_routed_executor,
#ifdef MIMO_TEST_HOOKS
    [MIMO_EXECUTORS - 1] = &mimo_loopback_executor,
#endif
};

const mimo_executor_table *mimo_bridge_executor_of(const mimo_bridge *bridge, bool backward)
{
    return executors[bridge->executor[backward].algorithm];
}

const mimo_executor_table *mimo_bridge_next_executor(const mimo_bridge *bridge,
                                                     const mimo_executor_table *executor)
{
    bool behind = !executor;
    for (int i = 0; i < MIMO_EXECUTORS; i++) {
        if (behind && bridge->state[i])
            return executors[i];
        behind = behind || executors[i] == executor;
    }
    return NULL;
}

static bool is_used(const mimo_bridge *bridge, int algorithm)
{
    return (int)bridge->executor[0].algorithm == algorithm ||
           (int)bridge->executor[1].algorithm == algorithm;
}

static mimo_status check(const mimo_executor *given)
{
    unsigned algorithm = given->algorithm;
    bool known =
        algorithm < MIMO_EXECUTORS && (algorithm == MIMO_ALGORITHM_AUTO || executors[algorithm]);
    MIMO_CHECK(known, MIMO_ERR_ARGUMENT, "bridge: unknown algorithm %d", (int)given->algorithm);
    MIMO_CHECK((unsigned)given->transport <= MIMO_TRANSPORT_STAGED, MIMO_ERR_ARGUMENT,
               "bridge: unknown transport %d", (int)given->transport);
    const mimo_executor_table *executor = executors[algorithm];
    MIMO_CHECK(!executor || executor->has_transports || given->transport == MIMO_TRANSPORT_AUTO,
               MIMO_ERR_ARGUMENT,
               "bridge: transport %d is asked for with the %s algorithm, which takes "
               "MIMO_TRANSPORT_AUTO alone",
               (int)given->transport, executor->name);
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
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (is_used(bridge, i))
            MIMO_TRY(executors[i]->create(bridge, desc));
    return MIMO_OK;
}

mimo_status mimo_executors_connect(mimo_bridge *bridge)
{
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (is_used(bridge, i))
            MIMO_TRY(executors[i]->connect(bridge));
    return MIMO_OK;
}

void mimo_executors_destroy(mimo_bridge *bridge)
{
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (bridge->state[i])
            executors[i]->destroy(bridge);
}
