/* mimo_gradient_explain: each factor of each bucket, in sentences. */
#include <inttypes.h>
#include <string.h>
#include <stdio.h>

#include "core/check.h"
#include "core/memory.h"
#include "core/printed.h"
#include "gradient/gradient_state.h"

/* Why a gradient is summed along a data dimension. Of others than cp and dp only the grid's name
 * tells what it is about: edp of "experts". */
static void explain_data(const mimo_gradient_grid *home, mimo_dim dim, FILE *stream)
{
    fprintf(stream, "  SUM over %s=%" PRId64 ": ranks hold other ", dim.name, dim.size);
    if (strcmp(dim.name, "cp") == 0)
        fprintf(stream, "tokens of the same samples.\n");
    else if (strcmp(dim.name, "dp") == 0)
        fprintf(stream, "samples.\n");
    else
        fprintf(stream, "tokens for the same %s.\n", home->name);
}

static void explain_count(const mimo_gradient *gradient, FILE *stream)
{
    const mimo_grid *llm = gradient->grids[MIMO_DST].grid;
    int64_t cp = mimo_grid_dim_size(llm, "cp"), dp = mimo_grid_dim_size(llm, "dp");
    int64_t n = gradient->total > 0 ? gradient->total : 1;
    fprintf(stream,
            "N counts each token once: over the LLM's cp=%" PRId64 " x dp=%" PRId64 " = %" PRId64
            " ranks and all micro-batches; tp ranks hold copies",
            cp, dp, cp * dp);
    for (int i = 0; i < mimo_grid_ndims(llm); i++)
        if (llm->bits[i] && llm->copies[i])
            fprintf(stream, ", and so do %s ranks", llm->dims[i].name);
    fprintf(stream, ", so all of these add the same loss and tokens (under sp: sums over tp)");
    if (mimo_grid_dim_size(llm, "pp") > 1)
        fprintf(stream, "; only the last pipeline stage adds its own");
    fprintf(stream, ".\n");
    if (gradient->counted)
        fprintf(stream,
                "N = %" PRId64 ", so every gradient of both modules is scaled once by 1/%" PRId64
                ".\n",
                gradient->total, n);
    else
        fprintf(stream, "N is not known yet (mimo_gradient_count); the scale will be "
                        "1/max(N, 1), once, on both modules.\n");
}

/* One sentence for a dimension that is larger than 1. */
static void explain_dim(const mimo_bucket_rule *rule, const mimo_gradient_grid *home, int i,
                        FILE *stream)
{
    const mimo_grid *grid = home->grid;
    mimo_dim_set dim = grid->bits[i];
    const char *name = grid->dims[i].name;
    int64_t size = grid->dims[i].size;
    if (rule->data & dim)
        explain_data(home, grid->dims[i], stream);
    else if (rule->partial & dim)
        fprintf(stream,
                "  SUM over %s=%" PRId64 ": ranks hold the same elements, and each only a "
                "part of their gradient.\n",
                name, size);
    else if (rule->shard & dim)
        fprintf(stream, "  not over %s=%" PRId64 ": sharded, ranks hold other elements.\n", name,
                size);
    else if (grid->copies[i])
        fprintf(stream, "  not over %s=%" PRId64 ": ranks hold copies, as the grid says.\n", name,
                size);
    else if (rule->copies & dim)
        fprintf(stream,
                "  not over %s=%" PRId64 ": replicated, ranks hold the same elements and "
                "equal gradients.\n",
                name, size);
}

static void explain_bucket(const mimo_gradient *gradient, const mimo_gradient_bucket *bucket,
                           const mimo_bucket_rule *rule, FILE *stream)
{
    const mimo_gradient_grid *home = &gradient->grids[rule->home];
    const mimo_grid *grid = home->grid;
    char text[MIMO_GRID_TEXT];
    int64_t n = gradient->total > 0 ? gradient->total : 1;
    int64_t ranks = mimo_dim_set_ranks(mimo_rule_sum(rule), grid);
    fprintf(stream, "%s (%s %s, %" PRId64 " elements here, %s): ", bucket->name, home->name,
            mimo_grid_text(text, sizeof text, grid), bucket->count, mimo_dtype_name(bucket->dtype));
    if (ranks > 1)
        fprintf(stream, "SUM over %" PRId64 " ranks, then ", ranks);
    if (bucket->dtype == MIMO_I64)
        fprintf(stream, "no scale: whole numbers are their owner's to scale.\n");
    else if (gradient->counted)
        fprintf(stream, "* 1/%" PRId64 ".\n", n);
    else
        fprintf(stream, "* 1/max(N, 1).\n");
    for (int i = 0; i < grid->ndims; i++)
        explain_dim(rule, home, i, stream);
    if (ranks == 1)
        fprintf(stream, "  no sum: one rank holds all of the gradient.\n");
}

mimo_status mimo_gradient_explain(FILE *stream, const mimo_gradient *gradient,
                                  const mimo_gradient_bucket *buckets, int n)
{
    mimo_bucket_rule *rules = NULL;
    mimo_gradient_bucket *own = NULL;
    MIMO_CHECK(gradient && stream, MIMO_ERR_ARGUMENT, "mimo_gradient_explain: %s is NULL",
               gradient ? "stream" : "gradient");
    MIMO_CHECK(n >= 0 && (buckets || n == 0), MIMO_ERR_ARGUMENT, "gradient: %d buckets at %p", n,
               (const void *)buckets);
    mimo_status status = mimo_reserve(&rules, n, sizeof *rules);
    if (status == MIMO_OK)
        status = mimo_reserve(&own, n, sizeof *own);
    if (status == MIMO_OK)
        status = mimo_gradient_read_buckets(own, rules, gradient, buckets, n);
    if (status == MIMO_OK) {
        explain_count(gradient, stream);
        for (int i = 0; i < n; i++)
            explain_bucket(gradient, &own[i], &rules[i], stream);
        if (fflush(stream) != 0 || ferror(stream))
            status =
                mimo_fail(MIMO_ERR_IO, "gradient explain: the stream failed after %d buckets", n);
    }
    mimo_release(rules);
    mimo_release(own);
    return status;
}

mimo_status mimo_gradient_text(int64_t *length, char *text, int64_t capacity,
                               const mimo_gradient *gradient, const mimo_gradient_bucket *buckets,
                               int n)
{
    mimo_printed printed;
    MIMO_TRY(mimo_printed_open(&printed, text, capacity, "mimo_gradient_text"));
    return mimo_printed_close(length, text, capacity, &printed,
                              mimo_gradient_explain(printed.stream, gradient, buckets, n));
}
