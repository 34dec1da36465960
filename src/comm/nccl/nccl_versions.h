/*
 * Which way to find peers' memory goes with which NCCL. Pure: it names nothing of NCCL, and tests
 * need no GPU.
 *
 * A program can run with another NCCL than this library was compiled against. Functions keep their
 * meaning across versions. The structures of the device API do not: ncclDevComm has other fields in
 * each of 2.28, 2.29 and 2.30.
 */
#ifndef MIMO_COMM_NCCL_VERSIONS_H
#define MIMO_COMM_NCCL_VERSIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum mimo_peer_way {
    MIMO_PEERS_NOT_FOUND = 0, /* no peer's memory is reached, and all rows are sent */
    MIMO_PEERS_BY_HOST = 1,   /* ncclGetPeerDevicePointer: a function, from 2.29 on */
    MIMO_PEERS_BY_DEVICE = 2, /* the device API of 2.28, which is compiled in */
} mimo_peer_way;

/* What is known when a program runs. Versions are numbered as NCCL does: 2.28.9 is 22809. */
typedef struct mimo_nccl_versions {
    int compiled, running;
    bool has_host_call;    /* the running library has ncclGetPeerDevicePointer */
    bool has_device_calls; /* ... ncclDevCommCreate and ncclDevCommDestroy */
} mimo_nccl_versions;

/* The way for these versions. The device API serves the very version that it was compiled from. */
mimo_peer_way mimo_nccl_peer_way(const mimo_nccl_versions *versions);

/* Write why there is no way: "NCCL 2.27.5, which runs, has no ...". Always terminated. */
void mimo_nccl_versions_text(char *text, size_t capacity, const mimo_nccl_versions *versions);

#endif
