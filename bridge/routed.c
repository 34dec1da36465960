/*
 * The routed executor: only consumed rows move, once, from one owner to each consumer, straight
 * from tensor to tensor. Forward is plan(src -> dst), backward plan(dst -> src). Without a
 * partition the dst cp ranks hold partial gradients: class 0 arrives in its place, the others in
 * staging, and they are added in class order.
 *
 *   prepare   before the agreement: plans, messages, staging, for all tensors together (a job)
 *   move      one exchange; rows that stay here are copied while it is in flight
 *   add       the classes, where there are several
 */
#include <inttypes.h>

#include "bridge/routed_types.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"

static const char *const side_names[2] = {"src", "dst"};

/* ----------------------------------------- creation ----------------------------------------- */

static mimo_status check_span(const mimo_bridge *bridge, const mimo_grid *grid, const char *side)
{
    int64_t first = mimo_grid_offset(grid), size = mimo_grid_size(grid);
    MIMO_CHECK(first + size <= bridge->size, MIMO_ERR_GRID,
               "bridge: the %s grid spans ranks [%" PRId64 ", %" PRId64
               "), the communicator has %" PRId64 " ranks",
               side, first, first + size, bridge->size);
    return MIMO_OK;
}

/* A partition that cuts nothing is none. */
static void set_side(mimo_routed *own, mimo_side side, const mimo_grid *grid,
                     const mimo_partition_rule *rule)
{
    int64_t cp = mimo_grid_dim_size(grid, "cp"), tp = mimo_grid_dim_size(grid, "tp");
    mimo_layout_desc *desc = &own->sides[side];
    *desc = (mimo_layout_desc)MIMO_LAYOUT_DESC_INIT;
    desc->grid = grid;
    own->dp[side] = mimo_grid_dim_size(grid, "dp");
    own->cuts[side] = 1;
    if (rule && (cp > 1 || (rule->sp && tp > 1))) {
        own->rules[side] = *rule;
        own->cuts[side] = cp * (rule->sp ? tp : 1);
        desc->partition = &own->rules[side];
    } else if (side == MIMO_DST) {
        desc->cp_copies = MIMO_COPIES_PARTIAL;
    }
}

static mimo_status routed_create(mimo_bridge *bridge, const mimo_bridge_desc *desc)
{
    MIMO_CHECK(!desc->partition || desc->partition->format == MIMO_SBHD, MIMO_ERR_UNSUPPORTED,
               "bridge: packed (thd) partitions are not supported by the routed executor");
    MIMO_TRY(check_span(bridge, desc->src, "src"));
    MIMO_TRY(check_span(bridge, desc->dst, "dst"));
    MIMO_TRY(mimo_reserve(&bridge->routed, 1, sizeof *bridge->routed));
    set_side(bridge->routed, MIMO_SRC, desc->src, NULL);
    set_side(bridge->routed, MIMO_DST, desc->dst, desc->partition);
    /* The pairing is only shown: routed works without one. */
    if (mimo_pairing_of(&bridge->pairing, desc->src, desc->dst) == MIMO_OK)
        MIMO_TRY(mimo_pairing_place(desc->src, desc->dst, bridge->rank, NULL, &bridge->slot));
    return mimo_plan_cache_create(&bridge->routed->plans, bridge->routed->sides, bridge->rank);
}

static void routed_destroy(mimo_bridge *bridge)
{
    if (!bridge->routed)
        return;
    mimo_job_destroy_idle(bridge);
    mimo_plan_cache_destroy(bridge->routed->plans);
    mimo_release(bridge->routed);
    bridge->routed = NULL;
}

/* ------------------------------------------ tiles ------------------------------------------- */

/* The full sequence length, from whichever view tells it. */
static mimo_status full_sequence(int64_t *out, const mimo_routed *own, const mimo_tensor *src,
                                 const mimo_tensor *dst)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    if (!mimo_tile_is_flat(src))
        return mimo_mul(out, mimo_tensor_size(src, 's'), own->cuts[MIMO_SRC]);
    if (!mimo_tile_is_flat(dst))
        return mimo_mul(out, mimo_tensor_size(dst, 's'), own->cuts[MIMO_DST]);
    MIMO_CHECK(
        own->cuts[MIMO_SRC] == 1 && own->cuts[MIMO_DST] == 1, MIMO_ERR_SHAPE,
        "src tile is %s and dst tile is %s: with a partition one must be sbh or bsh, as flat "
        "tiles do not say where sequences end",
        mimo_tensor_text(src, from, sizeof from), mimo_tensor_text(dst, to, sizeof to));
    *out = 1;
    return MIMO_OK;
}

static mimo_status read_side(mimo_tile *out, const mimo_routed *own, mimo_side side,
                             const mimo_tensor *view, int64_t seq)
{
    char text[MIMO_VIEW_TEXT];
    int64_t local = seq / own->cuts[side];
    mimo_tensor_text(view, text, sizeof text);
    MIMO_CHECK(seq % own->cuts[side] == 0, MIMO_ERR_SHAPE,
               "%s tile %s: %" PRId64 " ranks can't share a sequence of %" PRId64 " positions",
               side_names[side], text, own->cuts[side], seq);
    if (mimo_tile_is_flat(view))
        MIMO_CHECK((local > 0 ? view->shape[0] % local : view->shape[0]) == 0, MIMO_ERR_SHAPE,
                   "%s tile %s is not a whole number of samples of %" PRId64 " positions",
                   side_names[side], text, local);
    else
        MIMO_CHECK(mimo_tensor_size(view, 's') == local, MIMO_ERR_SHAPE,
                   "%s tile is %s; sequences of %" PRId64 " positions need s = %" PRId64,
                   side_names[side], text, seq, local);
    return mimo_tile_read(out, view, local);
}

