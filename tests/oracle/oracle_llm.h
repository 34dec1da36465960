/*
 * The LLM under test: as the captioner's, made of train/nn and the library. Image rows may stand
 * anywhere in a sentence, and routers may be made to choose what the reference chose.
 *
 *   ids, image rows [P, B, H] -> merged [S, B, H] -> cp and sp share -> positions -> blocks -> norm
 *   -> head -> losses
 *
 * Over pipeline stages the blocks are cut into chunks: chunk c of stage p is number c * pp + p. The
 * first one has what comes before the blocks as well, the last one what comes behind them. Several
 * micro-batches may be in flight, each in a state of its own in each chunk.
 *
 * Under sp each tp rank has its own rows everywhere between the products. Inside of a product, and
 * of attention, are those of the whole cp share.
 */
#ifndef ORACLE_ORACLE_LLM_H
#define ORACLE_ORACLE_LLM_H

#include "train/nn/nn.h"

#include "oracle_adapters.h"
#include "oracle_replay.h"
#include "oracle_topology.h"
#include "ref_model.h"

/* What a forward leaves for its backward. */
typedef struct oracle_llm_saved {
    nn_room room; /* of all below */
    int64_t chunk;
    nn_embedding_saved text, position;
    nn_stack_saved blocks;
    nn_norm_saved norm;
    nn_linear_saved head;
    nn_loss_saved loss;
    nn_real *text_rows;         /* [B (S - P), H] */
    nn_real *normed;            /* [own, B, H] */
    nn_real *logits;            /* [share, B, V / tp] */
    mimo_alignment *alignment;  /* of the ids */
    int64_t *text_ids, *labels; /* labels [share, B] */
    mimo_buffer *buffer;        /* where the room lies; NULL: in memory of its own */
} oracle_llm_saved;

typedef struct oracle_llm {
    const oracle_topology *topology;
    ref_sizes sizes;
    nn_params *params;
    nn_dispatch *dispatch; /* of the mixtures; NULL: there are none */
    nn_embedding text, position;
    nn_stack *blocks; /* [chunks] */
    int64_t chunks;   /* of this stage */
    nn_norm norm;
    nn_linear head;
    oracle_adapters adapters;
    nn_loss loss;
    nn_sequence sequence;
    nn_replay replay;        /* of the routers */
    oracle_llm_saved *saved; /* [states]: those of chunk 0 come first */
    int64_t states;
    int64_t *chunk_states;    /* [chunks] how many */
    bool first, last;         /* of the stages */
    int64_t batch;            /* B, samples of this rank */
    int64_t share, own;       /* positions after cp, and after sp */
    int64_t *share_positions; /* global positions */
    int64_t *own_positions;
    int64_t *labels_bs; /* [B, share], while labels are read */
    nn_real *whole;     /* [S, B, H] */
    nn_real *d_normed;  /* [own, B, H] */
} oracle_llm;

/* Blocks [*first, *end) of this stage's chunk: as even as possible. */
void oracle_llm_blocks(int64_t *first, int64_t *end, const oracle_llm *llm, int64_t chunk);

/* Collective. states[chunks] says how many each chunk has; not kept. The replay is borrowed; NULL:
 * routers choose. The caller zeroes *out before and destroys it after, whatever the result. */
mimo_status oracle_llm_create(oracle_llm *out, const oracle_topology *topology,
                              const ref_sizes *sizes, int64_t batch, const int64_t *states,
                              oracle_replay *replay);
void oracle_llm_destroy(oracle_llm *llm);

/* Whether a state is of the model's first chunk, and of its last one. */
bool oracle_llm_begins(const oracle_llm *llm, int64_t state);
bool oracle_llm_ends(const oracle_llm *llm, int64_t state);

/* The tile [own, B, H] that comes from the stage before, and the one that goes to the stage behind;
 * in backward their gradients. */
nn_real *oracle_llm_input(const oracle_llm *llm, int64_t state);
nn_real *oracle_llm_output(const oracle_llm *llm, int64_t state);

/* Read ids and labels [B, S] of this rank's samples. Then forward: the first stage begins with the
 * image rows [P, B, H], where the topology is sample-major [B, P, H]. */
mimo_status oracle_llm_read(oracle_llm *llm, int64_t state, const int64_t *ids,
                            const int64_t *labels);
mimo_status oracle_llm_forward(oracle_llm *llm, int64_t state, const nn_real *image_rows);
/* d_image, on the first stage, in the order of the image rows, is this rank's contribution to their
 * gradient. Then the gradients of the parameters. */
mimo_status oracle_llm_backward_input(oracle_llm *llm, int64_t state, nn_real *d_image);
mimo_status oracle_llm_backward_params(oracle_llm *llm, int64_t state);

#endif
