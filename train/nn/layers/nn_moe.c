#include "train/nn/layers/nn_moe.h"

#include <string.h>

#include "core/checked.h"
#include "core/mutation.h"
#include "device/device.h"
#include "train/nn/params/nn_support.h"

/* ------------------------------------------ creation ----------------------------------------- */

static mimo_status check_place(const nn_params *params, const nn_moe_desc *desc)
{
    const nn_expert_coords *coords = nn_params_experts(params);
    mimo_comm *group = nn_dispatch_comm(desc->mixture->dispatch);
    int64_t etp = nn_dispatch_sizes(desc->mixture->dispatch)->etp;
    int rank = coords->etp_rank + coords->etp_size * coords->ep_rank;
    MIMO_CHECK(etp == coords->etp_size &&
                   nn_comm_size(group) == coords->etp_size * coords->ep_size &&
                   nn_comm_rank(group) == rank,
               MIMO_ERR_ARGUMENT,
               "%s: the dispatch is rank %d of %d with etp=%" PRId64
               ", the store has rank %d of etp=%d and rank %d of ep=%d",
               desc->name, nn_comm_rank(group), nn_comm_size(group), etp, coords->etp_rank,
               coords->etp_size, coords->ep_rank, coords->ep_size);
    return MIMO_OK;
}

static mimo_status check_sizes(const nn_moe_desc *desc, int64_t max_own)
{
    const mimo_dispatch_desc *sizes = nn_dispatch_sizes(desc->mixture->dispatch);
    MIMO_CHECK(sizes->hidden == desc->hidden && sizes->max_tokens >= max_own, MIMO_ERR_ARGUMENT,
               "%s: the dispatch moves up to %" PRId64 " rows of %" PRId64
               " elements for a rank, the layer %" PRId64 " of %" PRId64,
               desc->name, sizes->max_tokens, sizes->hidden, max_own, desc->hidden);
    return MIMO_OK;
}

/* In the fixed order a rank's experts are a subtree of all. */
static mimo_status check_order(const nn_params *params, const nn_moe_desc *desc)
{
    int64_t ep = nn_params_experts(params)->ep_size;
    MIMO_CHECK(nn_params_runtime(params)->order == NN_ORDER_FAST || (ep & (ep - 1)) == 0,
               MIMO_ERR_UNSUPPORTED,
               "%s: same bits need an ep that is a power of two, not ep=%" PRId64, desc->name, ep);
    return MIMO_OK;
}

/* The most rows that the tokens of all ranks can bring to this rank's experts. */
static mimo_status set_capacity(nn_moe *made, const nn_params *params, const nn_mixture *mixture)
{
    const nn_expert_coords *coords = nn_params_experts(params);
    const mimo_dispatch_desc *sizes = nn_dispatch_sizes(mixture->dispatch);
    int64_t here = sizes->experts / coords->ep_size;
    int64_t pairs = sizes->top_k < here ? sizes->top_k : here;
    made->capacity = mixture->capacity;
    if (mixture->capacity > 0)
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&made->capacity, made->max_own, pairs));
    return mimo_mul(&made->capacity, made->capacity, coords->etp_size * coords->ep_size);
}

static mimo_status init_router(nn_moe *made, nn_params *params, mimo_comm *tp,
                               const nn_moe_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    const nn_mixture *mixture = desc->mixture;
    MIMO_TRY(nn_join(name, desc->name, "router"));
    nn_router_desc router = {.name = name,
                             .hidden = desc->hidden,
                             .experts = nn_dispatch_sizes(mixture->dispatch)->experts,
                             .top_k = made->top_k,
                             .scores = mixture->scores,
                             .scale = mixture->scale,
                             .balance = mixture->balance,
                             .bias_rate = mixture->bias_rate,
                             .std = desc->std,
                             .max_rows = made->max_own,
                             .max_batch = desc->max_batch,
                             .cp = mixture->cp,
                             .replay = mixture->replay};
    return nn_router_init(&made->router, params, tp, &router);
}

