#include "schedule/step_costs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "schedule/cost_items.h"
#include "schedule/schedule_types.h"

/* The cost that a name of `length` letters means, or NULL. */
static int64_t *cost_named(mimo_step_costs *costs, const char *name, size_t length)
{
    for (int kind = 0; kind < MIMO_STEP_KINDS; kind++) {
        const char *own = mimo_step_kind_name((mimo_step_kind)kind);
        if (strlen(own) == length && strncasecmp(name, own, length) == 0)
            return &costs->of[kind];
    }
    if (length == strlen("head") && strncmp(name, "head", length) == 0)
        return &costs->head;
    return length == strlen("hop") && strncmp(name, "hop", length) == 0 ? &costs->hop : NULL;
}

/* f=4 */
static mimo_status parse_item(void *into, const char *item)
{
    mimo_step_costs *costs = into;
    size_t length = strcspn(item, "=");
    int64_t *cost = cost_named(costs, item, length);
    MIMO_CHECK(cost && item[length] == '=', MIMO_ERR_ARGUMENT,
               "cost has '%s', and takes f, b, i, w, fb, e, bf, bb, eb, head and hop as f=4", item);
    const char *number = item + length + 1;
    char *end;
    errno = 0;
    long long value = strtoll(number, &end, 10);
    MIMO_CHECK(*number && !*end && errno == 0, MIMO_ERR_ARGUMENT,
               "cost %.*s '%s' is not a whole number", (int)length, item, number);
    MIMO_CHECK(value >= 0, MIMO_ERR_ARGUMENT, "cost %.*s is %lld, and must be at least 0",
               (int)length, item, value);
    *cost = value;
    return MIMO_OK;
}

mimo_status mimo_step_costs_parse(mimo_step_costs *out, const char *text)
{
    mimo_step_costs costs = *out;
    MIMO_TRY(mimo_read_cost_items(&costs, "cost", text, parse_item));
    *out = costs;
    return MIMO_OK;
}

void mimo_step_costs_print(FILE *stream, const mimo_step_costs *costs)
{
    static const struct {
        const char *name;
        mimo_step_kind kind;
    } printed[] = {{"f", MIMO_STEP_F}, {"b", MIMO_STEP_B}, {"i", MIMO_STEP_I},
                   {"w", MIMO_STEP_W}, {"e", MIMO_STEP_E}, {"eb", MIMO_STEP_EB}};
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
        fprintf(stream, "%s=%" PRId64 ",", printed[i].name, costs->of[printed[i].kind]);
    fprintf(stream, "head=%" PRId64, costs->head);
}
