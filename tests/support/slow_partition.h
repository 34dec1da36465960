/* For tests: which rows a rank keeps, told row by row from the chunk that each lies in. Shares
 * nothing with the library. */
#ifndef MIMO_TESTS_SLOW_PARTITION_H
#define MIMO_TESTS_SLOW_PARTITION_H

#include <stdint.h>

/* Row g of sequences with cumulative lengths cu[0..n] belongs to this cp rank. */
static inline int64_t slow_cp_owner(const int32_t *cu, int64_t n, int64_t cp, int64_t g)
{
    for (int64_t s = 0; s < n; s++) {
        if (g < cu[s] || g >= cu[s + 1] || cp == 1)
            continue;
        int64_t chunk = (g - cu[s]) / ((cu[s + 1] - cu[s]) / (2 * cp));
        return chunk < cp ? chunk : 2 * cp - 1 - chunk;
    }
    return 0;
}

/* The global rows of cp rank c and tp rank t (of tp; 1 without sp) into rows[cu[n]]; returns how
 * many. A rank's rows keep their order. */
static inline int64_t slow_rows(int64_t *rows, const int32_t *cu, int64_t n, int64_t cp, int64_t c,
                                int64_t tp, int64_t t)
{
    int64_t mine = 0, kept = 0, place = 0;
    for (int64_t g = 0; g < cu[n]; g++)
        mine += slow_cp_owner(cu, n, cp, g) == c;
    for (int64_t g = 0; g < cu[n]; g++)
        if (slow_cp_owner(cu, n, cp, g) == c && place++ / (mine / tp) == t)
            rows[kept++] = g;
    return kept;
}

#endif
