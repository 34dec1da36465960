#include "captioner/training/memory_save.h"

#include <string.h>

#include "captioner/training/copy_groups.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

void memory_found_release(memory_found *found)
{
    memory_release(found->placements);
    memory_release(found->holders);
    *found = (memory_found){.step = -1};
}

/* ------------------------------------------- finding ------------------------------------------ */

/* What a rank says of one of its slots. */
typedef struct slot_key {
    int64_t generation, step;
} slot_key;

static bool is_before(const slot_key *a, const slot_key *b)
{
    return a->generation != b->generation ? a->generation < b->generation : a->step < b->step;
}

/* The rooms of a search. */
typedef struct search {
    const memory_save *save;
    int ranks;
    int64_t count;  /* arrays */
    slot_key *keys; /* [ranks, MEMORY_SLOTS] */
    int64_t *parts; /* [ranks, COPY_GROUP_MOST, count]: what each rank has of a state */
    int64_t *own;   /* [COPY_GROUP_MOST, count] of these */
    memory_found *to;
} search;

static mimo_status reserve(search *out)
{
    int64_t own = COPY_GROUP_MOST * out->count;
    TRY(memory_reserve(&out->keys, out->ranks * MEMORY_SLOTS, sizeof *out->keys));
    TRY(memory_reserve(&out->parts, out->ranks * own, sizeof *out->parts));
    TRY(memory_reserve(&out->own, own, sizeof *out->own));
    return memory_reserve(&out->to->placements, out->count, sizeof *out->to->placements);
}

static void release(search *at)
{
    memory_release(at->keys);
    memory_release(at->parts);
    memory_release(at->own);
}

/* The slot of a state; NULL: this rank has none. */
static const memory_slot *slot_of(const memory_save *save, int64_t generation, int64_t step)
{
    for (int i = 0; i < MEMORY_SLOTS; i++)
        if (save->slots[i].step == step && save->slots[i].generation == generation)
            return &save->slots[i];
    return NULL;
}

static mimo_status gather_keys(const search *at)
{
    slot_key own[MEMORY_SLOTS];
    for (int i = 0; i < MEMORY_SLOTS; i++)
        own[i] = (slot_key){at->save->slots[i].generation, at->save->slots[i].step};
    return mimo_comm_host_allgather(at->save->world, at->keys, own, (int)sizeof own);
}

/* The newest state before `last`, and the first rank that has it; -1: there is none. */
static int next_key(slot_key *out, const search *at, const slot_key *last)
{
    int found = -1;
    for (int i = 0; i < at->ranks * MEMORY_SLOTS; i++) {
        const slot_key *key = &at->keys[i];
        if (key->step < 0 || !is_before(key, last) || (found >= 0 && !is_before(out, key)))
            continue;
        *out = *key;
        found = i / MEMORY_SLOTS;
    }
    return found;
}

static mimo_status gather_parts(const search *at, const slot_key *key, int first)
{
    const memory_save *save = at->save;
    const memory_slot *slot = slot_of(save, key->generation, key->step);
    int64_t all = COPY_GROUP_MOST * at->count;
    for (int64_t i = 0; i < all; i++)
        at->own[i] = slot && i < slot->members * at->count ? slot->parts[i] : -1;
    if (slot)
        memcpy(at->to->placements, slot->placements,
               (size_t)at->count * sizeof *at->to->placements);
    TRY(mimo_comm_host_allgather(save->world, at->parts, at->own,
                                 (int)(all * (int64_t)sizeof *at->own)));
    return mimo_comm_broadcast(save->world, at->to->placements,
                               at->count * (int64_t)sizeof *at->to->placements, first, NULL);
}

/* The first rank that has that part of an array, or -1. */
static int holder_of(const search *at, int64_t array, int64_t part)
{
    for (int64_t i = 0; i < at->ranks * COPY_GROUP_MOST; i++)
        if (at->parts[i * at->count + array] == part)
            return (int)(i / COPY_GROUP_MOST);
    return -1;
}

static int64_t count_parts(const search *at)
{
    int64_t all = 0;
    for (int64_t i = 0; i < at->count; i++)
        all += nn_placement_parts(&at->to->placements[i]);
    return all;
}

/* Whether each part has a holder. */
static bool find_holders(const search *at)
{
    int *next = at->to->holders;
    for (int64_t i = 0; i < at->count; i++)
        for (int64_t p = 0; p < nn_placement_parts(&at->to->placements[i]); p++)
            if ((*next++ = holder_of(at, i, p)) < 0)
                return false;
    return true;
}

/* *whole: every part of the state is left. */
static mimo_status look_for(bool *whole, const search *at, const slot_key *key, int first)
{
    memory_found *to = at->to;
    TRY(gather_parts(at, key, first));
    memory_release(to->holders);
    to->holders = NULL;
    mimo_status status = memory_reserve(&to->holders, count_parts(at), sizeof *to->holders);
    TRY(mimo_comm_agree(at->save->world, status));
    *whole = find_holders(at);
    if (*whole) {
        to->generation = key->generation;
        to->step = key->step;
    }
    return MIMO_OK;
}

