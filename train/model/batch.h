/*
 * What a micro-batch holds: which samples of the data it takes, and the pictures, ids and labels
 * that one rank needs of them.
 *
 * A sentence is  P image tokens | the name's UTF-8 bytes | EOS | padding, S ids in all. Position i
 * predicts token i + 1; the loss counts where that token is a byte of the name or EOS, so the last
 * image token predicts the first byte.
 *
 * Where samples have several pictures, these and their names follow each other as turns, before
 * the padding:  P image tokens | name | EOS | P image tokens | name | EOS ...  A turn without a
 * picture is its name and EOS, of which nothing predicts the first byte.
 */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "train/model/augment.h"
#include "train/model/topology.h"

enum {
    TOKEN_END = 256, /* ids below are the bytes of a name */
    TOKEN_PAD = 257,
    TEXT_VOCABULARY = 258, /* ids that are looked up and predicted */
    TOKEN_IMAGE = 258,     /* stands for one row from the encoder; never looked up or predicted */
    /* The vocabulary with room to spare, so that tp divides it. */
    PADDED_VOCABULARY = 288,
    LABEL_IGNORED = -100,
    PATCH = 8, /* pixels along the side of a patch, which is one image token */
    PATCH_VALUES = PATCH * PATCH * 3,
};

/** One sample as the model sees it, or a further turn of one. All zero is a masked sample, without
 *  labels: a blank picture, or where samples have several pictures, none. */
typedef struct batch_item {
    const uint8_t *picture; /* RGB, side x side x 3 */
    const char *name;       /* `length` bytes of UTF-8 */
    int64_t length;
    bool open; /* the name is a beginning: no EOS follows it */
    augmentation change;
    const struct batch_item *next; /* the sample's next turn; NULL: there is none */
} batch_item;

/** The part of a micro-batch that one rank holds as part of the LLM, and the part of a group of
 *  micro-batches that it encodes. The samples of a group are numbered as the LLM's ranks hold them:
 *  those of dp coordinate 0 of all its micro-batches, then those of 1, and so on. */
typedef struct micro_batch {
    int64_t side, tokens;   /* picture side in pixels, and P = (side / PATCH)^2 */
    int64_t seq;            /* S */
    int64_t group;          /* G, micro-batches that are encoded together */
    int64_t total;          /* B over all ranks, masked samples included: the LLM's dp divides it,
                               and the encoder's G * B */
    int64_t most_images;    /* pictures of a sample; 0: each has one, also a masked one */
    int64_t pictures;       /* b, the most pictures of a group that this rank encodes */
    int64_t first_picture;  /* where each sample has one: the first of them within the group */
    int64_t sentences;      /* samples of a micro-batch that this rank holds as part of the LLM */
    int64_t first_sentence; /* the first of them */
    int64_t present;        /* the first of these have a sample, the others are masked */
    float *patches;         /* [P, pictures of a group, PATCH_VALUES] */
    int64_t *ids, *labels;  /* [sentences, S] */
} micro_batch;

typedef struct batch_desc {
    int64_t side, seq;
    int64_t samples; /* most samples of a micro-batch over all ranks */
    int64_t group;   /* G */
    int64_t most_images;
} batch_desc;

/** Room for micro-batches, whatever the grids: `total` is the smallest size that they divide. The
 *  caller zeroes *out before and calls batch_destroy after, whatever the result. Local. */
mimo_status batch_create(micro_batch *out, const rank_topology *topology, const batch_desc *desc);
void batch_destroy(micro_batch *batch);

/** Cut the pictures of turns[count] into `patches`, [P, count, PATCH_VALUES]; count <= b. A turn
 *  without a picture has a blank one. */
void batch_fill_pictures(micro_batch *batch, const batch_item *const *turns, int64_t count);

/** Fill this rank's ids and labels of a micro-batch from its samples items[count], count <= total.
 *  The rest is masked: every rank runs the same calls, and a masked sample adds nothing to losses,
 *  counts and gradients. */
void batch_fill_sentences(micro_batch *batch, const batch_item *items, int64_t count);

/** Tokens of a turn, EOS included, where samples have several pictures of `tokens` tokens each. */
int64_t batch_turn_tokens(const batch_item *turn, int64_t tokens);

/** Which samples of [0, samples) step `step` (from 0) takes, into chosen[count]. A function of its
 *  arguments only, so that every topology sees the same global batch: each epoch is a permutation
 *  of the samples, keyed by (seed, epoch). */
void batch_choose(int64_t *chosen, int64_t count, int64_t step, uint64_t seed, int64_t samples);

#endif
