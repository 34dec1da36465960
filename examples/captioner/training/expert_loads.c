#include "captioner/training/expert_loads.h"

#include <inttypes.h>

#include "captioner/support/captioner_memory.h"
#include "captioner/support/captioner_support.h"

mimo_status expert_loads_make(expert_loads *out, const language_model *language)
{
    out->mixtures = language->mixtures;
    out->experts = language->experts;
    return memory_reserve(&out->counts, out->mixtures * out->experts, sizeof *out->counts);
}

void expert_loads_release(expert_loads *loads)
{
    memory_release(loads->counts);
    *loads = (expert_loads){0};
}

void expert_loads_add(expert_loads *loads, const int64_t *counts)
{
    for (int64_t i = 0; i < loads->mixtures * loads->experts; i++)
        loads->counts[i] += counts[i];
    loads->steps++;
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
            2 * mixture + 1, (double)counts[most] / mean, most, (double)counts[least] / mean, least,
            loads->steps);
}

void expert_loads_print(const expert_loads *loads, FILE *stream)
{
    for (int64_t i = 0; i < loads->mixtures && loads->steps > 0; i++)
        print_mixture(loads, i, stream);
}
