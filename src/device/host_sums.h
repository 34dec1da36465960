/* `accumulate` of the host's device table. */
#ifndef MIMO_DEVICE_HOST_SUMS_H
#define MIMO_DEVICE_HOST_SUMS_H

#include "device/device.h"

mimo_status mimo_host_accumulate(const mimo_addends *addends, mimo_stream stream);

#endif
