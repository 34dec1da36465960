/*
 * An executor of the tests: every rank gets the tiles of all ranks, and takes its rows from there.
 * Its steps are its own. The rest of its table (reading calls, finding splits) asks routed, which
 * an executor of the library may not. So it shows the steps of a further one, not all that one
 * needs: CONTRIBUTING.md lists that. Host memory alone.
 */
#include <string.h>

#include "bridge/bridge_op_types.h"
#include "bridge/routed/routed_types.h"
#include "core/memory.h"
#include "layout/layout_types.h"
#include "executors.h"

enum { LOOPBACK = MIMO_EXECUTORS - 1 };
_Static_assert(LOOPBACK == (int)LOOPBACK_ALGORITHM, "tests/support/executors.h asks for this one");

/* Of an operation. */
typedef struct loopback {
    uint64_t most; /* bytes of the largest tile of any rank */
    char *all;     /* [ranks][tensors][most] */
} loopback;

static const mimo_executor_table *routed(void)
{
    return &mimo_routed_executor;
}

/* -------------------------------------- like routed ------------------------------------- */

static mimo_status create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    bridge->state[LOOPBACK] = bridge; /* it keeps nothing of its own */
    MIMO_TRY(mimo_bridge_sides_create(bridge, desc));
    return routed()->create(bridge, desc);
}

static mimo_status connect(mimo_bridge *bridge)
{
    return routed()->connect(bridge);
}

static void destroy(mimo_bridge *bridge)
{
    bridge->state[LOOPBACK] = NULL; /* routed's is released by its own row */
}

static mimo_layout_desc side_layout(const mimo_bridge *bridge, mimo_side side)
{
    return routed()->side_layout(bridge, side);
}

static mimo_status op_layout(mimo_layout_desc *out, const mimo_op *op, mimo_side side)
{
    return routed()->op_layout(out, op, side);
}

static mimo_status samples(const mimo_bridge *bridge, mimo_side side, int64_t batch, int64_t *first,
                           int64_t *count)
{
    return routed()->samples(bridge, side, batch, first, count);
}

static mimo_status staging(mimo_staging_bytes *out, const mimo_staged_pass *pass)
{
    return routed()->staging(out, pass);
}

static mimo_status read_sequence(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    return routed()->read_sequence(op, to, from, n);
}

static mimo_status read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                        const mimo_tensor *dst)
{
    return routed()->read(out, op, src, dst);
}

static uint64_t sign(uint64_t hash, const mimo_tile_pair *tiles)
{
    return routed()->sign(hash, tiles);
}

static mimo_status prepare(mimo_op *op)
{
    return routed()->prepare(op);
}

static mimo_status resolve_start(mimo_op *op)
{
    return routed()->resolve_start(op);
}

static mimo_status resolve_finish(mimo_op *op)
{
    return routed()->resolve_finish(op);
}

static void finish(mimo_op *op)
{
    routed()->finish(op);
}

/* ------------------------------------- its own steps ------------------------------------ */

static mimo_status state_of(loopback **out, mimo_op *op)
{
    void *area;
    MIMO_TRY(mimo_op_get_staging(&area, op, MIMO_STAGING_PACKED, sizeof **out));
    *out = area;
    return MIMO_OK;
}

static mimo_status agree_on_size(mimo_op *op, const mimo_tile_pair *tiles)
{
    loopback *it;
    mimo_comm *comm = op->mover->comm;
    MIMO_TRY(state_of(&it, op));
    it->most = 0;
    for (int i = 0; i < op->tensors.count; i++) {
        uint64_t bytes = (uint64_t)mimo_tile_bytes(mimo_tile_of(&tiles[i], mimo_op_from(op)));
        it->most = bytes > it->most ? bytes : it->most;
    }
    return comm->backend->host_max_start(&op->progress.request, comm, &it->most, 1);
}

static mimo_status gather_tiles(mimo_op *op, const mimo_tile_pair *tiles)
{
    loopback *it;
    void *area;
    mimo_comm *comm = op->mover->comm;
    MIMO_TRY(state_of(&it, op));
    if (it->most == 0)
        return MIMO_OK;
    int64_t most = (int64_t)it->most, own = op->tensors.count * most;
    MIMO_TRY(mimo_op_get_staging(&area, op, MIMO_STAGING_GATHERED, (comm->size + 1) * own));
    it->all = (char *)area + own; /* behind this rank's own */
    for (int i = 0; i < op->tensors.count; i++) {
        const mimo_tile *from = mimo_tile_of(&tiles[i], mimo_op_from(op));
        if (mimo_tile_bytes(from) > 0)
            memcpy((char *)area + i * most, from->view.data, (size_t)mimo_tile_bytes(from));
    }
    MIMO_TRY(comm->backend->host_allgather_prepare(comm, (int)own));
    return comm->backend->host_allgather_start(&op->progress.request, comm, it->all, area,
                                               (int)own);
}