static mimo_status init_experts(nn_moe *made, nn_params *params, const nn_moe_desc *desc)
{
    const nn_mixture *mixture = desc->mixture;
    MIMO_TRY(set_capacity(made, params, mixture));
    nn_experts_desc experts = {.name = desc->name,
                               .hidden = desc->hidden,
                               .inner = mixture->inner,
                               .experts = nn_dispatch_sizes(mixture->dispatch)->experts,
                               .max_rows = made->capacity,
                               .std = desc->std,
                               .out_std = desc->out_std,
                               .adapters = desc->adapters};
    return nn_experts_init(&made->experts, params, &experts);
}

static mimo_status init_shared(nn_moe *made, nn_params *params, mimo_comm *tp,
                               const nn_moe_desc *desc)
{
    char name[NN_NAME_CAPACITY];
    if (desc->mixture->shared == 0)
        return MIMO_OK;
    MIMO_TRY(nn_join(name, desc->name, "shared"));
    nn_mlp_desc shared = {name,           desc->hidden,  desc->mixture->shared,
                          desc->max_rows, desc->std,     desc->out_std,
                          desc->sp,       desc->adapters};
    return nn_mlp_init(&made->shared, params, tp, &shared);
}

static mimo_status init_parts(nn_moe *made, nn_params *params, mimo_comm *tp,
                              const nn_moe_desc *desc)
{
    MIMO_TRY(init_router(made, params, tp, desc));
    MIMO_TRY(init_experts(made, params, desc));
    MIMO_TRY(init_shared(made, params, tp, desc));
    return nn_runtime_reserve(made->runtime, &made->d_routed, made->max_own * made->hidden,
                              sizeof *made->d_routed);
}

static mimo_status check_desc(const nn_params *params, mimo_comm *tp, const nn_moe_desc *desc)
{
    MIMO_TRY(nn_check_tp(desc->name, params, tp));
    MIMO_TRY(nn_check_size(desc->name, "hidden", desc->hidden));
    MIMO_TRY(nn_check_size(desc->name, "max_rows", desc->max_rows));
    MIMO_CHECK(desc->mixture->capacity >= 0, MIMO_ERR_ARGUMENT, "%s: capacity %" PRId64, desc->name,
               desc->mixture->capacity);
    MIMO_CHECK(desc->mixture->dispatch, MIMO_ERR_ARGUMENT, "%s: no dispatch", desc->name);
    MIMO_TRY(check_place(params, desc));
    return check_order(params, desc);
}

int64_t nn_moe_own_rows(int64_t max_rows, int64_t tp_size)
{
    return (max_rows + tp_size - 1) / tp_size;
}

mimo_status nn_moe_init(nn_moe *layer, nn_params *params, mimo_comm *tp, const nn_moe_desc *desc)
{
    MIMO_TRY(check_desc(params, tp, desc));
    int64_t ranks = nn_comm_size(tp);
    if (MIMO_MUTATED("rows-not-cut"))
        ranks = 1;
    nn_moe made = {.runtime = nn_params_runtime(params),
                   .tp = {tp, nn_params_runtime(params), &nn_params_exchanged(params)->tp},
                   .dispatch = desc->mixture->dispatch,
                   .counts = &nn_params_exchanged(params)->experts,
                   .cut = ranks > 1 && !desc->sp,
                   .traced = desc->mixture->traced,
                   .hidden = desc->hidden,
                   .top_k = nn_dispatch_sizes(desc->mixture->dispatch)->top_k,
                   .max_rows = desc->max_rows,
                   .max_own = nn_moe_own_rows(desc->max_rows, ranks)};
    MIMO_TRY(check_sizes(desc, made.max_own));
    mimo_status status = init_parts(&made, params, tp, desc);
    if (status != MIMO_OK) {
        nn_moe_release(&made);
        return status;
    }
    *layer = made;
    return MIMO_OK;
}

