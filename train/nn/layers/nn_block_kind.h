/*
 * A kind of block as a table, so that a stack need not know what its blocks are made of. `layer`
 * and `saved` are the kind's own structs: nn_block and nn_block_saved of nn_block_dense.
 *
 * A block is made of parts, between which parts of other micro-batches may run:
 *
 *              dense, attention, MLP            a mixture of experts
 *   BEFORE     attention                        attention, norm, choice of experts
 *   ROUTE                                       where rows go, by the choice alone: a move
 *   DISPATCH                                    rows to the experts: a move
 *   SHARED                                      the shared expert
 *   EXPERTS    norm, MLP                        this rank's experts
 *   COMBINE                                     sums back: a move
 *   BEHIND                                      gather over tp, residual
 *
 * Forward runs down this list, and both halves of backward run up. A kind leaves out what it does
 * not have. A part may begin when those that it needs are over (nn_part_needs). So SHARED may run
 * beside a move, and a part of another micro-batch beside anything.
 *
 * A move is an operation that a part leaves in flight. The part is over when mimo_op_wait is.
 *
 * A forward that backward repeats has the parts whose results backward reads (nn_block_parts).
 * What a kind moved in the first one it may keep (nn_block_keeping).
 */
#ifndef MIMO_NN_NN_BLOCK_KIND_H
#define MIMO_NN_NN_BLOCK_KIND_H

#include <mimo/op.h>

#include "train/nn/layers/nn_block.h"

typedef enum nn_block_part {
    NN_PART_BEFORE = 0,
    NN_PART_ROUTE = 1,
    NN_PART_DISPATCH = 2,
    NN_PART_SHARED = 3,
    NN_PART_EXPERTS = 4,
    NN_PART_COMBINE = 5,
    NN_PART_BEHIND = 6,
} nn_block_part;
enum { NN_PARTS = 7 };

typedef enum nn_pass {
    NN_PASS_FORWARD = 0,
    NN_PASS_AGAIN = 1, /* the forward that backward repeats */
    NN_PASS_INPUT = 2,
    NN_PASS_PARAMS = 3,
} nn_pass;
enum { NN_PASSES = 4 };

/** Whether a forward leaves its state for backward, or backward makes it again. */
typedef enum nn_recompute {
    NN_RECOMPUTE_NONE = 0,
    NN_RECOMPUTE_SEND_ROWS = 1, /* the rows of experts are sent again, by the route of the first
                                   forward: the least memory */
    NN_RECOMPUTE_KEEP_ROWS = 2, /* they are kept: no exchange more than without recompute */
} nn_recompute;

static inline bool nn_pass_is_forward(nn_pass pass)
{
    return pass == NN_PASS_FORWARD || pass == NN_PASS_AGAIN;
}

/** One pass of a micro-batch through a block: all its parts get the same. */
typedef struct nn_block_call {
    nn_pass pass;
    const nn_real *x; /* this and the next two: forward */
    nn_real *y;
    const nn_sequence *sequence;
    nn_real *dx, *dy; /* the input's half */
    mimo_op *move;    /* out: what a part left in flight; NULL: nothing */
} nn_block_call;

/** A function that is NULL has nothing to do. Collective as the layers in it are. Parts of all
 *  micro-batches run in one order on the ranks of a dispatch. */
typedef struct nn_block_work {
    mimo_status (*forward)(const void *layer, void *saved, nn_block_call *call);
    mimo_status (*backward_input)(const void *layer, void *saved, nn_block_call *call);
    mimo_status (*backward_params)(const void *layer, void *saved);
} nn_block_work;

/** What a micro-batch keeps, in a struct of the kind's own, of a forward that backward repeats. */
typedef struct nn_block_keeping {
    size_t size; /* of the struct */
    /** Place it; and a block's saved state without it (nn_saved.h). rows: it has the rows. */
    mimo_status (*place)(void *kept, const void *layer, nn_room *room, bool rows);
    mimo_status (*again_place)(void *saved, const void *layer, nn_room *room, bool rows);
    /** Before any part of a forward or a backward in this state; and behind a forward. */
    void (*resume)(void *saved, const void *kept);
    void (*keep)(void *kept, const void *saved);
} nn_block_keeping;

/** The functions keep the contracts of those of nn_block.h with their names. */
typedef struct nn_block_kind {
    size_t layer_size, saved_size; /* of the structs; zeroed, release accepts the first one */
    mimo_status (*init)(void *layer, nn_params *params, mimo_comm *tp, const nn_block_desc *desc);
    void (*release)(void *layer);
    mimo_status (*saved_take)(void *saved, const void *layer, nn_room *room);
    mimo_status (*visit)(void *layer, nn_lora_visit *visit);
    const nn_block_work *parts[NN_PARTS]; /* NULL: the kind has no such part */
    const nn_block_keeping *keeping;      /* NULL: nothing */
} nn_block_kind;

/** nn_block.h: attention and an MLP. */
extern const nn_block_kind nn_block_dense;
/** Attention and a mixture of experts, that of the descriptor. The other kinds do not read it. */
extern const nn_block_kind nn_block_mixed;
/** One half alone. */
extern const nn_block_kind nn_block_attention, nn_block_mlp;

/** The parts that a pass has, part p as bit 1 << p: those that have something to do in it. */
unsigned nn_block_parts(const nn_block_kind *kind, nn_pass pass, nn_recompute recompute);

/** The parts of a block that a part needs, in the same pass. In forward these are the parts whose
 *  results it reads, in the input's half those that read its results. Parts of the parameters' half
 *  need none. */
unsigned nn_part_needs(nn_pass pass, nn_block_part part);

/** Its name in sentences. */
const char *nn_part_name(nn_block_part part);

/** Part number i of a pass in the plain order, i from 0 to NN_PARTS - 1. */
nn_block_part nn_part_in_order(nn_pass pass, int i);

/** Run one part, or nothing where the kind has none. The caller waits for call->move. */
mimo_status nn_block_run(const nn_block_kind *kind, nn_block_part part, const void *layer,
                         void *saved, nn_block_call *call);

/** y, x "sbh" [sequence rows, sequence batch, H]; under sp this rank's contiguous tp-th of these
 *  rows. All parts in the plain order. Collective over tp, the sequence's cp and the ranks of a
 *  mixture's dispatch. */
mimo_status nn_block_forward(const nn_block *block, nn_block_saved *saved, nn_real *y,
                             const nn_real *x, const nn_sequence *sequence);

/** dx may be x: so gradients take the place of a model's activations, from its end on. x is the
 *  caller's again after this call, dy after nn_block_backward_params. */
mimo_status nn_block_backward_input(const nn_block *block, nn_block_saved *saved, nn_real *dx,
                                    nn_real *dy);
mimo_status nn_block_backward_params(const nn_block *block, nn_block_saved *saved);

#endif