static mimo_status look(const search *at)
{
    slot_key key = {0}, last = {INT64_MAX, 0};
    bool whole = false;
    TRY(gather_keys(at));
    for (int first; !whole && (first = next_key(&key, at, &last)) >= 0; last = key)
        TRY(look_for(&whole, at, &key, first));
    return MIMO_OK;
}

mimo_status memory_save_find(memory_found *out, const memory_save *save)
{
    search at = {
        .save = save, .ranks = mimo_comm_size(save->world), .count = save->state.count, .to = out};
    out->step = -1;
    mimo_status status = mimo_comm_agree(save->world, reserve(&at));
    if (status == MIMO_OK)
        status = look(&at);
    release(&at);
    return status;
}

/* ------------------------------------------ restoring ----------------------------------------- */

typedef struct restoring {
    const memory_save *save;
    const memory_found *found;
    const memory_slot *slot;            /* NULL: this rank has nothing of it */
    const nn_real *at[COPY_GROUP_MOST]; /* the next values of each member */
    const int *holder;                  /* of the next part */
    nn_real *slices, *whole, *local;    /* [elements of the largest tensor] */
} restoring;

/* The values that this rank has of a part. */
static const nn_real *values_of(const restoring *to, int64_t array, int64_t part)
{
    const memory_slot *slot = to->slot;
    for (int m = 0; m < slot->members; m++)
        if (slot->parts[m * slot->count + array] == part)
            return to->at[m];
    return NULL;
}

/* Each part from its holder to all. */
static mimo_status gather_array(restoring *to, int64_t array)
{
    mimo_comm *world = to->save->world;
    const nn_placement *placement = &to->found->placements[array];
    int64_t parts = nn_placement_parts(placement);
    int64_t elements = nn_placement_elements(placement) / parts;
    int64_t bytes = elements * (int64_t)sizeof *to->slices;
    for (int64_t p = 0; p < parts; p++) {
        nn_real *slice = to->slices + p * elements;
        int holder = *to->holder++;
        if (holder == mimo_comm_rank(world))
            memcpy(slice, values_of(to, array, p), (size_t)bytes);
        TRY(mimo_comm_broadcast(world, slice, bytes, holder, NULL));
    }
    for (int m = 0; to->slot && m < to->slot->members; m++)
        if (to->slot->parts[m * to->slot->count + array] >= 0)
            to->at[m] += elements;
    nn_whole_join(to->whole, to->slices, placement);
    return MIMO_OK;
}

static mimo_status put_array(const restoring *to, int64_t array)
{
    const state_array *of = &to->save->state.arrays[array];
    nn_params *params = of->place.owners->params;
    if (!of->param->held)
        return MIMO_OK;
    nn_whole_slice(to->local, to->whole, params, of->place.index);
    return nn_params_write(params, of->place.index, of->place.part, to->local);
}

static mimo_status begin(restoring *to)
{
    int64_t most = 0;
    for (int64_t i = 0; i < to->save->state.count; i++) {
        int64_t elements = nn_placement_elements(&to->found->placements[i]);
        most = elements > most ? elements : most;
    }
    for (int m = 0; to->slot && m < to->slot->members; m++)
        to->at[m] = to->slot->values + m * to->slot->room;
    TRY(memory_reserve(&to->slices, most, sizeof *to->slices));
    TRY(memory_reserve(&to->whole, most, sizeof *to->whole));
    return memory_reserve(&to->local, most, sizeof *to->local);
}

static mimo_status restore(restoring *to)
{
    mimo_status status = MIMO_OK;
    for (int64_t i = 0; i < to->save->state.count; i++) {
        TRY(gather_array(to, i));
        if (status == MIMO_OK)
            status = put_array(to, i);
    }
    return mimo_comm_agree(to->save->world, status);
}

/* The next take writes over a slot without a step. What was found is all that is whole. */
static void forget_others(memory_save *save, const memory_slot *found)
{
    for (int i = 0; i < MEMORY_SLOTS; i++)
        if (&save->slots[i] != found)
            save->slots[i].step = -1;
}

mimo_status memory_save_restore(memory_save *save, const memory_found *found)
{
    restoring to = {.save = save,
                    .found = found,
                    .slot = slot_of(save, found->generation, found->step),
                    .holder = found->holders};
    mimo_status status = mimo_comm_agree(save->world, begin(&to));
    if (status == MIMO_OK)
        status = restore(&to);
    memory_release(to.slices);
    memory_release(to.whole);
    memory_release(to.local);
    if (status != MIMO_OK)
        return status;
    model_state_set_steps(save->model, found->step);
    forget_others(save, to.slot);
    return MIMO_OK;
}
