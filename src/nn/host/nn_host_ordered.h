/* Private: products of the fixed order. */
#ifndef MIMO_NN_NN_HOST_ORDERED_H
#define MIMO_NN_NN_HOST_ORDERED_H

#include "nn/nn_ops.h"

/** nn_ops.matmul of a runtime in the fixed order. */
mimo_status nn_host_matmul_ordered(const nn_product *product);

#endif