static mimo_status routed_read(mimo_tile_pair *out, const mimo_op *op, const mimo_tensor *src,
                               const mimo_tensor *dst)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    const mimo_routed *own = op->bridge->routed;
    mimo_tile_pair pair;
    MIMO_TRY(mimo_tile_check_view(src, op->bridge->memory, "src"));
    MIMO_TRY(mimo_tile_check_view(dst, op->bridge->memory, "dst"));
    MIMO_CHECK(src->dtype == dst->dtype && mimo_tensor_size(src, 'h') == mimo_tensor_size(dst, 'h'),
               MIMO_ERR_SHAPE, "src tile is %s and dst tile is %s: dtype and h must agree",
               mimo_tensor_text(src, from, sizeof from), mimo_tensor_text(dst, to, sizeof to));
    MIMO_TRY(full_sequence(&pair.seq, own, src, dst));
    MIMO_TRY(read_side(&pair.src, own, MIMO_SRC, src, pair.seq));
    MIMO_TRY(read_side(&pair.dst, own, MIMO_DST, dst, pair.seq));
    MIMO_TRY(mimo_tile_check_apart(src, dst));
    *out = pair;
    return MIMO_OK;
}

/* Letters, dtype and row size are the same everywhere; samples need not be. */
static uint64_t routed_sign(uint64_t hash, const mimo_tile_pair *tiles)
{
    const mimo_tensor *src = &tiles->src.view, *dst = &tiles->dst.view;
    hash = mimo_hash_bytes(hash, src->letters, (size_t)mimo_tensor_ndim(src));
    hash = mimo_hash_bytes(hash, dst->letters, (size_t)mimo_tensor_ndim(dst));
    hash = mimo_hash_int(mimo_hash_int(hash, src->dtype), tiles->src.row_bytes);
    return mimo_hash_int(hash, tiles->seq);
}

/* ------------------------------------------ steps ------------------------------------------- */

static mimo_status check_alike(const mimo_op *op)
{
    char first[MIMO_VIEW_TEXT], other[MIMO_VIEW_TEXT];
    const mimo_tile_pair *a = &op->pairs[0];
    for (int i = 1; i < op->count; i++) {
        const mimo_tile_pair *b = &op->pairs[i];
        MIMO_CHECK(a->seq == b->seq && a->src.batch == b->src.batch && a->dst.batch == b->dst.batch,
                   MIMO_ERR_SHAPE,
                   "tensor %d, src tile %s, is cut otherwise than tensor 0, src tile %s: one call "
                   "moves tensors of the same samples and positions",
                   i, mimo_tensor_text(&b->src.view, other, sizeof other),
                   mimo_tensor_text(&a->src.view, first, sizeof first));
    }
    return MIMO_OK;
}

static mimo_status routed_prepare(mimo_op *op)
{
    char from[MIMO_VIEW_TEXT], to[MIMO_VIEW_TEXT];
    const mimo_routed *own = op->bridge->routed;
    const mimo_tile_pair *pair = &op->pairs[0];
    int64_t src_batch, dst_batch;
    MIMO_TRY(check_alike(op));
    MIMO_TRY(mimo_mul(&src_batch, pair->src.batch, own->dp[MIMO_SRC]));
    MIMO_TRY(mimo_mul(&dst_batch, pair->dst.batch, own->dp[MIMO_DST]));
    MIMO_CHECK(src_batch == dst_batch, MIMO_ERR_SHAPE,
               "src tile %s on dp = %" PRId64 " makes a batch of %" PRId64
               ", dst tile %s on dp = %" PRId64 " one of %" PRId64,
               mimo_tensor_text(&pair->src.view, from, sizeof from), own->dp[MIMO_SRC], src_batch,
               mimo_tensor_text(&pair->dst.view, to, sizeof to), own->dp[MIMO_DST], dst_batch);
    op->signature = mimo_hash_int(op->signature, src_batch);
    return mimo_job_prepare(op, src_batch);
}

static mimo_status move(mimo_op *op, const mimo_tile_pair *tiles)
{
    const mimo_job *job = op->job;
    mimo_comm *comm = op->bridge->comm;
    (void)tiles;
    MIMO_TRY(comm->backend->exchange_start(&op->request, comm, job->exchange, op->stream));
    for (int64_t i = 0; i < job->copy_count; i++)
        MIMO_TRY(comm->device->copy_rows(&job->copies[i].to, &job->copies[i].from, op->stream));
    return MIMO_OK;
}

static mimo_status add(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    return mimo_job_add_classes(op);
}

static const mimo_step steps[] = {move, add, NULL};

const mimo_executor_table mimo_routed_executor = {
    .name = "routed",
    .create = routed_create,
    .destroy = routed_destroy,
    .read = routed_read,
    .sign = routed_sign,
    .prepare = routed_prepare,
    .forward = steps,
    .backward = steps,
    .at_once = true,
    .finish = mimo_job_put_back,
};
