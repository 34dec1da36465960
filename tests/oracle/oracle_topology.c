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

static mimo_status check_experts(const oracle_spec *spec)
{
    expert_grid shared = {0};
    mimo_grid *grid;
    if (spec->experts == 0)
        return MIMO_OK;
    MIMO_TRY(mimo_grid_create_text(&grid, spec->llm, 0));
    mimo_status status = expert_grid_add(&shared, grid, spec->expert_grid, 0);
    mimo_grid_destroy(grid);
    return status;
}

/* Stages are at different steps, so no two of them may wait for each other inside the encoder. */
static mimo_status check_pair(const oracle_spec *spec, const mimo_grid *encoder,
                              const mimo_grid *llm, int64_t a, int64_t b)
{
    int64_t dp[2], stage[2];
    MIMO_TRY(mimo_grid_coord(&dp[0], encoder, a, "dp"));
    MIMO_TRY(mimo_grid_coord(&dp[1], encoder, b, "dp"));
    MIMO_TRY(mimo_grid_coord(&stage[0], llm, a, "pp"));
    MIMO_TRY(mimo_grid_coord(&stage[1], llm, b, "pp"));
    MIMO_CHECK(dp[0] != dp[1] || stage[0] == stage[1], MIMO_ERR_GRID,
               "--encoder %s: its tp joins ranks %" PRId64 " and %" PRId64
               ", which --llm %s puts on stages %" PRId64 " and %" PRId64,
               spec->encoder, a, b, spec->llm, stage[0], stage[1]);
    return MIMO_OK;
}

static mimo_status check_encoder(const oracle_spec *spec, const mimo_grid *encoder,
                                 const mimo_grid *llm)
{
    int64_t ranks = mimo_grid_size(llm);
    MIMO_CHECK(spec->schedule.chunks <= 1 || mimo_grid_dim_size(llm, "pp") > 1, MIMO_ERR_GRID,
               "--schedule interleaved:%" PRId64 " with --llm %s: there are no stages",
               spec->schedule.chunks, spec->llm);
    for (int64_t b = 1; b < ranks && ranks == mimo_grid_size(encoder); b++)
        for (int64_t a = 0; a < b; a++)
            MIMO_TRY(check_pair(spec, encoder, llm, a, b));
    return MIMO_OK;
}

static mimo_status check_stages(const oracle_spec *spec)
{
    mimo_grid *encoder, *llm;
    MIMO_TRY(mimo_grid_create_text(&encoder, spec->encoder, 0));
    mimo_status status = mimo_grid_create_text(&llm, spec->llm, 0);
    if (status == MIMO_OK) {
        status = check_encoder(spec, encoder, llm);
        mimo_grid_destroy(llm);
    }
    mimo_grid_destroy(encoder);
    return status;
}

mimo_status oracle_spec_check(const oracle_spec *spec)
{
    MIMO_TRY(check_spec("--encoder", spec->encoder, encoder_dims));
    MIMO_TRY(check_spec("--llm", spec->llm, llm_dims));
    MIMO_TRY(check_stages(spec));
    return check_experts(spec);
}

/* Before it is connected. */
static mimo_status parse(mimo_grid **out, const char *flag, const char *spec, mimo_comm *world)
{
    MIMO_TRY(mimo_grid_create_text(out, spec, 0));
    MIMO_CHECK(mimo_grid_size(*out) == mimo_comm_size(world), MIMO_ERR_GRID,
               "%s %s is a grid of %" PRId64 " ranks, and %d were started", flag, spec,
               mimo_grid_size(*out), mimo_comm_size(world));
    return MIMO_OK;
}

static mimo_status group_along(mimo_comm **out, mimo_grid *grid, const char *dim)
{
    if (mimo_grid_dim_size(grid, dim) == 1)
        return MIMO_OK;
    MIMO_TRY(mimo_grid_create_group(grid, dim));
    return mimo_grid_group(out, grid, dim);
}

static mimo_status make_partition(oracle_topology *out)
{
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords place = {sizeof(mimo_partition_coords), 0,
                                   mimo_grid_dim_size(out->llm, "cp"), 0, out->tp_size};
    int64_t rank = mimo_comm_rank(out->world);
    MIMO_TRY(mimo_grid_coord(&place.cp_rank, out->llm, rank, "cp"));
    MIMO_TRY(mimo_grid_coord(&out->tp_rank, out->llm, rank, "tp"));
    MIMO_TRY(mimo_grid_coord(&out->stage, out->llm, rank, "pp"));
    place.tp_rank = out->tp_rank;
    rule.sp = out->sp;
    return mimo_partition_create(&out->partition, &rule, &place);
}

static mimo_status add_experts(oracle_topology *out, const oracle_spec *spec)
{
    if (spec->experts == 0)
        return MIMO_OK;
    out->experts = spec->experts;
    out->top_k = spec->top_k;
    return expert_grid_add(&out->shared, out->llm, spec->expert_grid, mimo_comm_rank(out->world));
}

mimo_status oracle_topology_create(oracle_topology *out, mimo_comm *host,
                                   const compute_place *place, const oracle_spec *spec)
{
    mimo_comm *world = place->world;
    out->host = host;
    out->world = world;
    out->runtime = &place->runtime;
    MIMO_TRY(parse(&out->encoder, "--encoder", spec->encoder, world));
    MIMO_TRY(parse(&out->llm, "--llm", spec->llm, world));
    MIMO_TRY(add_experts(out, spec));
    MIMO_TRY(mimo_grid_connect(out->encoder, world));
    MIMO_TRY(mimo_grid_connect(out->llm, world));
    out->tp_size = mimo_grid_dim_size(out->llm, "tp");
    out->stages = mimo_grid_dim_size(out->llm, "pp");
    MIMO_CHECK(out->stages == 1 || out->runtime->memory == MIMO_MEMORY_HOST, MIMO_ERR_UNSUPPORTED,
               "--llm %s: hops between stages move host memory", spec->llm);
    out->schedule = spec->schedule;
    out->schedule.chunks = spec->schedule.chunks > 0 ? spec->schedule.chunks : 1;
    out->sample_major = spec->schedule.group > 1;
    out->sp = spec->sp && out->tp_size > 1;
    out->adapters = spec->adapters;
    out->adapted = spec->adapted;
    out->shards = spec->shards;
    out->pairs = spec->pairs;
    out->zero_copy = spec->executor == EXECUTOR_ZERO_COPY;
    MIMO_TRY(group_along(&out->encoder_tp, out->encoder, "tp"));
    MIMO_TRY(group_along(&out->tp, out->llm, "tp"));
    MIMO_TRY(group_along(&out->cp, out->llm, "cp"));
    MIMO_TRY(group_along(&out->pp, out->llm, "pp"));
    MIMO_TRY(make_partition(out));
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = out->encoder;
    desc.dst = out->llm;
    desc.executor = executor_of(spec->executor);
    MIMO_TRY(mimo_bridge_create(&out->bridge, world, &desc));
    MIMO_TRY(mimo_gradient_create(&out->gradient, world, out->encoder, out->llm));
    MIMO_TRY(expert_grid_connect(&out->shared, out->gradient));
    return expert_grid_find_groups(&out->shared);
}

void oracle_topology_destroy(oracle_topology *topology)
{
    mimo_gradient_destroy(topology->gradient);
    mimo_bridge_destroy(topology->bridge);
    mimo_partition_destroy(topology->partition);
    mimo_grid_destroy(topology->llm);
    mimo_grid_destroy(topology->encoder);
    *topology = (oracle_topology){0};
}