void nn_moe_release(nn_moe *layer)
{
    nn_router_release(&layer->router);
    nn_experts_release(&layer->experts);
    nn_mlp_release(&layer->shared);
    nn_runtime_free(layer->runtime, layer->d_routed);
    memset(layer, 0, sizeof *layer);
}

static bool has_shared(const nn_moe *layer)
{
    return layer->shared.max_rows > 0;
}

/* Whether a combine writes to a tile of its own: one that tp gathers, or that is added to what the
 * shared expert gives. */
static bool combines_apart(const nn_moe *layer)
{
    return layer->cut || has_shared(layer);
}

static mimo_status place_combined(nn_moe_saved *saved, const nn_moe *layer, nn_room *room)
{
    int64_t rows, elements;
    if (!combines_apart(layer))
        return MIMO_OK;
    MIMO_TRY(mimo_mul(&rows, nn_exchange_size(&layer->tp), layer->max_own));
    MIMO_TRY(mimo_mul(&elements, rows, layer->hidden));
    return nn_room_take(room, &saved->combined, elements, sizeof *saved->combined);
}

static mimo_status place_trace(nn_moe_saved *saved, const nn_moe *layer, nn_room *room)
{
    int64_t elements;
    MIMO_TRY(mimo_mul(&elements, layer->max_rows, layer->hidden));
    MIMO_TRY(nn_room_take(room, &saved->numbers, layer->max_rows, sizeof *saved->numbers));
    return nn_room_take(room, &saved->y, elements, sizeof *saved->y);
}

static mimo_status place_rows(nn_moe_rows *rows, const nn_moe *layer, nn_room *room)
{
    int64_t elements, count = layer->capacity;
    MIMO_TRY(mimo_mul(&elements, count, layer->hidden));
    MIMO_TRY(nn_room_take(room, &rows->x, elements, sizeof *rows->x));
    MIMO_TRY(nn_room_take(room, &rows->weights, count, sizeof *rows->weights));
    return layer->traced ? nn_room_take(room, &rows->numbers, count, sizeof *rows->numbers)
                         : MIMO_OK;
}

mimo_status nn_moe_kept_place(nn_moe_kept *kept, const nn_moe *layer, nn_room *room, bool rows)
{
    *kept = (nn_moe_kept){0};
    if (rows)
        MIMO_TRY(place_rows(&kept->sent, layer, room));
    if (!room->base)
        return MIMO_OK;
    return nn_dispatch_add_route(&kept->route, &kept->ends, layer->dispatch);
}

/* All but what a micro-batch keeps. */
static mimo_status place_state(nn_moe_saved *saved, const nn_moe *layer, nn_room *room)
{
    int64_t rows, choices;
    *saved = (nn_moe_saved){0};
    MIMO_TRY(mimo_mul(&rows, layer->capacity, layer->hidden));
    MIMO_TRY(mimo_mul(&choices, layer->max_own, layer->top_k));
    MIMO_TRY(nn_router_saved_take(&saved->router, &layer->router, room));
    MIMO_TRY(nn_experts_saved_take(&saved->experts, &layer->experts, room));
    if (has_shared(layer))
        MIMO_TRY(nn_mlp_saved_take(&saved->shared, &layer->shared, room));
    MIMO_TRY(nn_room_take(room, &saved->d_out, rows, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->out, rows, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->d_weights, layer->capacity, sizeof(nn_real)));
    MIMO_TRY(nn_room_take(room, &saved->d_choices, choices, sizeof(nn_real)));
    MIMO_TRY(place_combined(saved, layer, room));
    return layer->traced ? place_trace(saved, layer, room) : MIMO_OK;
}

mimo_status nn_moe_saved_take(nn_moe_saved *saved, const nn_moe *layer, nn_room *room)
{
    MIMO_TRY(place_state(saved, layer, room));
    return nn_moe_kept_place(&saved->kept, layer, room, true);
}

