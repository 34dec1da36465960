/*
 * Blocks one behind the other: a model's, or those of one pipeline stage. Between them lie the
 * activations x[0], ..., x[count] of the saved state: block i reads x[i] and writes x[i + 1]. In
 * backward the gradient of x[i] takes the place of x[i].
 *
 * With `recompute` a saved state has these activations alone. The blocks' states lie in the stack,
 * all in one place. Backward of a block begins with its forward from x[i] once more, and ends with
 * its parameters' half, as the next block needs the place. Bits stay.
 */
#ifndef MIMO_NN_NN_STACK_H
#define MIMO_NN_NN_STACK_H

#include "train/nn/layers/nn_block_kind.h"

typedef struct nn_stack_desc {
    const char *name;                  /* block i of the model is NAMEi */
    int64_t first, count;              /* blocks first, ..., first + count - 1; count may be 0 */
    const nn_block_kind *const *kinds; /* [count]; NULL: all are nn_block_dense */
    nn_block_desc block;               /* of each; its name is not read */
    bool recompute;
} nn_stack_desc;

typedef struct nn_stack {
    int64_t count, elements; /* elements: of an activation */
    const nn_block_kind **kinds;
    void **layers;   /* [count] */
    void **again;    /* recompute: [count] the blocks' states, otherwise NULL */
    nn_room room;    /* recompute: of the largest of these states, and of `output` */
    nn_real *output; /* recompute: of the forward that backward repeats; nobody reads it */
} nn_stack;

typedef struct nn_stack_saved {
    int64_t count;               /* of `blocks` */
    void **blocks;               /* [count] the blocks' states; recompute: NULL */
    const nn_sequence *sequence; /* borrowed until backward_input is over; NULL: no forward */
    nn_real **x; /* [count + 1] activations [rows, H]; in backward their gradients */
} nn_stack_saved;

/** Errors: those of the kinds' init. Release accepts a zeroed struct. */
mimo_status nn_stack_init(nn_stack *stack, nn_params *params, mimo_comm *tp,
                          const nn_stack_desc *desc);
void nn_stack_release(nn_stack *stack);

/** Reserve what a saved state has in host memory. Then place it (nn_saved.h). Errors:
 *  MIMO_ERR_MEMORY; of place, those of nn_room_take. Release accepts a zeroed struct. */
mimo_status nn_stack_saved_init(nn_stack_saved *saved, const nn_stack *stack);
mimo_status nn_stack_saved_place(nn_stack_saved *saved, const nn_stack *stack, nn_room *room);
void nn_stack_saved_release(nn_stack_saved *saved);

/** From saved->x[0] to saved->x[count]. Collective as the blocks are. */
mimo_status nn_stack_forward(const nn_stack *stack, nn_stack_saved *saved,
                             const nn_sequence *sequence);

/** From the gradient in saved->x[count] to that in saved->x[0]; then the gradients of the
 *  parameters. The saved state keeps all gradients until the second call is over. x[0] stays after
 *  it, the others do not. With recompute the first call does all, and the second one nothing. */
mimo_status nn_stack_backward_input(const nn_stack *stack, nn_stack_saved *saved);
mimo_status nn_stack_backward_params(const nn_stack *stack, nn_stack_saved *saved);

/** Visit the adapters. */
mimo_status nn_stack_visit(const nn_stack *stack, nn_lora_visit *visit);

#endif
