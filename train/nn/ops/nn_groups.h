/* Private: where rows of a tile and its groups end (nn_ops.h), for the host and for kernels, and
 * calls on groups as a loop over them. */
#ifndef MIMO_NN_NN_GROUPS_H
#define MIMO_NN_NN_GROUPS_H

#include "train/nn/ops/nn_everywhere.h"
#include "train/nn/ops/nn_ops.h"

MIMO_BEGIN_DECLS

static inline NN_EVERYWHERE int64_t nn_rows_filled(nn_rows rows)
{
    return rows.end && *rows.end < rows.most ? *rows.end : rows.most;
}

/* A tile that is too small ends before its groups do. */
static inline NN_EVERYWHERE int64_t nn_group_end(const nn_groups *groups, int64_t g)
{
    int64_t end = groups->ends[g];
    return end < groups->rows ? end : groups->rows;
}

static inline NN_EVERYWHERE int64_t nn_group_begin(const nn_groups *groups, int64_t g)
{
    return g > 0 ? nn_group_end(groups, g - 1) : 0;
}

/* The rows of all groups. */
static inline NN_EVERYWHERE nn_rows nn_group_rows(const nn_groups *groups)
{
    nn_rows rows = {groups->rows, groups->ends + groups->count - 1};
    return rows;
}

/** The operations of nn_ops, one group after the other, by its other operations. Where the host can
 *  read `ends` and the lists. Errors: those of the operations. */
mimo_status nn_loop_multiply(const nn_runtime *runtime, const nn_group_product *product);
mimo_status nn_loop_sum(const nn_runtime *runtime, const nn_group_sums *sums);
mimo_status nn_loop_add_bias(const nn_runtime *runtime, nn_real *y, const nn_groups *groups,
                             const nn_real *const *biases, int64_t width);

MIMO_END_DECLS

#endif
