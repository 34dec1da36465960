/* The models of bridge_step with one fault, on rank 1 alone: FAULT=row damages a row that arrived,
 * FAULT=gradient what goes back, FAULT=place tells another place of the images. */
#include <stdlib.h>
#include <string.h>

#include "toy_models.h"

mimo_span right_toy_span(int64_t sample, int modality);
mimo_status right_toy_llm(toy_sums *sums, float *d_share, const float *share,
                          const mimo_partition *partition, int64_t first, int64_t count);

#define toy_span right_toy_span
#define toy_llm right_toy_llm
#include "toy_models.c"
#undef toy_span
#undef toy_llm

static bool has_fault(const char *name)
{
    const char *fault = getenv("FAULT"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    return fault && rank && strcmp(fault, name) == 0 && strcmp(rank, "1") == 0;
}

mimo_span toy_span(int64_t sample, int modality)
{
    mimo_span span = right_toy_span(sample, modality);
    span.position += modality == IMAGES && has_fault("place");
    return span;
}

mimo_status toy_llm(toy_sums *sums, float *d_share, const float *share,
                    const mimo_partition *partition, int64_t first, int64_t count)
{
    static float damaged[8 * SEQ * HIDDEN];
    int64_t rows;
    mimo_status status = mimo_partition_rows(&rows, partition, MIMO_EMBEDDINGS, SEQ);
    if (status != MIMO_OK)
        return status;
    memcpy(damaged, share, (size_t)(count * rows * HIDDEN) * sizeof *share);
    damaged[0] += has_fault("row");
    status = right_toy_llm(sums, d_share, damaged, partition, first, count);
    for (int64_t i = 0; has_fault("gradient") && i < count * rows * HIDDEN; i++)
        d_share[i]++;
    return status;
}
