/* What the benchmarks share: options, errors, stages, medians, and the floor of a transfer. */
#ifndef MIMO_BENCH_BENCH_SUPPORT_H
#define MIMO_BENCH_BENCH_SUPPORT_H

#include <mimo/mimo.h>

#include "tools/options/option_table.h"

/* Where the status is an error, print its sentence and end the whole launch. */
void bench_must(mimo_status status, const char *what);

/* The same, where the call says what it is. */
#define must(call) bench_must((call), #call)

/* Zeros, of at least a byte, for the caller to free. Without memory it ends the launch. */
void *bench_room(int64_t count, size_t bytes);

/* Read the command line. --help and its like end the program, as does what is not understood, after
 * a sentence. To be called before MPI_Init. */
void bench_options(void *into, const option_table *table, int argc, char **argv);

/* Name what follows. A stage of more than a minute counts as a hang: its name is printed, and the
 * launch ends. */
void bench_stage(const char *name);

/* What the clock of this host shows now. */
double bench_seconds(void);

/* The median. It sorts the values. */
double bench_median(double *values, int64_t count);

/* A transfer of rows between two grids. */
typedef struct bench_transfer {
    const mimo_grid *src, *dst;
    const mimo_partition_rule *partition; /* of dst; NULL: none */
    int64_t batch, seq;                   /* global */
    int64_t row_bytes;
    bool backward;
} bench_transfer;

/* Bytes that the busiest rank must receive when each consumed row moves once. Local. */
int64_t bench_floor(const bench_transfer *transfer);

/* How the dp sizes of the bridge's grids stand to each other. Local. */
mimo_fan bench_fan(const mimo_bridge *bridge);

#endif
