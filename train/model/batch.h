/*
 * What a micro-batch holds: the pictures, ids and labels that one rank needs of its samples.
 * The program that has the samples describes them: the model knows neither files nor names.
 */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "train/model/language.h"
#include "train/model/topology.h"

/** A picture: of which sample, and its number among those of that sample. Sample -1 has none. */
typedef struct picture_number {
    int64_t sample, number;
} picture_number;

/** The samples of a pass. P image tokens a picture, S ids a sentence. All functions are local and
 *  give the same on every rank. */
typedef struct model_samples {
    const void *of; /* what they are given; borrowed */
    int64_t count;  /* what these do not fill of a pass is masked: it adds nothing to losses, counts
                       and gradients */
    /** Where the image tokens of each picture of a sample begin in its sentence, into
     *  positions[most_images]. Returns their number. Not called where each sample has one picture:
     *  its sentence begins with that. */
    int64_t (*pictures)(int64_t *positions, const void *of, int64_t sample);
    /** The patches of a picture: `patch_values` values of patch p at rows + p * stride. */
    void (*read_picture)(float *rows, int64_t stride, const void *of, picture_number picture);
    /** ids[S], and labels[S], of which NN_IGNORE does not count. */
    void (*read_sentence)(int64_t *ids, int64_t *labels, const void *of, int64_t sample);
} model_samples;

typedef struct batch_desc {
    int64_t tokens, patch_values; /* P; values of a patch */
    int64_t seq;                  /* S */
    language_words words;
    int64_t samples;     /* most samples of a micro-batch over all ranks */
    int64_t group;       /* G, micro-batches that are encoded together */
    int64_t most_images; /* pictures of a sample; 0: each has one, also a masked one */
} batch_desc;

/** The part of a micro-batch that one rank holds as part of the LLM, and the part of a group of
 *  micro-batches that it encodes. The samples of a group are numbered as the LLM's ranks hold them:
 *  those of dp coordinate 0 of all its micro-batches, then those of 1, and so on. */
typedef struct micro_batch {
    batch_desc desc;
    int64_t total;          /* B over all ranks, masked samples included: the LLM's dp divides it,
                               and the encoder's G * B */
    int64_t pictures;       /* b, the most pictures of a group that this rank encodes */
    int64_t first_picture;  /* where each sample has one: the first of them within the group */
    int64_t sentences;      /* samples of a micro-batch that this rank holds as part of the LLM */
    int64_t first_sentence; /* the first of them */
    int64_t present;        /* the first of these have a sample, the others are masked */
    float *patches;         /* [P, pictures of a group, patch_values] */
    int64_t *ids, *labels;  /* [sentences, S] */
} micro_batch;

/** Room for micro-batches, whatever the grids: `total` is the smallest size that they divide. The
 *  caller zeroes *out before and calls batch_destroy after, whatever the result. Local. */
mimo_status batch_create(micro_batch *out, const rank_topology *topology, const batch_desc *desc);
void batch_destroy(micro_batch *batch);

/** Read pictures[count] into `patches`, [P, count, patch_values]; count <= b. Of sample -1 it is a
 *  blank one. */
void batch_fill_pictures(micro_batch *batch, const model_samples *samples,
                         const picture_number *pictures, int64_t count);

/** Fill this rank's ids and labels of the micro-batch that has `count` samples from `first` on,
 *  count <= total. The rest is masked. */
void batch_fill_sentences(micro_batch *batch, const model_samples *samples, int64_t first,
                          int64_t count);

#endif
