/* One case on one topology: the reference gives the expected values, the candidate trains, and rank
 * 0 compares. */
#ifndef ORACLE_CASE_COMPARE_H
#define ORACLE_CASE_COMPARE_H

#include "comparison.h"
#include "oracle_topology.h"
#include "synthetic.h"

/* Collective. The comparison is filled and judged on rank 0; the caller frees it. */
mimo_status case_compare(const oracle_topology *topology, const oracle_case *shape, uint64_t seed,
                         oracle_comparison *comparison);

#endif
