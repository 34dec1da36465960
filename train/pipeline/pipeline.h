/*
 * The executor of a schedule: it walks the list of one stage and decides nothing. Ranks of other
 * stages walk theirs. What a step computes is the caller's, as functions; the pipeline knows which
 * saved state a micro-batch has, in which slot an encoder group lies, what waits for what, and it
 * moves rows between the stages.
 *
 * On the host a step is done when the walk goes on to the next one. On a device the walk gives each
 * step to its stream (stage_streams.h) and waits for nothing: a stream waits for the inputs of its
 * own steps. Every call below is the same in both cases.
 *
 * A step begins when its inputs are there:
 *
 *   E     the call BF of the group that had its slot before (an encoder that does not learn)
 *   BF    nothing: it begins the call
 *   F     the activation of the stage before; on the first stage, the rows of BF
 *   B, I  the gradient of the stage behind
 *   FB    both; what either gives leaves when both are done
 *   W     nothing
 *   BB    nothing: it begins the call
 *   EB    the call BB
 *
 * The rules of the list are asserted while it is walked: a saved state is free before F, has its
 * forward before B and I, and its input's half before W; and the same for the slots of encoder
 * groups. What ran, and when, stays for the caller to read.
 */
#ifndef TRAIN_PIPELINE_H
#define TRAIN_PIPELINE_H

#include <mimo/schedule.h>

#include "train/pipeline/stage_hops.h"
#include "train/pipeline/step_clock.h"

/** One step, as the caller's functions get it. */
typedef struct pipeline_task {
    mimo_step_kind kind; /* never FB: that is an F and a B */
    int64_t index;       /* micro-batch, or group of E, BF, BB and EB */
    int64_t chunk;       /* of F, B, I, W: the stage's chunk of the model */
    int64_t state;       /* their saved state; those of chunk 0 come first, then those of chunk 1 */
    bool first;          /* the chunk is the model's first one: */
    int64_t slot, part;  /* then the slot of the micro-batch's group, and its number in the group.
                            Of E, BF, BB, EB the slot alone */
} pipeline_task;

/** What a step does. */
typedef struct pipeline_work {
    void *context;
    /** E, EB, F, B, I and W, when their inputs are there. */
    mimo_status (*compute)(void *context, const pipeline_task *task);
    /** An FB, when the inputs of both are there: tasks[0] is its F, tasks[1] its B; `step` is its
     *  place in the list. NULL: it is an F, then a B. */
    mimo_status (*compute_pair)(void *context, const pipeline_task *tasks, int64_t step);
    /** Begin BF or BB on the bridge's stream, BF in chunks, one for each micro-batch of a group, BB
     *  in one. *out is NULL where the compute stream has done it all. */
    mimo_status (*begin)(mimo_op **out, void *context, const pipeline_task *task);
    /** Where the activation comes in and goes out; in backward their gradients are there. Not
     *  called for a model of one chunk. */
    nn_real *(*input)(void *context, const pipeline_task *task);
    nn_real *(*output)(void *context, const pipeline_task *task);
} pipeline_work;

typedef struct pipeline_desc {
    mimo_comm *world;              /* borrowed */
    const mimo_schedule *schedule; /* borrowed; the same on all ranks */
    const mimo_nodes *nodes;  /* of its steps, by which compute_pair goes; likewise; NULL: none */
    mimo_schedule_desc sizes; /* of which it was made */
    int64_t stage;            /* of this rank */
    bool groups;              /* a step's calls are of some ranks: of one group of experts */
    const int64_t *states;    /* [chunks] saved states that each chunk has; not kept */
    int64_t slots;            /* of encoder groups */
    stage_hops *hops;         /* borrowed */
    const stage_streams *streams; /* borrowed; NULL: the host */
    pipeline_work work;
} pipeline_desc;

/** What ran; when, in nanoseconds since the walk began, pipeline_times says. A step begins when its
 *  inputs are there. */
typedef struct pipeline_record {
    mimo_schedule_step step;
    int64_t begin, end;
} pipeline_record;

typedef struct pipeline_state {
    int64_t micro_batch;
    int64_t done;    /* the kind of the last step; -1: the state is free */
    nn_mark touched; /* behind that step */
} pipeline_state;

typedef struct group_slot {
    int64_t group;
    int64_t done;          /* likewise */
    mimo_op *there, *back; /* BF and BB on their way */
    nn_mark touched;       /* behind the last step that computed in the slot */
} group_slot;

typedef struct stage_pipeline {
    pipeline_desc desc;
    const mimo_schedule_step *steps; /* the stage's list */
    int64_t count;
    int64_t *first_state;   /* [chunks + 1] where the states of a chunk begin */
    pipeline_state *states; /* [first_state[chunks]] */
    group_slot *slots;      /* [desc.slots] */
    pipeline_record *ran;   /* [count] of the last walk */
    int64_t done;           /* of its steps */
    int64_t walked;         /* nanoseconds that the last walk kept the host, without those in which
                               the caller's functions computed or gave work to the device */
    step_clock clock;       /* stamp 0 is the beginning; step i has 1 + 2i and 2 + 2i */
} stage_pipeline;

/** Collective over the world: the ranks compare their schedules. The caller zeroes *out before and
 *  calls pipeline_destroy after, whatever the result. Errors: MIMO_ERR_MISMATCH (another schedule
 *  than rank 0 has), MIMO_ERR_MEMORY. */
mimo_status pipeline_create(stage_pipeline *out, const pipeline_desc *desc);
void pipeline_destroy(stage_pipeline *pipeline);

/**
 * Walk the list. Collective over the world. Blocking on the host; on a device what is computed from
 * now on comes after all steps.
 *
 * A step that fails on one rank would let others wait for ever: so where there are several stages,
 * or several groups of experts, the rank then aborts the family (mimo_comm_abort), and the others
 * end with its sentence. The sentence begins with "stage 0, micro-batch 2: ", or group. */
mimo_status pipeline_run(stage_pipeline *pipeline);

/** Into pipeline->ran: when the steps of the last walk ran. Once for each walk. Local; waits for
 *  the steps. */
mimo_status pipeline_times(stage_pipeline *pipeline);

#endif
