/* Rows by lists: their sums, and their copies.
 *
 * A sum goes through its rows in stretches of columns that stay in the cache. Values that wait for
 * their partner are on a stack. All loops run over a whole stretch, so that the compiler makes
 * vectors of them; of one at the end of a row only its columns are read and written. */
#include "device/host_row_lists.h"

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

/* The columns of a row that a stretch has; the others as zeros. */
static void read_columns(void *to, const mimo_row_sums *it, int64_t row, const stretch *at)
{
    size_t size = mimo_dtype_size(it->from_dtype), bytes = (size_t)at->count * size;
    const char *from = (const char *)it->from + (row * it->width + at->column) * (int64_t)size;
    memcpy(to, from, bytes);
    memset((char *)to + bytes, 0, COLUMNS * size - bytes);
}

static void write_columns(const mimo_row_sums *it, const void *from, const stretch *at)
{
    size_t size = mimo_dtype_size(it->to_dtype);
    int64_t first = (at->sum - it->first) * it->width + at->column;
    memcpy((char *)it->to + first * (int64_t)size, from, (size_t)at->count * size);
}

/* The columns as f32. */
static void load(float *to, const mimo_row_sums *it, int64_t row, const stretch *at)
{
    uint16_t half[COLUMNS];
    switch (it->from_dtype) {
    case MIMO_F32:
        read_columns(to, it, row, at);
        break;
    case MIMO_BF16:
        read_columns(half, it, row, at);
        for (int i = 0; i < COLUMNS; i++)
            to[i] = mimo_bf16_to(half[i]);
        break;
    case MIMO_F16:
        read_columns(half, it, row, at);
        for (int i = 0; i < COLUMNS; i++)
            to[i] = mimo_f16_to(half[i]);
        break;
    case MIMO_F64: /* added as it is */
    case MIMO_I32: /* refused, as all below */
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
}

static void store(const mimo_row_sums *it, const float *from, const stretch *at)
{
    uint16_t half[COLUMNS];
    switch (it->to_dtype) {
    case MIMO_F32:
        write_columns(it, from, at);
        break;
    case MIMO_BF16:
        for (int i = 0; i < COLUMNS; i++)
            half[i] = mimo_bf16_from(from[i]);
        write_columns(it, half, at);
        break;
    case MIMO_F16:
        for (int i = 0; i < COLUMNS; i++)
            half[i] = mimo_f16_from(from[i]);
        write_columns(it, half, at);
        break;
    case MIMO_F64: /* added as it is */
    case MIMO_I32: /* refused, as all below */
    case MIMO_I64:
    case MIMO_F8:
        break;
    }
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
                for (int i = 0; i < COLUMNS; i++)                                 \
                    open[depth - 1][i] += open[depth][i];                         \
            }                                                                     \
        }                                                                         \
        store_row(it, open[0], at);                                               \
    }

DEFINE_ADD(add, float, load, store)
DEFINE_ADD(add_wide, double, read_columns, write_columns)

mimo_status mimo_host_add_rows(const mimo_row_sums *it, mimo_stream stream)
{
    (void)stream;
    for (int64_t sum = it->first; sum < it->first + it->count; sum++)
        for (int64_t column = 0; column < it->width; column += COLUMNS) {
            int64_t left = it->width - column;
            const stretch at = {sum, column, left < COLUMNS ? (int)left : COLUMNS};
            (it->from_dtype == MIMO_F64 ? add_wide : add)(it, &at);
        }
    return MIMO_OK;
}

/* --------------------------------------- repeats ------------------------------------ */

static const char *repeated_row(const mimo_row_repeats *it, int64_t row)
{
    if (MIMO_MUTATED("copy-row-before"))
        row -= row > 0;
    return (const char *)it->tile + row * it->row_bytes;
}

mimo_status mimo_host_repeat_rows(const mimo_row_repeats *it, mimo_stream stream)
{
    (void)stream;
    for (int64_t n = 0; n < it->count && it->row_bytes > 0; n++) {
        const char *from = repeated_row(it, it->row[it->begin[n]]);
        for (int64_t q = it->begin[n] + 1; q < it->begin[n + 1]; q++)
            memcpy((char *)it->tile + it->row[q] * it->row_bytes, from, (size_t)it->row_bytes);
    }
    return MIMO_OK;
}
