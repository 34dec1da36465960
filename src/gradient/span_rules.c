#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/mutation.h"
#include "gradient/span_rules.h"

enum { CP = 1 << 1, DP = 1 << 3 };

const char *const mimo_rule_dims[MIMO_RULE_DIMS] = {"tp", "cp", "pp", "dp"};

unsigned mimo_rule_sum(const mimo_span_rule *rule)
{
    if (MIMO_MUTATED("no-partial-sum"))
        return rule->data;
    if (MIMO_MUTATED("sum-of-copies"))
        return rule->data | rule->partial | rule->copies;
    return rule->data | rule->partial;
}

unsigned mimo_rule_same(const mimo_span_rule *rule)
{
    return rule->data | rule->partial | rule->copies;
}

const char *mimo_module_name(mimo_side module)
{
    return module == MIMO_SRC ? "encoder" : "LLM";
}

static unsigned find_dim(const char *name, size_t length)
{
    for (int i = 0; i < MIMO_RULE_DIMS; i++)
        if (strlen(mimo_rule_dims[i]) == length && memcmp(mimo_rule_dims[i], name, length) == 0)
            return 1u << i;
    return 0;
}

/* The dimensions of a mask that are larger than 1. */
static unsigned larger(unsigned mask, const mimo_grid *grid)
{
    for (int i = 0; i < MIMO_RULE_DIMS; i++)
        if (mimo_grid_dim_size(grid, mimo_rule_dims[i]) == 1)
            mask &= ~(1u << i);
    return mask;
}

mimo_status mimo_rule_check_grid(const mimo_grid *grid, mimo_side module)
{
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        unsigned known = find_dim(dim.name, strlen(dim.name));
        MIMO_CHECK(known || dim.size == 1, MIMO_ERR_UNSUPPORTED,
                   "gradient: dimension %s=%" PRId64 " of the %s grid: only tp, cp, pp and dp may "
                   "be larger than 1",
                   dim.name, dim.size, mimo_module_name(module));
        MIMO_CHECK(known != CP || module == MIMO_DST || dim.size == 1, MIMO_ERR_UNSUPPORTED,
                   "gradient: the encoder grid has cp=%" PRId64
                   ": its samples are not cut along cp",
                   dim.size);
    }
    return MIMO_OK;
}

/* A grid may name unknown dimensions of size 1: they change nothing. */
static bool is_on_grid(const mimo_grid *grid, const char *name, size_t length)
{
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        const char *other = mimo_grid_dim(grid, i).name;
        if (strlen(other) == length && memcmp(other, name, length) == 0)
            return true;
    }
    return false;
}

static mimo_status read_dims(unsigned *mask, const mimo_grid *grid,
                             const mimo_gradient_bucket *span, const char *dims)
{
    char text[96];
    *mask = 0;
    for (bool more = dims && *dims; more;) {
        size_t length = strcspn(dims, ",");
        unsigned dim = find_dim(dims, length);
        MIMO_CHECK(dim || is_on_grid(grid, dims, length), MIMO_ERR_GRID,
                   "gradient span '%s': the %s grid %s has no dimension '%.*s'", span->name,
                   mimo_module_name(span->module), mimo_grid_text(text, sizeof text, grid),
                   (int)length, dims);
        MIMO_CHECK(!(*mask & dim), MIMO_ERR_GRID, "gradient span '%s': '%.*s' is named twice",
                   span->name, (int)length, dims);
        *mask |= dim;
        more = dims[length] == ','; /* another name follows a comma, even if it is empty */
        dims += length + more;
    }
    return MIMO_OK;
}

static mimo_status refuse(unsigned dims, const mimo_gradient_bucket *span, const char *why)
{
    char text[16];
    MIMO_CHECK(dims == 0, MIMO_ERR_GRID, "gradient span '%s' (%s): '%s' %s", span->name,
               mimo_module_name(span->module), mimo_rule_text(dims, text), why);
    return MIMO_OK;
}

mimo_status mimo_span_rule_of(mimo_span_rule *out, const mimo_grid *grid,
                              const mimo_gradient_bucket *span)
{
    unsigned shard, partial, data = span->module == MIMO_SRC ? DP : DP | CP;
    MIMO_TRY(read_dims(&shard, grid, span, span->shard));
    MIMO_TRY(read_dims(&partial, grid, span, span->partial));
    MIMO_TRY(refuse(shard & partial, span, "is both sharded and partial"));
    MIMO_TRY(refuse(shard & data, span, "is a data dimension, it can't be sharded"));
    MIMO_TRY(refuse(partial & data, span, "is a data dimension, it is summed over anyway"));
    out->data = larger(data, grid);
    out->partial = larger(partial, grid);
    out->shard = larger(shard, grid);
    out->copies = larger(~(data | partial | shard) & (MIMO_RULE_MASKS - 1), grid);
    return MIMO_OK;
}

char *mimo_rule_text(unsigned mask, char text[16])
{
    text[0] = '\0';
    for (int i = 0; i < MIMO_RULE_DIMS; i++)
        if (mask & 1u << i)
            snprintf(text + strlen(text), 16 - strlen(text), "%s%s", *text ? "," : "",
                     mimo_rule_dims[i]);
    return text;
}

int64_t mimo_rule_ranks(unsigned mask, const mimo_grid *grid)
{
    int64_t ranks = 1;
    for (int i = 0; i < MIMO_RULE_DIMS; i++)
        if (mask & 1u << i)
            ranks *= mimo_grid_dim_size(grid, mimo_rule_dims[i]);
    return ranks;
}

bool mimo_rule_is_representative(unsigned mask, const mimo_grid *grid, int64_t rank)
{
    int64_t coordinate;
    if (!mimo_grid_contains(grid, rank))
        return false;
    for (int i = 0; i < MIMO_RULE_DIMS; i++)
        if (!(mask & 1u << i) &&
            (mimo_grid_coord(&coordinate, grid, rank, mimo_rule_dims[i]) != MIMO_OK ||
             coordinate != 0))
            return false;
    return true;
}

int64_t mimo_rule_representative(unsigned mask, const mimo_grid *grid, int64_t rank)
{
    int64_t stride = 1, index = rank - mimo_grid_rank_offset(grid), representative = rank;
    if (!mimo_grid_contains(grid, rank))
        return -1;
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        if (!(mask & find_dim(dim.name, strlen(dim.name))))
            representative -= index / stride % dim.size * stride;
        stride *= dim.size;
    }
    return representative;
}
