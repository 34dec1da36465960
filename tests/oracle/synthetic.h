/*
 * What the oracle trains on: sizes for a number of ranks, and numbered samples. They depend on the
 * seed alone, so they are the same on every rank and topology.
 *
 * A sentence is 0 to 2 words | image tokens, in some samples with a word among them | a name | END
 * | padding. Other cases have no such word, or no words before the image tokens. A position counts
 * where the next token belongs to the name or is END, unless a keyed choice masks it. In one sample
 * of five nothing counts. So masks and lengths differ from sample to sample and from rank to rank.
 */
#ifndef ORACLE_SYNTHETIC_H
#define ORACLE_SYNTHETIC_H

#include "ref_model.h"

/* Where the image tokens of a sentence stand. */
typedef enum synthetic_images {
    SYNTHETIC_PARTED, /* behind some words, in some samples with a word among them */
    SYNTHETIC_WHOLE,  /* behind some words */
    SYNTHETIC_FIRST,
} synthetic_images;

/* One shape of a step. It has fewer samples than slots, so in the last micro-batch some ranks have
 * no samples. */
typedef struct oracle_case {
    const char *name;
    int64_t micro_batches, micro_batch; /* micro_batch: slots over all ranks */
    int64_t samples;                    /* below micro_batches * micro_batch */
    int tensors;                        /* tensors of a bridge call: 1 or 2 */
    synthetic_images images;
} oracle_case;

enum { ORACLE_CASES = 2 };

/* Sizes that every grid over `ranks` ranks divides; and the cases, with 1 and 4 micro-batches. */
ref_sizes synthetic_sizes(int64_t ranks, uint64_t seed);
/* For one model and global batch on many topologies: of 24 slots, cut into `micro_batches`. */
oracle_case synthetic_fixed_case(int64_t micro_batches);
void synthetic_cases(oracle_case cases[ORACLE_CASES], int64_t ranks);

typedef struct synthetic_step {
    int64_t slots, samples;
    double *patches;  /* [slots, P, values]; f32 numbers */
    int64_t *ids;     /* [slots, S] */
    int64_t *labels;  /* [slots, S] */
    ref_sample *list; /* [slots] */
} synthetic_step;

/* The samples of step `step`. Slots after the last sample hold noise, and labels that do not
 * count. */
void synthetic_create(synthetic_step *out, const ref_sizes *sizes, const oracle_case *shape,
                      int64_t step);
void synthetic_destroy(synthetic_step *step);

#endif
