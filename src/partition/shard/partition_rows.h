/* The partition on rows of any strides: for executors whose tiles are not the tensors of
 * <mimo/partition.h>. */
#ifndef MIMO_PARTITION_PARTITION_ROWS_H
#define MIMO_PARTITION_PARTITION_ROWS_H

#include <mimo/partition.h>

#include "device/device.h"

/* Copy this rank's rows of embeddings in one pass. Inner loops run over positions: those of the
 * shard in `to`, those of the whole sequence in `from`. Outer loops match. Local, enqueued on the
 * stream. */
mimo_status mimo_partition_keep_rows(const mimo_partition *partition, const mimo_rows *to,
                                     const mimo_rows *from, const mimo_device *device,
                                     mimo_stream stream);

#endif
