#include "captioner/diff/diff_sums.h"

#include <inttypes.h>
#include <string.h>

#include <mimo/grid.h>

/* The rules over tp or etp, as train_log.h has them. */
static const struct {
    const char *rule, *meaning;
    bool adds;
} rules[] = {
    {"sharded", "not added: each rank has a slice", false},
    {"replicated", "not added: each rank has the whole", false},
    {"partial", "added at the end of the step: each rank has a part", true},
};

/* The tensor in one run. */
typedef struct origin {
    const char *module, *rule;
    mimo_grid *grid;
    int64_t micro_batches;
} origin;

static const char *text_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

/* False where the log does not say. */
static bool find_origin(origin *out, const char *tensor, const struct log_start *start)
{
    const cJSON *item = start ? cJSON_GetObjectItemCaseSensitive(start->tensors, tensor) : NULL;
    const char *module = text_of(item, "module");
    const char *grid = module ? text_of(start->grids, module) : NULL;
    if (!grid || mimo_grid_create_text(&out->grid, grid, 0) != MIMO_OK)
        return false;
    out->module = module;
    out->rule = text_of(item, "rule");
    out->micro_batches = start->micro_batches;
    return true;
}

/* One row; whether the runs add another number of parts here. */
static bool print_row(FILE *out, const char *name, const int64_t parts[2], const char *meaning)
{
    fprintf(out, "  %-14s%5" PRId64 " %5" PRId64 "  %s\n", name, parts[0], parts[1], meaning);
    return parts[0] != parts[1];
}

/* `name` is tp, or etp of experts. */
static bool print_tp(FILE *out, const char *name, const int64_t parts[2], const origin both[2])
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(both[0].rule, rules[i].rule) == 0 && strcmp(both[1].rule, rules[i].rule) == 0)
            return print_row(out, name, parts, rules[i].meaning) && rules[i].adds;
    fprintf(out, "  %-14s%5" PRId64 " %5" PRId64 "  %s in A, %s in B\n", name, parts[0], parts[1],
            both[0].rule, both[1].rule);
    return true;
}

/* A dimension's row; whether the gradient of the tensor is added in other parts along it. Over tp,
 * or etp, the tensor has a rule, stages have other tensors and ranks along ep other experts, and
 * over all other dimensions it is added. */
static bool print_dim(FILE *out, const char *name, const int64_t parts[2], const origin both[2])
{
    bool stages = strcmp(name, "pp") == 0;
    if (strcmp(name, "tp") == 0 || strcmp(name, "etp") == 0)
        return print_tp(out, name, parts, both);
    if (!stages && strcmp(name, "ep") != 0)
        return print_row(out, name, parts, "added at the end of the step");
    print_row(out, name, parts,
              stages ? "not added: each stage has other tensors"
                     : "not added: ranks have other experts");
    return false;
}

static bool print_dims(FILE *out, const origin both[2])
{
    const int64_t in_turn[2] = {both[0].micro_batches, both[1].micro_batches};
    bool differs = false;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < mimo_grid_ndims(both[side].grid); i++) {
            const char *name = mimo_grid_dim(both[side].grid, i).name;
            const int64_t parts[2] = {mimo_grid_dim_size(both[0].grid, name),
                                      mimo_grid_dim_size(both[1].grid, name)};
            if (side == 1 && mimo_grid_find(both[0].grid, name) >= 0)
                continue;
            differs = print_dim(out, name, parts, both) || differs;
        }
    return print_row(out, "micro-batches", in_turn, "added one after another") || differs;
}

void diff_sums_print(FILE *out, const char *tensor, bool alone, const struct log_start *a,
                     const struct log_start *b)
{
    origin both[2] = {{0}};
    if (find_origin(&both[0], tensor, a) && find_origin(&both[1], tensor, b)) {
        bool expert = mimo_grid_find(both[0].grid, "etp") >= 0;
        fprintf(out, "the gradient of %s (module %s, %s over %s):\n  %-14s%5s %5s\n", tensor,
                both[0].module, both[0].rule, expert ? "etp" : "tp", "parts", "A", "B");
        bool differs = print_dims(out, both);
        if (alone)
            fputs("no other gradient differs: look at the sums of this one\n", out);
        else if (!differs)
            fputs("both runs add equally many parts here: look at what reaches this tensor, the "
                  "sums of other layers over tp and cp\n",
                  out);
    } else {
        fprintf(out,
                "how the gradient of %s is added is not known: no line before this step says what "
                "its run started from\n",
                tensor);
    }
    for (int side = 0; side < 2; side++)
        mimo_grid_destroy(both[side].grid);
}
