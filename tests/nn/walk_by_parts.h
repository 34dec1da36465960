/* Two micro-batches in one stack, whose parts run in turn: a part of one, then a part of the other,
 * while what the first one moves is in flight. */
#ifndef MIMO_TESTS_WALK_BY_PARTS_H
#define MIMO_TESTS_WALK_BY_PARTS_H

#include "core/check.h"
#include "train/nn/layers/nn_stack.h"

typedef struct part_walk {
    const nn_stack *stack;
    nn_stack_saved *saved;
    bool forward; /* until its end; otherwise backward */
    mimo_op *move;
} part_walk;

/* The next part. A shared expert runs beside the move that the part before it has begun. */
static inline mimo_status walk_part(bool *ran, part_walk *walk)
{
    nn_stack_node at;
    mimo_op *begun;
    *ran = nn_stack_next(&at, walk->stack, walk->saved) &&
           (at.pass == NN_PASS_FORWARD) == walk->forward;
    if (!*ran || at.part != NN_PART_SHARED)
        MIMO_TRY(mimo_op_wait(&walk->move));
    if (!*ran)
        return MIMO_OK;
    MIMO_TRY(nn_stack_run(&begun, walk->stack, walk->saved, at));
    if (begun)
        walk->move = begun;
    return MIMO_OK;
}

/* Until both are at their ends. */
static inline mimo_status walk_in_turn(part_walk *a, part_walk *b)
{
    bool ran[2] = {true, true};
    while (ran[0] || ran[1]) {
        MIMO_TRY(walk_part(&ran[0], a));
        MIMO_TRY(walk_part(&ran[1], b));
    }
    return MIMO_OK;
}

#endif
