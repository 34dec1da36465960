/*
 * Which rows of a sequence a cp rank keeps, as runs: stretches of rows that are neighbours both in
 * the sequence and in the shard. Zigzag is two runs, a packed batch two for each of its sequences;
 * runs that touch are one. Pure.
 */
#ifndef MIMO_PARTITION_RUN_MAP_H
#define MIMO_PARTITION_RUN_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/check.h"

/* Local rows [local, local + length) are global rows [global, global + length). */
typedef struct mimo_run {
    int64_t local;
    int64_t global;
    int64_t length; /* > 0 */
} mimo_run;

/* One cp rank: coordinate and size. */
typedef struct mimo_cp_place {
    int64_t rank, size;
} mimo_cp_place;

/* Append the runs of the sequence at global rows [start, start + length) to runs[count], which lie
 * before it and have room for two more. Returns the new count. Where cp > 1 the caller has checked
 * that 2*cp divides `length`. */
int64_t mimo_zigzag_append(mimo_run *runs, int64_t count, int64_t start, int64_t length,
                           mimo_cp_place cp);

/* Number of local rows of count runs. */
int64_t mimo_run_rows(const mimo_run *runs, int64_t count);

/* The part of `run` that lies in local rows [first, first + rows), counted from `first`. Returns
 * false, and leaves *part, where there is none. */
bool mimo_run_cut(mimo_run *part, const mimo_run *run, int64_t first, int64_t rows);

/* Check the cumulative lengths cu[0..sequences] (called `name` in sentences): they start at 0 and
 * never decrease. */
mimo_status mimo_packed_check(const int32_t *cu, int64_t sequences, const char *name);

/* Check that `multiple` divides every length, and name the first sequence where it does not. */
mimo_status mimo_packed_check_multiple(const int32_t *cu, int64_t sequences, int64_t multiple,
                                       const char *name);

/* The runs of all packed sequences into runs[2 * sequences]; returns how many there are. */
int64_t mimo_packed_runs(mimo_run *runs, const int32_t *cu, int64_t sequences, mimo_cp_place cp);

#endif
