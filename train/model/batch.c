#include "train/model/batch.h"

#include <string.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* The smallest size from `samples` on that the LLM's dp divides, and of which the encoder's dp
 * divides a group. */
static int64_t padded_total(const rank_topology *topology, const batch_desc *desc)
{
    int64_t encoder = topology->encoder_dp, llm = topology->llm_dp;
    int64_t total = (desc->samples + llm - 1) / llm * llm;
    while (desc->group * total % encoder != 0)
        total += llm;
    return total;
}

mimo_status batch_create(micro_batch *out, const rank_topology *topology, const batch_desc *desc)
{
    out->desc = *desc;
    out->total = padded_total(topology, desc);
    TRY(topology_samples(topology, MIMO_SRC, desc->group * out->total, &out->first_picture,
                         &out->pictures));
    if (desc->most_images > 0)
        out->pictures *= desc->most_images;
    TRY(topology_samples(topology, MIMO_DST, out->total, &out->first_sentence, &out->sentences));
    TRY(memory_reserve(&out->patches, desc->tokens * out->pictures * desc->patch_values,
                       sizeof *out->patches));
    TRY(memory_reserve(&out->ids, out->sentences * desc->seq, sizeof *out->ids));
    return memory_reserve(&out->labels, out->sentences * desc->seq, sizeof *out->labels);
}

void batch_destroy(micro_batch *batch)
{
    memory_release(batch->patches);
    memory_release(batch->ids);
    memory_release(batch->labels);
    *batch = (struct micro_batch){0};
}

void batch_fill_pictures(micro_batch *batch, const model_samples *samples,
                         const picture_number *pictures, int64_t count)
{
    int64_t values = batch->desc.patch_values, stride = count * values;
    for (int64_t b = 0; b < count; b++) {
        float *rows = batch->patches + b * values;
        if (pictures[b].sample >= 0)
            samples->read_picture(rows, stride, samples->of, pictures[b]);
        for (int64_t p = 0; pictures[b].sample < 0 && p < batch->desc.tokens; p++)
            memset(rows + p * stride, 0, (size_t)values * sizeof *rows);
    }
}

/* Where each sample has a picture, a masked one has one too. */
static void mask_sentence(int64_t *ids, int64_t *labels, const batch_desc *desc)
{
    int64_t images = desc->most_images == 0 ? desc->tokens : 0;
    for (int64_t i = 0; i < desc->seq; i++) {
        ids[i] = i < images ? desc->words.image : desc->words.padding;
        labels[i] = NN_IGNORE;
    }
}

void batch_fill_sentences(micro_batch *batch, const model_samples *samples, int64_t first,
                          int64_t count)
{
    int64_t seq = batch->desc.seq;
    int64_t left = count > batch->first_sentence ? count - batch->first_sentence : 0;
    batch->present = left < batch->sentences ? left : batch->sentences;
    for (int64_t b = 0; b < batch->sentences; b++) {
        int64_t *ids = batch->ids + b * seq, *labels = batch->labels + b * seq;
        if (b < batch->present)
            samples->read_sentence(ids, labels, samples->of, first + batch->first_sentence + b);
        else
            mask_sentence(ids, labels, &batch->desc);
    }
}
