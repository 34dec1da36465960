#include "captioner/training/memory_save.h"

#include <string.h>
#include <unistd.h>

#include "captioner/training/copy_groups.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

enum { HOST_NAME = 256 };

static void empty_slot(memory_slot *slot)
{
    memory_release(slot->placements);
    memory_release(slot->parts);
    memory_release(slot->values);
    *slot = (memory_slot){.step = -1};
}

void memory_save_pause(memory_save *save)
{
    model_state_release(&save->state);
    mimo_comm_destroy(save->group);
    save->group = NULL;
    save->world = NULL;
    save->model = NULL;
}

void memory_save_release(memory_save *save)
{
    memory_save_pause(save);
    for (int i = 0; i < MEMORY_SLOTS; i++)
        empty_slot(&save->slots[i]);
}

/* ------------------------------------------- groups ------------------------------------------- */

static uint64_t host_hash(void)
{
    char name[HOST_NAME] = "";
    (void)gethostname(name, sizeof name - 1);
    return hash_bytes(HASH_START, name, strlen(name));
}

static mimo_status split(memory_save *save, uint64_t *hosts, int *groups)
{
    const uint64_t host = host_hash();
    int ranks = mimo_comm_size(save->world), rank = mimo_comm_rank(save->world);
    TRY(mimo_comm_host_allgather(save->world, hosts, &host, (int)sizeof host));
    copy_groups_make(groups, groups + ranks, hosts, ranks);
    return mimo_comm_split(&save->group, save->world, groups[rank], rank);
}

static mimo_status find_group(memory_save *save)
{
    uint64_t *hosts = NULL;
    int *groups = NULL, ranks = mimo_comm_size(save->world);
    mimo_status status = memory_reserve(&hosts, ranks, sizeof *hosts);
    if (status == MIMO_OK)
        status = memory_reserve(&groups, 2 * ranks, sizeof *groups);
    status = mimo_comm_agree(save->world, status);
    if (status == MIMO_OK)
        status = split(save, hosts, groups);
    memory_release(hosts);
    memory_release(groups);
    return status;
}

/* So that each rank of the group has room for the part of every other one. */
static mimo_status find_room(memory_save *save)
{
    int64_t rooms[COPY_GROUP_MOST];
    save->own = save->room = 0;
    for (int64_t i = 0; i < save->state.count; i++)
        save->own += save->state.arrays[i].param->count;
    TRY(mimo_comm_host_allgather(save->group, rooms, &save->own, (int)sizeof save->own));
    for (int i = 0; i < mimo_comm_size(save->group); i++)
        save->room = rooms[i] > save->room ? rooms[i] : save->room;
    return MIMO_OK;
}

mimo_status memory_save_begin(memory_save *save, mimo_comm *world, bridged_model *model,
                              int64_t generation)
{
    save->world = world;
    save->model = model;
    save->generation = generation;
    TRY(mimo_comm_agree(world, model_state_list(&save->state, model, STATE_TRAINED)));
    TRY(find_group(save));
    return find_room(save);
}

/* -------------------------------------------- takes ------------------------------------------- */

static bool is_newer(const memory_slot *a, const memory_slot *b)
{
    if (a->step < 0 || b->step < 0)
        return a->step > b->step;
    return a->generation != b->generation ? a->generation > b->generation : a->step > b->step;
}

/* Room as this generation needs it: the same memory again, where it has the size. */
static mimo_status make_room(memory_slot *slot, const memory_save *save)
{
    int members = mimo_comm_size(save->group);
    int64_t count = save->state.count;
    slot->step = -1;
    if (!slot->values || slot->generation != save->generation) {
        empty_slot(slot);
        TRY(memory_reserve(&slot->placements, count, sizeof *slot->placements));
        TRY(memory_reserve(&slot->parts, members * count, sizeof *slot->parts));
        TRY(memory_reserve(&slot->values, members * save->room, sizeof *slot->values));
    }
    slot->generation = save->generation;
    slot->count = count;
    slot->members = members;
    slot->own = mimo_comm_rank(save->group);
    slot->room = save->room;
    return MIMO_OK;
}

/* This rank's part, to its place among those of the group. */
static mimo_status put_own(memory_slot *slot, const memory_save *save)
{
    int64_t *parts = slot->parts + slot->own * slot->count;
    nn_real *to = slot->values + slot->own * slot->room;
    for (int64_t i = 0; i < slot->count; i++) {
        const state_array *array = &save->state.arrays[i];
        const nn_param *param = array->param;
        const nn_param_part *place = &array->place;
        slot->placements[i] = param->placement;
        parts[i] = !param->held ? -1 : param->placement.cut < 0 ? 0 : param->rank;
        if (!param->held)
            continue;
        TRY(nn_params_read(place->owners->params, place->index, place->part, to));
        to += param->count;
    }
    return MIMO_OK;
}

static mimo_status prepare(memory_slot *slot, const memory_save *save)
{
    TRY(make_room(slot, save));
    return put_own(slot, save);
}

mimo_status memory_save_take(memory_save *save, int64_t step)
{
    memory_slot *slots = save->slots, *slot = &slots[is_newer(&slots[0], &slots[1])];
    TRY(mimo_comm_agree(save->world, prepare(slot, save)));
    TRY(mimo_comm_allgather(save->group, slot->parts, slot->parts + slot->own * slot->count,
                            slot->count * (int64_t)sizeof *slot->parts, NULL));
    TRY(mimo_comm_allgather(save->group, slot->values, slot->values + slot->own * slot->room,
                            slot->room * (int64_t)sizeof *slot->values, NULL));
    slot->step = step;
    return MIMO_OK;
}
