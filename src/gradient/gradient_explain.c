/* mimo_gradient_explain: each factor of each bucket, in sentences. */
#include <inttypes.h>
#include <stdio.h>

#include "core/check.h"
#include "core/memory.h"
#include "core/printed.h"
#include "gradient/gradient_state.h"
#include "grid/grid_types.h"

static const char *const why_data[] = {NULL, "ranks hold other tokens of the same samples", NULL,
                                       "ranks hold other samples"};

/* Of a dimension that is none of tp, cp, pp and dp. */
static bool holds_copies(mimo_dim dim)
{
    return dim.size > 1 && !mimo_dim_is_known(dim.name);
}

static void explain_count(const mimo_gradient *gradient, FILE *stream)
{
    const mimo_grid *llm = gradient->grid[MIMO_DST];
    int64_t cp = mimo_grid_dim_size(llm, "cp"), dp = mimo_grid_dim_size(llm, "dp");
    int64_t n = gradient->total > 0 ? gradient->total : 1;
    fprintf(stream,
            "N counts each token once: over the LLM's cp=%" PRId64 " x dp=%" PRId64 " = %" PRId64
            " ranks and all micro-batches; tp ranks hold copies",
            cp, dp, cp * dp);
    for (int i = 0; i < mimo_grid_ndims(llm); i++)
        if (holds_copies(mimo_grid_dim(llm, i)))
            fprintf(stream, ", and so do %s ranks", mimo_grid_dim(llm, i).name);
    if (mimo_grid_dim_size(llm, "pp") > 1)
        fprintf(stream, "; only the last pipeline stage sees the loss");
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

/* One sentence for each dimension that is larger than 1. */
static void explain_dim(const mimo_bucket_rule *rule, int dim, const mimo_grid *grid, FILE *stream)
{
    unsigned bit = 1u << dim;
    const char *name = mimo_rule_dims[dim];
    int64_t size = mimo_grid_dim_size(grid, name);
    if (rule->data & bit)
        fprintf(stream, "  SUM over %s=%" PRId64 ": %s.\n", name, size, why_data[dim]);
    else if (rule->partial & bit)
        fprintf(stream,
                "  SUM over %s=%" PRId64 ": ranks hold the same elements, and each only a "
                "part of their gradient.\n",
                name, size);
    else if (rule->shard & bit)
        fprintf(stream, "  not over %s=%" PRId64 ": sharded, ranks hold other elements.\n", name,
                size);
    else if (rule->copies & bit)
        fprintf(stream,
                "  not over %s=%" PRId64 ": replicated, ranks hold the same elements and "
                "equal gradients.\n",
                name, size);
}

static void explain_bucket(const mimo_gradient *gradient, const mimo_gradient_bucket *bucket,
                           const mimo_bucket_rule *rule, FILE *stream)
{
    const mimo_grid *grid = gradient->grid[bucket->module];
    char text[MIMO_GRID_TEXT];
    int64_t n = gradient->total > 0 ? gradient->total : 1;
    int64_t ranks = mimo_rule_ranks(mimo_rule_sum(rule), grid);
    fprintf(stream, "%s (%s %s, %" PRId64 " elements here, %s): ", bucket->name,
            mimo_module_name(bucket->module), mimo_grid_text(text, sizeof text, grid),
            bucket->count, mimo_dtype_name(bucket->dtype));
    if (ranks > 1)
        fprintf(stream, "SUM over %" PRId64 " ranks, then ", ranks);
    if (bucket->dtype == MIMO_I64)
        fprintf(stream, "no scale: whole numbers are their owner's to scale.\n");
    else if (gradient->counted)
        fprintf(stream, "* 1/%" PRId64 ".\n", n);
    else
        fprintf(stream, "* 1/max(N, 1).\n");
    for (int dim = 0; dim < MIMO_RULE_DIMS; dim++)
        explain_dim(rule, dim, grid, stream);
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        if (holds_copies(dim))
            fprintf(stream, "  not over %s=%" PRId64 ": ranks hold copies, as the grid says.\n",
                    dim.name, dim.size);
    }
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
