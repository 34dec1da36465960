/*
 * The LLM: a tile [own, B, H] that holds image rows, and ids [B, S] -> logits of this rank's share
 * of positions and of the vocabulary. B samples of this rank, S tokens per sample, P of them image
 * tokens, H hidden. A rank's share is S/cp positions; under sequence parallelism (sp) its own are
 * a tp-th of these, and all of them elsewhere.
 *
 *   image rows of its own positions, where the bridge put them -> text rows looked up and put
 *   between them -> learned positions -> causal blocks -> norm -> column-parallel head ->
 *   cross-entropy
 *
 * Image rows stand where the ids say: anywhere in a sentence.
 *
 * A block may be attention or an MLP alone (layer_layout.h). The MLP of blocks 1, 3, ... may be a
 * mixture of experts. Padding and masked samples go to none.
 *
 * Over pipeline stages the model is cut into chunks: chunk c of stage p is number c * pp + p. The
 * first one has what comes before the blocks, the last one what comes behind them, and each some of
 * the blocks. A chunk's input and output are [own, B, H], and the caller moves them. Several
 * micro-batches may be in flight, each in a state of its own chunk.
 */
#ifndef TRAIN_LANGUAGE_H
#define TRAIN_LANGUAGE_H

#include <mimo/alignment.h>
#include <mimo/buffer.h>
#include <mimo/partition.h>

#include "train/nn/nn.h"

#include "train/model/layer_layout.h"
#include "train/pipeline/stack_walk.h"

/** The ids that sentences are made of. */
typedef struct language_words {
    int64_t text;      /* ids below are looked up */
    int64_t predicted; /* columns of the logits, at least those ids; tp divides it. It must not
                          depend on tp: ids that are never right take part in the softmax */
    int64_t image;     /* stands for one row from the encoder; at least `text` */
    int64_t padding;   /* goes to no expert, as sentences that are no samples; below 0: all do */
} language_words;

typedef struct language_desc {
    mimo_comm *tp, *cp;         /* NULL: one rank */
    int stage, stages;          /* of the pipeline; 0 stages count as 1 */
    const layer_layout *layout; /* of the layers on these stages; not kept */
    const int64_t *states; /* [chunks] micro-batches in flight at most; NULL: 1 each; not kept */
    const nn_runtime *runtime; /* where it computes, and all rows lie; NULL: on the host */
    const mimo_partition *partition;
    bool sp; /* as the partition's; only where tp is larger than 1 */
    uint64_t seed;
    language_words words;
    int64_t image_tokens;   /* where every sentence begins with them, their number: they need no
                               room for text. 0: any position may be text */
    int64_t seq, sentences; /* S, B */
    int64_t hidden, heads;
    bool frozen;                       /* adapters alone are trained */
    const nn_lora_selection *adapters; /* of the linear layers; NULL: none; not kept */
    const nn_mixture *mixture; /* of the blocks that are one, without cp; its dispatch and replay
                                  are borrowed; NULL: no block is one */
    nn_expert_coords experts;  /* this rank's among them */
    mimo_comm *pushes;         /* of ranks that may write into each other's saved states of blocks:
                                  these lie in a buffer of them; NULL: of none */
    int64_t shards, pairs;     /* V and C of the fixed order; C a multiple of cp */
    nn_recompute recompute;    /* blocks save less, and backward repeats their forward */
    bool pairs_steps;          /* a forward runs beside a backward: two micro-batches in flight */
} language_desc;

/** The sentences of one micro-batch. */
typedef struct language_sentences {
    const int64_t *ids, *labels; /* [B, S]; a label below 0 does not count */
    int64_t present;             /* the first of them are samples, the others are none */
} language_sentences;

/** The ids and labels of one micro-batch, as this rank needs them: those of several are read before
 *  the first of them goes forward. */
typedef struct language_text {
    mimo_alignment *alignment; /* where image rows stand, and text rows */
    int64_t *ids;              /* [count] ids of the text, in the order of alignment */
    int64_t count;             /* at most B * own_text */
    int64_t *labels;           /* [share, B]: in the order of the rows */
    const nn_runtime *runtime; /* of `masked` */
    uint8_t *masked;           /* [share, B], where the layers compute; NULL: no mixtures */
    nn_sequence sequence;      /* the model's, with these */
} language_text;

/** What a forward leaves for its backward. */
typedef struct language_saved {
    int64_t chunk;
    nn_room room, of_blocks; /* of all below but `blocks`; of these */
    nn_embedding_saved text, position;
    nn_stack_saved blocks;
    nn_norm_saved norm;
    nn_linear_saved head;
    nn_loss_saved loss;
    nn_real *text_rows; /* [the text's count, H]; in backward their gradient */
    nn_real *normed;    /* [own_rows, H]: out of the norm */
    nn_real *logits;    /* [rows, vocabulary / tp]; in backward their gradient */
} language_saved;

