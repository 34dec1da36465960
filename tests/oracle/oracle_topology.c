#include "oracle_topology.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"

/* The dimensions that each model is split over. Both lists end with NULL. */
static const char *const encoder_dims[] = {"tp", "dp", NULL};
static const char *const llm_dims[] = {"tp", "cp", "dp", NULL};

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

mimo_status oracle_spec_check(const oracle_spec *spec)
{
    MIMO_TRY(check_spec("--encoder", spec->encoder, encoder_dims));
    return check_spec("--llm", spec->llm, llm_dims);
}

static mimo_status parse(mimo_grid **out, const char *flag, const char *spec, mimo_comm *world)
{
    MIMO_TRY(mimo_grid_create_text(out, spec, 0));
    MIMO_CHECK(mimo_grid_size(*out) == mimo_comm_size(world), MIMO_ERR_GRID,
               "%s %s is a grid of %" PRId64 " ranks, and %d were started", flag, spec,
               mimo_grid_size(*out), mimo_comm_size(world));
    return mimo_grid_connect(*out, world);
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
    place.tp_rank = out->tp_rank;
    rule.sp = out->sp;
    return mimo_partition_create(&out->partition, &rule, &place);
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
    out->tp_size = mimo_grid_dim_size(out->llm, "tp");
    out->sp = spec->sp && out->tp_size > 1;
    out->adapters = spec->adapters;
    out->shards = spec->shards;
    out->pairs = spec->pairs;
    out->zero_copy = spec->executor == EXECUTOR_ZERO_COPY;
    MIMO_TRY(group_along(&out->encoder_tp, out->encoder, "tp"));
    MIMO_TRY(group_along(&out->tp, out->llm, "tp"));
    MIMO_TRY(group_along(&out->cp, out->llm, "cp"));
    MIMO_TRY(make_partition(out));
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    desc.src = out->encoder;
    desc.dst = out->llm;
    desc.executor = executor_of(spec->executor);
    MIMO_TRY(mimo_bridge_create(&out->bridge, world, &desc));
    return mimo_gradient_create(&out->gradient, world, out->encoder, out->llm);
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
