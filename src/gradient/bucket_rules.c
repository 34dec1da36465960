#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/mutation.h"
#include "gradient/bucket_rules.h"

enum { CP = 1 << 1, PP = 1 << 2, DP = 1 << 3 };

const char *const mimo_rule_dims[MIMO_RULE_DIMS] = {"tp", "cp", "pp", "dp"};

unsigned mimo_rule_sum(const mimo_bucket_rule *rule)
{
    if (MIMO_MUTATED("no-partial-sum"))
        return rule->data;
    return rule->data | rule->partial;
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
    int64_t cp = mimo_grid_dim_size(grid, "cp");
    MIMO_TRY(mimo_grid_check_meaning(grid, module == MIMO_SRC ? "gradient: the encoder"
                                                              : "gradient: the LLM"));
    MIMO_CHECK(module == MIMO_DST || cp == 1, MIMO_ERR_UNSUPPORTED,
               "gradient: the encoder grid has cp=%" PRId64 ": its samples are not cut along cp",
               cp);
    return MIMO_OK;
}

/* The size of a dimension; 0 where the grid has none of that name. */
static int64_t size_on_grid(const mimo_grid *grid, const char *name, size_t length)
{
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        if (strlen(dim.name) == length && memcmp(dim.name, name, length) == 0)
            return dim.size;
    }
    return 0;
}

static mimo_status read_dims(unsigned *mask, const mimo_grid *grid,
                             const mimo_gradient_bucket *bucket, const char *dims)
{
    char text[MIMO_GRID_TEXT];
    *mask = 0;
    for (bool more = dims && *dims; more;) {
        size_t length = strcspn(dims, ",");
        unsigned dim = find_dim(dims, length);
        int64_t size = size_on_grid(grid, dims, length);
        MIMO_CHECK(dim || size > 0, MIMO_ERR_GRID,
                   "gradient bucket '%s': the %s grid %s has no dimension '%.*s'", bucket->name,
                   mimo_module_name(bucket->module), mimo_grid_text(text, sizeof text, grid),
                   (int)length, dims);
        /* Of size 1 it changes nothing. */
        MIMO_CHECK(dim || size == 1, MIMO_ERR_GRID,
                   "gradient bucket '%s': ranks along '%.*s' of the %s grid %s hold copies, so "
                   "nothing is sharded or partial along it",
                   bucket->name, (int)length, dims, mimo_module_name(bucket->module),
                   mimo_grid_text(text, sizeof text, grid));
        MIMO_CHECK(!(*mask & dim), MIMO_ERR_GRID, "gradient bucket '%s': '%.*s' is named twice",
                   bucket->name, (int)length, dims);
        *mask |= dim;
        more = dims[length] == ','; /* another name follows a comma, even if it is empty */
        dims += length + more;
    }
    return MIMO_OK;
}

static mimo_status refuse(unsigned dims, const mimo_gradient_bucket *bucket, const char *why)
{
    char text[16];
    MIMO_CHECK(dims == 0, MIMO_ERR_GRID, "gradient bucket '%s' (%s): '%s' %s", bucket->name,
               mimo_module_name(bucket->module), mimo_rule_text(dims, text), why);
    return MIMO_OK;
}

mimo_status mimo_bucket_rule_of(mimo_bucket_rule *out, const mimo_grid *grid,
                                const mimo_gradient_bucket *bucket)
{
    unsigned shard, partial, data = bucket->module == MIMO_SRC ? DP : DP | CP;
    MIMO_TRY(read_dims(&shard, grid, bucket, bucket->shard));
    MIMO_TRY(read_dims(&partial, grid, bucket, bucket->partial));
    MIMO_TRY(refuse(shard & partial, bucket, "is both sharded and partial"));
    MIMO_TRY(refuse(shard & data, bucket, "is a data dimension, it can't be sharded"));
    MIMO_TRY(refuse(partial & data, bucket, "is a data dimension, it is summed over anyway"));
    out->data = larger(data, grid);
    out->partial = larger(partial, grid);
    out->shard = larger(shard, grid);
    out->copies = larger(~(data | partial | shard) & (MIMO_RULE_MASKS - 1), grid);
    if (MIMO_MUTATED("sum-of-copies"))
        out->partial |= out->copies;
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

char *mimo_rule_same_text(char text[MIMO_GRID_TEXT], const mimo_bucket_rule *rule,
                          const mimo_grid *grid)
{
    text[0] = '\0';
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        size_t used = strlen(text);
        if (dim.size > 1 && !(rule->shard & find_dim(dim.name, strlen(dim.name))))
            snprintf(text + used, MIMO_GRID_TEXT - used, "%s%s", used > 0 ? "," : "", dim.name);
    }
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

bool mimo_rule_is_representative(unsigned mask, const mimo_grid *grid, int64_t rank)
{
    return mimo_grid_contains(grid, rank) && mimo_rule_representative(mask, grid, rank) == rank;
}

bool mimo_rule_counts_tokens(const mimo_grid *llm, int64_t rank)
{
    int64_t pp;
    if (MIMO_MUTATED("n-over-dp"))
        return mimo_rule_is_representative(PP | DP, llm, rank);
    return mimo_rule_is_representative(CP | PP | DP, llm, rank) &&
           mimo_grid_coord(&pp, llm, rank, "pp") == MIMO_OK &&
           pp == mimo_grid_dim_size(llm, "pp") - 1;
}
