#include "toy_models.h"

#include <inttypes.h>
#include <math.h>

enum { TEXT = -1 }; /* the value of each element of a text row */

mimo_span toy_span(int64_t sample, int modality)
{
    bool images = modality == IMAGES;
    return (mimo_span){.sample = sample,
                       .position = images ? 2 : 10,
                       .length = images ? 1 + sample % MOST_ROWS : 2 + sample % 2};
}

static float value_of(int64_t sample, int modality, int64_t row, int h)
{
    return (float)(((sample * MODALITIES + modality) * MOST_ROWS + row) * HIDDEN + h + 1);
}

static float weight_of(int64_t sample, int64_t position)
{
    return (float)(1 + (sample + position) % 3);
}

void toy_encode(float *rows, int64_t first, int64_t count, int modality)
{
    int64_t made = 0;
    for (int64_t sample = first; sample < first + count; sample++)
        for (int64_t row = 0; row < toy_span(sample, modality).length; row++, made++)
            for (int h = 0; h < HIDDEN; h++)
                rows[made * HIDDEN + h] = value_of(sample, modality, row, h);
}

void toy_embed(float *tile, int64_t rows)
{
    for (int64_t i = 0; i < rows * HIDDEN; i++)
        tile[i] = TEXT;
}

/* What element h of a position must be; TEXT where no modality has it. */
static float expected_at(int64_t sample, int64_t position, int h)
{
    for (int modality = 0; modality < MODALITIES; modality++) {
        mimo_span span = toy_span(sample, modality);
        int64_t row = position - span.position;
        if (row >= 0 && row < span.length)
            return value_of(sample, modality, row, h);
    }
    return TEXT;
}

static mimo_status read_position(toy_sums *sums, float *d_row, const float *row, int64_t sample,
                                 int64_t position)
{
    float weight = expected_at(sample, position, 0) == TEXT ? 0 : weight_of(sample, position);
    sums->tokens += weight > 0;
    for (int h = 0; h < HIDDEN; h++) {
        float expected = expected_at(sample, position, h);
        if (row[h] != expected)
            return mimo_fail(MIMO_ERR_INTERNAL,
                             "sample %" PRId64 " has %g at position %" PRId64
                             ", element %d, where %g belongs",
                             sample, (double)row[h], position, h, (double)expected);
        d_row[h] = weight;
        sums->loss += (double)(weight * row[h]);
        sums->d_v[h] += weight * row[h];
    }
    return MIMO_OK;
}

mimo_status toy_llm(toy_sums *sums, float *d_share, const float *share,
                    const mimo_partition *partition, int64_t first, int64_t count)
{
    int64_t rows, positions[SEQ];
    mimo_status status = mimo_partition_rows(&rows, partition, MIMO_EMBEDDINGS, SEQ);
    if (status == MIMO_OK)
        status = mimo_partition_index(positions, partition, MIMO_EMBEDDINGS, SEQ);
    for (int64_t i = 0; i < count * rows && status == MIMO_OK; i++)
        status = read_position(sums, d_share + i * HIDDEN, share + i * HIDDEN, first + i / rows,
                               positions[i % rows]);
    return status;
}

mimo_status toy_encode_backward(toy_sums *sums, const float *d_rows, int64_t first, int64_t count,
                                int modality)
{
    for (int64_t sample = first; sample < first + count; sample++) {
        mimo_span span = toy_span(sample, modality);
        for (int64_t row = 0; row < span.length; row++)
            for (int h = 0; h < HIDDEN; h++, d_rows++) {
                float expected = weight_of(sample, span.position + row);
                if (*d_rows != expected)
                    return mimo_fail(MIMO_ERR_INTERNAL,
                                     "the gradient of sample %" PRId64 ", modality %d, row %" PRId64
                                     ", element %d is %g where %g belongs",
                                     sample, modality, row, h, (double)*d_rows, (double)expected);
                sums->d_w[modality][h] += *d_rows * value_of(sample, modality, row, h);
            }
    }
    return MIMO_OK;
}

mimo_status toy_check_step(float d_w[MODALITIES][HIDDEN], const float *d_v, int64_t tokens,
                           int64_t samples)
{
    int64_t expected = 0;
    for (int64_t sample = 0; sample < samples; sample++)
        for (int modality = 0; modality < MODALITIES; modality++)
            expected += toy_span(sample, modality).length;
    if (tokens != expected)
        return mimo_fail(MIMO_ERR_INTERNAL, "%" PRId64 " tokens where there are %" PRId64, tokens,
                         expected);
    /* Each was scaled by 1/tokens on its own, which rounds. */
    for (int h = 0; h < HIDDEN; h++)
        if (fabsf(d_w[IMAGES][h] + d_w[AUDIO][h] - d_v[h]) > 1e-6f * fabsf(d_v[h]))
            return mimo_fail(MIMO_ERR_INTERNAL,
                             "element %d: the encoders have gradients %g and %g, the LLM %g", h,
                             (double)d_w[IMAGES][h], (double)d_w[AUDIO][h], (double)d_v[h]);
    return MIMO_OK;
}
