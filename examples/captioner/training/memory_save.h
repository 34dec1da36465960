/*
 * The model of a run in memory, for ranks that outlive others (--save-memory). Each rank keeps its
 * part of all that steps change (model_state.h) and copies of the parts of its group, two or three
 * ranks on several hosts where there are several (copy_groups.h). So the death of one rank loses
 * nothing. The death of a whole group does, unless other ranks have replicas of the same parts.
 *
 * There are two slots, and the older one is written over. So a rank that dies meanwhile leaves the
 * state of the other slot to all. A slot describes itself by parts of whole tensors, as files do:
 * it is read on whatever grids the ranks that are left have.
 *
 *     memory_save_begin    of each generation, when its model is there
 *     memory_save_find     of a later one: the newest state of which every part is left
 *     memory_save_restore  puts the model back to it
 *     memory_save_take     every few steps
 *     memory_save_pause    before model and communicators go; the slots stay
 */
#ifndef CAPTIONER_MEMORY_SAVE_H
#define CAPTIONER_MEMORY_SAVE_H

#include "captioner/training/model_state.h"

enum { MEMORY_SLOTS = 2 };

/* A state, of the generation that kept it. */
typedef struct memory_slot {
    int64_t generation, step; /* step -1: it is empty, or was being written */
    int64_t count;    /* arrays of the model: the same on all ranks, and in all generations */
    int members, own; /* ranks of the group, and which one this is */
    int64_t room;     /* elements that each of them has */
    nn_placement *placements; /* [count] */
    int64_t *parts;           /* [members, count]: which part of each array; -1: none of it */
    nn_real *values;          /* [members, room]: these parts, one after the other */
} memory_slot;

typedef struct memory_save {
    memory_slot slots[MEMORY_SLOTS];
    /* Of this generation. */
    int64_t generation;
    mimo_comm *world, *group; /* borrowed; owned */
    bridged_model *model;     /* borrowed */
    model_state state;
    int64_t own, room; /* elements of this rank, and of the rank of the group that has most */
} memory_save;

#define MEMORY_SAVE_INIT                        \
    {                                           \
        .slots = { {.step = -1}, {.step = -1} } \
    }

/** Find the group of this rank, on the communicator of all ranks over the host. Collective. The
 *  caller calls memory_save_pause after, whatever the result, and memory_save_release at the end.
 *  MIMO_ERR_MEMORY, and the errors of mimo_comm_split. */
mimo_status memory_save_begin(memory_save *save, mimo_comm *world, bridged_model *model,
                              int64_t generation);
void memory_save_pause(memory_save *save);
void memory_save_release(memory_save *save);

/** Keep the model after `step` steps. Collective. MIMO_ERR_MEMORY, MIMO_ERR_COMM and the errors of
 *  nn_params_read; where the ranks part here, the older slot stays. */
mimo_status memory_save_take(memory_save *save, int64_t step);

/** A state that is left, and where. */
typedef struct memory_found {
    int64_t generation, step; /* step -1: there is none */
    nn_placement *placements; /* [count] as they were */
    int *holders;             /* the first rank that has it, of each part of each array in turn */
} memory_found;

/** The newest state of which some rank has each part. Collective, the same on every rank. The
 *  caller zeroes *out before and releases it after, whatever the result. MIMO_ERR_MEMORY,
 *  MIMO_ERR_COMM. */
mimo_status memory_save_find(memory_found *out, const memory_save *save);
void memory_found_release(memory_found *found);

/** Put the model back to it. The other slot is then the older one, also where it was newer: a state
 *  with lost parts. Collective. MIMO_ERR_MEMORY, MIMO_ERR_COMM and the errors of
 *  nn_params_write. */
mimo_status memory_save_restore(memory_save *save, const memory_found *found);

#endif
