/*
 * The training samples of a run: which pictures a sample has, and how they are changed. Both are
 * functions of the seed and of the sample's place in the whole run. So every topology trains on the
 * same samples, and so does a resumed run.
 */
#ifndef CAPTIONER_TURN_CHOICE_H
#define CAPTIONER_TURN_CHOICE_H

#include "captioner/captions/caption_batch.h"

typedef struct turn_choice {
    const batch_item *items; /* training samples of one picture each; borrowed */
    int64_t samples;
    int64_t least, most; /* pictures of a sample of the run; `most` 0: one each */
    int64_t side, seq;   /* of a picture in pixels; S */
    unsigned augment;    /* kinds of changes to pictures */
    uint64_t seed;
} turn_choice;

/**
 * The sample at place `place` of the run, whose first turn is items[chosen]. Its further turns are
 * of other items, in further[most - 1], and as many as S has room for. Where the sample has no
 * picture, its one turn is a name alone. Pure.
 */
batch_item turn_choose(batch_item *further, const turn_choice *choice, int64_t chosen,
                       int64_t place);

/** Which items of [0, samples) step `step` (from 0) takes, into chosen[count]. A function of its
 *  arguments only, so that every topology sees the same global batch: each epoch is a permutation
 *  of the items, keyed by (seed, epoch). */
void turn_samples(int64_t *chosen, int64_t count, int64_t step, uint64_t seed, int64_t samples);

#endif
