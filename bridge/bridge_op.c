/* The bridge's part of an operation: how it reads the tensors of a call, and the steps that come
 * before and behind those of the executor. */
#include "bridge/bridge_op.h"

#include "bridge/bridge_executors.h"
#include "bridge/bridge_op_types.h"
#include "bridge/verify/verify.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"

/* ------------------------------------- its life ------------------------------------- */

static void destroy(mimo_op *op)
{
    mimo_bridge_op *own = mimo_bridge_op_of(op);
    mimo_executors_op_destroy(own->own);
    mimo_release(own->hashes);
    mimo_release(own);
}

static mimo_status create(mimo_op **out)
{
    mimo_bridge_op *own;
    MIMO_TRY(mimo_reserve(&own, 1, sizeof *own));
    own->op.own = own;
    mimo_status status = mimo_executors_op_create(own->own);
    if (status == MIMO_OK)
        *out = &own->op;
    else
        destroy(&own->op);
    return status;
}

/* ---------------------------------- call in words ----------------------------------- */

static uint64_t sign_call(uint64_t hash, const mimo_op *op)
{
    return mimo_hash_int(mimo_hash_int(hash, mimo_bridge_op_of(op)->batch),
                         mimo_bridge_of(op)->batch_count);
}

static void describe(char call[MIMO_CALL_TEXT], const mimo_op *op)
{
    if (mimo_bridge_of(op)->batch_count > 1)
        mimo_call_append(call, " in micro-batch %d", mimo_bridge_op_of(op)->batch);
}

/* ------------------------------------- tensors -------------------------------------- */

/* Tensors that the routed executor moves at once have the same samples and positions: tensor i has
 * those of tensor 0. */
static mimo_status check_alike(const mimo_tile_pair *first, const mimo_tile_pair *pair, int i)
{
    char text[MIMO_VIEW_TEXT], other[MIMO_VIEW_TEXT];
    MIMO_CHECK(
        first->seq == pair->seq && first->src.batch == pair->src.batch &&
            first->dst.batch == pair->dst.batch,
        MIMO_ERR_SHAPE,
        "tensor %d, src tile %s, is cut otherwise than tensor 0, src tile %s: one call moves "
        "tensors of the same samples and positions",
        i, mimo_tensor_text(other, sizeof other, &pair->src.view),
        mimo_tensor_text(text, sizeof text, &first->src.view));
    return MIMO_OK;
}

/* What a measured bridge accepts must not depend on which executor was faster: so the others look
 * at the tensors as well. */
static const mimo_executor_table *next_reader(const mimo_op *op, const mimo_executor_table *it)
{
    const mimo_bridge *bridge = mimo_bridge_of(op);
    if (!bridge->measured[op->call.backward])
        return NULL;
    it = mimo_bridge_next_executor(bridge, it);
    return it == mimo_bridge_op_of(op)->executor ? mimo_bridge_next_executor(bridge, it) : it;
}

static mimo_status read_sequence(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    const mimo_executor_table *own = mimo_bridge_op_of(op)->executor, *it = NULL;
    while ((it = next_reader(op, it)))
        if (it->read_sequence)
            MIMO_TRY(it->read_sequence(op, to, from, n));
    return own->read_sequence ? own->read_sequence(op, to, from, n) : MIMO_OK;
}

/* Read tensor i. Where its executor, or another reader, takes tensors that are alike, it must be
 * like tensor 0 in that one's reading (*first). Collective reads each tensor by itself, and one
 * that is flat on both sides as rows. */
static mimo_status read_pair(mimo_op *op, int i, const mimo_tensor *const sides[2],
                             mimo_tile_pair *first)
{
    const mimo_executor_table *own = mimo_bridge_op_of(op)->executor, *it = NULL;
    mimo_tile_pair *pair = &op->tensors.pairs[i], other, judged;
    bool judges = own->tensors_alike;
    while ((it = next_reader(op, it))) {
        MIMO_TRY(it->read(&other, op, sides[MIMO_SRC], sides[MIMO_DST]));
        if (it->tensors_alike) {
            judged = other;
            judges = true;
        }
    }
    MIMO_TRY(own->read(pair, op, sides[MIMO_SRC], sides[MIMO_DST]));
    if (own->tensors_alike)
        judged = *pair;
    if (!judges)
        return MIMO_OK;
    if (i == 0)
        *first = judged;
    return check_alike(first, &judged, i);
}

