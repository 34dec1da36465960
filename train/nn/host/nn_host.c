/* The table of operations for host memory. */
#include "train/nn/host/nn_host.h"

const nn_ops nn_ops_host = {NN_OPERATIONS(NN_ENTRY, nn_host)};
