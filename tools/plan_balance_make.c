/* mimo-plan balance: reads items, and gives each its lane. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_balance.h"

enum { FIELDS = 3 }; /* rows, home, cost */

/* ------------------------------------------ items ------------------------------------------- */

static int grow(plan_balance *plan)
{
    int64_t **lists[] = {&plan->rows, &plan->home, &plan->cost, &plan->lane};
    int64_t capacity = plan->capacity > 0 ? 2 * plan->capacity : 64;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        int64_t *grown = realloc(*lists[i], (size_t)capacity * sizeof *grown);
        if (!grown)
            return plan_fail("out of memory for %" PRId64 " items", capacity);
        *lists[i] = grown;
    }
    plan->capacity = capacity;
    return 0;
}

/* The numbers of a line, into fields[FIELDS]. Returns their number, or -1 where the line has
 * something else. */
static int read_fields(int64_t *fields, const char *line)
{
    int count = 0;
    for (;;) {
        char *end;
        while (isspace((unsigned char)*line))
            line++;
        if (*line == '\0' || *line == '#')
            return count;
        errno = 0;
        long long number = strtoll(line, &end, 10);
        bool ends = *end == '\0' || isspace((unsigned char)*end) || *end == '#';
        if (end == line || !ends || errno != 0 || count == FIELDS)
            return -1;
        fields[count++] = number;
        line = end;
    }
}

/* The cost of an item of which the file says none: that of a transformer block. */
static int set_cost(plan_balance *plan, int64_t item)
{
    int64_t rows = plan->rows[item], hidden = plan->request->hidden, wide,
            *cost = &plan->cost[item];
    if (hidden == 0) {
        *cost = rows;
        return 0;
    }
    bool over = __builtin_mul_overflow(hidden, 6, &wide) ||
                __builtin_add_overflow(wide, rows, &wide) ||
                __builtin_mul_overflow(wide, rows, cost);
    return over ? plan_fail("item %" PRId64 " of %" PRId64 " rows: its cost with --hidden %" PRId64
                            " does not fit 64 bits",
                            item, rows, hidden)
                : 0;
}

static int add_item(plan_balance *plan, const int64_t *fields, int count)
{
    int64_t item = plan->desc.items;
    if (item == plan->capacity && grow(plan) != 0)
        return PLAN_EXIT_ERROR;
    plan->desc.items++;
    plan->rows[item] = fields[0];
    plan->home[item] = count > 1 ? fields[1] : -1;
    plan->homes = plan->homes || plan->home[item] >= 0;
    plan->cost[item] = fields[2];
    return count == FIELDS ? 0 : set_cost(plan, item);
}

static int read_lines(plan_balance *plan, FILE *file)
{
    char *line = NULL;
    size_t capacity = 0;
    int status = 0;
    for (int64_t number = 1; status == 0 && getline(&line, &capacity, file) >= 0; number++) {
        int64_t fields[FIELDS];
        int count = read_fields(fields, line);
        if (count < 0)
            status = plan_fail("%s, line %" PRId64 " is no item (rows, home, cost): %.*s",
                               plan->request->file, number, (int)strcspn(line, "\n"), line);
        else if (count > 0)
            status = add_item(plan, fields, count);
    }
    free(line);
    return status;
}

static int read_items(plan_balance *plan)
{
    const char *path = plan->request->file;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!file)
        return plan_fail("%s: %s", path, strerror(errno));
    int status = read_lines(plan, file);
    if (status == 0 && ferror(file))
        status = plan_fail("%s: cannot be read", path);
    if (file != stdin)
        fclose(file);
    return status;
}

/* ------------------------------------------ lanes ------------------------------------------- */

/* Cost of each lane before and after. */
static int sum_lanes(plan_balance *plan)
{
    plan->before = calloc((size_t)plan->desc.lanes, sizeof *plan->before);
    plan->after = calloc((size_t)plan->desc.lanes, sizeof *plan->after);
    if (!plan->before || !plan->after)
        return plan_fail("out of memory for %" PRId64 " lanes", plan->desc.lanes);
    for (int64_t i = 0; i < plan->desc.items; i++) {
        plan->after[plan->lane[i]] += plan->cost[i];
        if (plan->home[i] >= 0)
            plan->before[plan->home[i]] += plan->cost[i];
    }
    return 0;
}

int plan_balance_make(plan_balance *out, const plan_balance_request *request)
{
    *out = (plan_balance){
        .request = request, .desc = request->desc, .report = MIMO_BALANCE_REPORT_INIT};
    int status = read_items(out);
    if (status != 0)
        return status;
    out->desc.cost = out->cost;
    out->desc.rows = out->rows;
    out->desc.home = out->home;
    if (mimo_balance(out->lane, &out->desc) != MIMO_OK ||
        mimo_balance_report_of(&out->report, &out->desc, out->lane) != MIMO_OK)
        return plan_fail_library();
    return sum_lanes(out);
}

void plan_balance_release(plan_balance *plan)
{
    free(plan->rows);
    free(plan->home);
    free(plan->cost);
    free(plan->lane);
    free(plan->before);
    free(plan->after);
}