typedef struct language_model {
    const nn_runtime *runtime;
    nn_params *params;
    nn_embedding text, position;
    nn_stack *blocks; /* [chunks] */
    int64_t chunks;
    nn_norm norm;
    nn_linear head;
    nn_loss loss;
    nn_sequence sequence;
    language_saved *saved; /* [states]: those of chunk 0, then those of chunk 1, ... */
    int64_t states;
    mimo_buffer *buffer;   /* the memory of all states of blocks; NULL: each has its own */
    int64_t *chunk_states; /* [chunks] how many of them are of a chunk */
    bool first, last; /* of the stages: chunk 0 is the model's first one, the last chunk its last */
    const mimo_partition *partition;
    mimo_comm *cp, *pushes;
    language_words words;
    int64_t hidden, seq, image_tokens, sentences;
    int64_t pairs;          /* C */
    int64_t share, rows;    /* positions of this rank, S/cp, and rows, S/cp * B */
    int64_t own, own_rows;  /* positions of its tile, and rows */
    int64_t own_text;       /* those of its own positions that may be text */
    int64_t *positions;     /* [share] global position of each local one */
    int64_t *own_positions; /* [own] */
    int64_t *own_ids;       /* [B, own], while a text is read */
    int64_t *labels_share;  /* [B, share], likewise */
    uint8_t *masked_rows;   /* [share, B], likewise */
    int64_t mixtures;       /* blocks of the model that are one, numbered in their order */
    int64_t experts;        /* of each */
    int64_t *first_block;   /* [chunks] the model's number of a chunk's first block */
    nn_real *d_normed;      /* [own_rows, H] */
} language_model;

/** Local. The caller zeroes *out before and calls language_destroy after, whatever the result. */
mimo_status language_create(language_model *out, const language_desc *desc);
/** Make the buffer for what ranks push, where there is any: once, behind language_create on all of
 *  them. Collective over `pushes`; the caller sees to it that all agree on its status. */
mimo_status language_share(language_model *language);
void language_destroy(language_model *language);

/** Whether a state is of the model's last chunk. */
bool language_ends(const language_model *language, int64_t state);

/** Visit the linear layers of this stage. */
mimo_status language_visit(language_model *language, nn_lora_visit *visit);

/** Tell the other cp ranks this one's positions: once, before the first forward. Collective over
 *  cp. */
mimo_status language_connect(language_model *language);

/** Room for the text of a micro-batch. Local. The caller zeroes *out before and calls
 *  language_text_destroy after, whatever the result. */
mimo_status language_text_create(language_text *out, const language_model *language);
void language_text_destroy(language_text *text);

/** The input [own, B, H] of a state: of the model's first chunk the tile that has this rank's image
 *  rows at their positions; elsewhere the output of the chunk before. Before language_forward. In
 *  backward the gradient of it. */
nn_real *language_input(const language_model *language, int64_t state);

/** The output [own, B, H] of a state, for the next chunk. Before backward the gradient of it comes
 *  into its place, except of the last chunk. */
nn_real *language_output(const language_model *language, int64_t state);

/** Read the ids and labels of a micro-batch into `text`, until the next read into it. Local, and
 *  the one step before a forward that takes memory: the caller sees to it that all ranks agree on
 *  its status. */
mimo_status language_read(language_model *language, language_text *text,
                          const language_sentences *sentences);

/** Forward of the state's chunk, from the state's input and a text that was read. The last chunk
 *  adds its losses to those that language_losses returns. Collective over tp and cp. */
mimo_status language_forward(language_model *language, const language_text *text, int64_t state);

/** The same in parts, for walks by nodes (stack_walk.h): what a chunk has in front of its blocks;
 *  the blocks, from nn_stack_begin with the text's sequence on; what it has behind them. Then
 *  backward: the gradient of the blocks' output; the blocks; the gradients of the parameters in
 *  front of them and behind. A chunk without them has nothing to do. Collective as the whole is. */
mimo_status language_embed(language_model *language, const language_text *text, int64_t state);
stack_pass language_blocks(language_model *language, int64_t state);
mimo_status language_lose(language_model *language, const language_text *text, int64_t state);
mimo_status language_lose_backward(language_model *language, int64_t state);
mimo_status language_ends_backward_params(language_model *language, const language_text *text,
                                          int64_t state);

/** The sum of the losses of this rank's labels in all forwards since the last call, and how many
 *  these are: on other stages than the last one 0. It waits for the work enqueued before it. */
mimo_status language_losses(language_model *language, double *loss_sum, int64_t *tokens);

/** Begin the next step of this stage's routers: their biases move, and loads[mixtures, experts] say
 *  how often each expert was chosen in the micro-batches that went backward, over `ranks`, the
 *  stage's of all tp, cp and dp. Loads of other stages' mixtures stay as they are. Collective over
 *  the ranks; it waits. */
mimo_status language_adjust(language_model *language, mimo_comm *ranks, int64_t *loads);

/** Backward of the forward of a state, in two halves: the gradient of the input,
 *  which the stage before waits for, then those of the parameters, from the text of that forward.
 *  In between the state keeps what the second half needs, and other micro-batches may come; of each
 *  half they ascend. With `recompute` the first half does the blocks' parameters as well. The first
 *  half is collective over tp and cp, the second local. */
mimo_status language_backward_input(language_model *language, int64_t state);
mimo_status language_backward_params(language_model *language, const language_text *text,
                                     int64_t state);

/** The state that the model's last chunk has after a pass of one micro-batch: its first one. On the
 *  last stage. */
int64_t language_last_state(const language_model *language);

/** The likeliest token after each row of the state's forward, into ids[rows], on the last stage.
 *  Collective over tp. It takes memory at its end, so the caller makes the ranks agree after it. */
mimo_status language_predict(language_model *language, int64_t state, int64_t *ids);

#endif
