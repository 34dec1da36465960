/* MIMO_CHECK=replicas: the source tile must be the same on all src tp ranks, as the bridge reads
 * each rank's own. Compares a hash per rank. */
#include <inttypes.h>

#include "bridge/verify/verify.h"
#include "core/hash.h"
#include "core/memory.h"

/* Hashes on the host, piece by piece: a device's tensor is fetched for it. */
static mimo_status hash_tile(uint64_t *hash, const mimo_op *op, const mimo_tile *tile)
{
    const mimo_device *device = op->bridge->comm->device;
    enum { PIECE = 1 << 14 };
    char piece[PIECE];
    int64_t bytes = mimo_tile_bytes(tile);
    for (int64_t at = 0; at < bytes; at += PIECE) {
        int64_t length = bytes - at < PIECE ? bytes - at : PIECE;
        MIMO_TRY(device->download(piece, (char *)tile->view.data + at, length, op->call.stream));
        *hash = mimo_hash_bytes(*hash, piece, (size_t)length);
    }
    return MIMO_OK;
}

mimo_status mimo_replicas_start(mimo_op *op)
{
    mimo_comm *tp = op->bridge->src_tp;
    if (!tp)
        return MIMO_OK;
    uint64_t hash = MIMO_HASH_START;
    MIMO_TRY(mimo_comm_synchronize(tp, op->call.stream));
    for (int i = 0; i < op->tensors.count - op->tensors.tagged; i++)
        MIMO_TRY(hash_tile(&hash, op, &op->tensors.pairs[i].src));
    op->memory.hashes[0] = hash;
    return tp->backend->host_allgather_start(&op->progress.request, tp, op->memory.hashes + 1,
                                             op->memory.hashes, (int)sizeof hash);
}

mimo_status mimo_replicas_outcome(const mimo_op *op)
{
    const mimo_bridge *bridge = op->bridge;
    int64_t group, member, *ranks;
    if (!bridge->src_tp || op->memory.hashes[1 + bridge->src_tp->rank] == op->memory.hashes[1])
        return MIMO_OK;
    MIMO_TRY(mimo_grid_group_of(&group, &member, bridge->src, "tp", bridge->rank));
    MIMO_TRY(mimo_reserve(&ranks, bridge->src_tp->size, sizeof *ranks));
    mimo_status status = mimo_grid_group_at(ranks, bridge->src, "tp", group);
    if (status == MIMO_OK)
        status = mimo_fail(MIMO_ERR_MISMATCH,
                           "source of %s differs between src tp replicas: rank %" PRId64
                           " (tp %" PRId64 ") from rank %" PRId64 " (tp 0)",
                           op->claim.words, bridge->rank, member, ranks[0]);
    mimo_release(ranks);
    return status;
}
