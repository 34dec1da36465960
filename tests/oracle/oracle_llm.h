/*
 * The LLM under test: the captioner's, made of src/nn and the library. It adds what the captioner
 * does not have: sequence parallelism (sp).
 *
 *   ids, image rows [P, B, H] -> merged [S, B, H] -> cp and sp share -> positions -> blocks -> norm
 *   -> head -> losses
 *
 * Under sp each tp rank has its own rows everywhere between the products. Inside of a product, and
 * of attention, are those of the whole cp share.
 */
#ifndef ORACLE_ORACLE_LLM_H
#define ORACLE_ORACLE_LLM_H

#include "nn/nn.h"

#include "oracle_adapters.h"
#include "oracle_replay.h"
#include "oracle_topology.h"
#include "ref_model.h"

/* What a forward leaves for its backward. */
typedef struct oracle_llm_saved {
    nn_room room; /* of all below */
    nn_embedding_saved text, position;
    nn_stack_saved blocks;
    nn_norm_saved norm;
    nn_linear_saved head;
    nn_loss_saved loss;
    nn_real *text_rows; /* [B (S - P), H] */
    nn_real *normed;    /* [own, B, H] */
    nn_real *logits;    /* [share, B, V / tp] */
} oracle_llm_saved;

typedef struct oracle_llm {
    const oracle_topology *topology;
    ref_sizes sizes;
    nn_params *params;
    nn_dispatch *dispatch; /* of the mixtures; NULL: there are none */
    nn_embedding text, position;
    nn_stack blocks;
    nn_norm norm;
    nn_linear head;
    nn_lora_selection adapters;
    nn_loss loss;
    nn_sequence sequence;
    nn_replay replay; /* of the routers */
    oracle_llm_saved saved;
    mimo_buffer *buffer; /* where that lies; NULL: in memory of its own */
    mimo_alignment *alignment;
    int64_t batch;            /* B, samples of this rank */
    int64_t share, own;       /* positions after cp, and after sp */
    int64_t *share_positions; /* global positions */
    int64_t *own_positions;
    int64_t *text_ids, *labels_bs, *labels; /* labels [share, B] */
    nn_real *whole;                         /* [S, B, H] */
    nn_real *d_normed;                      /* [own, B, H] */
} oracle_llm;

/* Collective. The replay is borrowed; NULL: routers choose. The caller zeroes *out before and
 * destroys it after, whatever the result. */
mimo_status oracle_llm_create(oracle_llm *out, const oracle_topology *topology,
                              const ref_sizes *sizes, int64_t batch, oracle_replay *replay);
void oracle_llm_destroy(oracle_llm *llm);

/* ids and labels [B, S] of this rank's samples. */
mimo_status oracle_llm_forward(oracle_llm *llm, const nn_real *image_rows, const int64_t *ids,
                               const int64_t *labels, double *loss_sum, int64_t *tokens);
/* d_image [P, B, H] is this rank's contribution to the gradient of the image rows. */
mimo_status oracle_llm_backward(oracle_llm *llm, nn_real *d_image);

#endif
