/* MIMO_CHECK_REPLICAS: the source tile must be the same on all src tp ranks, as the bridge reads
 * each rank's own. Compares a hash per rank. */
#include <inttypes.h>

#include "bridge/bridge_types.h"
#include "core/hash.h"
#include "core/memory.h"

mimo_status mimo_replicas_start(mimo_op *op)
{
    mimo_comm *tp = op->bridge->src_tp;
    uint64_t hash = MIMO_HASH_START;
    for (int i = 0; i < op->count; i++) {
        const mimo_tile *src = &op->pairs[i].src;
        hash = mimo_hash_bytes(hash, src->view.data, (size_t)mimo_tile_bytes(src));
    }
    op->hashes[0] = hash;
    return tp->backend->collect_start(&op->request, tp, op->hashes + 1, op->hashes,
                                      (int)sizeof hash);
}

mimo_status mimo_replicas_outcome(const mimo_op *op)
{
    const mimo_bridge *bridge = op->bridge;
    int64_t group, place, *ranks;
    if (op->hashes[1 + bridge->src_tp->rank] == op->hashes[1])
        return MIMO_OK;
    MIMO_TRY(mimo_grid_group_of(bridge->src, "tp", bridge->rank, &group, &place));
    MIMO_TRY(mimo_reserve(&ranks, bridge->src_tp->size, sizeof *ranks));
    mimo_status status = mimo_grid_group_at(bridge->src, "tp", group, ranks);
    if (status == MIMO_OK)
        status = mimo_fail(MIMO_ERR_MISMATCH,
                           "source of %s differs between src tp replicas: rank %" PRId64
                           " (tp %" PRId64 ") from rank %" PRId64 " (tp 0)",
                           op->call, bridge->rank, place, ranks[0]);
    mimo_release(ranks);
    return status;
}
