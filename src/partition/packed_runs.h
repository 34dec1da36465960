/* Packed sequences (thd): each sequence is split zigzag on its own, so that every cp rank gets the
 * same share of every sequence. Pure. */
#ifndef MIMO_PARTITION_PACKED_RUNS_H
#define MIMO_PARTITION_PACKED_RUNS_H

#include <mimo/status.h>

#include "partition/zigzag_runs.h"

/* Check that the cumulative lengths cu[0..sequences] start at 0 and never decrease. Sentences call
 * them `name`. */
mimo_status mimo_packed_check(const int32_t *cu, int64_t sequences, const char *name);

/* Check that `multiple` divides every length. The sentence names the first sequence where it does
 * not. */
mimo_status mimo_packed_check_multiple(const int32_t *cu, int64_t sequences, int64_t multiple,
                                       const char *name);

/* Write the runs of all packed sequences into runs[2 * sequences]. Returns how many there are. */
int64_t mimo_packed_runs(mimo_run *runs, const int32_t *cu, int64_t sequences,
                         mimo_cp_coordinate cp);

#endif
