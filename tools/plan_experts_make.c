/* A grid of experts beside an LLM's, and the routes of one of its groups. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checked.h"
#include "core/dtype_kind.h"
#include "core/memory.h"
#include "plan_experts.h"

const char *const plan_expert_sets[PLAN_EXPERT_SETS] = {"etp,ep", "etp", "ep", "edp"};

const char *plan_experts_name(char text[PLAN_EXPERTS_NAME], const plan_experts *plan)
{
    snprintf(text, PLAN_EXPERTS_NAME, "etp=%" PRId64 ",ep=%" PRId64 ",edp=%" PRId64, plan->etp,
             plan->ep, plan->edp);
    return text;
}

/* ------------------------------------------ grids ------------------------------------------- */

/* The sizes that the text gives; edp 0 where it gives none. */
static mimo_status read_sizes(plan_experts *plan)
{
    mimo_grid *given;
    mimo_status status = MIMO_OK;
    MIMO_TRY(mimo_grid_create_text(&given, plan->request->grid, 0));
    plan->etp = plan->ep = 1;
    for (int i = 0; i < mimo_grid_ndims(given) && status == MIMO_OK; i++) {
        mimo_dim dim = mimo_grid_dim(given, i);
        int64_t *size = strcmp(dim.name, "etp") == 0   ? &plan->etp
                        : strcmp(dim.name, "ep") == 0  ? &plan->ep
                        : strcmp(dim.name, "edp") == 0 ? &plan->edp
                                                       : NULL;
        if (size)
            *size = dim.size;
        else
            status = mimo_fail(MIMO_ERR_GRID,
                               "--expert-grid has dimension '%s', and can have etp, ep and edp",
                               dim.name);
    }
    mimo_grid_destroy(given);
    return status;
}

/* The view of the LLM's ranks; edp that is not given is the rest. Pipeline stages are the same. */
static mimo_status make_view(plan_experts *plan)
{
    int64_t stages = mimo_grid_dim_size(plan->llm, "pp");
    int64_t ranks = mimo_grid_size(plan->llm) / stages, group = plan->etp * plan->ep;
    MIMO_CHECK(plan->edp > 0 || ranks % group == 0, MIMO_ERR_GRID,
               "experts etp=%" PRId64 ",ep=%" PRId64 " do not divide %" PRId64 " ranks", plan->etp,
               plan->ep, ranks);
    if (plan->edp == 0)
        plan->edp = ranks / group;
    const mimo_dim dims[] = {
        {"etp", plan->etp}, {"ep", plan->ep}, {"edp", plan->edp}, {"pp", stages}};
    return mimo_grid_create_view(&plan->view, plan->llm, "experts", dims, stages > 1 ? 4 : 3);
}

/* ------------------------------------------ routes ------------------------------------------ */

static mimo_status route_group(plan_experts *plan)
{
    const plan_experts_request *request = plan->request;
    int64_t ranks = plan->etp * plan->ep;
    mimo_routing routing = MIMO_ROUTING_INIT;
    MIMO_TRY(mimo_reserve(&plan->descs, ranks, sizeof *plan->descs));
    for (int64_t rank = 0; rank < ranks; rank++) {
        plan->descs[rank] = (mimo_route_desc)MIMO_ROUTE_DESC_INIT;
        plan->descs[rank].ids = plan->ids + rank * request->tokens * request->top_k;
        plan->descs[rank].tokens = request->tokens;
        plan->descs[rank].capacity = request->capacity;
    }
    routing.experts = request->experts;
    routing.top_k = request->top_k;
    routing.etp = plan->etp;
    routing.alignment = request->alignment;
    routing.ranks = plan->descs;
    routing.rank_count = ranks;
    return mimo_virtual_ranks_read(&plan->ranks, &routing, "experts");
}

/* The sizes are right before ids are drawn for them. */
static mimo_status check_shape(const plan_experts *plan)
{
    int64_t pairs;
    mimo_route_shape shape;
    const mimo_routing routing = {.experts = plan->request->experts,
                                  .top_k = plan->request->top_k,
                                  .etp = plan->etp,
                                  .alignment = plan->request->alignment,
                                  .rank_count = plan->etp * plan->ep};
    MIMO_TRY(mimo_route_shape_read(&shape, &routing, "experts"));
    return mimo_route_most_pairs(&pairs, &shape, plan->request->tokens, "experts");
}

static void count_blocks(plan_experts_load *load, const mimo_route_map *map)
{
    const mimo_route_blocks *out = &map->out, *in = &map->in;
    for (int64_t rank = 0; rank < map->shape.ranks; rank++) {
        int64_t x = mimo_route_x(&map->shape, rank);
        if (rank == map->rank)
            continue;
        load->out += out->begin[x + 1] - out->begin[x];
        load->pair_out += out->pairs[out->begin[x + 1]] - out->pairs[out->begin[x]];
        load->in += in->begin[rank + 1] - in->begin[rank];
        load->pair_in += in->pairs[in->begin[rank + 1]] - in->pairs[in->begin[rank]];
    }
}

