#include "train/model/topology.h"

#include <inttypes.h>

#include "train/pipeline/stage_streams.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* A spec that wants another number of ranks is the most common mistake: say it in the words of the
 * command line, before the library says it in the words of grids. */
static mimo_status parse_spec(mimo_grid **out, const char *flag, const char *spec, int64_t ranks)
{
    TRY(mimo_grid_create_text(out, spec, 0));
    CHECK(mimo_grid_size(*out) == ranks, MIMO_ERR_GRID,
          "%s %s is a grid of %" PRId64 " ranks, but %" PRId64
          " were started: launch as many, or give another grid",
          flag, spec, mimo_grid_size(*out), ranks);
    return MIMO_OK;
}

/* first[dp] is 1 + the first rank of each of the encoder's tp groups, or 0. */
static mimo_status check_stage(const rank_topology *out, const topology_desc *desc, int64_t *first,
                               int64_t rank)
{
    int64_t dp, stage, its_stage;
    TRY(mimo_grid_coord(&dp, out->encoder, rank, "dp"));
    TRY(mimo_grid_coord(&stage, out->llm, rank, "pp"));
    if (first[dp] == 0)
        first[dp] = 1 + rank;
    TRY(mimo_grid_coord(&its_stage, out->llm, first[dp] - 1, "pp"));
    CHECK(its_stage == stage, MIMO_ERR_GRID,
          "--encoder %s: its tp joins ranks %" PRId64 " and %" PRId64
          ", which --llm %s puts on stages %" PRId64 " and %" PRId64
          ": give pp behind dp, or a smaller tp",
          desc->encoder, first[dp] - 1, rank, desc->llm, its_stage, stage);
    return MIMO_OK;
}

/* Stages are at different steps, so no two of them may wait for each other inside the encoder. */
static mimo_status check_stages(const rank_topology *out, const topology_desc *desc, int64_t ranks)
{
    int64_t *first;
    CHECK(mimo_grid_dim_size(out->encoder, "pp") == 1 &&
              mimo_grid_dim_size(out->encoder, "cp") == 1,
          MIMO_ERR_GRID, "--encoder %s: the encoder has neither stages nor cp", desc->encoder);
    TRY(memory_reserve(&first, mimo_grid_dim_size(out->encoder, "dp"), sizeof *first));
    mimo_status status = MIMO_OK;
    for (int64_t rank = 0; status == MIMO_OK && rank < ranks; rank++)
        status = check_stage(out, desc, first, rank);
    memory_release(first);
    return status;
}

/* A bridge of the caller's says by itself which grids it takes. */
static mimo_status check_pairing(const rank_topology *out, const topology_desc *desc)
{
    mimo_pairing pairing = MIMO_PAIRING_INIT;
    return desc->bridge ? MIMO_OK : mimo_pairing_of(&pairing, out->encoder, out->llm);
}

static mimo_status parse_grids(rank_topology *out, const topology_desc *desc, int64_t ranks,
                               int rank)
{
    TRY(parse_spec(&out->encoder, "--encoder", desc->encoder, ranks));
    TRY(parse_spec(&out->llm, "--llm", desc->llm, ranks));
    out->sp = desc->sp && mimo_grid_dim_size(out->llm, "tp") > 1;
    out->stages = (int)mimo_grid_dim_size(out->llm, "pp");
    out->llm_cp = mimo_grid_dim_size(out->llm, "cp");
    if (desc->experts)
        TRY(expert_grid_add(&out->experts, out->llm, desc->experts, rank));
    return out->stages > 1 ? check_stages(out, desc, ranks) : check_pairing(out, desc);
}

static bool has_groups(const mimo_grid *grid, const char *dim)
{
    return mimo_grid_dim_size(grid, dim) > 1;
}

static mimo_status create_groups(mimo_grid *grid, const char *dim)
{
    return has_groups(grid, dim) ? mimo_grid_create_group(grid, dim) : MIMO_OK;
}

static mimo_status create_bridge(rank_topology *out, const topology_desc *given)
{
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.sp = out->sp;
    desc.partition = &rule;
    if (out->stages > 1)
        desc.ctas = STREAM_CTAS;
    if (given->bridge)
        desc = *given->bridge;
    desc.src = out->encoder;
    desc.dst = out->llm;
    return mimo_bridge_create(&out->bridge, out->world, &desc);
}

