#include "train/nn/layers/nn_block_kind.h"

#include "core/check.h"

/* ------------------------------------------- halves ------------------------------------------ */

/* y = x + attention(norm(x)) */
static mimo_status first_forward(const nn_block *block, nn_block_saved *saved, nn_real *y,
                                 const nn_block_call *call)
{
    const nn_sequence *sequence = call->sequence;
    int64_t rows = nn_block_rows(block, sequence);
    MIMO_TRY(nn_norm_forward(&block->norm1, &saved->norm1, saved->normed1, call->x, rows));
    MIMO_TRY(
        nn_attention_forward(&block->attention, &saved->attention, y, saved->normed1, sequence));
    return block->runtime->ops->add(block->runtime, y, call->x, rows * block->hidden);
}

static mimo_status first_backward(const nn_block *block, nn_block_saved *saved, nn_real *dx,
                                  nn_real *dy)
{
    MIMO_TRY(
        nn_attention_backward_input(&block->attention, &saved->attention, block->d_normed, dy));
    return nn_norm_backward_input(&block->norm1, &saved->norm1, dx, block->d_normed, dy);
}

static mimo_status first_params(const void *layer, void *saved)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_attention_backward_params(&block->attention, &state->attention);
}

/* y = x + mlp(norm(x)) */
static mimo_status second_forward(const nn_block *block, nn_block_saved *saved, nn_real *y,
                                  const nn_real *x, const nn_sequence *sequence)
{
    int64_t rows = nn_block_rows(block, sequence);
    MIMO_TRY(nn_norm_forward(&block->norm2, &saved->norm2, saved->normed2, x, rows));
    MIMO_TRY(nn_mlp_forward(&block->mlp, &saved->mlp, y, saved->normed2, rows, sequence->batch));
    return block->runtime->ops->add(block->runtime, y, x, rows * block->hidden);
}

static mimo_status second_backward(const nn_block *block, nn_block_saved *saved, nn_real *dx,
                                   nn_real *dy)
{
    MIMO_TRY(nn_mlp_backward_input(&block->mlp, &saved->mlp, block->d_normed, dy));
    return nn_norm_backward_input(&block->norm2, &saved->norm2, dx, block->d_normed, dy);
}

static mimo_status second_params(const void *layer, void *saved)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_mlp_backward_params(&block->mlp, &state->mlp);
}

/* ------------------------------------- parts of dense blocks --------------------------------- */

static mimo_status attention_forward(const void *layer, void *saved, nn_block_call *call)
{
    return first_forward(layer, saved, call->y, call);
}

static mimo_status attention_backward(const void *layer, void *saved, nn_block_call *call)
{
    return first_backward(layer, saved, call->dx, call->dy);
}

static const nn_block_work attention_alone = {attention_forward, attention_backward, first_params};

static mimo_status mlp_forward(const void *layer, void *saved, nn_block_call *call)
{
    return second_forward(layer, saved, call->y, call->x, call->sequence);
}

static mimo_status mlp_backward(const void *layer, void *saved, nn_block_call *call)
{
    return second_backward(layer, saved, call->dx, call->dy);
}

static const nn_block_work mlp_alone = {mlp_forward, mlp_backward, second_params};

/* In a whole block the middle lies between the halves, and in backward its gradient. */
static mimo_status to_middle(const void *layer, void *saved, nn_block_call *call)
{
    nn_block_saved *state = saved;
    return first_forward(layer, state, state->middle, call);
}

static mimo_status back_from_middle(const void *layer, void *saved, nn_block_call *call)
{
    nn_block_saved *state = saved;
    return first_backward(layer, state, call->dx, state->middle);
}

static const nn_block_work attention_first = {to_middle, back_from_middle, first_params};

static mimo_status from_middle(const void *layer, void *saved, nn_block_call *call)
{
    nn_block_saved *state = saved;
    return second_forward(layer, state, call->y, state->middle, call->sequence);
}

static mimo_status back_to_middle(const void *layer, void *saved, nn_block_call *call)
{
    nn_block_saved *state = saved;
    return second_backward(layer, state, state->middle, call->dy);
}

static const nn_block_work mlp_second = {from_middle, back_to_middle, second_params};

/* ------------------------------------- parts of a mixture ------------------------------------ */

