/* A litmus test of flags behind bulk copies, with the code of the kernel of staged messages. */
#ifndef MIMO_TESTS_FLAG_LITMUS_H
#define MIMO_TESTS_FLAG_LITMUS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

enum {
    LITMUS_BLOCKS = 32, /* thread blocks that send, and that receive */
    LITMUS_WARPS = 4,   /* of a thread block: each has a FIFO to its twin in the peer's launch */
    LITMUS_ENTRIES = 4, /* of a FIFO */
    LITMUS_BYTES = 8 << 10,
};

/* What a rank shares: all 0 before a launch. */
typedef struct litmus_fifo {
    char entry[LITMUS_ENTRIES][LITMUS_BYTES];
    uint64_t filled[LITMUS_ENTRIES];  /* of what comes in */
    uint64_t emptied[LITMUS_ENTRIES]; /* of what goes out */
} litmus_fifo;

enum { LITMUS_FIFOS = LITMUS_BLOCKS * LITMUS_WARPS };

/* Enqueue: send `flags` payloads through each FIFO of the peer, and take as many from the own ones.
 * Every payload is other bytes than all before in its entry. *wrong (device memory) counts words
 * that were something else when their flag was set. The peer must run the same at the same time. */
cudaError_t flag_litmus(litmus_fifo *own, litmus_fifo *peer, uint64_t flags,
                        unsigned long long *wrong, cudaStream_t stream);

MIMO_END_DECLS

#endif
