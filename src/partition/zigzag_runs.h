/*
 * The rows that a cp rank keeps of a sequence, as runs. A run is a stretch of rows that are
 * neighbours both in the sequence and in the shard; runs that touch are one. Zigzag gives a cp rank
 * two runs. Pure.
 */
#ifndef MIMO_PARTITION_ZIGZAG_RUNS_H
#define MIMO_PARTITION_ZIGZAG_RUNS_H

#include <stdbool.h>
#include <stdint.h>

/* Local rows [local, local + length) are global rows [global, global + length). */
typedef struct mimo_run {
    int64_t local;
    int64_t global;
    int64_t length; /* > 0 */
} mimo_run;

/* A coordinate along cp, and cp's size. */
typedef struct mimo_cp_coordinate {
    int64_t rank, size;
} mimo_cp_coordinate;

/* Append the runs of the sequence at global rows [start, start + length) to runs[count]. All of
 * these lie before it, and the array has space for two more. Returns the new count. Where cp > 1
 * the caller has checked that 2*cp divides `length`. */
int64_t mimo_zigzag_append(mimo_run *runs, int64_t count, int64_t start, int64_t length,
                           mimo_cp_coordinate cp);

/* Number of local rows of count runs. */
int64_t mimo_run_rows(const mimo_run *runs, int64_t count);

/* Clip `run` to local rows [first, first + rows); out->local is counted from `first`. Returns
 * false, and leaves *out, where no row remains. */
bool mimo_run_clip(mimo_run *out, const mimo_run *run, int64_t first, int64_t rows);

#endif