static void count_tile(plan_experts_load *load, const mimo_route_map *map, int64_t capacity)
{
    const mimo_route_blocks *in = &map->in;
    load->rows = mimo_route_rows(map, map->rank);
    for (int64_t n = 0; n < in->begin[map->shape.ranks]; n++) {
        int64_t pairs = in->pairs[n + 1] - in->pairs[n];
        load->copied += pairs - 1;
        load->read += pairs > 1;
        for (int64_t q = in->pairs[n]; q < in->pairs[n + 1]; q++)
            load->lost += capacity >= 0 && in->row[q] >= capacity;
    }
}

static void merge(plan_experts *plan, const plan_experts_load *load)
{
    plan_experts_bytes *most = &plan->busiest;
    int64_t busy = mimo_larger(load->in, load->out), capacity = plan->request->capacity;
    int64_t others = (plan->etp * plan->ep - 1) * plan->request->tokens;
    most->rows = mimo_larger(most->rows, busy * plan->row_bytes);
    most->combine = mimo_larger(most->combine, busy * plan->sum_bytes);
    most->per_pair =
        mimo_larger(most->per_pair, mimo_larger(load->pair_in, load->pair_out) * plan->row_bytes);
    most->all_gather = others * plan->row_bytes;
    most->copied = mimo_larger(most->copied, (load->copied + load->read) * plan->row_bytes);
    plan->most_rows = mimo_larger(plan->most_rows, load->rows);
    plan->all_rows += load->rows;
    plan->overflows += capacity >= 0 && load->rows > capacity;
    plan->lost += load->lost;
}

static mimo_status count_all(plan_experts *plan)
{
    int64_t ranks = plan->etp * plan->ep;
    MIMO_TRY(mimo_reserve(&plan->loads, ranks, sizeof *plan->loads));
    for (int64_t rank = 0; rank < ranks; rank++) {
        mimo_route_map map;
        mimo_status status = mimo_virtual_ranks_route(&map, &plan->ranks, rank);
        if (status == MIMO_OK) {
            count_blocks(&plan->loads[rank], &map);
            count_tile(&plan->loads[rank], &map, plan->request->capacity);
            merge(plan, &plan->loads[rank]);
        }
        mimo_route_map_release(&map);
        MIMO_TRY(status);
    }
    return MIMO_OK;
}

/* ------------------------------------------- all -------------------------------------------- */

static mimo_status read_dtype(plan_experts *plan)
{
    mimo_dtype dtype;
    MIMO_TRY(mimo_dtype_parse(&dtype, plan->request->dtype));
    bool widens = mimo_dtype_is_half(dtype) && !plan->request->narrow;
    int64_t size = (int64_t)mimo_dtype_size(dtype);
    MIMO_TRY(mimo_mul(&plan->row_bytes, plan->request->hidden, size));
    MIMO_TRY(mimo_mul(&plan->sum_bytes, plan->request->hidden,
                      widens ? (int64_t)mimo_dtype_size(MIMO_F32) : size));
    return MIMO_OK;
}

/* All bytes that are added up fit 64 bits. */
static mimo_status check_bytes(const plan_experts *plan)
{
    int64_t pairs;
    MIMO_TRY(mimo_mul(&pairs, plan->request->tokens, 2 * plan->request->top_k));
    MIMO_TRY(mimo_mul(&pairs, pairs, plan->etp * plan->ep));
    return mimo_mul(&pairs, pairs, mimo_larger(plan->row_bytes, plan->sum_bytes));
}

mimo_status plan_experts_make(plan_experts *plan)
{
    MIMO_TRY(mimo_grid_create_text(&plan->llm, plan->request->llm, 0));
    MIMO_TRY(read_sizes(plan));
    MIMO_TRY(make_view(plan));
    MIMO_TRY(check_shape(plan));
    MIMO_TRY(read_dtype(plan));
    MIMO_TRY(check_bytes(plan));
    MIMO_TRY(mimo_reserve(&plan->group, mimo_grid_size(plan->llm), sizeof *plan->group));
    MIMO_TRY(plan_experts_draw(plan));
    MIMO_TRY(route_group(plan));
    return count_all(plan);
}

void plan_experts_release(plan_experts *plan)
{
    mimo_virtual_ranks_release(&plan->ranks);
    mimo_release(plan->ids);
    mimo_release(plan->descs);
    mimo_release(plan->loads);
    mimo_release(plan->group);
    mimo_grid_destroy(plan->llm);
}
