/*
 * What the oracle trains on: sizes for a number of ranks, and samples by number. The same on every
 * rank, whatever the topology; a function of the seed alone.
 *
 * A sentence is  0 to 2 words | image tokens, in some samples with a word among them | a name | END
 * | padding. A position counts where the next token is of the name or END, and a keyed choice does
 * not mask it; in one sample of five nothing counts. So masks and lengths differ from sample to
 * sample and from rank to rank.
 */
#ifndef ORACLE_SYNTHETIC_H
#define ORACLE_SYNTHETIC_H

#include "ref_model.h"

/* One shape of a step. Fewer samples than slots: in the last micro-batch ranks run out of
 * samples. */
typedef struct oracle_case {
    const char *name;
    int64_t micro_batches, micro_batch; /* micro_batch: slots over all ranks */
    int64_t samples;                    /* below micro_batches * micro_batch */
    int tensors;                        /* that a call of the bridge moves: 1 or 2 */
} oracle_case;

enum { ORACLE_CASES = 2 };

/* Sizes that every grid over `ranks` ranks divides, and the cases: 1 and 4 micro-batches. */
ref_sizes synthetic_sizes(int64_t ranks, uint64_t seed);
void synthetic_cases(oracle_case cases[ORACLE_CASES], int64_t ranks);

typedef struct synthetic_step {
    int64_t slots, samples;
    double *patches;  /* [slots, P, values]; f32 numbers */
    int64_t *ids;     /* [slots, S] */
    int64_t *labels;  /* [slots, S] */
    ref_sample *list; /* [slots] */
} synthetic_step;

/* The samples of step `step`. Slots past the samples hold noise, and labels that do not count. */
void synthetic_create(synthetic_step *out, const ref_sizes *sizes, const oracle_case *shape,
                      int64_t step);
void synthetic_destroy(synthetic_step *step);

#endif
