/*
 * Blocks one behind the other: a model's, or those of one pipeline stage. Between them lie the
 * activations x[0], ..., x[count] of the saved state: block i reads x[i] and writes x[i + 1]. In
 * backward the gradient of x[i] takes the place of x[i].
 *
 * With `recompute` a saved state has these activations, and what mixtures keep of their exchanges
 * (nn_block_keeping). The blocks' states lie in the stack, all in one place. Backward of a block
 * has its forward from x[i] once more and both halves of backward, before the next block needs the
 * place. Bits stay. A stack has one such place for each micro-batch whose parts may be in
 * flight at once.
 *
 * Parts of several micro-batches may run in turn (nn_block_kind.h). The walk of one is
 *
 *   nn_stack_begin(stack, saved, sequence)
 *   while (nn_stack_next(&at, stack, saved))           forward, and then backward
 *       nn_stack_run(&move, stack, saved, at); ...; mimo_op_wait(&move)
 *
 * nn_stack_forward and nn_stack_backward_input do this with nothing between the two.
 */
#ifndef MIMO_NN_NN_STACK_H
#define MIMO_NN_NN_STACK_H

#include "train/nn/layers/nn_block_kind.h"

typedef struct nn_stack_desc {
    const char *name;                  /* block i of the model is NAMEi */
    int64_t first, count;              /* blocks first, ..., first + count - 1; count may be 0 */
    const nn_block_kind *const *kinds; /* [count]; NULL: all are nn_block_dense */
    nn_block_desc block;               /* of each; its name is not read */
    nn_recompute recompute;
    int64_t in_flight; /* recompute: micro-batches with parts of a block in flight, forward or
                          backward, at once; 0 counts as 1 */
} nn_stack_desc;

/** Recompute: the states of the block that one micro-batch is in. */
typedef struct nn_stack_again {
    void **states;                     /* [count], all in one place */
    nn_real *output;                   /* of the forward that backward repeats; nobody reads it */
    const struct nn_stack_saved *user; /* NULL: it is free */
} nn_stack_again;

typedef struct nn_stack {
    int64_t count, elements; /* elements: of an activation */
    const nn_block_kind **kinds;
    void **layers; /* [count] */
    nn_recompute recompute;
    int64_t in_flight;     /* recompute: of `again`; otherwise 0 */
    nn_stack_again *again; /* [in_flight] */
    nn_room room;          /* recompute: for each of these the largest state, and `output` */
} nn_stack;

typedef struct nn_stack_saved {
    int64_t count;               /* of `blocks` */
    void **blocks;               /* [count] the blocks' states; recompute: NULL */
    int64_t keeping;             /* of `kept` */
    void **kept;                 /* recompute: [keeping] what blocks keep; otherwise NULL */
    const nn_sequence *sequence; /* borrowed until backward_input is over; NULL: no forward */
    nn_real **x;              /* [count + 1] activations [rows, H]; in backward their gradients */
    bool backward;            /* where the micro-batch stands: this and the next two */
    int64_t block;            /* of which parts run */
    unsigned done[NN_PASSES]; /* these of its parts have begun, as bits */
    nn_stack_again *again; /* recompute: the stack's, while parts of a block run; otherwise NULL */
} nn_stack_saved;

/** One part of a block, forward or backward. */
typedef struct nn_stack_node {
    nn_pass pass;
    int64_t block; /* in the stack, from 0 */
    nn_block_part part;
} nn_stack_node;

/** Errors: those of the kinds' init. Release accepts a zeroed struct. */
mimo_status nn_stack_init(nn_stack *stack, nn_params *params, mimo_comm *tp,
                          const nn_stack_desc *desc);
void nn_stack_release(nn_stack *stack);

/** Reserve what a saved state has in host memory. Then place it (nn_saved.h). Errors:
 *  MIMO_ERR_MEMORY; of place, those of nn_room_take. Release accepts a zeroed struct. */
mimo_status nn_stack_saved_init(nn_stack_saved *saved, const nn_stack *stack);
mimo_status nn_stack_saved_take(nn_stack_saved *saved, const nn_stack *stack, nn_room *room);
void nn_stack_saved_release(nn_stack_saved *saved);

/** From saved->x[0] to saved->x[count]. Collective as the blocks are. */
mimo_status nn_stack_forward(const nn_stack *stack, nn_stack_saved *saved,
                             const nn_sequence *sequence);

/** From the gradient in saved->x[count] to that in saved->x[0]; then the gradients of the
 *  parameters. The saved state keeps all gradients until the second call is over. x[0] stays after
 *  it, the others do not. With recompute the first call does all, and the second one nothing. */
mimo_status nn_stack_backward_input(const nn_stack *stack, nn_stack_saved *saved);
mimo_status nn_stack_backward_params(const nn_stack *stack, nn_stack_saved *saved);

/** The same in several calls, of whole blocks: of a forward that nn_stack_begin has begun, those
 *  that are left before block `end`; of a backward those from block `first` on, the last one first,
 *  each with both halves. */
mimo_status nn_stack_forward_blocks(const nn_stack *stack, nn_stack_saved *saved, int64_t end);
mimo_status nn_stack_backward_blocks(const nn_stack *stack, nn_stack_saved *saved, int64_t first);

/** Begin a forward by parts. What the saved state had begun is forgotten. Local. */
mimo_status nn_stack_begin(const nn_stack *stack, nn_stack_saved *saved,
                           const nn_sequence *sequence);

/** The next part in the plain order: of forward, then of the input's half of backward. With
 *  recompute backward has, for each block, its forward again, the input's half and the parameters'
 *  half. False: backward is over, or nothing has begun. Local. */
bool nn_stack_next(nn_stack_node *out, const nn_stack *stack, const nn_stack_saved *saved);

/** Run a part. *move is what it leaves in flight; NULL: nothing. The caller owns it, and calls
 *  mimo_op_wait(move) before it runs a part that needs this one (nn_part_needs).
 *
 *  Blocks follow each other. The parts of one may run in any order that nn_part_needs allows. The
 *  input's half of a part comes behind its forward again, where it has one; so the halves of
 *  different parts may take turns. A part of the parameters' half may run at any time after the
 *  same part of the input's half; with recompute, before the first part of the next block. A part
 *  that has nothing to do in a pass (nn_block_parts) does nothing.
 *  Collective as the part is: all ranks run the parts of all micro-batches in one order.
 *
 *  Errors: MIMO_ERR_STATE (not this part's turn; with recompute, more micro-batches than
 *  `in_flight`), MIMO_ERR_ARGUMENT (no such part or block), those of the part. A part that fails
 *  abandons its micro-batch. After a wait that fails the caller does so. */
mimo_status nn_stack_run(mimo_op **move, const nn_stack *stack, nn_stack_saved *saved,
                         nn_stack_node at);

/** Forget what a saved state has begun. Wait for its moves first. Local. */
void nn_stack_abandon(nn_stack_saved *saved);

/** Visit the adapters. */
mimo_status nn_stack_visit(const nn_stack *stack, nn_lora_visit *visit);

#endif
