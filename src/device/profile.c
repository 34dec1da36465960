#include "device/profile.h"

#include <nvtx3/nvToolsExt.h>

void mimo_range_begin(const char *name)
{
    nvtxRangePushA(name);
}

void mimo_range_end(const char *const *name)
{
    (void)name;
    nvtxRangePop();
}
