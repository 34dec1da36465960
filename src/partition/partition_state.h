/* What a partition keeps, and its runs for one sequence: for the files of this folder. */
#ifndef MIMO_PARTITION_PARTITION_STATE_H
#define MIMO_PARTITION_PARTITION_STATE_H

#include <mimo/partition.h>

#include "partition/zigzag_runs.h"

struct mimo_partition {
    mimo_sequence_format format;
    bool sp, strict;
    mimo_partition_coords coords; /* tp 0 of 1 without sp */
    uint64_t hash;                /* of all that tp ranks with the same cp coordinate share */
    mimo_run *packed;             /* thd: the runs of this cp rank */
    int64_t packed_count;
    int64_t packed_rows; /* thd: T */
    int64_t sequences;   /* thd: n, and where each begins, first[n] */
    int64_t *first;
};

/* The runs of a cp rank, and how sp divides their rows. tp rank t keeps local rows
 * [t * shard_rows, (t + 1) * shard_rows). */
typedef struct mimo_partition_runs {
    const mimo_run *runs; /* owned by the partition (thd), or NULL: `zigzag` */
    int64_t count;
    int64_t tp_size;    /* 1 where sp does not apply */
    int64_t tp_rank;    /* 0 where sp does not apply */
    int64_t shard_rows; /* rows of one rank */
    mimo_run zigzag[2];
} mimo_partition_runs;

/* Run i of tp rank `tp_rank`; false where that rank keeps no row of it. Runs ascend in their global
 * rows and in their local ones. */
bool mimo_partition_run(mimo_run *out, const mimo_partition_runs *runs, int64_t i, int64_t tp_rank);

/* The runs for a sequence of `seq` rows, with every check of mimo_partition_rows. */
mimo_status mimo_partition_runs_of(mimo_partition_runs *out, const mimo_partition *partition,
                                   mimo_content content, int64_t seq);

#endif
