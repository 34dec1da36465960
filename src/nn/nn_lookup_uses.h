/* Private: which rows use which entry of a table. Computed on the host, so that the gradient of an
 * entry is one sum in a known order, without sorting or atomics on a device. */
#ifndef MIMO_NN_NN_LOOKUP_USES_H
#define MIMO_NN_NN_LOOKUP_USES_H

#include "nn/nn_ops.h"

/* One array that travels to the runtime's memory in one piece: ids [n], order [n], entry [n],
 * begin [n + 1]. */
static inline int64_t nn_uses_length(int64_t n)
{
    return 4 * n + 1;
}

/* Fill numbers[nn_uses_length(n)] from ids[n]; returns how many entries are used. slot[entries]: of
 * -1, and again on return. */
int64_t nn_uses_fill(int64_t *numbers, int64_t *slot, const int64_t *ids, int64_t n);

/* The parts of such an array, `count` entries being used. */
nn_uses nn_uses_at(const int64_t *numbers, int64_t n, int64_t count);

#endif
