#include "nn/params/nn_whole.h"

#include <string.h>

#include "core/memory.h"
#include "core/mutation.h"
#include "device/device.h"
#include "nn/params/nn_support.h"

/* Values move before and after training: they are not counted. */
static nn_exchange exchange_of(const nn_param_part *part)
{
    return (nn_exchange){.comm = part->tp, .runtime = nn_params_runtime(part->params)};
}

/* Slices of all ranks, one after the other, to where they belong in the whole. */
static void join_slices(nn_real *whole, const nn_real *slices, const nn_placement *placement,
                        int64_t count)
{
    for (int t = 0; t < placement->ranks; t++)
        for (int64_t i = 0; i < nn_placement_runs(placement); i++) {
            nn_run run = nn_placement_run(placement, t, i);
            int64_t slice = t * count;
            if (MIMO_MUTATED("save-first-slice"))
                slice = 0;
            memcpy(whole + run.global, slices + slice + run.local,
                   (size_t)run.count * sizeof *whole);
        }
}

/* The whole tensor on one stage, from the slices of its tp ranks. */
static mimo_status gather_slices(const nn_whole_rooms *rooms, const nn_param_part *from)
{
    nn_real *slice;
    MIMO_TRY(nn_params_array(&slice, from->params, from->index, from->part));
    const nn_param *param = nn_params_at(from->params, from->index);
    const nn_runtime *runtime = nn_params_runtime(from->params);
    nn_exchange tp = exchange_of(from);
    const nn_placement *placement = &param->placement;
    int64_t bytes = param->count * (int64_t)sizeof *rooms->whole;
    if (nn_exchange_size(&tp) == 1 || placement->cut < 0)
        return nn_params_read(from->params, from->index, from->part, rooms->whole);
    MIMO_TRY(nn_exchange_gather(&tp, rooms->gathered, slice, bytes));
    MIMO_TRY(nn_runtime_read(runtime, rooms->slices, rooms->gathered, placement->ranks * bytes));
    join_slices(rooms->whole, rooms->slices, placement, param->count);
    return MIMO_OK;
}

/* From the stage that holds it to all. */
static mimo_status share_whole(const nn_whole_rooms *rooms, const nn_param_part *from,
                               const nn_exchange *pp)
{
    const nn_param *param = nn_params_at(from->params, from->index);
    const nn_runtime *runtime = nn_params_runtime(from->params);
    int64_t bytes = nn_placement_elements(&param->placement) * (int64_t)sizeof *rooms->whole;
    if (param->held)
        MIMO_TRY(nn_runtime_write(runtime, rooms->gathered, rooms->whole, bytes));
    MIMO_TRY(nn_exchange_broadcast(pp, rooms->gathered, bytes, param->stage));
    return nn_runtime_read(runtime, rooms->whole, rooms->gathered, bytes);
}

mimo_status nn_whole_gather(const nn_whole_rooms *rooms, const nn_param_part *from)
{
    nn_exchange pp = {.comm = from->pp, .runtime = nn_params_runtime(from->params)};
    if (nn_exchange_size(&pp) == 1)
        return gather_slices(rooms, from);
    MIMO_CHECK(from->index >= 0 && from->index < nn_params_count(from->params), MIMO_ERR_ARGUMENT,
               "parameter %d of a store of %d", from->index, nn_params_count(from->params));
    mimo_status status = MIMO_OK;
    if (nn_params_at(from->params, from->index)->held)
        status = gather_slices(rooms, from);
    MIMO_TRY(nn_exchange_agree(&pp, status));
    return share_whole(rooms, from, &pp);
}

static void slice_of_rank(nn_real *local, const nn_real *whole, const nn_param *param, int rank)
{
    for (int64_t i = 0; i < nn_placement_runs(&param->placement); i++) {
        nn_run run = nn_placement_run(&param->placement, rank, i);
        memcpy(local + run.local, whole + run.global, (size_t)run.count * sizeof *local);
    }
}