static mimo_status choose(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    const nn_sequence *sequence = call->sequence;
    int64_t rows = nn_block_rows(block, sequence);
    const nn_moe_input input = {state->normed2, rows, sequence->batch, sequence->masked};
    MIMO_TRY(to_middle(layer, saved, call));
    MIMO_TRY(nn_norm_forward(&block->norm2, &state->norm2, state->normed2, state->middle, rows));
    return nn_moe_before(&block->moe, &state->moe, &input);
}

static mimo_status choose_backward(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    MIMO_TRY(nn_moe_backward_before(&block->moe, &state->moe, state->d_normed));
    MIMO_TRY(nn_norm_backward_input(&block->norm2, &state->norm2, state->middle, state->d_normed,
                                    call->dy));
    return back_from_middle(layer, saved, call);
}

static mimo_status choose_params(const void *layer, void *saved)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    MIMO_TRY(nn_moe_params_of_router(&block->moe, &state->moe));
    return first_params(layer, saved);
}

static const nn_block_work choice = {choose, choose_backward, choose_params};

static mimo_status set_route(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_route_start(&call->move, &block->moe, &state->moe);
}

static const nn_block_work route = {set_route, NULL, NULL};

static mimo_status send(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_dispatch_start(&call->move, &block->moe, &state->moe);
}

static mimo_status send_backward(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_backward_dispatch_start(&call->move, &block->moe, &state->moe, state->d_normed);
}

static const nn_block_work dispatch = {send, send_backward, NULL};

static mimo_status share(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_shared(&block->moe, &state->moe, call->y);
}

static mimo_status share_backward(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_backward_shared(&block->moe, &state->moe, state->d_normed, call->dy);
}

static mimo_status share_params(const void *layer, void *saved)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_params_of_shared(&block->moe, &state->moe);
}

static const nn_block_work shared = {share, share_backward, share_params};

static mimo_status ask_experts(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    (void)call;
    return nn_moe_experts(&block->moe, &state->moe);
}

static mimo_status ask_experts_backward(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    (void)call;
    return nn_moe_backward_experts(&block->moe, &state->moe);
}

static mimo_status expert_params(const void *layer, void *saved)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_params_of_experts(&block->moe, &state->moe);
}

static const nn_block_work experts = {ask_experts, ask_experts_backward, expert_params};

static mimo_status bring_back(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_combine_start(&call->move, &block->moe, &state->moe, call->y);
}

static mimo_status bring_back_backward(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    return nn_moe_backward_combine_start(&call->move, &block->moe, &state->moe, call->dy);
}

static const nn_block_work combine = {bring_back, bring_back_backward, NULL};

static mimo_status add_middle(const void *layer, void *saved, nn_block_call *call)
{
    const nn_block *block = layer;
    nn_block_saved *state = saved;
    MIMO_TRY(nn_moe_behind(&block->moe, &state->moe, call->y));
    return block->runtime->ops->add(block->runtime, call->y, state->middle,
                                    state->moe.kept.rows * block->hidden);
}

static const nn_block_work behind = {add_middle, NULL, NULL};

/* ----------------------------------- what a mixture keeps ------------------------------------- */

static mimo_status kept_place(void *kept, const void *layer, nn_room *room, bool rows)
{
    const nn_block *block = layer;
    return nn_moe_kept_place(kept, &block->moe, room, rows);
}

static mimo_status again_place(void *saved, const void *layer, nn_room *room, bool rows)
{
    return nn_block_again_place(saved, layer, room, rows);
}

static void resume(void *saved, const void *kept)
{
    nn_block_saved *state = saved;
    nn_moe_resume(&state->moe, kept);
}

static void keep(void *kept, const void *saved)
{
    const nn_block_saved *state = saved;
    nn_moe_keep(kept, &state->moe);
}

static const nn_block_keeping moved = {sizeof(nn_moe_kept), kept_place, again_place, resume, keep};

/* ------------------------------------------- kinds ------------------------------------------- */

static mimo_status init_plain(void *layer, nn_params *params, mimo_comm *tp,
                              const nn_block_desc *desc, nn_block_half half)
{
    nn_block_desc plain = *desc;
    plain.mixture = NULL;
    plain.half = half;
    return nn_block_init(layer, params, tp, &plain);
}

static mimo_status init_dense(void *layer, nn_params *params, mimo_comm *tp,
                              const nn_block_desc *desc)
{
    return init_plain(layer, params, tp, desc, NN_BLOCK_BOTH);
}

