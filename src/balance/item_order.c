#include "balance/balance_types.h"

#include <string.h>

#include "core/memory.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, WEIGHT_BITS = 63 };

/* Digits count from the largest, so that ascending digits are descending weights. */
static inline int digit_of(int64_t weight, int shift)
{
    return DIGITS - 1 - (int)((weight >> shift) & (DIGITS - 1));
}

/* One pass of a radix sort: `to` has the items of `from` by one digit, equal ones as they stood.
 * False where all digits are equal: then `to` is not written. */
static bool sort_by_digit(int64_t *to, const int64_t *from, const int64_t *weight, int64_t count,
                          int shift)
{
    int64_t first[DIGITS + 1] = {0};
    for (int64_t i = 0; i < count; i++)
        first[digit_of(weight[i], shift) + 1]++;
    if (first[digit_of(weight[0], shift) + 1] == count)
        return false;
    for (int d = 0; d < DIGITS; d++)
        first[d + 1] += first[d];
    for (int64_t i = 0; i < count; i++)
        to[first[digit_of(weight[from[i]], shift)]++] = from[i];
    return true;
}

mimo_status mimo_item_order(int64_t *order, const int64_t *weight, int64_t count)
{
    int64_t *other;
    MIMO_TRY(mimo_reserve(&other, count, sizeof *other));
    int64_t *from = order, *to = other;
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int shift = 0; count > 0 && shift < WEIGHT_BITS; shift += DIGIT_BITS)
        if (sort_by_digit(to, from, weight, count, shift)) {
            int64_t *sorted = to;
            to = from;
            from = sorted;
        }
    if (from != order)
        memcpy(order, from, (size_t)count * sizeof *order);
    mimo_release(other);
    return MIMO_OK;
}
