/* Sums of rows on the host, each in the order of its list. */
#ifndef MIMO_DISPATCH_ROW_SUMS_H
#define MIMO_DISPATCH_ROW_SUMS_H

#include <mimo/dtype.h>

#include "dispatch/route/sum_order.h"

/* Sums [first, first + count) of a list: rows `from` of `width` elements, to rows `to`, which begin
 * with that of sum `first`. A sum of nothing is zeros. Additions are in f64 where the rows are, and
 * otherwise in f32; the result is rounded once. Both dtypes are f64, or neither is. */
typedef struct mimo_row_sums {
    const mimo_sum_list *list;
    int64_t first, count, width;
    void *to;
    const void *from;
    mimo_dtype to_dtype, from_dtype;
} mimo_row_sums;

void mimo_row_sums_add(const mimo_row_sums *sums);

#endif
