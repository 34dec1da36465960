/* The models of bridge_step with one fault, on rank 1 alone: FAULT=row damages a row that arrived,
 * FAULT=gradient what goes back, FAULT=place tells another place of the images. FAULT=late returns
 * long after the deadline, which is short here, FAULT=gone ends the process, and FAULT=first_gone
 * that of rank 0. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mimo/mpi.h>

#include "toy_models.h"

enum { DEADLINE_MS = 1500, LATE_S = 6 };

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
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

static bool is_rank(const char *number)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank && strcmp(rank, number) == 0;
}

/* The linker calls it in place of mimo_comm_create_mpi (meson.build). */
mimo_status __real_mimo_comm_create_mpi(mimo_comm **out, MPI_Comm mpi, const mimo_comm_desc *desc);
mimo_status __wrap_mimo_comm_create_mpi(mimo_comm **out, MPI_Comm mpi, const mimo_comm_desc *desc);

mimo_status __wrap_mimo_comm_create_mpi(mimo_comm **out, MPI_Comm mpi, const mimo_comm_desc *desc)
{
    mimo_comm_desc shorter = *desc;
    if (has_fault("late") || has_fault("gone") || has_fault("first_gone"))
        shorter.deadline = DEADLINE_MS;
    return __real_mimo_comm_create_mpi(out, mpi, &shorter);
}

static void go_missing(void)
{
    if (has_fault("late") && is_rank("1"))
        sleep(LATE_S);
    if ((has_fault("gone") && is_rank("1")) || (has_fault("first_gone") && is_rank("0")))
        raise(SIGKILL);
}

mimo_span toy_span(int64_t sample, int modality)
{
    mimo_span span = right_toy_span(sample, modality);
    span.position += modality == IMAGES && has_fault("place") && is_rank("1");
    return span;
}

mimo_status toy_llm(toy_sums *sums, float *d_share, const float *share,
                    const mimo_partition *partition, int64_t first, int64_t count)
{
    static float damaged[8 * SEQ * HIDDEN];
    int64_t rows;
    go_missing();
    mimo_status status = mimo_partition_rows(&rows, partition, MIMO_EMBEDDINGS, SEQ);
    if (status != MIMO_OK)
        return status;
    memcpy(damaged, share, (size_t)(count * rows * HIDDEN) * sizeof *share);
    damaged[0] += has_fault("row") && is_rank("1");
    status = right_toy_llm(sums, d_share, damaged, partition, first, count);
    for (int64_t i = 0; has_fault("gradient") && is_rank("1") && i < count * rows * HIDDEN; i++)
        d_share[i]++;
    return status;
}
