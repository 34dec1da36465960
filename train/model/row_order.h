/* Rows in two orders: position after position, as layers have them, and sample after sample, as a
 * ragged bridge has them. An alignment of samples that are all image rows is both ways between
 * these: its merge puts rows that lie sample after sample in the order of the positions, and its
 * split puts them back. */
#ifndef TRAIN_ROW_ORDER_H
#define TRAIN_ROW_ORDER_H

#include <mimo/alignment.h>

#include "train/nn/nn.h"

/** Of no samples yet, for rows where `runtime` has them. Local. */
mimo_status row_order_create(mimo_alignment **out, const nn_runtime *runtime);

/** Samples of `positions` rows each, in the order of the runtime's stream. Local; it may wait for
 *  the device. */
mimo_status row_order_set(mimo_alignment *order, int64_t samples, int64_t positions,
                          const nn_runtime *runtime);

#endif
