/* Private: products of the fixed order. */
#ifndef MIMO_NN_NN_HOST_ORDERED_H
#define MIMO_NN_NN_HOST_ORDERED_H

#include "train/nn/ops/nn_ops.h"

/** nn_ops.matmul of a runtime in the fixed order. It allocates nothing. Any thread. In f64:
 *  MIMO_ERR_UNSUPPORTED. */
mimo_status nn_host_matmul_ordered(const nn_product *product);

/** Kinds of code that give the same bits, the fastest first. The name of kind `kind`; NULL where
 *  this processor does not run it. And a product by that kind. */
enum { NN_HOST_ORDERED_KINDS = 3 };
const char *nn_host_ordered_name(int kind);
mimo_status nn_host_matmul_ordered_by(int kind, const nn_product *product);

#endif