mimo_status nn_moe_again_place(nn_moe_saved *saved, const nn_moe *layer, nn_room *room, bool rows)
{
    MIMO_TRY(place_state(saved, layer, room));
    return rows ? MIMO_OK : place_rows(&saved->kept.sent, layer, room);
}

void nn_moe_resume(nn_moe_saved *saved, const nn_moe_kept *kept)
{
    const nn_moe_rows own = saved->kept.sent;
    saved->kept = *kept;
    saved->resumed = true;
    if (!kept->sent.x)
        saved->kept.sent = own;
}

void nn_moe_keep(nn_moe_kept *kept, const nn_moe_saved *saved)
{
    kept->rows = saved->kept.rows;
    kept->batch = saved->kept.batch;
    kept->own = saved->kept.own;
}

/* ------------------------------------------- rows -------------------------------------------- */

/* Rows of each tp rank's part of a tile that the layer cuts; the last parts may have fewer. */
static int64_t rows_of_part(const nn_moe *layer, const nn_moe_saved *saved)
{
    int64_t ranks = nn_exchange_size(&layer->tp);
    return (saved->kept.rows + ranks - 1) / ranks;
}

/* This rank's tokens, numbered as the rows of all tp ranks together. */
static nn_row_range own_rows(const nn_moe *layer, const nn_moe_saved *saved, const uint8_t *masked)
{
    int64_t rank = nn_exchange_rank(&layer->tp);
    if (MIMO_MUTATED("rows-not-cut"))
        rank = 0;
    nn_row_range own = {
        .first = rank * saved->kept.rows, .count = saved->kept.rows, .batch = saved->kept.batch};
    if (layer->cut) {
        int64_t part = rows_of_part(layer, saved);
        own.first = mimo_smaller(rank * part, saved->kept.rows);
        own.count = mimo_smaller(part, saved->kept.rows - own.first);
    }
    own.masked = masked ? masked + own.first : NULL;
    return own;
}

/* The first row of this rank's tokens in the caller's tile, and its first element. */
static int64_t own_row(const nn_moe *layer, const nn_moe_saved *saved)
{
    return layer->cut ? saved->kept.own.first : 0;
}

static int64_t own_element(const nn_moe *layer, const nn_moe_saved *saved)
{
    return own_row(layer, saved) * layer->hidden;
}

/* Where a combine writes this rank's rows: into its part of the tile that is gathered, or beside
 * the shared expert's, or to where they belong. */
static nn_real *combined(const nn_moe *layer, const nn_moe_saved *saved, nn_real *to)
{
    if (layer->cut)
        return saved->combined +
               nn_exchange_rank(&layer->tp) * rows_of_part(layer, saved) * layer->hidden;
    return has_shared(layer) ? saved->combined : to;
}

/* From what was combined to all rows in `to`. With a shared expert `to` has its part already. */
static mimo_status finish(const nn_moe *layer, const nn_moe_saved *saved, nn_real *to)
{
    const nn_runtime *runtime = layer->runtime;
    int64_t count = saved->kept.rows * layer->hidden;
    int64_t part = rows_of_part(layer, saved) * layer->hidden * (int64_t)sizeof *to;
    if (layer->cut)
        MIMO_TRY(nn_exchange_gather(&layer->tp, saved->combined, combined(layer, saved, to), part));
    if (has_shared(layer))
        return runtime->ops->add(runtime, to, saved->combined, count);
    if (!layer->cut)
        return MIMO_OK;
    return runtime->device->copy(to, saved->combined, count * (int64_t)sizeof *to, runtime->stream);
}

/* What the four moves of a micro-batch have in common. */
static nn_dispatch_move move_of(const nn_moe *layer, const nn_moe_saved *saved)
{
    return (nn_dispatch_move){.route = saved->kept.route,
                              .counts = layer->counts,
                              .tokens = saved->kept.own.count,
                              .capacity = layer->capacity};
}

/* The parts of the plain calls one behind the other: a move ends before the next part begins. */
static mimo_status end_move(mimo_status begun, mimo_op **move)
{
    MIMO_TRY(begun);
    return mimo_op_wait(move);
}

