/*
 * A walk through the nodes of a stage (<mimo/schedule.h>) over stacks of blocks: parts of a forward
 * and of a backward take turns, and what one of them moves is in flight while the other computes.
 *
 * A node runs a part of a block (nn_block_kind.h). A move is begun where its node stands. It is
 * waited for where a node needs it, or a later move. So all ranks begin exchanges in the order of
 * the list. What is no part of a block, such as embedding and head, is the caller's.
 *
 * On a device streams wait for one another in place of the host (node_lanes.h). It waits once for a
 * route, where experts begin whose products take their sizes from it. All ranks give their devices
 * the same calls in one order. So one that waits until its device is idle, as the first call of a
 * kernel does, waits for calls that all others have made, or make without it.
 *
 * A stack that recomputes has room for two micro-batches in flight, where steps FB are walked.
 */
#ifndef TRAIN_STACK_WALK_H
#define TRAIN_STACK_WALK_H

#include <mimo/schedule.h>

#include "train/nn/layers/nn_stack.h"
#include "train/pipeline/node_lanes.h"
#include "train/pipeline/step_clock.h"

/** The stack of a chunk, and the saved state of a micro-batch in it. Borrowed. */
typedef struct stack_pass {
    const nn_stack *stack;
    nn_stack_saved *saved;
} stack_pass;

typedef struct stack_walk_work {
    void *context;
    /** Which stack and state a node works on. */
    mimo_status (*find)(stack_pass *out, void *context, const mimo_node *node);
    /** Run a node that is no part of a block. In PRE_PROCESS the caller begins a forward
     *  (nn_stack_begin), in POST_PROCESS or SEND_RECV it reads the output. */
    mimo_status (*other)(void *context, const mimo_node *node);
    /* Where nodes run on streams of a device: these, and the dispatch of all mixtures in them.
     * Borrowed; NULL: the host. */
    const stage_streams *streams;
    nn_dispatch *dispatch;
} stack_walk_work;

typedef struct stack_move {
    mimo_op *op;
    int64_t at; /* the place of its node */
    bool over;  /* it was seen to be */
} stack_move;

typedef struct stack_walk {
    const mimo_nodes *nodes; /* borrowed */
    int64_t stage, count;    /* count: of the stage's nodes */
    const mimo_node *list;
    stack_walk_work work;
    node_lanes lanes;
    stack_move *moves; /* moves[most]: in flight on the host, those from `first` on, before
                          `behind` */
    int64_t most, first, behind;
    /* The caller's, behind stack_walk_open. */
    step_clock *clock; /* borrowed; NULL: none. Stamps 1 + 2i and 2 + 2i are node i's begin and end,
                          on its stream; on the host that of a move where the walk sees it */
    bool serial;       /* a move ends before the next node begins */
} stack_walk;

/** A block of this kind, as nodes are cut for it. A mixture has the node of a shared expert whether
 *  or not it has the expert: it does nothing then. Pure. */
mimo_node_layer stack_walk_layer(const nn_block_kind *kind, nn_recompute recompute);

/** Local. The caller calls stack_walk_close after, whatever the result. Errors: MIMO_ERR_MEMORY,
 *  MIMO_ERR_DEVICE. */
mimo_status stack_walk_open(stack_walk *out, const mimo_nodes *nodes, int64_t stage,
                            const stack_walk_work *work);

/** The place in the list of the first node of a step; the count where it has none. Local. */
int64_t stack_walk_find(const stack_walk *walk, int64_t step);

/** Run the nodes of one step of the stage's list: those from place *at on with its number. *at is
 *  then behind them. No move of it is in flight then: on a device, for what the runtime's stream is
 *  given from then on. Collective as the parts are.
 *
 *  Errors, with the node in front: those of the parts and of `work`. The states of the step are
 *  abandoned (nn_stack_abandon). Its moves may be in flight, which the next step and
 *  stack_walk_close wait for: where other ranks may not have begun them, end the family before. */
mimo_status stack_walk_step(int64_t *at, stack_walk *walk);

/** Accepts a zeroed struct. */
void stack_walk_close(stack_walk *walk);

#endif
