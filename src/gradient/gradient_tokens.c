/* N and the sum of the losses, from what each rank passed. All ranks read the same numbers in rank
 * order, so all return the same, also where no agreement is made. */
#include <inttypes.h>
#include <math.h>

#include "core/checked.h"
#include "core/logging.h"
#include "gradient/gradient_state.h"

/* Ranks may have computed copies of a loss in other orders of additions. Tolerated: a relative
 * difference of 2^-12, or 2^-12 a token where positive and negative losses cancel. */
static bool same_loss(const mimo_share *a, const mimo_share *b)
{
    double most = fmax(fmax(fabs(a->value), fabs(b->value)), (double)a->count);
    return !isfinite(a->value) || !isfinite(b->value) ||
           fabs(a->value - b->value) <= ldexp(most, -12);
}

/* A rank whose tokens count nowhere passes none. */
static mimo_status check_uncounted(const mimo_grid *llm, int rank, const mimo_share *share)
{
    char text[MIMO_GRID_TEXT];
    int64_t stages = mimo_grid_dim_size(llm, "pp"), stage;
    if (share->value == 0 && share->count == 0)
        return MIMO_OK;
    MIMO_CHECK(mimo_grid_contains(llm, rank), MIMO_ERR_ARGUMENT,
               "gradient count: rank %d added %" PRId64 " tokens with a loss sum of %g, and is "
               "outside the LLM grid %s: they count nowhere",
               rank, share->count, share->value, mimo_grid_text(text, sizeof text, llm));
    MIMO_TRY(mimo_grid_coord(&stage, llm, rank, "pp"));
    return mimo_fail(MIMO_ERR_ARGUMENT,
                     "gradient count: rank %d added %" PRId64 " tokens with a loss sum of %g on "
                     "stage %" PRId64 " of pp=%" PRId64 ", and only stage %" PRId64 " counts",
                     rank, share->count, share->value, stage, stages, stages - 1);
}

/* Of ranks that share their tokens the first one counts, and the others add the same numbers. */
static mimo_status check_copy(const mimo_grid *llm, int rank, int64_t first, const mimo_share *all)
{
    char dims[MIMO_GRID_TEXT];
    if (all[rank].count == all[first].count && same_loss(&all[rank], &all[first]))
        return MIMO_OK;
    mimo_dim_set_text(dims, mimo_dim_set_between(llm, rank, first), llm);
    return mimo_fail(MIMO_ERR_MISMATCH,
                     "gradient count: rank %d added %" PRId64 " tokens with a loss sum of %g, and "
                     "rank %" PRId64 " %" PRId64 " with %g. They differ along %s alone, so they "
                     "share their tokens, and both pass the numbers of all of these (under sp: "
                     "summed over tp)",
                     rank, all[rank].count, all[rank].value, first, all[first].count,
                     all[first].value, dims);
}

static mimo_status check_rank(const mimo_grid *llm, int rank, const mimo_share *all)
{
    int64_t first = mimo_rule_token_rank(llm, rank);
    if (first < 0)
        return check_uncounted(llm, rank, &all[rank]);
    MIMO_CHECK(isfinite(all[rank].value) || all[rank].count > 0, MIMO_ERR_ARGUMENT,
               "gradient count: rank %d added 0 tokens with a loss sum of %g", rank,
               all[rank].value);
    return check_copy(llm, rank, first, all);
}

/* Loops that scale the loss expect one that overflows, so it is no error. */
static void warn_of_overflow(const mimo_share *all, int ranks)
{
    int bad = 0, first = 0;
    for (int rank = ranks - 1; rank >= 0; rank--)
        if (!isfinite(all[rank].value)) {
            first = rank;
            bad++;
        }
    if (bad > 0)
        mimo_log(MIMO_LOG_WARNING,
                 "gradient count: rank %d added %" PRId64
                 " tokens with a loss sum of %g. Such sums "
                 "are on %d of %d ranks",
                 first, all[first].count, all[first].value, bad, ranks);
}

mimo_status mimo_gradient_sum_tokens(mimo_share *sum, const mimo_gradient *gradient,
                                     const mimo_share *all)
{
    const mimo_grid *llm = gradient->grids[MIMO_DST].grid;
    mimo_share total = {0, 0};
    for (int rank = 0; rank < gradient->comm->size; rank++) {
        MIMO_TRY(check_rank(llm, rank, all));
        if (!mimo_rule_counts_tokens(llm, rank))
            continue;
        total.value += all[rank].value;
        MIMO_TRY(mimo_add(&total.count, total.count, all[rank].count));
    }
    warn_of_overflow(all, gradient->comm->size);
    *sum = total;
    return MIMO_OK;
}
