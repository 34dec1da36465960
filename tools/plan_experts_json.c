/* mimo-plan experts --json. Numbers of rows and bytes stay below 2^53. */
#include "plan_experts.h"

static bool add_number(cJSON *object, const char *name, int64_t number)
{
    return cJSON_AddNumberToObject(object, name, (double)number);
}

static bool add_groups(cJSON *document, const plan_experts *plan)
{
    cJSON *groups = cJSON_AddObjectToObject(document, "groups");
    bool complete = groups;
    for (int i = 0; i < PLAN_EXPERT_SETS && complete; i++) {
        int64_t count = 0, size = 0;
        cJSON *lists = cJSON_AddArrayToObject(groups, plan_expert_sets[i]);
        complete = lists &&
                   mimo_grid_group_count(&count, &size, plan->view, plan_expert_sets[i]) == MIMO_OK;
        for (int64_t g = 0; g < count && complete; g++)
            complete =
                mimo_grid_group_at(plan->group, plan->view, plan_expert_sets[i], g) == MIMO_OK &&
                cJSON_AddItemToArray(lists, plan_json_numbers(plan->group, size));
    }
    return complete;
}

static bool add_rank(cJSON *list, const plan_experts *plan, int64_t place)
{
    const mimo_route_shape *shape = &plan->ranks.shape;
    const plan_experts_load *load = &plan->loads[place];
    int64_t x = mimo_route_x(shape, place);
    const int64_t experts[] = {x * shape->held, (x + 1) * shape->held};
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(list, item);
    return add_number(item, "rank", plan->group[place]) &&
           add_number(item, "t", place % shape->etp) && add_number(item, "x", x) &&
           cJSON_AddItemToObject(item, "experts", plan_json_numbers(experts, 2)) &&
           add_number(item, "tile_rows", load->rows) && add_number(item, "in_rows", load->in) &&
           add_number(item, "out_rows", load->out) &&
           add_number(item, "copied_rows", load->copied) &&
           add_number(item, "lost_rows", load->lost);
}

static bool add_ranks(cJSON *document, const plan_experts *plan)
{
    cJSON *list = cJSON_AddArrayToObject(document, "ranks");
    bool complete = list && mimo_grid_group_at(plan->group, plan->view, "etp,ep", 0) == MIMO_OK;
    for (int64_t place = 0; place < plan->ranks.shape.ranks && complete; place++)
        complete = add_rank(list, plan, place);
    return complete;
}

static bool add_tiles(cJSON *document, const plan_experts *plan)
{
    cJSON *tile = cJSON_AddObjectToObject(document, "tile");
    double mean = (double)plan->all_rows / (double)plan->ranks.shape.ranks;
    bool complete = add_number(tile, "most_rows", plan->most_rows) &&
                    cJSON_AddNumberToObject(
                        tile, "imbalance", plan->all_rows > 0 ? (double)plan->most_rows / mean : 1);
    if (complete && plan->request->capacity >= 0)
        complete = add_number(tile, "capacity", plan->request->capacity) &&
                   add_number(tile, "overflows", plan->overflows) &&
                   add_number(tile, "lost_rows", plan->lost);
    return complete;
}

/* {"bytes":N,"us":T} */
static bool add_bytes(cJSON *object, const char *name, int64_t bytes, double gbps)
{
    cJSON *item = cJSON_AddObjectToObject(object, name);
    return add_number(item, "bytes", bytes) &&
           (gbps <= 0 || cJSON_AddNumberToObject(item, "us", plan_experts_us(bytes, gbps)));
}

static bool add_busiest(cJSON *document, const plan_experts *plan)
{
    const plan_experts_bytes *most = &plan->busiest;
    const mimo_link_speed *speed = &plan->request->speed;
    cJSON *object = cJSON_AddObjectToObject(document, "busiest");
    return add_bytes(object, "rows", most->rows, speed->gbps) &&
           add_bytes(object, "combine", most->combine, speed->gbps) &&
           add_bytes(object, "copies", most->copied, plan_experts_copy_gbps(speed)) &&
           add_bytes(object, "per_pair", most->per_pair, speed->gbps) &&
           add_bytes(object, "all_gather", most->all_gather, speed->gbps);
}

int plan_experts_print_json(const plan_experts *plan)
{
    cJSON *document = cJSON_CreateObject();
    bool complete =
        add_number(document, "etp", plan->etp) && add_number(document, "ep", plan->ep) &&
        add_number(document, "edp", plan->edp) &&
        add_number(document, "row_bytes", plan->row_bytes) &&
        add_number(document, "sum_bytes", plan->sum_bytes) && add_groups(document, plan) &&
        add_ranks(document, plan) && add_tiles(document, plan) && add_busiest(document, plan);
    if (!complete) {
        cJSON_Delete(document);
        document = NULL;
    }
    return plan_print_json(document);
}
