/* The slot add_parts of the host's device table. */
#ifndef MIMO_DEVICE_HOST_SUMS_H
#define MIMO_DEVICE_HOST_SUMS_H

#include "device/device.h"

mimo_status mimo_host_add_parts(const mimo_parts *parts, mimo_stream stream);

#endif