/* Only to have an agreement between steps. */
static mimo_status agree_on_tiles(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    mimo_op_agree_on(op, MIMO_OK, "loopback");
    return MIMO_OK;
}

static void copy_block(char *to, const char *from, const mimo_block *block, int64_t row_bytes)
{
    for (int64_t i = 0; i < block->nb; i++)
        for (int64_t j = 0; j < block->ns; j++)
            memcpy(to + (block->dst_row + i * block->dst_b + j * block->dst_s) * row_bytes,
                   from + (block->src_row + i * block->src_b + j * block->src_s) * row_bytes,
                   (size_t)row_bytes);
}

/* One tensor, whose rows lie in the tiles of all ranks, `step` bytes apart. */
typedef struct source {
    const char *rows;
    int64_t step;
} source;

/* Class 0 goes to the tile, the others behind each other to `terms`. */
static void copy_blocks(const mimo_tile *to, char *terms, source from, const mimo_plan *plan)
{
    static const mimo_block_kind kinds[] = {MIMO_RECV, MIMO_LOCAL};
    for (int k = 0; k < 2; k++) {
        int64_t count;
        const mimo_block *blocks = mimo_plan_blocks(&count, plan, kinds[k]);
        for (int64_t i = 0; i < count; i++) {
            int64_t contribution = blocks[i].contribution;
            char *at = contribution == 0 ? to->view.data
                                         : terms + (contribution - 1) * mimo_tile_bytes(to);
            copy_block(at, from.rows + blocks[i].peer * from.step, &blocks[i], to->row_bytes);
        }
    }
}

static mimo_status make_layout(mimo_layout **out, const mimo_op *op, mimo_side side,
                               const mimo_tile_pair *tiles)
{
    mimo_layout_desc desc;
    MIMO_TRY(routed()->op_layout(&desc, op, side));
    desc.order = mimo_tile_order(mimo_tile_of(tiles, side));
    desc.seq = tiles->seq;
    return mimo_layout_create(out, &desc);
}

static mimo_status make_plan(mimo_plan **out, const mimo_op *op, const mimo_tile_pair *tiles)
{
    mimo_layout *from = NULL, *to = NULL;
    mimo_status status = make_layout(&from, op, mimo_op_from(op), tiles);
    if (status == MIMO_OK)
        status = make_layout(&to, op, mimo_op_to(op), tiles);
    if (status == MIMO_OK)
        status = mimo_plan_create(out, from, to, op->mover->comm->rank);
    mimo_layout_destroy(from);
    mimo_layout_destroy(to);
    return status;
}

static mimo_status place_and_add(mimo_op *op, const mimo_tile *to, source from,
                                 const mimo_plan *plan)
{
    void *terms;
    int64_t classes = mimo_plan_classes(plan), bytes = mimo_tile_bytes(to);
    MIMO_TRY(mimo_op_get_staging(&terms, op, MIMO_STAGING_FULL, (classes - 1) * bytes));
    copy_blocks(to, terms, from, plan);
    int64_t elements = bytes / (int64_t)mimo_dtype_size(to->view.dtype);
    const mimo_addends sum = {.data = to->view.data,
                              .terms = terms,
                              .n = classes - 1,
                              .step = elements,
                              .stretches = 1,
                              .count = elements,
                              .dtype = to->view.dtype};
    return classes > 1 ? op->mover->comm->device->accumulate(&sum, op->call.stream) : MIMO_OK;
}

static mimo_status place_rows(mimo_op *op, const mimo_tile_pair *tiles)
{
    loopback *it;
    MIMO_TRY(state_of(&it, op));
    for (int i = 0; i < op->tensors.count && it->most > 0; i++) {
        mimo_plan *plan;
        int64_t most = (int64_t)it->most;
        const source from = {it->all + i * most, op->tensors.count * most};
        MIMO_TRY(make_plan(&plan, op, &tiles[i]));
        mimo_status status = place_and_add(op, mimo_tile_of(&tiles[i], mimo_op_to(op)), from, plan);
        mimo_plan_destroy(plan);
        MIMO_TRY(status);
    }
    return MIMO_OK;
}

static const mimo_mover_step steps[] = {agree_on_size, gather_tiles, agree_on_tiles, place_rows,
                                        NULL};

const mimo_executor_table mimo_loopback_executor = {
    .name = "loopback",
    .create = create,
    .connect = connect,
    .destroy = destroy,
    .side_layout = side_layout,
    .op_layout = op_layout,
    .samples = samples,
    .staging = staging,
    .read_sequence = read_sequence,
    .read = read,
    .sign = sign,
    .prepare = prepare,
    .resolve_start = resolve_start,
    .resolve_finish = resolve_finish,
    .forward = steps,
    .backward = steps,
    .tensors_alike = true,
    .by_chunk = true,
    .finish = finish,
};
