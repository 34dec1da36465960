#include "oracle_pass.h"

#include <string.h>

#include "core/check.h"
#include "core/memory.h"

mimo_status oracle_pass_choose(oracle_pass *out, const oracle_topology *topology,
                               int64_t micro_batches, bool backward, int64_t places)
{
    const schedule_need need = {.stages = topology->stages,
                                .micro_batches = micro_batches,
                                .backward = backward,
                                .places = places};
    return schedule_choose(&out->schedule, &out->sizes, &topology->schedule, &need);
}

mimo_status oracle_pass_states(int64_t **states, const oracle_pass *pass,
                               const oracle_topology *topology)
{
    int64_t chunks = topology->schedule.chunks;
    MIMO_TRY(mimo_reserve(states, chunks, sizeof **states));
    pipeline_count_states(*states, chunks, pass->schedule, topology->stage);
    return MIMO_OK;
}

mimo_status oracle_pass_create(oracle_pass *out, const oracle_topology *topology,
                               const int64_t *states, int64_t places, stage_hops *hops,
                               const pipeline_work *work)
{
    const pipeline_desc desc = {.world = topology->world,
                                .schedule = out->schedule,
                                .sizes = out->sizes,
                                .stage = topology->stage,
                                .states = states,
                                .places = places,
                                .hops = hops,
                                .work = *work};
    return pipeline_create(&out->pipeline, &desc);
}

void oracle_pass_destroy(oracle_pass *pass)
{
    pipeline_destroy(&pass->pipeline);
    mimo_schedule_destroy(pass->schedule);
    memset(pass, 0, sizeof *pass);
}

int64_t oracle_pass_misses(const oracle_pass *pass)
{
    const stage_pipeline *pipeline = &pass->pipeline;
    int64_t misses = pipeline->count - pipeline->done;
    for (int64_t i = 0; i < pipeline->done; i++)
        misses += memcmp(&pipeline->ran[i].step, &pipeline->steps[i], sizeof *pipeline->steps) != 0;
    return misses;
}
