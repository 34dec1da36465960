/* MIMO_CHECK=replicas: the source tile must be the same on all src ranks that hold copies, as the
 * bridge reads each rank's own. Compares a hash per rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout/layout_types.h"
#include "bridge/bridge_executors.h"
#include "bridge/verify/verify.h"
#include "core/hash.h"
#include "core/memory.h"

/* What an operation keeps. */
struct mimo_replica_hashes {
    uint64_t own;
    uint64_t all[]; /* of all ranks with copies */
};

static bool is_replicated(const mimo_layout_desc *src, int i)
{
    mimo_dim dim = mimo_grid_dim(src->grid, i);
    return dim.size > 1 && mimo_layout_replicates(src, dim.name);
}

mimo_status mimo_replicas_find(mimo_bridge *bridge)
{
    size_t length = 0;
    char *dims;
    const mimo_layout_desc src =
        mimo_bridge_stricter_executor(bridge)->side_layout(bridge, MIMO_SRC);
    for (int i = 0; i < mimo_grid_ndims(src.grid); i++)
        if (is_replicated(&src, i))
            length += strlen(mimo_grid_dim(src.grid, i).name) + 1;
    if (length == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&dims, (int64_t)length, 1));
    for (int i = 0; i < mimo_grid_ndims(src.grid); i++)
        if (is_replicated(&src, i))
            snprintf(dims + strlen(dims), length - strlen(dims), "%s%s", *dims ? "," : "",
                     mimo_grid_dim(src.grid, i).name);
    bridge->replicated = dims;
    return MIMO_OK;
}

/* Hashes on the host, piece by piece: a device's tensor is fetched for it. */
static mimo_status hash_tile(uint64_t *hash, const mimo_op *op, const mimo_tile *tile)
{
    const mimo_device *device = op->mover->comm->device;
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

mimo_status mimo_replicas_prepare(mimo_op *op)
{
    const mimo_comm *copies = mimo_bridge_of(op)->copies;
    mimo_bridge_op *own = mimo_bridge_op_of(op);
    if (!copies || own->hashes)
        return MIMO_OK;
    return mimo_reserve(&own->hashes, 1 + (int64_t)copies->size, sizeof(uint64_t));
}

/* On every rank alike, whatever its part in the src grid. */
static bool is_checked(const mimo_op *op)
{
    return mimo_bridge_of(op)->replicated && !op->call.backward && !op->call.prepares;
}

mimo_status mimo_replicas_start(mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_comm *copies = mimo_bridge_of(op)->copies;
    struct mimo_replica_hashes *hashes = mimo_bridge_op_of(op)->hashes;
    if (!copies || !is_checked(op))
        return MIMO_OK;
    MIMO_TRY(mimo_comm_synchronize(copies, op->call.stream));
    hashes->own = MIMO_HASH_START;
    for (int i = 0; i < op->call.n; i++)
        MIMO_TRY(hash_tile(&hashes->own, op, &tiles[i].src));
    return copies->backend->host_allgather_start(&op->progress.request, copies, hashes->all,
                                                 &hashes->own, (int)sizeof hashes->own);
}

static mimo_status outcome(const mimo_op *op)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    const struct mimo_replica_hashes *hashes = mimo_bridge_op_of(op)->hashes;
    const mimo_comm *copies = bridge->copies;
    int64_t group, *ranks;
    char call[MIMO_CALL_TEXT];
    if (!copies || hashes->all[copies->rank] == hashes->all[0])
        return MIMO_OK;
    MIMO_TRY(mimo_grid_group_of(&group, NULL, bridge->src, bridge->replicated, bridge->rank));
    MIMO_TRY(mimo_reserve(&ranks, copies->size, sizeof *ranks));
    mimo_status status = mimo_grid_group_at(ranks, bridge->src, bridge->replicated, group);
    if (status == MIMO_OK)
        status = mimo_fail(MIMO_ERR_MISMATCH,
                           "source of %s differs between copies along %s of src: rank %" PRId64
                           " from rank %" PRId64,
                           mimo_op_text(call, op), bridge->replicated, bridge->rank, ranks[0]);
    mimo_release(ranks);
    return status;
}

mimo_status mimo_replicas_compare(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    if (is_checked(op))
        mimo_op_agree_on(op, outcome(op), "replica check");
    return MIMO_OK;
}