static mimo_status init_attention(void *layer, nn_params *params, mimo_comm *tp,
                                  const nn_block_desc *desc)
{
    return init_plain(layer, params, tp, desc, NN_BLOCK_ATTENTION);
}

static mimo_status init_mlp(void *layer, nn_params *params, mimo_comm *tp,
                            const nn_block_desc *desc)
{
    return init_plain(layer, params, tp, desc, NN_BLOCK_MLP);
}

static mimo_status init_mixed(void *layer, nn_params *params, mimo_comm *tp,
                              const nn_block_desc *desc)
{
    MIMO_CHECK(desc->mixture, MIMO_ERR_ARGUMENT, "%s: no mixture of experts", desc->name);
    return nn_block_init(layer, params, tp, desc);
}

static void release(void *layer)
{
    nn_block_release(layer);
}

static mimo_status saved_take(void *saved, const void *layer, nn_room *room)
{
    return nn_block_saved_take(saved, layer, room);
}

static mimo_status visit(void *layer, nn_lora_visit *each)
{
    return nn_block_visit(layer, each);
}

/* A row: how the kind begins, what it keeps, and its parts. */
#define KIND(begin, kept, ...)                                                                 \
    {                                                                                          \
        .layer_size = sizeof(nn_block), .saved_size = sizeof(nn_block_saved), .init = (begin), \
        .release = release, .saved_take = saved_take, .visit = visit, .keeping = (kept),       \
        .parts = {                                                                             \
            __VA_ARGS__                                                                        \
        }                                                                                      \
    }

const nn_block_kind nn_block_dense =
    KIND(init_dense, NULL, [NN_PART_BEFORE] = &attention_first, [NN_PART_EXPERTS] = &mlp_second);
const nn_block_kind nn_block_mixed =
    KIND(init_mixed, &moved, [NN_PART_BEFORE] = &choice, [NN_PART_ROUTE] = &route,
         [NN_PART_DISPATCH] = &dispatch, [NN_PART_SHARED] = &shared, [NN_PART_EXPERTS] = &experts,
         [NN_PART_COMBINE] = &combine, [NN_PART_BEHIND] = &behind);
const nn_block_kind nn_block_attention =
    KIND(init_attention, NULL, [NN_PART_BEFORE] = &attention_alone);
const nn_block_kind nn_block_mlp = KIND(init_mlp, NULL, [NN_PART_EXPERTS] = &mlp_alone);

/* -------------------------------------------- parts ------------------------------------------ */

enum {
    BEFORE = 1 << NN_PART_BEFORE,
    ROUTE = 1 << NN_PART_ROUTE,
    DISPATCH = 1 << NN_PART_DISPATCH,
    EXPERTS = 1 << NN_PART_EXPERTS,
    ALL_BEFORE_BEHIND = (1 << NN_PART_BEHIND) - 1,
    /* Backward reads what these parts save. The route of the first forward stays; of the other two
     * nobody reads the result. */
    REPEATED = ALL_BEFORE_BEHIND & ~(ROUTE | 1 << NN_PART_COMBINE),
};

/* What each part needs in forward, also through others: a kind may leave those out. */
static const unsigned reads[NN_PARTS] = {
    [NN_PART_ROUTE] = BEFORE,
    [NN_PART_DISPATCH] = BEFORE | ROUTE,
    [NN_PART_SHARED] = BEFORE,
    [NN_PART_EXPERTS] = BEFORE | ROUTE | DISPATCH,
    [NN_PART_COMBINE] = BEFORE | ROUTE | DISPATCH | EXPERTS,
    [NN_PART_BEHIND] = ALL_BEFORE_BEHIND,
};

static bool works(const nn_block_work *part, nn_pass pass)
{
    if (!part)
        return false;
    if (pass == NN_PASS_PARAMS)
        return part->backward_params != NULL;
    return nn_pass_is_forward(pass) ? part->forward != NULL : part->backward_input != NULL;
}