static mimo_status read_tensors(mimo_op *op, const mimo_tensor *to, const mimo_tensor *from, int n)
{
    mimo_tile_pair first;
    MIMO_TRY(mimo_op_reserve_pairs(op, n + (int64_t)mimo_bridge_of(op)->check_samples));
    MIMO_TRY(read_sequence(op, to, from, n));
    for (int i = 0; i < n; i++) {
        const mimo_tensor *const sides[2] = {op->call.backward ? &to[i] : &from[i],
                                             op->call.backward ? &from[i] : &to[i]};
        MIMO_TRY(read_pair(op, i, sides, &first));
    }
    return MIMO_OK;
}

static uint64_t sign(uint64_t hash, const mimo_op *op, int i)
{
    return mimo_bridge_op_of(op)->executor->sign(hash, &op->tensors.pairs[i]);
}

static const mimo_buffer *target(int64_t *offset, const mimo_op *op, int i)
{
    const mimo_executor_table *executor = mimo_bridge_op_of(op)->executor;
    *offset = -1;
    return executor->target ? executor->target(offset, op, i) : NULL;
}

static mimo_status prepare(mimo_op *op)
{
    const mimo_executor_table *executor = mimo_bridge_op_of(op)->executor;
    MIMO_TRY(mimo_replicas_prepare(op));
    MIMO_TRY(mimo_origins_prepare(op));
    MIMO_TRY(executor->prepare(op));
    return op->call.prepares && !executor->connect_steps ? mimo_op_take_substitutes(op) : MIMO_OK;
}

/* --------------------------------------- steps -------------------------------------- */

/* Whether the ranks guessed different splits. */
static bool must_resolve(const mimo_op *op)
{
    const mimo_bridge_op *own = mimo_bridge_op_of(op);
    return own->executor->resolve_start && (own->lacks_guess || !op->claim.agreement.same_guess);
}

static mimo_status begin_to_resolve(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    return must_resolve(op) ? mimo_bridge_op_of(op)->executor->resolve_start(op) : MIMO_OK;
}

/* The guess is certain now. Whether all ranks could prepare by it takes another agreement. */
static mimo_status agree_again(mimo_op *op, const mimo_tile_pair *tiles)
{
    (void)tiles;
    if (must_resolve(op)) {
        mimo_op_keep_local(op, mimo_bridge_op_of(op)->executor->resolve_finish(op));
        mimo_op_agree(op);
    }
    return MIMO_OK;
}

static const mimo_mover_step before[] = {begin_to_resolve, agree_again, mimo_replicas_start,
                                         mimo_replicas_compare, NULL};
static const mimo_mover_step behind[] = {mimo_origins_compare, NULL};

static void begin(mimo_op *op)
{
    mimo_bridge_op *own = mimo_bridge_op_of(op);
    const mimo_bridge *bridge = mimo_bridge_of(op);
    const mimo_executor_table *executor = mimo_bridge_executor_of(bridge, op->call.backward);
    const mimo_mover_step *pass = op->call.backward ? executor->backward : executor->forward;
    bool connects = op->call.prepares && executor->connect_steps;
    own->executor = executor;
    own->batch = bridge->selected;
    op->call.micro_batch = bridge->batch_count > 1 ? own->batch : -1;
    own->lacks_guess = false;
    op->steps = (mimo_op_steps){{before, connects ? executor->connect_steps : pass, behind},
                                executor->by_chunk};
}

static void finish(mimo_op *op)
{
    const mimo_executor_table *executor = mimo_bridge_op_of(op)->executor;
    if (executor->finish)
        executor->finish(op);
}

const mimo_mover_hooks mimo_bridge_hooks = {
    .kind = MIMO_CALLBACK_BRIDGE,
    .pass = {"forward", "backward"},
    .op_create = create,
    .op_destroy = destroy,
    .begin = begin,
    .sign_call = sign_call,
    .describe = describe,
    .read = read_tensors,
    .sign = sign,
    .target = target,
    .prepare = prepare,
    .finish = finish,
};
