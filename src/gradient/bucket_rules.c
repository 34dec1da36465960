#include <inttypes.h>

#include "core/check.h"
#include "core/mutation.h"
#include "gradient/bucket_rules.h"

mimo_dim_set mimo_rule_sum(const mimo_bucket_rule *rule)
{
    if (MIMO_MUTATED("no-partial-sum"))
        return rule->data;
    return rule->data | rule->partial;
}

mimo_dim_set mimo_rule_same(const mimo_bucket_rule *rule)
{
    return rule->data | rule->partial | rule->copies;
}

bool mimo_rule_is_representative(const mimo_bucket_rule *rule, const mimo_grid *grid, int64_t rank)
{
    mimo_dim_set same = mimo_rule_same(rule);
    if (MIMO_MUTATED("norm-of-expert-copies"))
        same &= ~mimo_dim_set_of(grid, "edp");
    return mimo_dim_set_first(same, grid, rank) == rank;
}

mimo_gradient_grid mimo_module_grid(const mimo_grid *grid, mimo_side module)
{
    if (module == MIMO_SRC)
        return (mimo_gradient_grid){grid, "encoder", "dp", ""};
    return (mimo_gradient_grid){grid, "LLM", "cp,dp", ""};
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

/* Check that the grid has a dimension, or knows it: then it splits nothing. And that the caller did
 * not say that ranks along it hold copies. */
static mimo_status check_name(const mimo_gradient_grid *home, const char *bucket, const char *name,
                              size_t length)
{
    char text[MIMO_GRID_TEXT];
    const mimo_grid *grid = home->grid;
    int i = mimo_dim_index(grid, name, length);
    MIMO_CHECK(i >= 0 || mimo_dim_set_has_before(MIMO_KNOWN_DIMS, NULL, name, length),
               MIMO_ERR_GRID, "gradient bucket '%s': the %s grid %s has no dimension '%.*s'",
               bucket, home->name, mimo_grid_text(text, sizeof text, grid), (int)length, name);
    MIMO_CHECK(i < 0 || !grid->bits[i] || !grid->copies[i], MIMO_ERR_GRID,
               "gradient bucket '%s': ranks along '%.*s' of the %s grid %s hold copies, so nothing "
               "is sharded or partial along it",
               bucket, (int)length, name, home->name, mimo_grid_text(text, sizeof text, grid));
    return MIMO_OK;
}

/* Read one of the bucket's two strings, which excludes the data dimensions for a reason. */
static mimo_status read_dims(mimo_dim_set *out, const mimo_gradient_grid *home, const char *bucket,
                             const char *dims, const char *why_no_data)
{
    size_t length;
    const char *cursor = *dims ? dims : NULL, *name;
    while ((name = mimo_dim_set_next(&cursor, &length))) {
        MIMO_TRY(check_name(home, bucket, name, length));
        MIMO_CHECK(!mimo_dim_set_has_before(dims, name, name, length), MIMO_ERR_GRID,
                   "gradient bucket '%s': '%.*s' is named twice", bucket, (int)length, name);
        MIMO_CHECK(!mimo_dim_set_has_before(home->data, NULL, name, length), MIMO_ERR_GRID,
                   "gradient bucket '%s' (%s): '%.*s' is a data dimension, it %s", bucket,
                   home->name, (int)length, name, why_no_data);
    }
    *out = mimo_dim_set_of(home->grid, dims);
    return MIMO_OK;
}

/* Nothing is both sharded and partial, also along a dimension of size 1. */
static mimo_status check_disjoint(const mimo_gradient_grid *home, const char *bucket,
                                  const char *shard, const char *partial)
{
    size_t length;
    const char *cursor = *shard ? shard : NULL, *name;
    while ((name = mimo_dim_set_next(&cursor, &length)))
        MIMO_CHECK(!mimo_dim_set_has_before(partial, NULL, name, length), MIMO_ERR_GRID,
                   "gradient bucket '%s' (%s): '%.*s' is both sharded and partial", bucket,
                   home->name, (int)length, name);
    return MIMO_OK;
}

/* A forgotten name would make ranks copies of each other that hold other elements. */
static mimo_status check_needed(const mimo_gradient_grid *home, const char *bucket,
                                const char *shard)
{
    size_t length;
    const char *cursor = *home->shard ? home->shard : NULL, *name;
    while ((name = mimo_dim_set_next(&cursor, &length)))
        MIMO_CHECK(mimo_dim_set_has_before(shard, NULL, name, length), MIMO_ERR_GRID,
                   "gradient bucket '%s' (%s): its shard '%s' does not name '%.*s', along which "
                   "all ranks of this grid hold different elements",
                   bucket, home->name, shard, (int)length, name);
    return MIMO_OK;
}

mimo_status mimo_bucket_rule_of(mimo_bucket_rule *out, const mimo_gradient_grid *home,
                                const mimo_gradient_bucket *bucket)
{
    mimo_dim_set all = mimo_dim_set_all(home->grid);
    const char *shard = bucket->shard ? bucket->shard : "";
    const char *partial = bucket->partial ? bucket->partial : "";
    MIMO_TRY(read_dims(&out->shard, home, bucket->name, shard, "can't be sharded"));
    MIMO_TRY(read_dims(&out->partial, home, bucket->name, partial, "is summed over anyway"));
    MIMO_TRY(check_disjoint(home, bucket->name, shard, partial));
    MIMO_TRY(check_needed(home, bucket->name, shard));
    out->data = mimo_dim_set_of(home->grid, home->data);
    out->copies = all & ~(out->data | out->partial | out->shard);
    if (MIMO_MUTATED("sum-of-copies"))
        out->partial |= out->copies;
    return MIMO_OK;
}

static bool is_last_stage(const mimo_grid *llm, int64_t rank)
{
    int64_t pp;
    if (MIMO_MUTATED("loss-on-every-stage"))
        return true;
    return mimo_grid_coord(&pp, llm, rank, "pp") == MIMO_OK &&
           pp == mimo_grid_dim_size(llm, "pp") - 1;
}

int64_t mimo_rule_token_rank(const mimo_grid *llm, int64_t rank)
{
    mimo_dim_set apart = mimo_dim_set_of(llm, "cp,pp,dp");
    if (!mimo_grid_contains(llm, rank) || !is_last_stage(llm, rank))
        return -1;
    return mimo_dim_set_first(mimo_dim_set_all(llm) & ~apart, llm, rank);
}

bool mimo_rule_counts_tokens(const mimo_grid *llm, int64_t rank)
{
    if (MIMO_MUTATED("n-over-dp") &&
        mimo_dim_set_first(mimo_dim_set_of(llm, "cp"), llm, rank) != rank)
        return false;
    return mimo_rule_token_rank(llm, rank) == rank;
}
