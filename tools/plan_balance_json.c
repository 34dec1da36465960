/* mimo-plan balance --json. */
#include "plan_balance.h"

static cJSON *report_of(const mimo_balance_report *report)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"cost", report->cost},
                   {"mean", report->mean},
                   {"bound", report->bound},
                   {"longest_home", report->longest_home},
                   {"longest", report->longest},
                   {"rows", report->rows},
                   {"rows_moved", report->rows_moved},
                   {"rows_over", report->rows_over},
                   {"empty_lanes", report->empty_lanes}};
    cJSON *object = cJSON_CreateObject();
    bool whole = object != NULL;
    for (size_t i = 0; whole && i < sizeof numbers / sizeof numbers[0]; i++)
        whole = cJSON_AddNumberToObject(object, numbers[i].name, (double)numbers[i].value);
    if (whole)
        return object;
    cJSON_Delete(object);
    return NULL;
}

static bool add(cJSON *object, const char *name, cJSON *item)
{
    if (item && cJSON_AddItemToObject(object, name, item))
        return true;
    cJSON_Delete(item);
    return false;
}

int plan_balance_print_json(const plan_balance *plan)
{
    const mimo_balance_desc *desc = &plan->desc;
    cJSON *document = cJSON_CreateObject();
    bool whole = document && add(document, "lane", plan_json_numbers(plan->lane, desc->items)) &&
                 add(document, "at_home", plan_json_numbers(plan->before, desc->lanes)) &&
                 add(document, "balanced", plan_json_numbers(plan->after, desc->lanes)) &&
                 add(document, "report", report_of(&plan->report));
    if (whole)
        return plan_print_json(document);
    cJSON_Delete(document);
    return plan_print_json(NULL);
}
