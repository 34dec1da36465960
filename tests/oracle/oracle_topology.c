#include "oracle_topology.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"

/* The dimensions that each model is split over. Both lists end with NULL. */
static const char *const encoder_dims[] = {"tp", "dp", NULL};
static const char *const llm_dims[] = {"tp", "cp", "dp", "pp", NULL};

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static mimo_status check_dims(const mimo_grid *grid, const char *flag, const char *spec,
                              const char *const *modelled)
{
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        MIMO_CHECK(dim.size == 1 || is_among(dim.name, modelled), MIMO_ERR_GRID,
                   "%s %s has %s=%" PRId64 ": the oracle models no %s there", flag, spec, dim.name,
                   dim.size, dim.name);
    }
    return MIMO_OK;
}

static mimo_status check_spec(const char *flag, const char *spec, const char *const *modelled)
{
    mimo_grid *grid;
    MIMO_TRY(mimo_grid_create_text(&grid, spec, 0));
    mimo_status status = check_dims(grid, flag, spec, modelled);
    mimo_grid_destroy(grid);
    return status;
}

static mimo_status check_schedule(const oracle_spec *spec)
{
    mimo_grid *llm;
    MIMO_TRY(mimo_grid_create_text(&llm, spec->llm, 0));
    int64_t stages = mimo_grid_dim_size(llm, "pp");
    mimo_grid_destroy(llm);
    MIMO_CHECK(spec->schedule.chunks <= 1 || stages > 1, MIMO_ERR_GRID,
               "--schedule interleaved:%" PRId64 " with --llm %s: there are no stages",
               spec->schedule.chunks, spec->llm);
    return MIMO_OK;
}

/* With a bridge as the spec says, which the caller made room for. */
static topology_desc describe(mimo_bridge_desc *bridge, const oracle_spec *spec)
{
    *bridge = (mimo_bridge_desc)MIMO_BRIDGE_DESC_INIT;
    bridge->executor = executor_of(spec->executor);
    return (topology_desc){.encoder = spec->encoder,
                           .llm = spec->llm,
                           .sp = spec->sp,
                           .experts = spec->experts > 0 ? spec->expert_grid : NULL,
                           .bridge = bridge};
}

mimo_status oracle_spec_check(const oracle_spec *spec, mimo_comm *world)
{
    mimo_bridge_desc bridge;
    const topology_desc desc = describe(&bridge, spec);
    MIMO_TRY(check_spec("--encoder", spec->encoder, encoder_dims));
    MIMO_TRY(check_spec("--llm", spec->llm, llm_dims));
    MIMO_TRY(check_schedule(spec));
    return topology_check(mimo_comm_size(world), &desc);
}

mimo_status oracle_topology_create(oracle_topology *out, mimo_comm *host,
                                   const compute_device *device, const oracle_spec *spec)
{
    mimo_bridge_desc bridge;
    const topology_desc desc = describe(&bridge, spec);
    out->spec = spec;
    out->host = host;
    out->runtime = &device->runtime;
    MIMO_TRY(topology_create(&out->ranks, device->world, &desc));
    MIMO_CHECK(out->ranks.stages == 1 || out->runtime->memory == MIMO_MEMORY_HOST,
               MIMO_ERR_UNSUPPORTED, "--llm %s: hops between stages move host memory", spec->llm);
    out->tp_size = mimo_grid_dim_size(out->ranks.llm, "tp");
    out->schedule = spec->schedule;
    out->schedule.chunks = spec->schedule.chunks > 0 ? spec->schedule.chunks : 1;
    out->sample_major = spec->schedule.group > 1;
    out->adapters = spec->adapters;
    out->adapted = spec->adapted;
    out->shards = spec->shards;
    out->pairs = spec->pairs;
    out->experts = spec->experts;
    out->top_k = spec->top_k;
    out->zero_copy = spec->executor == EXECUTOR_ZERO_COPY;
    return MIMO_OK;
}

void oracle_topology_destroy(oracle_topology *topology)
{
    topology_destroy(&topology->ranks);
    *topology = (oracle_topology){0};
}
