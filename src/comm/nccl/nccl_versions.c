#include "comm/nccl/nccl_versions.h"

#include <stdio.h>

enum { DEVICE_API = 22800, HOST_CALL = 22900 };

mimo_peer_way mimo_nccl_peer_way(const mimo_nccl_versions *versions)
{
    int compiled = versions->compiled, running = versions->running;
    bool built_in = compiled >= DEVICE_API && compiled < HOST_CALL;
    if (running >= HOST_CALL && versions->has_host_call)
        return MIMO_PEERS_BY_HOST;
    if (running == compiled && built_in && versions->has_device_calls)
        return MIMO_PEERS_BY_DEVICE;
    return MIMO_PEERS_NOT_FOUND;
}

void mimo_nccl_versions_text(char *text, size_t capacity, const mimo_nccl_versions *versions)
{
    int compiled = versions->compiled, running = versions->running;
    snprintf(text, capacity,
             "NCCL %d.%d.%d, which runs, has no ncclGetPeerDevicePointer, and the library was "
             "compiled against %d.%d.%d",
             running / 10000, running / 100 % 100, running % 100, compiled / 10000,
             compiled / 100 % 100, compiled % 100);
}
