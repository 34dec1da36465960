/* Private: which rows use which entry of a table. The host computes this. So the gradient of an
 * entry is one sum in a known order, and a device needs neither sorting nor atomics. */
#ifndef MIMO_NN_NN_LOOKUP_USES_H
#define MIMO_NN_NN_LOOKUP_USES_H

#include "train/nn/ops/nn_ops.h"

/* The length of one array that a single copy brings to the runtime's memory: ids [n], order [n],
 * entry [n], begin [n + 1]. */
static inline int64_t nn_uses_length(int64_t n)
{
    return 4 * n + 1;
}

/* Fill numbers[nn_uses_length(n)] from ids[n]. Returns how many entries are used. place[entries] is
 * workspace: it holds -1 everywhere before the call and after it. */
int64_t nn_uses_fill(int64_t *numbers, int64_t *place, const int64_t *ids, int64_t n);

/* Pointers into such an array, where `count` entries are used. */
nn_uses nn_uses_at(const int64_t *numbers, int64_t n, int64_t count);

#endif
