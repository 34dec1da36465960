#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "comm/nccl/nccl_runtime.h"

#include <dlfcn.h>
#include <string.h>

/* The scope of this library is searched as well, also where it was loaded as RTLD_LOCAL. */
void mimo_nccl_find_function(void *function, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &found, sizeof found);
}

static bool has(const char *name)
{
    void (*found)(void);
    mimo_nccl_find_function(&found, name);
    return found != NULL;
}

mimo_nccl_versions mimo_nccl_read_versions(void)
{
    mimo_nccl_versions versions = {.compiled = NCCL_VERSION_CODE};
    if (ncclGetVersion(&versions.running) != ncclSuccess)
        versions.running = 0;
    versions.has_host_call = has("ncclGetPeerDevicePointer");
    versions.has_device_calls = has("ncclDevCommCreate") && has("ncclDevCommDestroy");
    return versions;
}

ncclResult_t mimo_nccl_host_pointers(void **at, ncclWindow_t window, int count)
{
    ncclResult_t (*pointer)(ncclWindow_t window, size_t offset, int peer, void **out);
    ncclResult_t code = ncclSuccess;
    mimo_nccl_find_function(&pointer, "ncclGetPeerDevicePointer");
    if (!pointer)
        return ncclInvalidUsage;
    for (int peer = 0; peer < count && code == ncclSuccess; peer++) {
        at[peer] = NULL;
        code = pointer(window, 0, peer, &at[peer]);
    }
    return code;
}