/* ------------------------------------------ forward ------------------------------------------ */

mimo_status nn_moe_before(const nn_moe *layer, nn_moe_saved *saved, const nn_moe_input *input)
{
    int64_t most = layer->cut ? layer->max_rows : layer->max_own;
    saved->experts.progress = NN_PROGRESS_NONE;
    MIMO_TRY(nn_check_forward("moe", layer->router.params, input->rows, most));
    saved->x = input->x;
    saved->kept.rows = input->rows;
    saved->kept.batch = input->batch;
    saved->kept.own = own_rows(layer, saved, input->masked);
    return nn_router_forward(&layer->router, &saved->router, input->x + own_element(layer, saved),
                             &saved->kept.own);
}

mimo_status nn_moe_route_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved)
{
    return nn_dispatch_set_start(out, layer->dispatch, saved->kept.route, saved->router.ids,
                                 saved->kept.own.count, layer->capacity);
}

mimo_status nn_moe_dispatch_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved)
{
    nn_dispatch_move move = move_of(layer, saved);
    move.token_rows = (nn_real *)saved->x + own_element(layer, saved); /* only read */
    move.values = saved->router.weights;
    move.rows = saved->kept.sent.x;
    move.row_values = saved->kept.sent.weights;
    move.numbers = layer->traced ? saved->numbers + own_row(layer, saved) : NULL;
    move.row_numbers = saved->kept.sent.numbers;
    return nn_dispatch_rows_start(out, layer->dispatch, &move);
}

mimo_status nn_moe_shared(const nn_moe *layer, nn_moe_saved *saved, nn_real *y)
{
    if (!has_shared(layer))
        return MIMO_OK;
    return nn_mlp_forward(&layer->shared, &saved->shared, y, saved->x, saved->kept.rows,
                          saved->kept.batch);
}

mimo_status nn_moe_experts(const nn_moe *layer, nn_moe_saved *saved)
{
    nn_expert_rows rows = {saved->kept.sent.x, saved->kept.sent.weights, NULL};
    MIMO_TRY(nn_dispatch_ends(&rows.ends, layer->dispatch, saved->kept.route, saved->kept.ends,
                              layer->capacity));
    return nn_experts_forward(&layer->experts, &saved->experts, saved->out, &rows);
}

mimo_status nn_moe_combine_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved,
                                 nn_real *y)
{
    nn_dispatch_move move = move_of(layer, saved);
    move.token_rows = combined(layer, saved, y);
    move.rows = saved->out;
    return nn_dispatch_combine_start(out, layer->dispatch, &move);
}

mimo_status nn_moe_behind(const nn_moe *layer, nn_moe_saved *saved, nn_real *y)
{
    const nn_runtime *runtime = layer->runtime;
    MIMO_TRY(finish(layer, saved, y));
    if (!layer->traced)
        return MIMO_OK;
    return runtime->device->copy(saved->y, y, saved->kept.rows * layer->hidden * (int64_t)sizeof *y,
                                 runtime->stream);
}

mimo_status nn_moe_forward(const nn_moe *layer, nn_moe_saved *saved, nn_real *y,
                           const nn_moe_input *input)
{
    mimo_op *move = NULL;
    MIMO_TRY(nn_moe_before(layer, saved, input));
    MIMO_TRY(end_move(nn_moe_route_start(&move, layer, saved), &move));
    MIMO_TRY(end_move(nn_moe_dispatch_start(&move, layer, saved), &move));
    MIMO_TRY(nn_moe_shared(layer, saved, y));
    MIMO_TRY(nn_moe_experts(layer, saved));
    MIMO_TRY(end_move(nn_moe_combine_start(&move, layer, saved, y), &move));
    return nn_moe_behind(layer, saved, y);
}

/* ------------------------------------------ backward ----------------------------------------- */

