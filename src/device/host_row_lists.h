/* `add_rows` and `repeat_rows` of the host's device table. */
#ifndef MIMO_DEVICE_HOST_ROW_LISTS_H
#define MIMO_DEVICE_HOST_ROW_LISTS_H

#include "device/device.h"

mimo_status mimo_host_add_rows(const mimo_row_sums *sums, mimo_stream stream);
mimo_status mimo_host_repeat_rows(const mimo_row_repeats *repeats, mimo_stream stream);

#endif
