/* Private: the operations of nn_ops on the host, one function for each. nn_ops.h has the
 * contracts. */
#ifndef MIMO_NN_NN_HOST_H
#define MIMO_NN_NN_HOST_H

#include "train/nn/ops/nn_ops.h"

NN_OPERATIONS(NN_DECLARE, nn_host)

#endif