unsigned nn_block_parts(const nn_block_kind *kind, nn_pass pass, nn_recompute recompute)
{
    unsigned parts = 0;
    for (int p = 0; p < NN_PARTS; p++)
        parts |= works(kind->parts[p], pass) ? 1u << p : 0;
    if (pass == NN_PASS_AGAIN)
        parts &= recompute == NN_RECOMPUTE_NONE ? 0 : REPEATED;
    if (pass == NN_PASS_AGAIN && recompute == NN_RECOMPUTE_KEEP_ROWS)
        parts &= ~(unsigned)DISPATCH;
    return parts;
}

static unsigned readers_of(nn_block_part part)
{
    unsigned readers = 0;
    for (int other = 0; other < NN_PARTS; other++)
        if (reads[other] & 1u << part)
            readers |= 1u << other;
    return readers;
}

unsigned nn_part_needs(nn_pass pass, nn_block_part part)
{
    if (nn_pass_is_forward(pass))
        return reads[part];
    return pass == NN_PASS_INPUT ? readers_of(part) : 0;
}

const char *nn_part_name(nn_block_part part)
{
    static const char *const names[NN_PARTS] = {
        [NN_PART_BEFORE] = "before", [NN_PART_ROUTE] = "route",     [NN_PART_DISPATCH] = "dispatch",
        [NN_PART_SHARED] = "shared", [NN_PART_EXPERTS] = "experts", [NN_PART_COMBINE] = "combine",
        [NN_PART_BEHIND] = "behind",
    };
    return names[part];
}

nn_block_part nn_part_in_order(nn_pass pass, int i)
{
    return (nn_block_part)(nn_pass_is_forward(pass) ? i : NN_PARTS - 1 - i);
}

mimo_status nn_block_run(const nn_block_kind *kind, nn_block_part part, const void *layer,
                         void *saved, nn_block_call *call)
{
    const nn_block_work *it = kind->parts[part];
    call->move = NULL;
    if (!it)
        return MIMO_OK;
    switch (call->pass) {
    case NN_PASS_FORWARD:
    case NN_PASS_AGAIN:
        return it->forward ? it->forward(layer, saved, call) : MIMO_OK;
    case NN_PASS_INPUT:
        return it->backward_input ? it->backward_input(layer, saved, call) : MIMO_OK;
    case NN_PASS_PARAMS:
        return it->backward_params ? it->backward_params(layer, saved) : MIMO_OK;
    }
    return MIMO_OK;
}

/* ---------------------------------------- a block alone -------------------------------------- */

static const nn_block_kind *kind_of(const nn_block *block)
{
    if (block->half == NN_BLOCK_ATTENTION)
        return &nn_block_attention;
    if (block->half == NN_BLOCK_MLP)
        return &nn_block_mlp;
    return block->mixed ? &nn_block_mixed : &nn_block_dense;
}

static mimo_status walk(const nn_block *block, nn_block_saved *saved, nn_block_call call)
{
    const nn_block_kind *kind = kind_of(block);
    for (int i = 0; i < NN_PARTS; i++) {
        MIMO_TRY(nn_block_run(kind, nn_part_in_order(call.pass, i), block, saved, &call));
        MIMO_TRY(mimo_op_wait(&call.move));
    }
    return MIMO_OK;
}

/* The progress of what comes last. */
static nn_progress *progress_of(const nn_block *block, nn_block_saved *saved)
{
    if (block->half == NN_BLOCK_ATTENTION)
        return &saved->attention.out.progress;
    return block->mixed ? &saved->moe.experts.progress : &saved->mlp.down.progress;
}

mimo_status nn_block_forward(const nn_block *block, nn_block_saved *saved, nn_real *y,
                             const nn_real *x, const nn_sequence *sequence)
{
    MIMO_CHECK(sequence, MIMO_ERR_ARGUMENT, "block: NULL sequence");
    *progress_of(block, saved) = NN_PROGRESS_NONE;
    return walk(block, saved,
                (nn_block_call){.pass = NN_PASS_FORWARD, .x = x, .y = y, .sequence = sequence});
}

mimo_status nn_block_backward_input(const nn_block *block, nn_block_saved *saved, nn_real *dx,
                                    nn_real *dy)
{
    MIMO_CHECK(*progress_of(block, saved) >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "block: backward before forward");
    return walk(block, saved, (nn_block_call){.pass = NN_PASS_INPUT, .dx = dx, .dy = dy});
}

mimo_status nn_block_backward_params(const nn_block *block, nn_block_saved *saved)
{
    return walk(block, saved, (nn_block_call){.pass = NN_PASS_PARAMS});
}
