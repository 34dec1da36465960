/* Where the elements of a parameter lie: cut along one dimension into equal slices, one for each
 * rank, or whole on every rank. The one rule for initial values, files, hashes and tests. Pure. */
#ifndef MIMO_NN_NN_PLACEMENT_H
#define MIMO_NN_NN_PLACEMENT_H

#include <stdint.h>

typedef struct nn_placement {
    int64_t shape[2]; /* of the whole tensor, row-major; a vector is [n, 1] */
    int cut;          /* the dimension that is cut; -1: every rank holds the whole */
    int ranks;        /* of the group that it is cut over: the module's tp */
} nn_placement;

/** Rows that hold several tensors packed, group by group: of every head its rows of queries, of
 *  keys and of values. groups 0: rows are not packed. */
typedef struct nn_packing {
    int64_t groups, pieces; /* heads; 3 */
} nn_packing;

/** The row of those tensors one after the other (all queries, all keys, all values) that packed row
 *  `row` of `rows` is. */
int64_t nn_packing_unpacked(const nn_packing *packing, int64_t rows, int64_t row);

/** Elements that lie one after the other both in the whole tensor and on the rank. */
typedef struct nn_run {
    int64_t global, local, count; /* first index in the whole, first on the rank, elements */
} nn_run;

/** Elements of the whole tensor. */
int64_t nn_placement_elements(const nn_placement *placement);

/** Into how many parts it is cut; 1 where it is whole. */
int64_t nn_placement_parts(const nn_placement *placement);

/** This rank's shape, and the first index along the cut (0 where it is whole). */
void nn_placement_local(const nn_placement *placement, int rank, int64_t local[2], int64_t *start);

/** How many runs each rank has, and the one at `index`, ascending in both places. The runs of all
 *  ranks of a tensor that is cut cover each element once. */
int64_t nn_placement_runs(const nn_placement *placement);
nn_run nn_placement_run(const nn_placement *placement, int rank, int64_t index);

#endif
