/* A sum goes through its rows in stretches of columns that stay in the cache. Values that wait for
 * their partner are on a stack. */
#include "dispatch/row_sums.h"

#include <string.h>

#include "core/float16.h"
#include "core/mutation.h"

enum { COLUMNS = 64 };

/* Columns [column, column + count) of one sum. */
typedef struct stretch {
    int64_t sum, column;
    int count;
} stretch;

/* How many additions follow a term. */
static int adds_behind(const mimo_sum_list *list, int64_t sum, int64_t at)
{
    if (MIMO_MUTATED("combine-by-arrival"))
        return at > list->begin[sum];
    return list->adds[at];
}

/* -------------------------------------- elements ------------------------------------ */

static void load(float *to, const mimo_row_sums *it, int64_t row, const stretch *at)
{
    int64_t first = row * it->width + at->column;
    const uint16_t *half = (const uint16_t *)it->from + first;
    if (it->from_dtype == MIMO_F32)
        memcpy(to, (const float *)it->from + first, (size_t)at->count * sizeof *to);
    else if (it->from_dtype == MIMO_BF16)
        for (int i = 0; i < at->count; i++)
            to[i] = mimo_bf16_to(half[i]);
    else
        for (int i = 0; i < at->count; i++)
            to[i] = mimo_f16_to(half[i]);
}

static void store(const mimo_row_sums *it, const float *from, const stretch *at)
{
    int64_t first = (at->sum - it->first) * it->width + at->column;
    uint16_t *half = (uint16_t *)it->to + first;
    if (it->to_dtype == MIMO_F32)
        memcpy((float *)it->to + first, from, (size_t)at->count * sizeof *from);
    else if (it->to_dtype == MIMO_BF16)
        for (int i = 0; i < at->count; i++)
            half[i] = mimo_bf16_from(from[i]);
    else
        for (int i = 0; i < at->count; i++)
            half[i] = mimo_f16_from(from[i]);
}

static void load_wide(double *to, const mimo_row_sums *it, int64_t row, const stretch *at)
{
    const double *from = (const double *)it->from + row * it->width + at->column;
    memcpy(to, from, (size_t)at->count * sizeof *to);
}

static void store_wide(const mimo_row_sums *it, const double *from, const stretch *at)
{
    double *to = (double *)it->to + (at->sum - it->first) * it->width + at->column;
    memcpy(to, from, (size_t)at->count * sizeof *to);
}

/* ---------------------------------------- sums -------------------------------------- */

#define DEFINE_ADD(name, type, load_row, store_row)                               \
    static void name(const mimo_row_sums *it, const stretch *at)                  \
    {                                                                             \
        type open[MIMO_SUM_OPEN][COLUMNS];                                        \
        const mimo_sum_list *list = it->list;                                     \
        int64_t first = list->begin[at->sum], end = list->begin[at->sum + 1];     \
        int depth = 0;                                                            \
        if (first == end)                                                         \
            memset(open[0], 0, sizeof open[0]);                                   \
        for (int64_t term = first; term < end; term++) {                          \
            load_row(open[depth++], it, list->leaf[term], at);                    \
            for (int adds = adds_behind(list, at->sum, term); adds > 0; adds--) { \
                depth--;                                                          \
                for (int i = 0; i < at->count; i++)                               \
                    open[depth - 1][i] += open[depth][i];                         \
            }                                                                     \
        }                                                                         \
        store_row(it, open[0], at);                                               \
    }

DEFINE_ADD(add, float, load, store)
DEFINE_ADD(add_wide, double, load_wide, store_wide)

void mimo_row_sums_add(const mimo_row_sums *it)
{
    for (int64_t sum = it->first; sum < it->first + it->count; sum++)
        for (int64_t column = 0; column < it->width; column += COLUMNS) {
            int64_t left = it->width - column;
            const stretch at = {sum, column, left < COLUMNS ? (int)left : COLUMNS};
            (it->from_dtype == MIMO_F64 ? add_wide : add)(it, &at);
        }
}
