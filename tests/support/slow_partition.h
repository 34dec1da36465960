/* For tests: the rows that a rank keeps, computed row by row from the chunk that each lies in.
 * Shares nothing with the library. */
#ifndef MIMO_TESTS_SLOW_PARTITION_H
#define MIMO_TESTS_SLOW_PARTITION_H

#include <stdint.h>

/* A rank's place, and the sequences with cumulative lengths cu[0..n] of which it keeps a part. */
typedef struct slow_place {
    const int32_t *cu;
    int64_t n;
    int64_t cp, c; /* size of cp, and coordinate */
    int64_t tp, t; /* the same of tp; 1 and 0 where sp does not cut */
} slow_place;

/* The cp rank that row g belongs to. */
static inline int64_t slow_cp_owner(const slow_place *at, int64_t g)
{
    for (int64_t s = 0; s < at->n; s++) {
        int64_t begin = at->cu[s], end = at->cu[s + 1];
        if (g < begin || g >= end || at->cp == 1)
            continue;
        int64_t chunk = (g - begin) / ((end - begin) / (2 * at->cp));
        return chunk < at->cp ? chunk : 2 * at->cp - 1 - chunk;
    }
    return 0;
}

/* Writes the global rows of the place to rows[cu[n]], and returns their number. Rows keep their
 * order. */
static inline int64_t slow_rows(int64_t *rows, const slow_place *at)
{
    int64_t mine = 0, kept = 0, place = 0;
    for (int64_t g = 0; g < at->cu[at->n]; g++)
        mine += slow_cp_owner(at, g) == at->c;
    for (int64_t g = 0; g < at->cu[at->n]; g++)
        if (slow_cp_owner(at, g) == at->c && place++ / (mine / at->tp) == at->t)
            rows[kept++] = g;
    return kept;
}

#endif
