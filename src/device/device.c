#include "device/device.h"

#include "core/check.h"

mimo_status mimo_device_for(const mimo_device **out, mimo_memory memory)
{
    MIMO_CHECK(memory == MIMO_MEMORY_HOST, MIMO_ERR_UNSUPPORTED,
               "this build has no device room for memory kind %d", (int)memory);
    *out = &mimo_device_host;
    return MIMO_OK;
}