static mimo_status connect_grids(rank_topology *out, const topology_desc *desc)
{
    TRY(mimo_grid_connect(out->encoder, out->world));
    TRY(mimo_grid_connect(out->llm, out->world));
    TRY(create_groups(out->encoder, "tp"));
    TRY(create_groups(out->llm, "tp"));
    TRY(create_groups(out->llm, "cp"));
    TRY(create_groups(out->llm, "pp"));
    TRY(create_bridge(out, desc));
    TRY(mimo_gradient_create(&out->gradient, out->world, out->encoder, out->llm));
    return expert_grid_connect(&out->experts, out->gradient);
}

/* The group along one dimension; NULL where it holds this rank alone, which the layers take to mean
 * "nothing to talk to". */
static mimo_status find_group(const mimo_grid *grid, const char *dim, mimo_comm **out)
{
    return has_groups(grid, dim) ? mimo_grid_group(out, grid, dim) : MIMO_OK;
}

static mimo_status find_place(rank_topology *out)
{
    TRY(find_group(out->encoder, "tp", &out->encoder_tp));
    TRY(find_group(out->llm, "tp", &out->llm_tp));
    TRY(find_group(out->llm, "cp", &out->llm_cp_group));
    TRY(find_group(out->llm, "pp", &out->llm_pp));
    TRY(expert_grid_find_groups(&out->experts));
    int64_t rank = mimo_comm_rank(out->world), stage;
    out->encoder_dp = mimo_grid_dim_size(out->encoder, "dp");
    out->llm_dp = mimo_grid_dim_size(out->llm, "dp");
    TRY(mimo_grid_coord(&out->encoder_dp_rank, out->encoder, rank, "dp"));
    TRY(mimo_grid_coord(&out->llm_tp_rank, out->llm, rank, "tp"));
    TRY(mimo_grid_coord(&out->llm_cp_rank, out->llm, rank, "cp"));
    TRY(mimo_grid_coord(&out->llm_dp_rank, out->llm, rank, "dp"));
    TRY(mimo_grid_coord(&stage, out->llm, rank, "pp"));
    out->stage = (int)stage;

    mimo_partition_rule rule = MIMO_PARTITION_RULE_INIT;
    rule.sp = out->sp;
    mimo_partition_coords place = {sizeof(mimo_partition_coords), out->llm_cp_rank, out->llm_cp,
                                   out->llm_tp_rank, mimo_grid_dim_size(out->llm, "tp")};
    return mimo_partition_create(&out->partition, &rule, &place);
}

mimo_status topology_sketch(rank_topology *out, int64_t ranks, const topology_desc *desc)
{
    return parse_grids(out, desc, ranks, 0);
}

mimo_status topology_check(int64_t ranks, const topology_desc *desc)
{
    rank_topology parsed = {0};
    mimo_status status = topology_sketch(&parsed, ranks, desc);
    topology_destroy(&parsed);
    return status;
}

/* What is local fails on one rank alone, if only for want of memory: all agree on it before the
 * next collective call. */
mimo_status topology_create(rank_topology *out, mimo_comm *world, const topology_desc *desc)
{
    out->world = world;
    mimo_status parsed = parse_grids(out, desc, mimo_comm_size(world), mimo_comm_rank(world));
    TRY(mimo_comm_agree(world, parsed));
    TRY(connect_grids(out, desc));
    return mimo_comm_agree(world, find_place(out));
}

void topology_destroy(rank_topology *topology)
{
    mimo_partition_destroy(topology->partition);
    mimo_gradient_destroy(topology->gradient);
    mimo_bridge_destroy(topology->bridge);
    mimo_grid_destroy(topology->llm);
    mimo_grid_destroy(topology->encoder);
    *topology = (struct rank_topology){0};
}

mimo_status topology_samples(const rank_topology *topology, mimo_side side, int64_t batch,
                             int64_t *first, int64_t *count)
{
    const mimo_grid *grid = side == MIMO_SRC ? topology->encoder : topology->llm;
    return mimo_pairing_samples(first, count, grid, mimo_comm_rank(topology->world), batch);
}
