/* The encoder: a vision transformer. Patches [P, b, 192] -> rows [P, b, H] for the LLM, in the
 * order "sbh"; P image tokens, b pictures of this rank, H the hidden size of the LLM. Several
 * batches of pictures may be in flight, each in a state of its own. */
#ifndef TRAIN_ENCODER_H
#define TRAIN_ENCODER_H

#include "train/nn/nn.h"

typedef struct encoder_desc {
    mimo_comm *tp;             /* NULL: one rank */
    const nn_runtime *runtime; /* where it computes, and all rows lie; NULL: on the host */
    uint64_t seed;
    int64_t states;           /* batches in flight at most; 0 counts as 1 */
    int64_t tokens, pictures; /* P, b */
    int64_t patch_values;     /* width of a patch's row */
    int64_t hidden, heads, layers;
    int64_t llm_hidden;                /* H */
    bool frozen;                       /* adapters alone are trained */
    const nn_lora_selection *adapters; /* of the linear layers; NULL: none; not kept */
    int64_t shards;                    /* V of the fixed order; its C is 1 here */
    nn_recompute recompute;            /* blocks save nothing, and backward repeats their forward */
} encoder_desc;

/** What a forward leaves for its backward. */
typedef struct encoder_saved {
    nn_sequence sequence; /* the encoder's, of the forward's pictures; not released */
    nn_room room;         /* of all below */
    nn_linear_saved patch, project;
    nn_embedding_saved position;
    nn_stack_saved blocks;
    nn_norm_saved norm;
    nn_real *normed; /* [rows, hidden]: out of the norm */
} encoder_saved;

typedef struct vision_encoder {
    const nn_runtime *runtime;
    nn_params *params;
    nn_linear patch;       /* patch -> hidden */
    nn_embedding position; /* learned, one per place in the picture */
    nn_stack blocks;
    nn_norm norm;
    nn_linear project; /* hidden -> H */
    nn_sequence sequence;
    encoder_saved *saved; /* [states] */
    int64_t states;
    int64_t rows, hidden;
    int64_t *places;   /* 0, 1, ..., P - 1 */
    nn_real *d_normed; /* [rows, hidden] */
} vision_encoder;

/** Collective over tp. The caller zeroes *out before and calls encoder_destroy after, whatever the
 *  result. */
mimo_status encoder_create(vision_encoder *out, const encoder_desc *desc);
void encoder_destroy(vision_encoder *encoder);

/** rows [P, pictures, H] from patches [P, pictures, 192], which stay where they are until backward
 *  of the state. All tp ranks have the same pictures, at most those of the descriptor; of none
 *  there is no backward. */
mimo_status encoder_forward(vision_encoder *encoder, int64_t state, nn_real *rows,
                            const nn_real *patches, int64_t pictures);

/** Gradients of the parameters from the gradient of the rows of a state's forward, which is gone
 *  after it; a picture needs none. */
mimo_status encoder_backward(vision_encoder *encoder, int64_t state, nn_real *d_rows);

/** A part of a forward or of a backward: piece 1, ..., of `of`, cut at blocks. What comes before
 *  the first block belongs to the first piece, what comes behind the last one to the last. */
typedef struct encoder_piece {
    int64_t piece, of;
} encoder_piece;

/** The same piece by piece: of a forward in ascending order, of a backward in descending order.
 *  Pieces of other states may run between. All get the same other arguments. */
mimo_status encoder_forward_piece(vision_encoder *encoder, int64_t state, nn_real *rows,
                                  const nn_real *patches, int64_t pictures, encoder_piece at);
mimo_status encoder_backward_piece(vision_encoder *encoder, int64_t state, nn_real *d_rows,
                                   encoder_piece at);

/** Visit the linear layers. */
mimo_status encoder_visit(vision_encoder *encoder, nn_lora_visit *visit);

#endif
