#include "train/nn/params/nn_whole.h"

#include <string.h>

#include "core/memory.h"
#include "core/mutation.h"
#include "device/device.h"
#include "train/nn/params/nn_params_types.h"
#include "train/nn/params/nn_support.h"

static const nn_param *param_of(const nn_param_part *part)
{
    return nn_params_at(part->owners->params, part->index);
}

static const nn_runtime *runtime_of(const nn_param_part *part)
{
    return nn_params_runtime(part->owners->params);
}

/* Values move before and after training: they are not counted. */
static nn_exchange exchange_of(const nn_param_part *part)
{
    return (nn_exchange){.comm = part->owners->comm, .runtime = runtime_of(part)};
}

/* ------------------------------------------- gather ------------------------------------------- */

void nn_whole_join(nn_real *whole, const nn_real *slices, const nn_placement *placement)
{
    int64_t parts = nn_placement_parts(placement);
    int64_t count = nn_placement_elements(placement) / parts;
    for (int t = 0; t < parts; t++)
        for (int64_t i = 0; i < nn_placement_runs(placement); i++) {
            nn_run run = nn_placement_run(placement, t, i);
            int64_t slice = t * count;
            if (MIMO_MUTATED("save-first-slice"))
                slice = 0;
            memcpy(whole + run.global, slices + slice + run.local,
                   (size_t)run.count * sizeof *whole);
        }
}

/* This rank's slice, where it speaks for it, to its place among all. */
static mimo_status put_own(nn_real *gathered, const nn_param_part *from)
{
    const nn_param *param = param_of(from);
    const nn_runtime *runtime = runtime_of(from);
    int64_t part = param->placement.cut < 0 ? 0 : param->rank;
    nn_real *slice;
    if (!nn_owners_speak(from->owners, from->index))
        return MIMO_OK;
    MIMO_TRY(nn_params_array(&slice, from->owners->params, from->index, from->part));
    return runtime->device->copy(gathered + part * param->count, slice,
                                 param->count * (int64_t)sizeof *slice, runtime->stream);
}

mimo_status nn_whole_gather(const nn_whole_rooms *rooms, const nn_param_part *from)
{
    /* The same on every rank: nobody waits for one that failed. */
    MIMO_TRY(nn_params_check_part(from->owners->params, from->index, from->part));
    const nn_placement *placement = &param_of(from)->placement;
    nn_exchange all = exchange_of(from);
    int64_t elements = nn_placement_elements(placement), parts = nn_placement_parts(placement);
    int64_t count = elements / parts, bytes = elements * (int64_t)sizeof *rooms->whole;
    MIMO_TRY(put_own(rooms->gathered, from));
    for (int64_t part = 0; part < parts; part++) {
        int owner = nn_owners_rank(from->owners, from->index, part);
        if (MIMO_MUTATED("save-first-ep"))
            owner = 0;
        MIMO_TRY(nn_exchange_broadcast(&all, rooms->gathered + part * count, bytes / parts, owner));
    }
    if (parts == 1)
        return nn_runtime_read(runtime_of(from), rooms->whole, rooms->gathered, bytes);
    MIMO_TRY(nn_runtime_read(runtime_of(from), rooms->slices, rooms->gathered, bytes));
    nn_whole_join(rooms->whole, rooms->slices, placement);
    return MIMO_OK;
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
    const nn_params *params = to->owners->params;
    nn_exchange all = exchange_of(to);
    int size = nn_exchange_size(&all);
    MIMO_CHECK(to->index >= 0 && to->index < nn_params_count(params), MIMO_ERR_ARGUMENT,
               "distribute: parameter %d of a store of %d", to->index, nn_params_count(params));
    MIMO_CHECK(nn_params_sealed(params), MIMO_ERR_STATE, "distribute: the store is not sealed");
    MIMO_TRY(nn_params_check_unmerged(params, "distribute"));
    MIMO_CHECK(root >= 0 && root < size, MIMO_ERR_ARGUMENT, "distribute: root %d of %d ranks", root,
               size);
    MIMO_CHECK((whole != NULL) == (nn_exchange_rank(&all) == root), MIMO_ERR_ARGUMENT,
               "distribute: rank %d brings %s tensor, and rank %d is the root",
               nn_exchange_rank(&all), whole ? "a" : "no", root);
    return MIMO_OK;
}

/* Room for the whole tensor on the host, and where it travels. */
typedef struct travel_rooms {
    nn_real *whole, *slice, *sent;
} travel_rooms;

static mimo_status reserve_rooms(travel_rooms *rooms, const nn_param_part *to)
{
    const nn_param *param = param_of(to);
    int64_t elements = nn_placement_elements(&param->placement);
    MIMO_TRY(mimo_reserve(&rooms->whole, elements, sizeof *rooms->whole));
    MIMO_TRY(mimo_reserve(&rooms->slice, param->count, sizeof *rooms->slice));
    return nn_runtime_reserve(runtime_of(to), &rooms->sent, elements, sizeof *rooms->sent);
}

/* The slice that this rank takes: its own. */
static int slice_taken(const nn_param *param)
{
    bool last = MIMO_MUTATED("last-slice-first") && param->rank == 0;
    return last ? (int)nn_placement_parts(&param->placement) - 1 : param->rank;
}

static mimo_status send(const travel_rooms *rooms, const nn_param_part *to, const nn_real *whole,
                        int root)
{
    const nn_param *param = param_of(to);
    const nn_runtime *runtime = runtime_of(to);
    nn_exchange all = exchange_of(to);
    int64_t bytes = nn_placement_elements(&param->placement) * (int64_t)sizeof *whole;
    if (whole)
        MIMO_TRY(nn_runtime_write(runtime, rooms->sent, whole, bytes));
    MIMO_TRY(nn_exchange_broadcast(&all, rooms->sent, bytes, root));
    MIMO_TRY(nn_runtime_read(runtime, rooms->whole, rooms->sent, bytes));
    if (!param->held || (MIMO_MUTATED("init-not-broadcast") && !whole))
        return MIMO_OK;
    slice_of_rank(rooms->slice, rooms->whole, param, slice_taken(param));
    return nn_params_write(to->owners->params, to->index, NN_VALUE, rooms->slice);
}

mimo_status nn_params_distribute(const nn_param_part *to, const nn_real *whole, int root)
{
    MIMO_CHECK(to && to->owners, MIMO_ERR_ARGUMENT, "distribute: NULL parameter or owners");
    nn_exchange all = exchange_of(to);
    travel_rooms rooms = {0};
    mimo_status status = check_distribute(to, whole, root);
    if (status == MIMO_OK)
        status = reserve_rooms(&rooms, to);
    status = nn_exchange_agree(&all, status);
    if (status == MIMO_OK)
        status = send(&rooms, to, whole, root);
    mimo_release(rooms.whole);
    mimo_release(rooms.slice);
    nn_runtime_free(runtime_of(to), rooms.sent);
    return status;
}
