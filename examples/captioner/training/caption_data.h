/* The samples as every rank holds them: read from one file, dealt out into training and held-out
 * items. */
#ifndef CAPTIONER_CAPTION_DATA_H
#define CAPTIONER_CAPTION_DATA_H

#include "captioner/data/sample_file.h"
#include "captioner/data/sample_render.h"
#include "captioner/captions/caption_batch.h"
#include "captioner/training/options.h"

typedef struct caption_data {
    struct samples samples;
    batch_item *training, *held_out; /* views of the samples */
    int64_t training_count, held_out_count;
    int64_t known_count;  /* held-out names each of whose words is in a name of training */
    int64_t longest_name; /* bytes */
} caption_data;

/** Read --samples, or the cache, which rank 0 fills first where it must. Collective: a file that
 *  one rank cannot write or read, or that is another one on it (same_file.h), is everybody's error.
 *  The caller zeroes *out before and calls caption_data_release after, whatever the result. */
mimo_status caption_data_load(caption_data *out, mimo_comm *world, const struct options *options);
void caption_data_release(caption_data *data);

/** Render into options->prepare, on rank 0. Collective. */
mimo_status caption_data_prepare(mimo_comm *world, const struct options *options);

#endif
