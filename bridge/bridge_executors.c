/* The executors of a bridge: which one moves which pass. */
#include "bridge/bridge_executors.h"

#include "bridge/batch/bridge_batch.h"
#include "bridge/batch/bridge_sides.h"
#include "bridge/collective/collective_types.h"
#include "bridge/routed/routed_types.h"
#include "core/check.h"
#include "core/memory.h"

#ifdef MIMO_TEST_HOOKS
extern const mimo_executor_table mimo_loopback_executor;
#endif

/* By mimo_algorithm. */
static const mimo_executor_table *const executors[MIMO_EXECUTORS] = {
    [MIMO_ALGORITHM_COLLECTIVE] = &mimo_collective_executor,
    [MIMO_ALGORITHM_ROUTED] = &mimo_routed_executor,
#ifdef MIMO_TEST_HOOKS
    [MIMO_EXECUTORS - 1] = &mimo_loopback_executor,
#endif
};

/* Those with stricter rules first: the first one that a bridge has decides which samples a rank
 * holds. */
static const int by_strictness[] = {MIMO_ALGORITHM_COLLECTIVE, MIMO_ALGORITHM_ROUTED,
                                    MIMO_EXECUTORS - 1};
_Static_assert(sizeof by_strictness / sizeof *by_strictness == MIMO_EXECUTORS - 1,
               "each executor has a place among the stricter ones");

const mimo_executor_table *mimo_bridge_next_executor(const mimo_bridge *bridge,
                                                     const mimo_executor_table *executor)
{
    bool behind = !executor;
    for (int i = 0; i < MIMO_EXECUTORS - 1; i++) {
        int algorithm = by_strictness[i];
        if (behind && bridge->state[algorithm])
            return executors[algorithm];
        behind = behind || executors[algorithm] == executor;
    }
    return NULL;
}

static bool is_used(const mimo_bridge *bridge, int algorithm)
{
    return (int)bridge->executor[0].algorithm == algorithm ||
           (int)bridge->executor[1].algorithm == algorithm;
}

/* Known, or AUTO. */
static bool is_algorithm(mimo_executor executor)
{
    unsigned algorithm = executor.algorithm;
    return algorithm < MIMO_EXECUTORS && (algorithm == MIMO_ALGORITHM_AUTO || executors[algorithm]);
}

const char *mimo_executor_name(mimo_executor executor)
{
    static const char *const transports[] = {[MIMO_TRANSPORT_P2P] = "p2p",
                                             [MIMO_TRANSPORT_ZERO_COPY] = "zero-copy",
                                             [MIMO_TRANSPORT_STAGED] = "staged"};
    const mimo_executor_table *table =
        is_algorithm(executor) ? executors[executor.algorithm] : NULL;
    if (executor.transport == MIMO_TRANSPORT_AUTO || (table && !table->transports))
        return table ? table->name : NULL;
    return (unsigned)executor.transport <= MIMO_TRANSPORT_STAGED ? transports[executor.transport]
                                                                 : NULL;
}

static mimo_status check(const mimo_executor *given)
{
    MIMO_CHECK(is_algorithm(*given), MIMO_ERR_ARGUMENT, "bridge: unknown algorithm %d",
               (int)given->algorithm);
    MIMO_CHECK((unsigned)given->transport <= MIMO_TRANSPORT_STAGED, MIMO_ERR_ARGUMENT,
               "bridge: unknown transport %d", (int)given->transport);
    const mimo_executor_table *executor = executors[given->algorithm];
    MIMO_CHECK(!executor || given->transport == MIMO_TRANSPORT_AUTO ||
                   mimo_executor_takes(executor, given->transport),
               MIMO_ERR_ARGUMENT,
               "bridge: transport %d is asked for with the %s algorithm, which takes "
               "MIMO_TRANSPORT_AUTO%s",
               (int)given->transport, executor->name,
               executor->transports ? ", and not this one" : " alone");
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

static mimo_status create_one(mimo_bridge *bridge, const mimo_executor_table *executor,
                              const mimo_bridge_desc *desc)
{
    if (executor->takes_batches)
        MIMO_TRY(mimo_bridge_sides_create(bridge, desc));
    return executor->create(bridge, desc);
}

/* What calls move by before an update. */
static mimo_status create_batch(mimo_bridge *bridge, int64_t batch)
{
    MIMO_TRY(mimo_bridge_batches_create(&bridge->batches, bridge, 1));
    bridge->first_batch = bridge->batches[0].batch = batch;
    return MIMO_OK;
}

mimo_status mimo_executors_create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    bridge->executors = executors;
    MIMO_TRY(read_passes(bridge, desc));
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (is_used(bridge, i))
            MIMO_TRY(create_one(bridge, executors[i], desc));
    return bridge->sides ? create_batch(bridge, desc->batch) : MIMO_OK;
}

mimo_status mimo_executors_connect(mimo_bridge *bridge)
{
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (is_used(bridge, i))
            MIMO_TRY(executors[i]->connect(bridge));
    return MIMO_OK;
}

void mimo_executors_disconnect_unused(mimo_bridge *bridge)
{
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (bridge->state[i] && !is_used(bridge, i) && executors[i]->disconnect)
            executors[i]->disconnect(bridge);
}

void mimo_executors_destroy(mimo_bridge *bridge)
{
    mimo_bridge_batches_destroy(bridge, bridge->batches, bridge->batch_count);
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (bridge->state[i])
            executors[i]->destroy(bridge);
    mimo_bridge_sides_destroy(bridge);
}

mimo_status mimo_executors_op_create(void *own[MIMO_EXECUTORS])
{
    for (int i = 0; i < MIMO_EXECUTORS; i++)
        if (executors[i] && executors[i]->op_bytes > 0)
            MIMO_TRY(mimo_reserve(&own[i], 1, executors[i]->op_bytes));
    return MIMO_OK;
}

void mimo_executors_op_destroy(void *own[MIMO_EXECUTORS])
{
    for (int i = 0; i < MIMO_EXECUTORS; i++) {
        if (own[i] && executors[i]->op_release)
            executors[i]->op_release(own[i]);
        mimo_release(own[i]);
    }
}
