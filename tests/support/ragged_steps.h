/* A bridge with another ragged batch in each step: every sample has a number of images of its
 * own. */
#ifndef MIMO_TESTS_RAGGED_STEPS_H
#define MIMO_TESTS_RAGGED_STEPS_H

#include <stdio.h>
#include <stdlib.h>

#include "bridge_bed.h"
#include "guarded.h"

enum { RAGGED_IMAGES = 40, RAGGED_POSITIONS = 3 }; /* of a sample at most; of an image */

typedef struct ragged_steps {
    bridge_bed bed;
    mimo_span *spans;
    uint64_t random;
    char src[32], dst[32];
} ragged_steps;

/* Each rank encodes two samples, and takes a part of every sample. Backward adds contributions. */
static inline ragged_steps *ragged_begin(executor_id executor, bool buffer)
{
    ragged_steps *it = calloc(1, sizeof *it);
    it->random = 9;
    it->spans = calloc((size_t)(2 * mpi_test_size() * RAGGED_IMAGES), sizeof *it->spans);
    snprintf(it->src, sizeof it->src, "dp=%d", mpi_test_size());
    snprintf(it->dst, sizeof it->dst, "cp=%d", mpi_test_size());
    const bed_case c = {.src = {.grid = it->src, .kind = MIMO_RAGGED_PACKED, .spans = it->spans},
                        .dst = {.grid = it->dst, .kind = MIMO_RAGGED_PLACED, .spans = it->spans},
                        .src_letters = "th",
                        .dst_letters = "sbh",
                        .executor = executor,
                        .buffer = buffer,
                        .dtype = MIMO_F32,
                        .hidden = 4,
                        .batch = 2 * mpi_test_size(),
                        .seq = RAGGED_IMAGES * RAGGED_POSITIONS,
                        .sums = true};
    it->bed = bed_create(&c);
    return it;
}

static inline void ragged_end(ragged_steps *it)
{
    bed_destroy(&it->bed);
    free(it->spans);
    free(it);
}

/* From `least` to `most` images in each sample, of one or two rows; of two where these are equal,
 * so that no batch moves more. The bridge does not know them. */
static inline void ragged_draw(ragged_steps *it, int least, int most)
{
    int64_t count = 0;
    bridge_bed *bed = &it->bed;
    for (int64_t b = 0; b < bed->c.batch; b++) {
        int64_t images = least + random_below(&it->random, most - least + 1), row = 0;
        for (int64_t i = 0; i < images; i++) {
            int64_t length = 1 + random_below(&it->random, RAGGED_POSITIONS - 1);
            if (least == most)
                length = RAGGED_POSITIONS - 1;
            it->spans[count++] = (mimo_span){b, row, RAGGED_POSITIONS * i, length};
            row += length;
        }
    }
    bed->c.src.span_count = bed->c.dst.span_count = count;
    reference_release(&bed->src);
    reference_release(&bed->dst);
    bed->src = reference_of(&bed->c.src, bed->c.batch, bed->c.seq);
    bed->dst = reference_of(&bed->c.dst, bed->c.batch, bed->c.seq);
}

#endif