void nn_whole_slice(nn_real *local, const nn_real *whole, const nn_params *params, int index)
{
    const nn_param *param = nn_params_at(params, index);
    if (param->held)
        slice_of_rank(local, whole, param, param->rank);
}

/* ----------------------------------------- distribute ----------------------------------------- */

static mimo_status check_distribute(const nn_param_part *to, const nn_real *whole, int root)
{
    nn_exchange tp = exchange_of(to);
    int size = nn_exchange_size(&tp);
    MIMO_CHECK(to->index >= 0 && to->index < nn_params_count(to->params), MIMO_ERR_ARGUMENT,
               "distribute: parameter %d of a store of %d", to->index, nn_params_count(to->params));
    MIMO_CHECK(nn_params_sealed(to->params), MIMO_ERR_STATE, "distribute: the store is not sealed");
    MIMO_TRY(nn_params_check_unmerged(to->params, "distribute"));
    MIMO_CHECK(root >= 0 && root < size, MIMO_ERR_ARGUMENT, "distribute: root %d of %d ranks", root,
               size);
    MIMO_CHECK((whole != NULL) == (nn_exchange_rank(&tp) == root), MIMO_ERR_ARGUMENT,
               "distribute: rank %d brings %s tensor, and rank %d is the root",
               nn_exchange_rank(&tp), whole ? "a" : "no", root);
    return MIMO_OK;
}

/* The slices of all ranks, or the whole, in the runtime's memory; *out stays NULL on other ranks
 * than the root. */
static mimo_status pack(nn_real **out, const nn_param_part *to, const nn_real *whole)
{
    const nn_param *param = nn_params_at(to->params, to->index);
    const nn_runtime *runtime = nn_params_runtime(to->params);
    int ranks = param->placement.cut < 0 ? 1 : param->placement.ranks;
    int64_t bytes = ranks * param->count * (int64_t)sizeof(nn_real);
    nn_real *slices;
    if (!whole)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&slices, ranks * param->count, sizeof *slices));
    for (int t = 0; t < ranks; t++)
        slice_of_rank(slices + t * param->count, whole, param, t);
    if (MIMO_MUTATED("last-slice-first"))
        slice_of_rank(slices, whole, param, ranks - 1);
    mimo_status status = nn_runtime_reserve(runtime, out, ranks * param->count, sizeof **out);
    if (status == MIMO_OK)
        status = nn_runtime_write(runtime, *out, slices, bytes);
    mimo_release(slices);
    return status;
}

static mimo_status send(const nn_param_part *to, const nn_real *packed, int root)
{
    const nn_param *param = nn_params_at(to->params, to->index);
    const nn_runtime *runtime = nn_params_runtime(to->params);
    nn_exchange tp = exchange_of(to);
    int64_t bytes = param->count * (int64_t)sizeof *packed;
    if (param->placement.cut >= 0 && nn_exchange_size(&tp) > 1)
        return nn_exchange_scatter(&tp, param->value, packed, bytes, root);
    if (packed)
        MIMO_TRY(runtime->device->copy(param->value, packed, bytes, runtime->stream));
    if (MIMO_MUTATED("init-not-broadcast"))
        return MIMO_OK;
    return nn_exchange_broadcast(&tp, param->value, bytes, root);
}

mimo_status nn_params_distribute(const nn_param_part *to, const nn_real *whole, int root)
{
    MIMO_CHECK(to && to->params, MIMO_ERR_ARGUMENT, "distribute: NULL parameter or store");
    nn_exchange tp = exchange_of(to);
    const nn_runtime *runtime = nn_params_runtime(to->params);
    nn_real *packed = NULL;
    mimo_status status = check_distribute(to, whole, root);
    bool held = status == MIMO_OK && nn_params_at(to->params, to->index)->held;
    if (held)
        status = pack(&packed, to, whole);
    status = nn_exchange_agree(&tp, status);
    if (status == MIMO_OK && held)
        status = send(to, packed, root);
    nn_real last;
    if (status == MIMO_OK && packed) /* wait before it is released */
        status = nn_runtime_read(runtime, &last, packed, sizeof last);
    nn_runtime_free(runtime, packed);
    return status;
}
