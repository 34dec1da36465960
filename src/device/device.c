#include "device/device.h"

#include "core/check.h"

const char *mimo_memory_text(mimo_memory memory)
{
    static const char *const text[] = {"host memory", "CUDA memory"};
    return (unsigned)memory <= MIMO_MEMORY_CUDA ? text[memory] : "an unknown kind of memory";
}

mimo_status mimo_device_for(const mimo_device **out, mimo_memory memory)
{
    MIMO_CHECK((unsigned)memory <= MIMO_MEMORY_CUDA, MIMO_ERR_ARGUMENT,
               "tensors in memory of kind %d: there is none", (int)memory);
    switch (memory) {
    case MIMO_MEMORY_HOST:
        *out = &mimo_device_host;
        return MIMO_OK;
#ifdef MIMO_WITH_CUDA
    case MIMO_MEMORY_CUDA:
        *out = &mimo_device_cuda;
        return MIMO_OK;
#endif
    default:
        return mimo_fail(MIMO_ERR_UNSUPPORTED, "this build can't handle tensors in %s (kind %d)",
                         mimo_memory_text(memory), (int)memory);
    }
}
