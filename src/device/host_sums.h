/* The slot add_parts of the host's device table. */
#ifndef MIMO_DEVICE_HOST_SUMS_H
#define MIMO_DEVICE_HOST_SUMS_H

#include <stdint.h>

#include <mimo/tensor.h>

mimo_status mimo_host_add_parts(void *data, const void *parts, int64_t n, int64_t count,
                                mimo_dtype dtype, mimo_stream stream);

#endif
