/* mimo-plan schedule --nodes: chunks from what was written, and nodes for each budget. */
#include <inttypes.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "plan_nodes.h"
#include "schedule/layer_pattern.h"
#include "schedule/schedule_types.h"

/* ------------------------------------------- layers ------------------------------------------ */

static bool all_digits(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

bool plan_nodes_alone(const plan_nodes_request *request)
{
    size_t first = request->layers ? strspn(request->layers, "0123456789") : 0;
    return first > 0 && request->layers[first] == ',' && all_digits(request->layers + first + 1);
}

/* What a letter of a pattern brings to the parts of its layer. */
static uint32_t parts_of(const plan_nodes_request *request, char symbol)
{
    uint32_t ahead = request->ahead ? MIMO_LAYER_ROUTED : MIMO_LAYER_MIXTURE;
    if (symbol == 'E')
        return request->shared ? ahead | MIMO_LAYER_SHARED : ahead;
    return mimo_layer_class_of(symbol) == MIMO_LAYER_MLP ? 1u << MIMO_NODE_MLP
                                                         : 1u << MIMO_NODE_PRE;
}

static mimo_status reserve(plan_nodes *out, int64_t chunks, int64_t layers)
{
    MIMO_TRY(mimo_reserve(&out->chunks, chunks, sizeof *out->chunks));
    MIMO_TRY(mimo_reserve(&out->layers, layers, sizeof *out->layers));
    for (int64_t i = 0; i < layers; i++)
        out->layers[i].recompute = out->request->recompute;
    return MIMO_OK;
}

/* Chunks of this number of mixtures each. */
static mimo_status make_equal(plan_nodes *out, int64_t chunks, const int64_t *counts)
{
    int64_t all = 0;
    for (int64_t n = 0; n < chunks; n++)
        MIMO_TRY(mimo_add(&all, all, counts[n]));
    MIMO_TRY(reserve(out, chunks, all));
    for (int64_t i = 0; i < all; i++)
        out->layers[i].parts = parts_of(out->request, 'E');
    for (int64_t n = 0, first = 0; n < chunks; first += counts[n++])
        out->chunks[n] = (mimo_node_chunk){&out->layers[first], counts[n], 0, 0};
    return MIMO_OK;
}

/* The items of a pattern's segments; the MTP part is one layer more of the last one. */
static void place_items(plan_nodes *out, const mimo_pattern *pattern,
                        const mimo_pattern_segment *segments, int64_t chunks)
{
    for (int64_t i = 0; i < pattern->count; i++)
        out->layers[pattern->layers[i].item].parts |=
            parts_of(out->request, pattern->layers[i].symbol);
    for (int64_t n = 0; n < chunks; n++)
        out->chunks[n] = (mimo_node_chunk){&out->layers[segments[n].first_item],
                                           segments[n].end_item - segments[n].first_item, 0, 0};
    for (const char *symbol = pattern->mtp; *symbol; symbol++)
        out->layers[pattern->items].parts |= parts_of(out->request, *symbol);
    out->chunks[chunks - 1].mtp = pattern->mtp_parts;
    out->chunks[chunks - 1].count += pattern->mtp_parts > 0 ? 1 : 0;
}

static mimo_status place_pattern(plan_nodes *out, const mimo_pattern *pattern,
                                 const mimo_schedule *schedule)
{
    const mimo_schedule_desc *desc = &schedule->desc;
    mimo_pattern_segment *segments;
    int64_t chunks;
    MIMO_TRY(mimo_pattern_cut(&segments, &chunks, pattern, desc->stages));
    mimo_status status =
        chunks == desc->chunks
            ? reserve(out, desc->stages * chunks, pattern->items + 1)
            : mimo_fail(MIMO_ERR_ARGUMENT,
                        "--nodes '%s' has %" PRId64 " chunks a stage over pp=%" PRId64
                        ", and the schedule has %" PRId64,
                        out->request->layers, chunks, desc->stages, desc->chunks);
    if (status == MIMO_OK)
        place_items(out, pattern, segments, desc->stages * chunks);
    mimo_pattern_release_cut(segments);
    return status;
}

static mimo_status make_pattern(plan_nodes *out, const mimo_schedule *schedule)
{
    mimo_pattern *pattern;
    MIMO_TRY(mimo_pattern_create(&pattern, out->request->layers));
    mimo_status status = place_pattern(out, pattern, schedule);
    mimo_pattern_destroy(pattern);
    return status;
}

enum { MOST_LAYERS = 1024 };

static mimo_status make_every(plan_nodes *out, const mimo_schedule *schedule)
{
    int64_t chunks = mimo_model_chunks(schedule), each, *counts;
    MIMO_TRY(option_read_int(&each, "--nodes", out->request->layers, 1, MOST_LAYERS));
    MIMO_TRY(mimo_reserve(&counts, chunks, sizeof *counts));
    for (int64_t n = 0; n < chunks; n++)
        counts[n] = each;
    mimo_status status = make_equal(out, chunks, counts);
    mimo_release(counts);
    return status;
}

static mimo_status make_pair(plan_nodes *out)
{
    int64_t counts[2];
    const char *comma = strchr(out->request->layers, ',');
    char first[24];
    snprintf(first, sizeof first, "%.*s", (int)(comma - out->request->layers),
             out->request->layers);
    MIMO_TRY(option_read_int(&counts[0], "--nodes F", first, 0, MOST_LAYERS));
    MIMO_TRY(option_read_int(&counts[1], "--nodes B", comma + 1, 0, MOST_LAYERS));
    MIMO_CHECK(counts[0] + counts[1] > 0, MIMO_ERR_ARGUMENT,
               "--nodes 0,0 has no layer, forward or backward");
    return make_equal(out, 2, counts);
}

/* ------------------------------------------- budgets ----------------------------------------- */

/* Layers of a list are in the millions where a number has a digit too many. */
static mimo_status check_size(const plan_nodes *plan, const mimo_schedule *schedule)
{
    enum { MOST_NODES = 1 << 23, OF_LAYER = 24, OF_STEP = 16 };
    int64_t layers = 0, nodes;
    for (int64_t n = 0; n < mimo_model_chunks(schedule); n++)
        layers += OF_LAYER * plan->chunks[n].count + OF_STEP;
    MIMO_TRY(mimo_mul(&nodes, layers, schedule->desc.micro_batches));
    MIMO_CHECK(nodes <= MOST_NODES, MIMO_ERR_ARGUMENT,
               "--nodes: up to %" PRId64 " nodes, and lists may have %d", nodes, MOST_NODES);
    return MIMO_OK;
}

static mimo_status cut(mimo_nodes **out, const plan_nodes *plan, const mimo_schedule *schedule,
                       const mimo_nodes_desc *desc)
{
    const mimo_node_chunk *chunks = plan->chunks;
    if (schedule)
        return mimo_nodes_create(out, schedule, chunks, desc);
    return mimo_nodes_create_step(out, chunks[0].count > 0 ? &chunks[0] : NULL,
                                  chunks[1].count > 0 ? &chunks[1] : NULL, desc);
}

static mimo_status make_budget(plan_nodes *out, int64_t i, const mimo_schedule *schedule)
{
    mimo_nodes_desc desc = out->request->desc;
    mimo_node_costs costs = out->request->costs;
    const plan_exchanges *budget = &out->budgets[i];
    desc.lanes[MIMO_NODE_LANE_EXCHANGES] = budget->blocks;
    desc.costs = &costs;
    for (int pass = 0; budget->cost >= 0 && pass < MIMO_NODE_PASSES; pass++)
        costs.of[MIMO_NODE_DISPATCH][pass] = costs.of[MIMO_NODE_COMBINE][pass] = budget->cost;
    MIMO_TRY(cut(&out->nodes[i], out, schedule, &desc));
    out->reports[i] = (mimo_nodes_report)MIMO_NODES_REPORT_INIT;
    MIMO_TRY(mimo_nodes_report_of(&out->reports[i], out->nodes[i]));
    if (out->reports[i].time < out->reports[out->best].time)
        out->best = i;
    return MIMO_OK;
}

mimo_status plan_nodes_make(plan_nodes *out, const plan_nodes_request *request,
                            const mimo_schedule *schedule)
{
    *out = (plan_nodes){.request = request, .count = request->count > 0 ? request->count : 1};
    out->budgets[0] = (plan_exchanges){request->desc.lanes[MIMO_NODE_LANE_EXCHANGES], -1};
    for (int64_t i = 0; i < request->count; i++)
        out->budgets[i] = request->budgets[i];
    if (!schedule)
        MIMO_TRY(make_pair(out));
    else if (all_digits(request->layers))
        MIMO_TRY(make_every(out, schedule));
    else
        MIMO_TRY(make_pattern(out, schedule));
    if (schedule)
        MIMO_TRY(check_size(out, schedule));
    for (int64_t i = 0; i < out->count; i++)
        MIMO_TRY(make_budget(out, i, schedule));
    return MIMO_OK;
}

void plan_nodes_release(plan_nodes *plan)
{
    for (int64_t i = 0; i < PLAN_BUDGETS; i++)
        mimo_nodes_destroy(plan->nodes[i]);
    mimo_release(plan->layers);
    mimo_release(plan->chunks);
}
