#include "captioner/training/expert_loads.h"

#include <inttypes.h>

#include "train/model/layer_layout.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

mimo_status expert_loads_make(expert_loads *out, const language_model *language, int stages)
{
    out->mixtures = language->mixtures;
    out->experts = language->experts;
    int64_t count = out->mixtures * out->experts;
    TRY(memory_reserve(&out->counts, count, sizeof *out->counts));
    return memory_reserve(&out->gathered, stages * count, sizeof *out->gathered);
}

void expert_loads_release(expert_loads *loads)
{
    memory_release(loads->counts);
    memory_release(loads->gathered);
    *loads = (expert_loads){0};
}

void expert_loads_add(expert_loads *loads, const int64_t *counts)
{
    for (int64_t i = 0; i < loads->mixtures * loads->experts; i++)
        loads->counts[i] += counts[i];
    loads->steps++;
}

mimo_status expert_loads_collect(expert_loads *loads, mimo_comm *stages)
{
    int64_t count = loads->mixtures * loads->experts;
    if (!stages || count == 0)
        return MIMO_OK;
    TRY(mimo_comm_host_allgather(stages, loads->gathered, loads->counts,
                                 (int)(count * (int64_t)sizeof *loads->counts)));
    for (int64_t i = 0; i < count; i++) {
        loads->counts[i] = 0;
        for (int stage = 0; stage < mimo_comm_size(stages); stage++)
            loads->counts[i] += loads->gathered[stage * count + i];
    }
    return MIMO_OK;
}

static void print_mixture(const expert_loads *loads, int64_t mixture, FILE *stream)
{
    const int64_t *counts = loads->counts + mixture * loads->experts;
    int64_t most = 0, least = 0;
    double sum = 0;
    for (int64_t e = 0; e < loads->experts; e++) {
        sum += (double)counts[e];
        most = counts[e] > counts[most] ? e : most;
        least = counts[e] < counts[least] ? e : least;
    }
    double mean = sum > 0 ? sum / (double)loads->experts : 1;
    fprintf(stream,
            "load of the experts, llm.block%" PRId64
            ": busiest %.2f times the mean (expert %" PRId64 "), least %.2f (expert %" PRId64
            "), in %" PRId64 " steps\n",
            layer_layout_mixture(mixture), (double)counts[most] / mean, most,
            (double)counts[least] / mean, least, loads->steps);
}

void expert_loads_print(const expert_loads *loads, FILE *stream)
{
    for (int64_t i = 0; i < loads->mixtures && loads->steps > 0; i++)
        print_mixture(loads, i, stream);
}
