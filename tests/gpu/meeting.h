/* A kernel that needs multiprocessors. */
#ifndef MIMO_TESTS_MEETING_H
#define MIMO_TESTS_MEETING_H

#include <cuda_runtime_api.h>

#include <mimo/export.h>

MIMO_BEGIN_DECLS

typedef struct meeting {
    int arrived, missed; /* thread blocks */
} meeting;

/* Enqueue thread blocks that fill a multiprocessor each and wait for one another, at most for two
 * seconds: one for each multiprocessor except `spare`. *it is in device memory, and 0 before. */
cudaError_t meet(meeting *it, int spare, cudaStream_t stream);

MIMO_END_DECLS

#endif
