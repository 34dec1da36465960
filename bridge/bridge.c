/* Creation and release of the bridge. */
#include <mimo/env.h>

#include "bridge/bridge_desc.h"
#include "bridge/bridge_op.h"
#include "bridge/bridge_executors.h"
#include "bridge/verify/verify.h"
#include "comm/buffer_state.h"
#include "comm/calls.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/profile.h"
#include "grid/grid_types.h"

/* ------------------------------------ creation ------------------------------------ */

/* What this rank can know by itself. */
static mimo_status fill_local(mimo_bridge *bridge, const mimo_comm *comm,
                              const mimo_bridge_request *own)
{
    const mimo_bridge_desc *desc = &own->desc;
    MIMO_CHECK(desc->src && desc->dst, MIMO_ERR_ARGUMENT, "bridge: the %s grid is NULL",
               desc->src ? "dst" : "src");
    MIMO_TRY(mimo_grid_check_meaning(desc->src, "bridge: the src"));
    MIMO_TRY(mimo_grid_check_meaning(desc->dst, "bridge: the dst"));
    mimo_grids_retain(desc->src, desc->dst, MIMO_GRID_BRIDGE);
    bridge->src = desc->src;
    bridge->dst = desc->dst;
    bridge->rank = comm->rank;
    bridge->size = comm->size;
    bridge->memory = comm->memory;
    bridge->pairing = (mimo_pairing)MIMO_PAIRING_INIT;
    bridge->batch = desc->batch;
    bridge->batch_count = 1;
    bridge->may_stage = own->stages;
    return mimo_executors_create(bridge, desc);
}

/* A limit of the bridge's own says that its calls run beside others. With a limit of 1 a call has
 * two thread blocks: one that writes, and one that copies. */
static mimo_status reserve_blocks(mimo_bridge *bridge, mimo_comm *comm,
                                  const mimo_bridge_request *own)
{
    const int least = 2, ctas = own->desc.ctas;
    bool waits = false;
    for (int back = 0; back <= 1; back++)
        waits = waits || mimo_bridge_pushes(bridge, back) || mimo_bridge_stages(bridge, back);
    if (!waits || !own->reserves)
        return MIMO_OK;
    mimo_status status =
        mimo_mover_reserve_blocks(&bridge->mover, comm, ctas > least ? ctas : least);
    return status == MIMO_OK ? status : mimo_fail_prefix(status, "bridge: ");
}

static mimo_status connect(mimo_bridge *bridge, mimo_comm *comm, const mimo_bridge_request *own)
{
    MIMO_TRY(mimo_mover_connect(&bridge->mover, comm, own->checks));
    bridge->check_samples = (own->checks & MIMO_CHECK_SAMPLES) != 0;
    if (bridge->replicated)
        MIMO_TRY(
            mimo_grid_split(&bridge->copies, bridge->mover.comm, bridge->src, bridge->replicated));
    if (mimo_bridge_stages(bridge, false) || mimo_bridge_stages(bridge, true))
        MIMO_TRY(mimo_fifos_use(&bridge->fifos, comm));
    return mimo_executors_connect(bridge);
}

static void name_bridge(mimo_bridge *bridge, int64_t number, const char *name)
{
    mimo_write_title(bridge->mover.title, "bridge", name, number);
    bridge->mover.id = mimo_hash_int(mimo_bridge_hash_name(MIMO_HASH_START, name), number);
}

/* Zero-copy learns it from its first call (mimo_mover_look_at_reach). */
static void warn_of_reach(const mimo_bridge *bridge)
{
    const mimo_buffer *fifos = mimo_fifos_of(&bridge->fifos);
    bool named = bridge->executor[0].transport == MIMO_TRANSPORT_STAGED ||
                 bridge->executor[1].transport == MIMO_TRANSPORT_STAGED;
    if (fifos && named)
        mimo_buffer_warn_of_reach(fifos, bridge->mover.title, "staged");
}

mimo_status mimo_bridge_create(mimo_bridge **out, mimo_comm *comm, const mimo_bridge_desc *desc)
{
    MIMO_RANGE();
    mimo_bridge *bridge = NULL;
    mimo_bridge_request own = MIMO_BRIDGE_REQUEST_INIT;
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "bridge: comm is NULL");
    MIMO_ENTER(comm, "bridge");
    mimo_status local = mimo_bridge_request_read(&own, comm, desc);
    if (local == MIMO_OK)
        local = mimo_reserve(&bridge, 1, sizeof *bridge);
    if (local == MIMO_OK)
        local = mimo_mover_create(&bridge->mover, bridge, &mimo_bridge_hooks);
    if (local == MIMO_OK)
        local = fill_local(bridge, comm, &own);
    if (local == MIMO_OK && (own.checks & MIMO_CHECK_REPLICAS) != 0)
        local = mimo_replicas_find(bridge);
    if (local == MIMO_OK && !out)
        local = mimo_fail(MIMO_ERR_ARGUMENT, "bridge: out is NULL");
    if (local == MIMO_OK)
        local = reserve_blocks(bridge, comm, &own);
    mimo_status status = mimo_bridge_request_agree(comm, local, &own);
    if (status == MIMO_OK)
        status = mimo_comm_agree(comm, connect(bridge, comm, &own));
    if (status != MIMO_OK) {
        mimo_bridge_destroy(bridge);
        return status;
    }
    name_bridge(bridge, ++comm->bridges, own.desc.name);
    mimo_mover_open(&bridge->mover, comm);
    warn_of_reach(bridge);
    *out = bridge;
    return MIMO_OK;
}

/* ------------------------------------ release ------------------------------------- */

static void release(void *owner)
{
    mimo_bridge *bridge = owner;
    mimo_executors_destroy(bridge);
    mimo_fifos_leave(&bridge->fifos);
    mimo_comm_destroy(bridge->copies);
    if (bridge->src)
        mimo_grids_release(bridge->src, bridge->dst, MIMO_GRID_BRIDGE);
    mimo_mover_release(&bridge->mover);
    mimo_release(bridge->replicated);
    mimo_release(bridge);
}

void mimo_bridge_destroy(mimo_bridge *bridge)
{
    MIMO_RANGE();
    MIMO_CALL_SCOPE(scope);
    if (!bridge || (bridge->mover.parent && !mimo_release_enter(&scope, bridge->mover.parent)))
        return;
    if (mimo_mover_check_idle(&bridge->mover, "bridge destroy") == MIMO_OK) {
        release(bridge);
    } else {
        bridge->mover.idle = release;
        mimo_fail_prefix(MIMO_ERR_STATE, "the last mimo_op_wait releases the bridge: ");
    }
}