mimo_status nn_moe_backward_combine_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved,
                                          nn_real *dy)
{
    nn_dispatch_move move = move_of(layer, saved);
    MIMO_CHECK(saved->resumed || saved->experts.progress >= NN_PROGRESS_FORWARD, MIMO_ERR_STATE,
               "moe: backward before forward");
    move.token_rows = dy + own_element(layer, saved);
    move.rows = saved->d_out;
    return nn_dispatch_rows_start(out, layer->dispatch, &move);
}

mimo_status nn_moe_backward_experts(const nn_moe *layer, nn_moe_saved *saved)
{
    return nn_experts_backward_input(&layer->experts, &saved->experts, saved->out, saved->d_weights,
                                     saved->d_out);
}

mimo_status nn_moe_backward_shared(const nn_moe *layer, nn_moe_saved *saved, nn_real *dx,
                                   nn_real *dy)
{
    saved->shared.down.stays = true; /* the block's other parts read dy */
    return has_shared(layer) ? nn_mlp_backward_input(&layer->shared, &saved->shared, dx, dy)
                             : MIMO_OK;
}

mimo_status nn_moe_backward_dispatch_start(mimo_op **out, const nn_moe *layer, nn_moe_saved *saved,
                                           nn_real *dx)
{
    nn_dispatch_move move = move_of(layer, saved);
    move.token_rows = combined(layer, saved, dx);
    move.values = saved->d_choices;
    move.rows = saved->out;
    move.row_values = saved->d_weights;
    return nn_dispatch_combine_start(out, layer->dispatch, &move);
}

mimo_status nn_moe_backward_before(const nn_moe *layer, nn_moe_saved *saved, nn_real *dx)
{
    const nn_runtime *runtime = layer->runtime;
    MIMO_TRY(nn_router_backward_input(&layer->router, &saved->router, layer->d_routed,
                                      saved->d_choices));
    MIMO_TRY(runtime->ops->add(runtime, combined(layer, saved, dx), layer->d_routed,
                               saved->kept.own.count * layer->hidden));
    return finish(layer, saved, dx);
}

mimo_status nn_moe_backward_input(const nn_moe *layer, nn_moe_saved *saved, nn_real *dx,
                                  nn_real *dy)
{
    mimo_op *move = NULL;
    MIMO_TRY(end_move(nn_moe_backward_combine_start(&move, layer, saved, dy), &move));
    MIMO_TRY(nn_moe_backward_experts(layer, saved));
    MIMO_TRY(nn_moe_backward_shared(layer, saved, dx, dy));
    MIMO_TRY(end_move(nn_moe_backward_dispatch_start(&move, layer, saved, dx), &move));
    return nn_moe_backward_before(layer, saved, dx);
}

/* ------------------------------------- gradients of parameters -------------------------------- */

mimo_status nn_moe_params_of_experts(const nn_moe *layer, nn_moe_saved *saved)
{
    return nn_experts_backward_params(&layer->experts, &saved->experts);
}

mimo_status nn_moe_params_of_shared(const nn_moe *layer, nn_moe_saved *saved)
{
    return has_shared(layer) ? nn_mlp_backward_params(&layer->shared, &saved->shared) : MIMO_OK;
}

mimo_status nn_moe_params_of_router(const nn_moe *layer, nn_moe_saved *saved)
{
    return nn_router_backward_params(&layer->router, &saved->router);
}

mimo_status nn_moe_backward_params(const nn_moe *layer, nn_moe_saved *saved)
{
    MIMO_TRY(nn_moe_params_of_experts(layer, saved));
    MIMO_TRY(nn_moe_params_of_shared(layer, saved));
    return nn_moe_params_of_router(layer, saved);
}

mimo_status nn_moe_visit(nn_moe *layer, nn_lora_visit *visit)
{
    MIMO_TRY(nn_experts_visit(&layer->experts, visit));
    return has_shared(layer) ? nn_mlp_visit(&layer->shared, visit) : MIMO_OK;
}
